//! The traits that stores and channels implement.

pub mod channel;
pub mod store;
