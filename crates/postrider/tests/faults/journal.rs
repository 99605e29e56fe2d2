//! A bit of the journal flips after a crash: the server refuses to start, says why, and `fsck --repair` helps.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::process::ProcessFixture;

use super::BINARY;

const CONFIG: &str = "[server]\nrole = \"api\"\n";
const MESSAGE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;
const MESSAGES_MIN: u64 = 200;
/// The journal may just have started over.
const FRAMES_MIN: u64 = 100;
const HEADER: u64 = 32;
const FRAME: u64 = 24 + 4096;

fn postrider(fixture: &ProcessFixture, arguments: &[&str]) -> Result<Output> {
    // A server that starts after all is ended, and answers with another code.
    let mut command = Command::new("timeout");
    command.args(["60", BINARY]).args(arguments).arg("--data").arg(fixture.path("data"));
    Ok(command.env("POSTRIDER_ADMIN_KEY", ADMIN_KEY).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many frames belong to the journal as it is now. What follows them is from before it started over.
fn frames(journal: &File) -> Result<u64> {
    let (mut now, mut salt, mut count) = ([0; 8], [0; 8], 0);
    journal.read_exact_at(&mut now, 16)?;
    while journal.read_exact_at(&mut salt, HEADER + count * FRAME + 8).is_ok() && salt == now {
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_damaged_journal_is_refused_and_repaired() -> Result<()> {
    let mut fixture = ProcessFixture::started(BINARY, CONFIG)?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    let journal = fixture.path("data/postrider.db-wal");
    let file = File::options().read(true).write(true).open(&journal)?;
    let mut sent = 0;
    while sent < MESSAGES_MIN || frames(&file)? < FRAMES_MIN {
        connection.call_ok("POST", "/v1/messages", None, MESSAGE)?;
        sent += 1;
        ensure!(sent < 100 * MESSAGES_MIN, "the journal never has {FRAMES_MIN} frames");
    }
    fixture.kill();
    let middle = HEADER + frames(&file)? / 2 * FRAME + FRAME / 2;
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
    ensure!(messages == sent, "{messages} of {sent} are there");
    let in_use = postrider(&fixture, &["fsck"])?;
    ensure!(text(&in_use.stderr).contains("in use by a running server"));
    Ok(())
}
