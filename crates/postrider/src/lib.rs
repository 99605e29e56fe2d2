//! What faces outward: HTTP API, command line, configuration, telemetry, sandbox, demo, benchmark,
//! and the wiring of store, gate, dispatcher and channels. Decides nothing about deliveries.

pub mod api;
pub mod bench;
pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod keys;
pub mod live;
pub mod sandbox;
pub mod serve;
mod stop;
pub mod telemetry;
