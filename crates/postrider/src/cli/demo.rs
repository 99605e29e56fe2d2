//! Starts the server of `postrider demo` and `postrider dev` in this process. Both are in `postrider-sandbox`.

use std::net::SocketAddr;

use async_trait::async_trait;
use postrider_sandbox::{LaunchedServer, ServerLauncher};

use crate::config::{Config, Environment};
use crate::serve::{self, Running};
use crate::telemetry;

pub(super) struct InProcess;

#[async_trait]
impl ServerLauncher for InProcess {
    async fn launch(&self, config: &str) -> anyhow::Result<Box<dyn LaunchedServer>> {
        let config = Config::parse(config, "its own configuration", &Environment::empty())?;
        if config.names("log.level") {
            telemetry::log::init(&config.log);
        }
        Ok(Box::new(serve::start(config).await?))
    }
}

#[async_trait]
impl LaunchedServer for Running {
    fn address(&self) -> SocketAddr {
        self.addr
    }

    fn new_admin_key(&self) -> Option<&str> {
        self.new_admin_key.as_deref()
    }

    async fn sign_in_link(&self) -> anyhow::Result<String> {
        Running::sign_in_link(self).await
    }

    async fn shutdown(self: Box<Self>) {
        Running::shutdown(*self).await;
    }
}
