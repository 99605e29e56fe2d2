//! Runs the binary, accepts messages, and looks at what a server has.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::{TestConnection, get};
use serde_json::Value;

use super::BINARY;

const THREADS: u32 = 4;

pub(crate) fn from_environment(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

pub(crate) fn postrider(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(BINARY);
    Ok(command.args(arguments).env("POSTRIDER_KEY", ADMIN_KEY).output()?)
}

/// Runs a command that succeeds and prints JSON.
pub(crate) fn postrider_json(arguments: &[&str]) -> Result<Value> {
    let output = postrider(arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).with_context(|| format!("{arguments:?}"))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn stats(server: SocketAddr) -> Result<Value> {
    TestConnection::open(server)?.get_json("/v1/stats")
}

/// An answer with 202.
pub(crate) struct AcceptedMessage {
    pub(crate) delivery: String,
    /// Milliseconds since 1970, after the answer was read.
    pub(crate) answered_at: i64,
    pub(crate) took: Duration,
}

/// Sends messages with different keys at this rate, for so long.
pub(crate) fn accept(
    server: SocketAddr,
    target: &str,
    seconds: u32,
    per_second: u32,
) -> Result<Vec<AcceptedMessage>> {
    let pause = Duration::from_secs(1) * THREADS / per_second;
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds.into());
    let caller = |thread: u32| -> Result<Vec<AcceptedMessage>> {
        let mut connection = TestConnection::open(server)?;
        let (mut next, mut accepted) = (begin + pause * thread / THREADS, Vec::new());
        while next < end {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let asked = Instant::now();
            let key = format!("{thread}-{}", accepted.len());
            let body = format!(
                r#"{{"to":{{"address":{{"channel":"webhook","url":"{target}"}}}},"idempotency_key":"{key}"}}"#
            );
            let answer = connection.call_ok("POST", "/v1/messages", None, &body)?;
            let took = asked.elapsed();
            let answered_at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
            let answer: Value = serde_json::from_str(&answer)?;
            let delivery = answer["deliveries"][0]["id"].as_str().context("an id")?.to_owned();
            accepted.push(AcceptedMessage { delivery, answered_at, took });
            next += pause;
        }
        Ok(accepted)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || caller(n))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().expect("a caller")?);
        }
        Ok(all)
    })
}

/// The ids of all deliveries that a server knows.
pub(crate) fn all_deliveries(server: SocketAddr) -> Result<HashSet<String>> {
    let mut connection = TestConnection::open(server)?;
    let (mut ids, mut cursor) = (HashSet::new(), String::new());
    loop {
        let page = connection.get_json(&format!("/v1/deliveries?limit=1000{cursor}"))?;
        let items = page["items"].as_array().context("a page")?;
        ids.extend(items.iter().filter_map(|item| item["id"].as_str()).map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(ids),
        }
    }
}

/// The ids of the deliveries that a sandbox accepted.
pub(crate) fn received(sandbox: SocketAddr) -> Result<HashSet<String>> {
    let answer = get(sandbox, "/sandbox/received/ids")?;
    let id = |line: &str| -> Result<String> {
        let entry: Value = serde_json::from_str(line)?;
        Ok(entry["id"].as_str().context("an id")?.to_owned())
    };
    answer.body.lines().map(id).collect()
}

/// Asks until the answer is as wanted.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
