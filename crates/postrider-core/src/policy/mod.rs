//! The rules that decide what happens next. Every rule is pure: time and random numbers are arguments.

pub mod account;
pub mod backoff;
pub mod backpressure;
pub mod breaker;
pub mod budget;
pub mod classify;
pub mod concurrency;
pub mod credential;
pub mod decide;
pub mod fairness;
pub mod gone_guard;
pub mod limiter;
pub mod pace;
pub mod retry_after;
pub mod signal;
pub mod storm;
pub mod strikes;
pub mod throttle;
pub mod ttl;
pub mod validity;
pub mod window;
