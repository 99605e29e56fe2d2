//! The server: HTTP API, command line, configuration, telemetry, and the wiring of store, intake, dispatcher
//! and channels. Decides nothing about deliveries.

mod alerts;
pub mod api;
pub mod audit;
pub mod cli;
pub mod client;
pub mod config;
mod dashboard;
mod documents;
mod events;
mod jobs;
pub mod keys;
pub mod live;
mod problems;
mod quotas;
mod receipts;
mod rehash;
mod rollups;
pub mod serve;
pub mod telemetry;
mod traces;

pub use postrider_channels::ip_network;
