//! A store is moved to a new folder, by a process that is killed again and again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::TestConnection;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};

use super::BINARY;
use super::fixture::*;

const MESSAGES: usize = 20_000;
const LINES: usize = 1_000;

/// Some are sent, some are dead, some wait; one is for several addresses, some have keys.
fn fill(fixture: &mut ProcessFixture) -> Result<()> {
    let sandbox_at = fixture.start_sandbox(&[])?;
    fixture.write_config(LOCAL_TARGETS)?;
    fixture.start()?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    let address = r#"{"channel":"webhook","url":"https://hooks.example/registered"}"#;
    connection.call_ok("POST", "/v1/addresses", None, address)?;
    for from in (0..MESSAGES).step_by(LINES) {
        let line = |n: usize| {
            let later =
                if n.is_multiple_of(2) { r#","send_at":"2027-06-01T00:00:00Z""# } else { "" };
            format!(
                r#"{{"to":{{"address":{{"channel":"webhook","url":"http://{sandbox_at}/hook/{}"}}}},"idempotency_key":"k-{n}"{later}}}"#,
                n % 7
            )
        };
        let lines: Vec<_> = (from..from + LINES).map(line).collect();
        connection.call_ok("POST", "/v1/messages/batch", None, &lines.join("\n"))?;
    }
    let server = fixture.server_at;
    await_that("half is sent", || {
        Ok(stats(server)?["states"]["sent"].as_u64() == Some(MESSAGES as u64 / 2))
    })?;
    fixture.kill();
    Ok(())
}

/// Starts a migration and ends it with SIGKILL after a while; true if it was still at work.
fn killed_after(from: &str, to: &str, pause: Duration) -> Result<bool> {
    let mut command = Command::new(BINARY);
    command.args(["migrate-store", "--from", from, "--to", to]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    std::thread::sleep(pause);
    let was_at_work = child.try_wait()?.is_none();
    child.kill()?;
    child.wait()?;
    Ok(was_at_work)
}

fn serve_error(data: &Path) -> Result<String> {
    let data = shown(data);
    let mut command = Command::new("timeout");
    command.args(["60", BINARY, "serve", "--listen", "127.0.0.1:0", "--data", &data]);
    let output = command.output()?;
    ensure!(output.status.code() == Some(1), "it starts: {output:?}");
    Ok(String::from_utf8(output.stderr)?)
}

#[test]
fn a_store_is_moved_completely_although_the_migration_is_killed() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, "")?;
    fill(&mut fixture)?;
    let (from, to) = (shown(&fixture.path("data")), shown(&fixture.path("new/data")));
    let mut kills = 0;
    while kills < 8 && killed_after(&from, &to, Duration::from_millis(250 + 50 * kills))? {
        kills += 1;
    }
    let error = serve_error(&fixture.path("data"))?;
    ensure!(error.contains("it is being moved to"), "{error}");
    let error = serve_error(&fixture.path("new/data"))?;
    ensure!(error.contains("a migration that is not finished"), "{error}");
    let moved = postrider_json(&["migrate-store", "--from", &from, "--to", &to, "--json"])?;
    println!("{kills} kills, then {moved:#}");
    ensure!(kills == 8 && moved["resumed"] == true, "{kills} kills, {moved:#}");
    let count = |kind: &str| moved["records"][kind]["count"].as_u64();
    ensure!(count("messages") == Some(MESSAGES as u64), "{moved:#}");
    ensure!(count("deliveries") == Some(MESSAGES as u64), "{moved:#}");
    ensure!(count("idempotency_keys") == Some(MESSAGES as u64), "{moved:#}");
    ensure!(count("addresses") == Some(1) && count("lanes") == Some(1), "{moved:#}");

    let error = serve_error(&fixture.path("data"))?;
    ensure!(error.contains("it was moved to") && error.contains("--reopen"), "{error}");
    let good = postrider(&["fsck", "--data", &to])?;
    ensure!(good.status.success(), "{good:?}");
    let mut new = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    std::fs::rename(fixture.path("new/data"), new.path("data"))?;
    new.start()?;
    let stats = stats(new.server_at)?;
    let half = MESSAGES as u64 / 2;
    ensure!(stats["states"]["sent"] == half && stats["states"]["queued"] == half, "{stats:#}");
    ensure!(stats["server_capacity"]["deliveries"] == half, "{stats:#}");
    let repeat = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}},"idempotency_key":"k-1"}"#;
    let repeat = TestConnection::open(new.server_at)?.call("POST", "/v1/messages", None, repeat)?;
    ensure!(repeat.status == 409, "the key is known: {}", repeat.body);
    let again = postrider_json(&["migrate-store", "--from", &from, "--reopen", "--json"])?;
    ensure!(again["reopened"] == true, "{again}");
    fixture.start().context("the old store can be used again")
}

#[test]
fn stores_that_cannot_be_moved_are_refused() -> Result<()> {
    let mut fixture = ProcessFixture::started(BINARY, "")?;
    let path = |fixture: &ProcessFixture, name: &str| shown(&fixture.path(name));
    let (data, other) = (path(&fixture, "data"), path(&fixture, "other"));
    let error = |arguments: &[&str], code: i32| -> Result<String> {
        let output = postrider(&[&["migrate-store"], arguments].concat())?;
        ensure!(output.status.code() == Some(code), "{output:?}");
        Ok(String::from_utf8(output.stderr)?)
    };
    let found = error(&["--from", &data, "--to", &other], 1)?;
    ensure!(found.contains("in use by a running server"), "{found}");
    fixture.signal("TERM")?;
    fixture.await_end()?;
    let found = error(&["--from", &data, "--to", &data], 2)?;
    ensure!(found.contains("the same store"), "{found}");
    let found = error(&["--from", &path(&fixture, "none"), "--to", &other], 1)?;
    ensure!(found.contains("there is no store in"), "{found}");
    let found = error(&["--from", &data, "--to", "kafka://localhost/x"], 2)?;
    ensure!(found.contains("kafka://localhost/x"), "{found}");
    std::fs::create_dir(&other)?;
    std::fs::write(fixture.path("other/photo"), "")?;
    let found = error(&["--from", &data, "--to", &other], 1)?;
    ensure!(found.contains("is not empty (it has photo)"), "{found}");
    let used = ProcessFixture::started(BINARY, "")?;
    used.signal("TERM")?;
    let mut used = used;
    used.await_end()?;
    let found = error(&["--from", &data, "--to", &path(&used, "data")], 1)?;
    ensure!(found.contains("the new store is not empty"), "{found}");
    Ok(())
}
