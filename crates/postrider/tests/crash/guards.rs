//! What a crash in the middle of a call leads to: never a blind repeat where the class forbids it, and
//! no endless circle where the delivery itself may be the cause.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::http::{call, get};
use super::keep::keep;
use super::process::{KEY, Process, await_ok, free_port, start_sandbox};

const CONFIG: &str = r#"
[network]
allow_private_targets = true
allow_plain_http = true
[classes.paid]
on_ambiguous = "park"
"#;

/// A server that can be killed, and a sandbox that hears everything and never answers.
struct World {
    folder: tempfile::TempDir,
    server_at: SocketAddr,
    sandbox_at: SocketAddr,
    server: Option<Process>,
    _sandbox: Process,
}

impl World {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (sandbox, sandbox_at) = start_sandbox(folder.path());
        let server_at = free_port();
        let hook = call(sandbox_at, "PUT", "/sandbox/hooks/deaf", KEY, r#"{"script":["hang"]}"#)?;
        ensure!(hook.status < 300, "{}", hook.body);
        std::fs::write(folder.path().join("postrider.toml"), CONFIG)?;
        let mut world = Self { folder, server_at, sandbox_at, server: None, _sandbox: sandbox };
        world.start();
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self) {
        let text = |path: &Path| path.display().to_string();
        let (data, config) = (text(&self.path("data")), text(&self.path("postrider.toml")));
        let listen = self.server_at.to_string();
        let arguments = ["serve", "--listen", &listen, "--data", &data, "--config", &config];
        self.server = Some(Process::start(&arguments, &[], &self.path("server.log")));
        await_ok(self.server_at, "/readyz");
    }

    fn kill(&mut self) {
        self.server.take().into_iter().for_each(Process::kill);
    }

    fn send(&self, class: &str) -> Result<String> {
        let url = format!("http://{}/hook/deaf", self.sandbox_at);
        let message = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"class":"{class}"}}"#
        );
        let answer = call(self.server_at, "POST", "/v1/messages", KEY, &message)?;
        let body: Value = serde_json::from_str(&answer.body)?;
        Ok(body["deliveries"][0]["id"].as_str().context("no delivery")?.to_owned())
    }

    fn await_calls(&self, calls: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let received: Value =
                serde_json::from_str(&get(self.sandbox_at, "/sandbox/received", KEY)?.body)?;
            if received["total"] == calls {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "never {calls} calls: {received}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_end(&self, id: &str) -> Result<Value> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = get(self.server_at, &format!("/v1/deliveries/{id}/explain"), KEY)?;
            let why: Value = serde_json::from_str(&answer.body)?;
            if why["state"] == "failed" {
                return Ok(why);
            }
            ensure!(Instant::now() < deadline, "no end: {why:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn explain_on_the_command_line(&self, id: &str) -> Result<String> {
        let url = format!("http://{}", self.server_at);
        let output = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["explain", id, "--server", &url])
            .env("POSTRIDER_KEY", KEY)
            .output()?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[test]
fn what_was_in_flight_at_three_crashes_is_not_sent_a_fourth_time() -> Result<()> {
    let mut world = World::new()?;
    let id = world.send("transactional")?;
    for crash in 1..=3 {
        world.await_calls(crash)?;
        world.kill();
        world.start();
    }
    let why = world.await_end(&id)?;
    ensure!(why["delivery"]["reason"] == "poison", "{why:#}");
    world.await_calls(3)?;
    let told = world.explain_on_the_command_line(&id)?;
    keep("dead_poison", &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
    Ok(())
}

#[test]
fn a_crash_in_the_middle_of_a_call_is_for_a_person_to_judge_where_a_duplicate_is_worse_than_a_loss()
-> Result<()> {
    let mut world = World::new()?;
    let id = world.send("paid")?;
    world.await_calls(1)?;
    world.kill();
    world.start();
    let why = world.await_end(&id)?;
    ensure!(why["delivery"]["reason"] == "ambiguous", "{why:#}");
    world.await_calls(1)?;
    let told = world.explain_on_the_command_line(&id)?;
    keep("dead_ambiguous_crash", &format!("{why:#}\n\n$ postrider explain ID\n{told}"));
    Ok(())
}
