//! The system's clock is wrong or is set: a library that is loaded before the others moves it. No work may end, be
//! repeated or be forgotten for that.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

use super::BINARY;

const YEAR_S: i64 = 365 * 86_400;
const DAY_S: i64 = 86_400;
/// Retries come soon, and a call that hangs outlasts the test.
const CONFIG: &str = "[classes.quick]\nttl_s = 3600\nretry = { base_ms = 1500, kind = \"fixed\", jitter = \"none\" }\n";

/// The idempotency key of a message.
const KEY: &str = r#","idempotency_key":"k""#;

struct ClockFixture {
    processes: ProcessFixture,
    sandbox_at: SocketAddr,
    offset: PathBuf,
}

impl ClockFixture {
    fn new() -> Result<Self> {
        let mut processes = ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}{CONFIG}"))?;
        let sandbox_at = processes.start_sandbox(&[])?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/clock_offset.c");
        let (library, offset) = (processes.path("clock_offset.so"), processes.path("offset"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]);
        ensure!(compiler.status().context("cc, which SQLite needs as well")?.success());
        processes.environment.push(("LD_PRELOAD".to_owned(), library));
        processes.environment.push(("POSTRIDER_CLOCK".to_owned(), offset.clone()));
        let fixture = Self { processes, sandbox_at, offset };
        fixture.set_clock(0)?;
        Ok(fixture)
    }

    /// A server that is stopped. One delivery, with a key, was sent; another one is pending.
    fn stopped_with_work() -> Result<(Self, String, String)> {
        let mut fixture = Self::new()?;
        fixture.processes.start()?;
        let sent = fixture.send("ok", KEY)?;
        fixture.await_state(&sent, "sent")?;
        fixture.stop()?;
        fixture.role("api")?;
        fixture.processes.start()?;
        let pending = fixture.send("ok", "")?;
        fixture.stop()?;
        fixture.role("all")?;
        Ok((fixture, sent, pending))
    }

    /// Sets the server's clock forward or back by these seconds.
    fn set_clock(&self, offset_s: i64) -> Result<()> {
        // At once, so that no read sees half a number.
        let new = self.processes.path("offset.new");
        std::fs::write(&new, offset_s.to_string())?;
        Ok(std::fs::rename(new, &self.offset)?)
    }

    fn role(&self, role: &str) -> Result<()> {
        let server = format!("[server]\nrole = \"{role}\"\n");
        self.processes.write_config(&format!("{LOCAL_TARGETS}{CONFIG}{server}"))
    }

    fn stop(&mut self) -> Result<()> {
        self.processes.signal("TERM")?;
        self.processes.await_end().map(drop)
    }

    fn set_answers(&self, hook: &str, script: &str) -> Result<()> {
        let body = format!(r#"{{"script":[{script}]}}"#);
        let set = call(self.sandbox_at, "PUT", &format!("/sandbox/hooks/{hook}"), &body)?;
        ensure!(set.status < 300, "{}", set.body);
        Ok(())
    }

    fn post(&self, hook: &str, more: &str) -> Result<Value> {
        let url = format!("http://{}/hook/{hook}", self.sandbox_at);
        let to = format!(r#""to":{{"address":{{"channel":"webhook","url":"{url}"}}}}"#);
        let body = format!(r#"{{{to},"class":"quick"{more}}}"#);
        let answer = call(self.processes.server_at, "POST", "/v1/messages", &body)?;
        ensure!(answer.status < 300, "{}", answer.body);
        Ok(serde_json::from_str(&answer.body)?)
    }

    fn send(&self, hook: &str, more: &str) -> Result<String> {
        let answer = self.post(hook, more)?;
        Ok(answer["deliveries"][0]["id"].as_str().context("no delivery")?.to_owned())
    }

    fn state(&self, id: &str) -> Result<String> {
        let answer = get(self.processes.server_at, &format!("/v1/deliveries/{id}"))?;
        let delivery: Value = serde_json::from_str(&answer.body)?;
        Ok(delivery["state"].as_str().unwrap_or(&answer.body).to_owned())
    }

    fn await_state(&self, id: &str, state: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.state(id)?;
            if found == state {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{found}, not {state}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn calls(&self) -> Result<u64> {
        let received: Value =
            serde_json::from_str(&get(self.sandbox_at, "/sandbox/received")?.body)?;
        received["total"].as_u64().context("a count")
    }

    fn await_calls(&self, calls: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.calls()? != calls {
            ensure!(Instant::now() < deadline, "{} calls, not {calls}", self.calls()?);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The codes of the problems that are reported.
    fn problems(&self) -> Result<Vec<String>> {
        let stats = TestConnection::open(self.processes.server_at)?.get_json("/v1/stats")?;
        let problems = stats["problems"].as_array().context("a list")?;
        Ok(problems.iter().filter_map(|p| Some(p["code"].as_str()?.to_owned())).collect())
    }
}

fn now_s() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64)
}

/// RFC 3339, an hour from now by the right clock.
fn in_an_hour() -> Result<String> {
    Ok(postrider_core::Timestamp::from_secs(now_s()? + 3_600).to_string())
}

#[test]
fn a_clock_that_jumps_ahead_ends_and_repeats_nothing() -> Result<()> {
    let mut fixture = ClockFixture::new()?;
    fixture.processes.start()?;
    fixture.set_answers("deaf", r#""hang""#)?;
    let keyed = fixture.send("ok", KEY)?;
    fixture.await_state(&keyed, "sent")?;
    let in_flight = fixture.send("deaf", "")?;
    fixture.await_calls(2)?;
    let later = fixture.send("ok", &format!(r#","send_at":"{}""#, in_an_hour()?))?;

    fixture.set_clock(YEAR_S)?;
    let new = fixture.send("ok", "")?;
    fixture.await_state(&new, "sent")?;
    ensure!(fixture.post("ok", KEY)?["duplicate"] == true, "the key is still known");
    let known = fixture.problems()?;
    ensure!(known == ["clock_stepped"], "{known:?}");
    // Time for a second call, if the lease were over.
    let quiet = Instant::now() + Duration::from_secs(3);
    while Instant::now() < quiet {
        ensure!(fixture.calls()? == 3, "the call in flight is repeated");
        ensure!(fixture.state(&in_flight)? == "sending");
        ensure!(fixture.state(&later)? == "queued");
        std::thread::sleep(Duration::from_millis(100));
    }
    let metrics = get(fixture.processes.server_at, "/metrics")?.body;
    let offset = metrics.lines().find_map(|l| l.strip_prefix("postrider_clock_offset_seconds "));
    let offset: f64 = offset.context("the metric")?.parse()?;
    ensure!((offset - YEAR_S as f64).abs() < 10.0, "{offset}");

    fixture.set_clock(0)?;
    ensure!(fixture.problems()?.is_empty(), "the clock is right again");
    Ok(())
}

#[test]
fn a_clock_that_is_set_back_delays_no_retry() -> Result<()> {
    let mut fixture = ClockFixture::new()?;
    fixture.processes.start()?;
    fixture.set_answers("flaky", r#""503","200""#)?;
    let retried = fixture.send("flaky", "")?;
    fixture.await_calls(1)?;
    fixture.set_clock(-DAY_S)?;
    fixture.await_state(&retried, "sent")?;
    let new = fixture.send("ok", "")?;
    fixture.await_state(&new, "sent")?;
    let known = fixture.problems()?;
    ensure!(known == ["clock_stepped"], "{known:?}");
    // After a restart, too.
    fixture.set_answers("flaky2", r#""503","200""#)?;
    let retried = fixture.send("flaky2", "")?;
    fixture.await_calls(4)?;
    fixture.stop()?;
    fixture.processes.start()?;
    fixture.await_state(&retried, "sent")
}

#[test]
fn a_start_in_1970_sends_what_is_pending_and_forgets_nothing() -> Result<()> {
    let (mut fixture, old, pending) = ClockFixture::stopped_with_work()?;
    fixture.set_clock(60 - now_s()?)?;
    fixture.processes.start()?;
    fixture.await_state(&pending, "sent")?;
    let new = fixture.send("ok", "")?;
    fixture.await_state(&new, "sent")?;
    ensure!(fixture.post("ok", KEY)?["duplicate"] == true, "the key is still known");
    ensure!(fixture.state(&old)? == "sent", "it is not pruned");
    let known = fixture.problems()?;
    ensure!(known == ["clock_stepped"], "{known:?}");

    fixture.set_clock(0)?;
    ensure!(fixture.problems()?.is_empty(), "the clock is right again");
    let new = fixture.send("ok", "")?;
    fixture.await_state(&new, "sent")
}

#[test]
fn a_start_a_year_ahead_ends_nothing_until_the_clock_is_understood() -> Result<()> {
    let (mut fixture, old, pending) = ClockFixture::stopped_with_work()?;
    fixture.set_clock(YEAR_S)?;
    fixture.processes.start()?;
    let new = fixture.send("ok", "")?;
    fixture.await_state(&new, "sent")?;
    ensure!(fixture.post("ok", KEY)?["duplicate"] == true, "the key is still known");
    ensure!(fixture.state(&old)? == "sent", "it is not pruned");
    fixture.await_state(&pending, "parked").context("not sent and not ended")?;
    let known = fixture.problems()?;
    ensure!(known == ["clock_stepped"], "{known:?}");

    fixture.set_clock(0)?;
    let known = fixture.problems()?;
    ensure!(known == ["clock_stepped"], "{known:?}");
    fixture.await_state(&pending, "sent").context("it is in time by the right clock")?;
    ensure!(fixture.post("ok", KEY)?["duplicate"] == true, "the key is still known");
    Ok(())
}

#[test]
fn what_was_accepted_with_a_wrong_clock_is_sent_after_a_restart_with_the_right_one() -> Result<()> {
    let mut fixture = ClockFixture::new()?;
    fixture.processes.start()?;
    fixture.set_clock(YEAR_S)?;
    fixture.stop()?;
    fixture.processes.start()?;
    fixture.set_answers("flaky", r#""503","200""#)?;
    let retried = fixture.send("flaky", "")?;
    fixture.await_calls(1)?;
    fixture.stop()?;
    fixture.set_clock(0)?;
    fixture.processes.start()?;
    fixture.await_state(&retried, "sent")
}
