//! Shared by tests and proofs: an HTTP client, the binary as a process, and (with the feature `server`) a server in
//! the test's process. Ships nothing.

pub mod http;
pub mod process;
#[cfg(feature = "server")]
pub mod server;

/// The admin key of every server that is started here.
pub const ADMIN_KEY: &str = "an-admin-key-for-tests";
