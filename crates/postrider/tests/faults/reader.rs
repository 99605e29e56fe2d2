//! Another program holds a read transaction on the data file while messages are accepted.
//!
//! Short here; `cargo xtask prove reader` runs it for a minute with 500 accepts per second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::process::ProcessFixture;

use super::BINARY;

const THREADS: u32 = 8;
const CONFIG: &str = "[server]\nrole = \"api\"\n";
const MESSAGE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;

fn from_environment(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn nobody_waits_for_a_foreign_reader() -> Result<()> {
    // The journal is cut when nothing was written for some seconds.
    let seconds = from_environment("POSTRIDER_READER_SECONDS", 7);
    let per_second = from_environment("POSTRIDER_READER_PER_S", 100);
    let p99_max = from_environment("POSTRIDER_READER_P99_MS", 1_000);
    let fixture = ProcessFixture::started(BINARY, CONFIG)?;
    TestConnection::open(fixture.server_at)?.call_ok("POST", "/v1/messages", None, MESSAGE)?;
    let reader = rusqlite::Connection::open(fixture.path("data/postrider.db"))?;
    reader.execute_batch("BEGIN")?;
    let _: i64 = reader.query_row("SELECT count(*) FROM message", [], |row| row.get(0))?;
    let took = accept(fixture.server_at, seconds, per_second)?;
    let p = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let metrics = get(fixture.server_at, "/metrics")?.body;
    let journal = metrics.lines().find(|line| line.starts_with("postrider_store_journal_bytes "));
    println!("{} accepts in {seconds} s beside a foreign reader", took.len());
    println!("p50 {:?}, p99 {:?}, longest {:?}", p(0.5), p(0.99), p(1.0));
    println!("{}", journal.context("the metric of the journal's size")?);
    ensure!(took.len() as u32 >= seconds * per_second * 9 / 10, "too few accepts");
    ensure!(p(0.99) < Duration::from_millis(p99_max.into()), "p99 is {:?}", p(0.99));
    ensure!(p(1.0) < Duration::from_secs(2), "an accept took {:?}", p(1.0));
    drop(reader);
    Ok(())
}

#[test]
fn a_journal_beyond_its_bound_refuses_new_work_until_the_reader_ends() -> Result<()> {
    let bounded = format!("{CONFIG}[store]\njournal_bytes_max = {}\n", 64 << 20);
    let fixture = ProcessFixture::started(BINARY, &bounded)?;
    let mut connection = TestConnection::open(fixture.server_at)?;
    let body = "x".repeat(900_000);
    let large = MESSAGE.replace("}}}", &format!(r#"}}}},"content":{{"body":"{body}"}}}}"#));
    let mut accept = || connection.call("POST", "/v1/messages", None, &large);
    ensure!(accept()?.status == 202);
    let reader = rusqlite::Connection::open(fixture.path("data/postrider.db"))?;
    reader.execute_batch("BEGIN")?;
    let _: i64 = reader.query_row("SELECT count(*) FROM message", [], |row| row.get(0))?;
    let mut taken = 0;
    let refused = loop {
        let answer = accept()?;
        if answer.status != 202 {
            break answer;
        }
        taken += 1;
        ensure!(taken < 200, "the journal is beyond its bound, and new work is taken");
    };
    ensure!(refused.status == 503, "{}", refused.body);
    ensure!(refused.body.contains("grown beyond 64 MiB; end that program"), "{}", refused.body);
    ensure!(taken >= 50, "refused after {taken} messages");
    drop(reader);
    let end = Instant::now() + Duration::from_secs(60);
    while accept()?.status != 202 {
        ensure!(Instant::now() < end, "new work is still refused");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// How long each accept took, the shortest first.
fn accept(server: SocketAddr, seconds: u32, per_second: u32) -> Result<Vec<Duration>> {
    let pause = Duration::from_secs(1) * THREADS / per_second;
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let caller = move |thread: u32| -> Result<Vec<Duration>> {
        let mut connection = TestConnection::open(server)?;
        let (mut next, mut took) = (Instant::now() + pause * thread / THREADS, Vec::new());
        while next < end {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let asked = Instant::now();
            connection.call_ok("POST", "/v1/messages", None, MESSAGE)?;
            took.push(asked.elapsed());
            next += pause;
        }
        Ok(took)
    };
    let threads: Vec<_> =
        (0..THREADS).map(|thread| std::thread::spawn(move || caller(thread))).collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().expect("a caller")?);
    }
    all.sort_unstable();
    Ok(all)
}
