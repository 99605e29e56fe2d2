//! What cannot be copied is refused with a clear error, exit code 1, and without leaving anything behind.

use std::os::unix::fs::FileExt as _;
use std::process::Command;

use anyhow::{Result, ensure};
use postrider_testkit::http::TestConnection;
use postrider_testkit::process::ProcessFixture;

use super::BINARY;
use super::fixture::*;

const MESSAGE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;

/// A server that was stopped or killed, with a backup.
fn backed_up(killed: bool) -> Result<ProcessFixture> {
    let mut fixture = ProcessFixture::started(BINARY, "[server]\nrole = \"api\"\n")?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    for _ in 0..20 {
        connection.call_ok("POST", "/v1/messages", None, MESSAGE)?;
    }
    if killed {
        fixture.kill();
    } else {
        fixture.signal("TERM")?;
        fixture.await_end()?;
    }
    let (data, to) = (shown(&fixture.path("data")), shown(&fixture.path("backup")));
    let made = postrider_json(&["backup", &to, "--data", &data, "--json"])?;
    ensure!(made["messages"] == 20 && made["pending"] == 20, "{made}");
    Ok(fixture)
}

/// Runs a command that fails; returns its error.
fn refusal(arguments: &[&str]) -> Result<String> {
    let output = postrider(arguments)?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{arguments:?}: {:?}, {error}", output.status);
    Ok(error)
}

#[test]
fn a_backup_of_a_stopped_or_killed_server_is_complete_and_changes_nothing() -> Result<()> {
    for killed in [false, true] {
        let fixture = backed_up(killed)?;
        let journal = fixture.path("data/postrider.db-wal");
        let length = journal.metadata().map_or(0, |meta| meta.len());
        ensure!((length > 0) == killed, "the journal of a killed server stays");
        let (from, to) = (shown(&fixture.path("backup")), shown(&fixture.path("restored")));
        let restored = postrider_json(&["restore", &from, "--data", &to, "--json"])?;
        ensure!(restored["messages"] == 20 && restored["held"] == 20, "{restored}");
        ensure!(!fixture.path("restored/restoring").exists());
    }
    Ok(())
}

#[test]
fn folders_that_would_be_overwritten_or_are_no_stores_are_refused() -> Result<()> {
    let fixture = backed_up(false)?;
    let path = |name: &str| shown(&fixture.path(name));
    let (data, backup, other) = (path("data"), path("backup"), path("other"));
    let error = refusal(&["backup", &data, "--data", &data])?;
    ensure!(error.contains("is a data folder; choose another folder"), "{error}");
    std::fs::create_dir(&other)?;
    std::fs::write(fixture.path("other/photo"), "")?;
    let error = refusal(&["backup", &other, "--data", &data])?;
    ensure!(error.contains("has other files; choose a new folder"), "{error}");
    let error = refusal(&["restore", &backup, "--data", &other])?;
    ensure!(error.contains("is not empty (it has photo)"), "{error}");
    let error = refusal(&["restore", &backup, "--data", &data])?;
    ensure!(error.contains("is not empty"), "{error}");
    let error = refusal(&["restore", &other, "--data", &path("new")])?;
    ensure!(error.contains("it has no file postrider.db"), "{error}");
    ensure!(!fixture.path("new").exists());
    for command in [vec!["fsck"], vec!["backup", &path("b")]] {
        let error = refusal(&[&command[..], &["--data", &path("none")]].concat())?;
        let wanted = format!("cannot find a store in {}: there is no such folder", path("none"));
        ensure!(error.contains(&wanted), "{error}");
        let error = refusal(&[&command[..], &["--data", &other]].concat())?;
        ensure!(error.contains("it has no file postrider.db; name the right folder"), "{error}");
    }
    Ok(())
}

#[test]
fn a_backup_that_was_damaged_or_is_of_a_newer_version_is_not_restored() -> Result<()> {
    let fixture = backed_up(false)?;
    let (from, to) = (shown(&fixture.path("backup")), shown(&fixture.path("restored")));
    let manifest = fixture.path("backup/backup.json");
    let text = std::fs::read_to_string(&manifest)?;
    std::fs::write(&manifest, text.replace("\"layout\": ", "\"layout\": 9"))?;
    let error = refusal(&["restore", &from, "--data", &to])?;
    ensure!(error.contains("a newer version wrote it"), "{error}");
    std::fs::write(&manifest, text)?;
    let database =
        std::fs::File::options().write(true).open(fixture.path("backup/postrider.db"))?;
    database.write_all_at(b"x", 20_000)?;
    let error = refusal(&["restore", &from, "--data", &to])?;
    ensure!(error.contains("is not the file that was backed up"), "{error}");
    ensure!(!fixture.path("restored/postrider.db").exists());
    // A copy that another program made has no manifest. SQLite's check finds what it can.
    std::fs::remove_file(&manifest)?;
    database.write_all_at(&[0xff; 4096], 8192)?;
    let error = refusal(&["restore", &from, "--data", &to])?;
    ensure!(error.contains("the store's content is damaged"), "{error}");
    Ok(())
}

#[test]
fn a_backup_that_finds_no_room_leaves_nothing_behind() -> Result<()> {
    let fixture = backed_up(false)?;
    let (data, to) = (shown(&fixture.path("data")), shown(&fixture.path("second")));
    // No file may grow beyond 50 KiB.
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, BINARY, "backup", &to, "--data", &data]).output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(std::fs::read_dir(&to)?.next().is_none(), "a part of a backup stays");
    Ok(())
}
