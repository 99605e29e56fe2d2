//! Shared by tests and proofs: an HTTP client, the binary as a process, programs of other people, a browser, a network
//! that can be cut, random numbers, who is sick in a drawn world and what that may cost the others, and (with the
//! feature `server`) a server in the test's process. Ships nothing.

pub mod browser;
pub mod foreign;
pub mod fuzz;
pub mod harm_bounds;
pub mod http;
#[cfg(unix)]
pub mod postgres;
pub mod process;
pub mod random;
pub mod redis;
pub mod rewriting_proxy;
#[cfg(feature = "server")]
pub mod server;
pub mod sick_level;
pub mod stall_proxy;

/// The admin key of every server that is started here.
pub const ADMIN_KEY: &str = "an-admin-key-for-tests-Zk3vQ8xLw0pYt5RuB7nHc2Ma-";
