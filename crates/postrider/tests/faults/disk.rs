//! System calls on the data files fail: a library that is loaded before the others makes them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

use super::BINARY;

const API_ONLY: &str = "[server]\nrole = \"api\"\n";
const MESSAGES: u64 = 1_000;

/// Makes the disk of the fixture's server fail as the file `faults` says.
fn inject_faults(fixture: &mut ProcessFixture) -> Result<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/disk_faults.c");
    let (library, faults) = (fixture.path("disk_faults.so"), fixture.path("faults"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]);
    ensure!(compiler.status().context("cc, which SQLite needs as well")?.success());
    std::fs::write(&faults, "")?;
    fixture.environment.push(("LD_PRELOAD".to_owned(), library));
    fixture.environment.push(("POSTRIDER_FAULTS".to_owned(), faults.clone()));
    Ok(faults)
}

fn message(url: &str) -> String {
    format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#)
}

fn stats(fixture: &ProcessFixture) -> Result<Value> {
    TestConnection::open(fixture.server_at)?.get_json("/v1/stats")
}

#[test]
fn a_page_that_cannot_be_read_stops_only_its_deliveries() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, API_ONLY)?;
    let sandbox_at = fixture.start_sandbox(&[])?;
    let faults = inject_faults(&mut fixture)?;
    fixture.write_config(&format!("{API_ONLY}{LOCAL_TARGETS}"))?;
    fixture.start()?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    for n in 0..MESSAGES {
        let tenant = if n % 2 == 0 { "acme" } else { "umbra" };
        let body = message(&format!("http://{sandbox_at}/hook/{}", n % 3));
        connection.call_ok("POST", "/v1/messages", Some(tenant), &body)?;
    }
    fixture.signal("TERM")?;
    fixture.await_end()?;
    let conn = rusqlite::Connection::open(fixture.path("data/postrider.db"))?;
    let page: i64 = conn.query_row(
        "SELECT pageno FROM dbstat WHERE name = 'delivery' AND pagetype = 'leaf' \
         ORDER BY path LIMIT 1 OFFSET 20",
        [],
        |row| row.get(0),
    )?;
    drop(conn);
    std::fs::write(&faults, format!("read {page}\n"))?;
    fixture.write_config(LOCAL_TARGETS)?;
    fixture.start()?;

    let deadline = Instant::now() + Duration::from_secs(60);
    let stats = loop {
        let stats = stats(&fixture)?;
        let sent = stats["states"]["sent"].as_u64().unwrap_or(0);
        let quarantined = stats["quarantined"].as_u64().context("a count")?;
        if sent + quarantined == MESSAGES && quarantined > 0 {
            break stats;
        }
        ensure!(Instant::now() < deadline, "only {sent} sent, {quarantined} set aside: {stats:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(stats["quarantined"].as_u64().is_some_and(|n| n < 100), "{stats:#}");
    ensure!(stats["problems"][0]["code"] == "deliveries_quarantined", "{stats:#}");
    let metrics = get(fixture.server_at, "/metrics")?;
    ensure!(metrics.status == 200, "{}", metrics.body);
    let wanted = r#"postrider_store_problems{outcome="deliveries_quarantined"} 1"#;
    ensure!(metrics.body.contains(wanted), "{}", metrics.body);
    Ok(())
}

#[test]
fn a_disk_that_does_not_confirm_a_write_ends_the_process() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, API_ONLY)?;
    let faults = inject_faults(&mut fixture)?;
    fixture.start()?;
    let body = message("https://hooks.example/a");
    let mut connection = TestConnection::open(fixture.server_at)?;
    connection.call_ok("POST", "/v1/messages", None, &body)?;
    std::fs::write(&faults, "sync\n")?;
    let answer = connection.call("POST", "/v1/messages", None, &body);
    ensure!(answer.is_err() || answer.is_ok_and(|answer| answer.status == 503), "no 202");
    let end = fixture.await_end()?;
    ensure!(end.code() == Some(1), "{end}");
    let log = fixture.server_log()?;
    ensure!(log.contains("the server cannot go on: the disk did not confirm a write"), "{log}");
    std::fs::write(&faults, "")?;
    fixture.start()?;
    let messages = stats(&fixture)?["messages"].as_u64().context("a count")?;
    ensure!(messages >= 1, "the acknowledged message is there");
    Ok(())
}

/// The moved pages may be lost then, and the journal is still there for the next start.
#[test]
fn a_disk_that_does_not_confirm_a_moved_part_ends_the_process() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, API_ONLY)?;
    let faults = inject_faults(&mut fixture)?;
    fixture.start()?;
    let server = fixture.server_at;
    let accepts = move || -> u64 {
        let Ok(mut connection) = TestConnection::open(server) else { return 0 };
        let body = message("https://hooks.example/a");
        let mut accept = || connection.call_ok("POST", "/v1/messages", None, &body);
        (0..20_000).take_while(|_| accept().is_ok()).count() as u64
    };
    std::fs::write(&faults, "sync part\n")?;
    let callers: Vec<_> = (0..4).map(|_| std::thread::spawn(accepts)).collect();
    let accepted: u64 = callers.into_iter().map(|caller| caller.join().expect("a caller")).sum();
    let end = fixture.await_end()?;
    ensure!(end.code() == Some(1), "{end}");
    let log = fixture.server_log()?;
    ensure!(log.contains("the server cannot go on: the disk did not confirm a write"), "{log}");
    std::fs::write(&faults, "")?;
    fixture.start()?;
    let messages = stats(&fixture)?["messages"].as_u64().context("a count")?;
    ensure!(messages >= accepted, "{messages} of {accepted} acknowledged messages are there");
    Ok(())
}
