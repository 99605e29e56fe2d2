//! Litestream, the real program, replicates the journal beside the server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::foreign::python_environment;
use postrider_testkit::process::ProcessFixture;

use super::BINARY;
use super::fixture::*;

/// The settings that docs/backup.md recommends, but with a folder as the place of the replica.
fn settings(database: &Path, replica: &Path) -> String {
    format!(
        "dbs:\n  - path: {}\n    truncate-page-n: 0\n    replica:\n      type: file\n      path: {}\n",
        database.display(),
        replica.display()
    )
}

/// Ends with the test.
struct Litestream {
    program: PathBuf,
    config: PathBuf,
    running: Option<Child>,
}

impl Litestream {
    fn start(fixture: &ProcessFixture, database: &Path) -> Result<Self> {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let requirements = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/requirements/litestream.txt");
        let programs = python_environment(tmp, "foreign-litestream-2", &requirements);
        let config = fixture.path("litestream.yml");
        std::fs::write(&config, settings(database, &fixture.path("replica")))?;
        let mut litestream = Self { program: programs.join("litestream"), config, running: None };
        let child = litestream.command("replicate").stdout(Stdio::null()).spawn();
        litestream.running = Some(child.context("litestream")?);
        Ok(litestream)
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([what, "-config"]).arg(&self.config);
        command
    }

    /// Asked to end, it copies what is left first.
    fn end(&mut self) -> Result<()> {
        let mut child = self.running.take().context("it runs")?;
        let asked = Command::new("kill").arg(child.id().to_string()).status()?;
        ensure!(asked.success() && child.wait()?.success(), "litestream failed");
        Ok(())
    }
}

impl Drop for Litestream {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn litestream_does_no_harm_and_its_replica_can_be_restored() -> Result<()> {
    let mut fixture = ProcessFixture::started(BINARY, "[server]\nrole = \"api\"\n")?;
    let (database, server) = (fixture.path("data/postrider.db"), fixture.server_at);
    let mut litestream = Litestream::start(&fixture, &database)?;
    await_that("litestream has begun", || Ok(fixture.path("replica").exists()))?;
    let accepted = accept(server, "https://hooks.example/a", 5, 200)?;
    let mut took: Vec<_> = accepted.iter().map(|accepted| accepted.took).collect();
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    println!("{} accepts beside litestream: p99 {p99:?}", took.len());
    ensure!(accepted.len() >= 900 && p99 < Duration::from_secs(1), "p99 {p99:?}");
    let there = all_deliveries(server)?;
    ensure!(accepted.iter().all(|accepted| there.contains(&accepted.delivery)));
    litestream.end()?;
    fixture.signal("TERM")?;
    fixture.await_end()?;
    let checked = postrider(&["fsck", "--data", &shown(&fixture.path("data"))])?;
    ensure!(checked.status.success(), "{checked:?}");

    let copy = fixture.path("copy");
    std::fs::create_dir(&copy)?;
    let mut restore = litestream.command("restore");
    let restored = restore.arg("-o").arg(copy.join("postrider.db")).arg(&database).output()?;
    ensure!(restored.status.success(), "{restored:?}");
    let (from, to) = (shown(&copy), shown(&fixture.path("restored")));
    let restored = postrider_json(&["restore", &from, "--data", &to, "--json"])?;
    ensure!(restored["held"] == accepted.len(), "{restored}");
    Ok(())
}
