//! What faces outward: HTTP API, command line, configuration, telemetry, sandbox, demo, benchmark,
//! and the wiring of store, gate, dispatcher and channels. Decides nothing about deliveries.

pub mod api;
pub mod config;
pub mod keys;
pub mod sandbox;
pub mod serve;
pub mod telemetry;
