//! Notifications to Apple devices: an account at the sandbox's push service, and devices.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::load::{self, BenchAddresses};
use super::{Benchmark, process};

const DEVICES: usize = 1_000;

impl Benchmark<'_> {
    /// Configures the account of the server in this folder.
    pub(super) async fn apns(&self) -> Result<BenchAddresses> {
        let key = load::client(self.sandbox.http).get("/sandbox/apns/key").await?;
        let text = |name: &str| key[name].as_str().context("the sandbox gave no key");
        let dir = self.dir.join("apns");
        let file = dir.join("apple.p8");
        let config = format!(
            "[accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\nteam_id = \"{}\"\nkey_id = \"{}\"\n\
             endpoint = \"https://localhost:{}\"\ncredential = \"file:{}\"\n",
            text("team_id")?,
            text("key_id")?,
            self.sandbox.https.port(),
            file.display(),
        );
        process::configure(&dir, &config)?;
        std::fs::write(&file, text("key")?)?;
        Ok(Arc::new(|n| {
            let device = n % DEVICES;
            format!(
                r#""channel":"apns","token":"a{device:063x}","topic":"com.example.shop","environment":"production""#
            )
        }))
    }
}
