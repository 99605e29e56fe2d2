//! Stores in databases that cannot work, tested on the real binary: at the start a clear error, later 503 with
//! Retry-After. The process never ends by itself later, and nothing that was acknowledged is lost.

#![cfg(all(feature = "postgres", feature = "redis"))]

mod fixture;
mod postgres;
mod redis;
