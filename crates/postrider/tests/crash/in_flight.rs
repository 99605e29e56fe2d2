//! A crash in the middle of a call: no blind repeat if the class forbids it, and no endless loop if the delivery
//! itself may be the cause.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::{call, get};
use postrider_testkit::process::ProcessFixture;

use super::BINARY;
use super::snapshot::check_snapshot;

const CONFIG: &str = r#"
[network]
allow_private_targets = true
allow_plain_http = true
[classes.paid]
on_ambiguous = "park"
"#;

/// A server that can be killed, and a receiver that takes every request and never answers.
struct CrashFixture {
    processes: ProcessFixture,
    sandbox_at: SocketAddr,
}

impl CrashFixture {
    fn new() -> Result<Self> {
        let mut processes = ProcessFixture::new(BINARY, CONFIG)?;
        let sandbox_at = processes.start_sandbox(&[])?;
        processes.start()?;
        let fixture = Self { processes, sandbox_at };
        fixture.set_answer("deaf", "hang")?;
        Ok(fixture)
    }

    fn set_answer(&self, hook: &str, answer: &str) -> Result<()> {
        let script = format!(r#"{{"script":["{answer}"]}}"#);
        let set = call(self.sandbox_at, "PUT", &format!("/sandbox/hooks/{hook}"), &script)?;
        ensure!(set.status < 300, "{}", set.body);
        Ok(())
    }

    fn crash(&mut self) -> Result<()> {
        self.processes.kill();
        self.processes.start()
    }

    fn send(&self, class: &str) -> Result<String> {
        self.send_to("deaf", class)
    }

    fn send_to(&self, hook: &str, class: &str) -> Result<String> {
        let url = format!("http://{}/hook/{hook}", self.sandbox_at);
        let message = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"class":"{class}"}}"#
        );
        let answer = call(self.processes.server_at, "POST", "/v1/messages", &message)?;
        let body: Value = serde_json::from_str(&answer.body)?;
        Ok(body["deliveries"][0]["id"].as_str().context("no delivery")?.to_owned())
    }

    fn await_calls(&self, calls: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let received: Value =
                serde_json::from_str(&get(self.sandbox_at, "/sandbox/received")?.body)?;
            if received["total"] == calls {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "never {calls} calls: {received}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_end(&self, id: &str) -> Result<Value> {
        self.await_state(id, "failed")
    }

    fn await_state(&self, id: &str, state: &str) -> Result<Value> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = get(self.processes.server_at, &format!("/v1/deliveries/{id}/explain"))?;
            let why: Value = serde_json::from_str(&answer.body)?;
            if why["state"] == state {
                return Ok(why);
            }
            ensure!(Instant::now() < deadline, "not {state}: {why:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn explain_on_the_command_line(&self, id: &str) -> Result<String> {
        let url = format!("http://{}", self.processes.server_at);
        let output = Command::new(BINARY)
            .args(["explain", id, "--server", &url])
            .env("POSTRIDER_KEY", ADMIN_KEY)
            .output()?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[test]
fn what_was_in_flight_at_three_crashes_is_not_sent_a_fourth_time() -> Result<()> {
    let mut fixture = CrashFixture::new()?;
    let id = fixture.send("transactional")?;
    for crash in 1..=3 {
        fixture.await_calls(crash)?;
        fixture.crash()?;
    }
    let why = fixture.await_end(&id)?;
    ensure!(why["delivery"]["reason"] == "poison", "{why:#}");
    fixture.await_calls(3)?;
    let told = fixture.explain_on_the_command_line(&id)?;
    check_snapshot("dead_poison", &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
    Ok(())
}

/// A delivery that makes the server crash is a call to `deaf` here, after which the server is killed.
#[test]
fn only_the_cause_of_the_crashes_becomes_a_dead_letter() -> Result<()> {
    let mut fixture = CrashFixture::new()?;
    fixture.set_answer("innocent", "hang")?;
    let cause = fixture.send("transactional")?;
    let send = |_| fixture.send_to("innocent", "transactional");
    let innocents: Vec<_> = (0..3).map(send).collect::<Result<_>>()?;
    for calls in [4, 8, 9] {
        fixture.await_calls(calls)?;
        fixture.processes.kill();
        if calls == 9 {
            fixture.set_answer("innocent", "200")?;
        }
        fixture.processes.start()?;
    }
    for id in &innocents {
        fixture.await_state(id, "sent")?;
    }
    let why = fixture.await_end(&cause)?;
    ensure!(why["delivery"]["reason"] == "poison", "{why:#}");
    fixture.await_calls(12)
}

#[test]
fn a_crash_in_the_middle_of_a_call_is_for_a_person_to_judge_where_a_duplicate_is_worse_than_a_loss()
-> Result<()> {
    let mut fixture = CrashFixture::new()?;
    let id = fixture.send("paid")?;
    fixture.await_calls(1)?;
    fixture.crash()?;
    let why = fixture.await_end(&id)?;
    ensure!(why["delivery"]["reason"] == "ambiguous", "{why:#}");
    fixture.await_calls(1)?;
    let told = fixture.explain_on_the_command_line(&id)?;
    check_snapshot("dead_ambiguous_crash", &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
    Ok(())
}
