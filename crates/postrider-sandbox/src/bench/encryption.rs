//! What encryption at rest costs: the same webhooks through the same server, with and without it, in turn.

use std::time::Duration;

use anyhow::Result;

use super::{Benchmark, load, per_message_us, process};

/// The best of so many rounds counts: others are disturbed by what else the machine does.
const ROUNDS: usize = 3;
const KEY: &str = "5f1e0c7ab5d04c8e9a6b3f2d7c1e8a4b6d9f0e3c5a7b8d2e4f6a1c3e5b7d9f0a";
const AIM_US: f64 = 5.0;

impl Benchmark<'_> {
    pub(super) async fn encryption(&mut self) -> Result<()> {
        let n = self.args.messages / 2;
        self.say(&format!(
            "encryption: {n} webhooks accepted and delivered, {ROUNDS} times each way"
        ));
        let (mut without, mut with) = (f64::MAX, f64::MAX);
        for round in 0..ROUNDS {
            without = without.min(per_message_us(self.life(n, round, false).await?, n));
            with = with.min(per_message_us(self.life(n, round, true).await?, n));
        }
        let what = "µs of server CPU per webhook, accepted and delivered, without encryption";
        self.report.add("encryption.off", without, what);
        self.report.add("encryption.on", with, "µs of server CPU per webhook, with encryption");
        let what = "µs of server CPU that encryption adds to a delivery";
        self.report.add_with_aim("encryption.cost", with - without, what, AIM_US);
        Ok(())
    }

    /// Processor time of a server for `n` webhooks, from their acceptance to the last settlement.
    async fn life(&self, n: usize, round: usize, is_sealed: bool) -> Result<Duration> {
        let kind = if is_sealed { "sealed" } else { "plain" };
        let dir = self.dir.join(format!("encryption-{kind}-{round}"));
        let config = match is_sealed {
            true => {
                let key = dir.join("master-key");
                process::configure(
                    &dir,
                    &format!("[encryption]\nkey = \"file:{}\"\n", key.display()),
                )?;
                std::fs::write(key, KEY)?;
                "sealed"
            }
            false => "plain",
        };
        load::client(self.sandbox.http).json("DELETE", "/sandbox/received", b"").await?;
        let (server, address) = process::server(&dir, "all", &self.sandbox).await?;
        let before = server.cpu()?;
        load::batches(address, &self.webhook(), 8, n, None).await?;
        self.await_received(n).await?;
        process::poll(10, 50, async || {
            let is_settled = load::sent(address).await? == n as u64;
            Ok(is_settled.then_some(()).ok_or(format!("not everything was sent ({config})")))
        })
        .await?;
        let used = server.cpu()? - before;
        server.stop()?;
        std::fs::remove_dir_all(&dir)?;
        Ok(used)
    }
}
