//! How the demo and `postrider dev` start a server. The binary implements it, so that this crate does not depend on
//! the server.

use std::net::SocketAddr;

use async_trait::async_trait;

/// Starts servers in this process.
#[async_trait]
pub trait ServerLauncher: Sync {
    /// Starts a server from the text of a configuration file. On return its API answers.
    async fn launch(&self, config: &str) -> anyhow::Result<Box<dyn LaunchedServer>>;
}

/// A server that a [`ServerLauncher`] started.
#[async_trait]
pub trait LaunchedServer: Send + Sync {
    fn address(&self) -> SocketAddr;

    /// The admin key, if this start created one.
    fn new_admin_key(&self) -> Option<&str>;

    /// A link that opens its status page once.
    async fn sign_in_link(&self) -> anyhow::Result<String>;

    async fn shutdown(self: Box<Self>);
}
