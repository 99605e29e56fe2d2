//! Notifications to Apple devices: an account at the sandbox's own push service, and devices to send to.

use std::path::Path;

use anyhow::{Context, Result};

use super::load::{self, BenchAddressee};
use super::{Benchmark, process};

const DEVICES: usize = 1_000;

impl Benchmark<'_> {
    /// Gives the server that will run in the folder an account.
    pub(super) async fn apns(&self) -> Result<BenchAddressee> {
        let dir = self.dir.join("apns");
        std::fs::create_dir_all(&dir)?;
        configure(&dir, &self.sandbox).await?;
        Ok(BenchAddressee::Apns { devices: DEVICES })
    }
}

async fn configure(dir: &Path, sandbox: &process::SandboxProcess) -> Result<()> {
    let key = load::client(sandbox.http).get("/sandbox/apns/key").await?;
    let text = |name: &str| key[name].as_str().context("the sandbox gave no key");
    let file = dir.join("apple.p8");
    std::fs::write(&file, text("key")?)?;
    let config = format!(
        "[accounts.apple]\nchannel = \"apns\"\nteam_id = \"{}\"\nkey_id = \"{}\"\n\
         endpoint = \"https://localhost:{}\"\ncredential = \"file:{}\"\n",
        text("team_id")?,
        text("key_id")?,
        sandbox.https.port(),
        file.display(),
    );
    Ok(std::fs::write(dir.join("postrider.toml"), config)?)
}
