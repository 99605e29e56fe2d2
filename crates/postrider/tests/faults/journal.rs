//! A bit of the journal flips after a crash: the server refuses to start, says why, and `fsck --repair` helps.

use std::os::unix::fs::FileExt as _;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::process::ProcessFixture;

use super::BINARY;

const CONFIG: &str = "[server]\nrole = \"api\"\n";
const MESSAGE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;
const MESSAGES: u64 = 200;

fn postrider(fixture: &ProcessFixture, arguments: &[&str]) -> Result<Output> {
    // A server that starts after all is ended, and answers with another code.
    let mut command = Command::new("timeout");
    command.args(["60", BINARY]).args(arguments).arg("--data").arg(fixture.path("data"));
    Ok(command.env("POSTRIDER_ADMIN_KEY", ADMIN_KEY).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_damaged_journal_is_refused_and_repaired() -> Result<()> {
    let mut fixture = ProcessFixture::started(BINARY, CONFIG)?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    for _ in 0..MESSAGES {
        connection.call_ok("POST", "/v1/messages", None, MESSAGE)?;
    }
    fixture.kill();
    let journal = fixture.path("data/postrider.db-wal");
    let file = std::fs::File::options().read(true).write(true).open(&journal)?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    file.write_all_at(&[byte[0] ^ 1], middle)?;
    drop(file);

    let refused = postrider(&fixture, &["serve", "--listen", "127.0.0.1:0"])?;
    let error = text(&refused.stderr);
    ensure!(refused.status.code() == Some(1), "{error}");
    ensure!(error.contains("cannot be verified at frame"), "{error}");
    ensure!(error.contains("postrider fsck --repair"), "{error}");

    let checked = postrider(&fixture, &["fsck"])?;
    ensure!(checked.status.code() == Some(1), "{}", text(&checked.stdout));
    ensure!(text(&checked.stdout).contains("is damaged"), "{}", text(&checked.stdout));
    let repaired = postrider(&fixture, &["fsck", "--repair"])?;
    let told = text(&repaired.stdout);
    ensure!(repaired.status.success(), "{told}{}", text(&repaired.stderr));
    ensure!(told.contains("1 were corrected, 0 are lost"), "{told}");
    ensure!(told.contains("repaired; nothing is lost"), "{told}");
    ensure!(text(&postrider(&fixture, &["fsck"])?.stdout).contains("is good"));

    fixture.start()?;
    let stats = get(fixture.server_at, "/v1/stats")?.json()?;
    let messages = stats["messages"].as_u64().context("a count")?;
    ensure!(messages == MESSAGES, "{messages} of {MESSAGES} are there");
    let in_use = postrider(&fixture, &["fsck"])?;
    ensure!(text(&in_use.stderr).contains("in use by a running server"));
    Ok(())
}
