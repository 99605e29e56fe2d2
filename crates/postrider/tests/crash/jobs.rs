//! Kills the server with SIGKILL while it replays dead letters in the background. Each of them is replayed once.
//!
//! Small here; `cargo xtask prove jobs` runs it with 100 000 dead letters.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use postrider_testkit::http::{call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};

use super::BINARY;
use super::kill::{from_environment, insist};

const LINES: usize = 500;
/// An answer that makes a dead letter at once.
const RULE: &str = "[[classify]]\nservice = \"webhook\"\nstatus = 400\noutcome = \"drop_message\"\n[log]\nlevel = \"warn\"\n";

#[test]
fn each_dead_letter_is_replayed_once_however_often_the_server_is_killed() -> Result<()> {
    let count = from_environment("POSTRIDER_JOB_DELIVERIES", 2_000);
    let kills = from_environment("POSTRIDER_JOB_KILLS", 3);
    let mut fixture = ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}{RULE}"))?;
    let sandbox = fixture.start_sandbox(&[])?;
    fixture.start()?;
    let script = json!({"script": ["400"]}).to_string();
    ensure!(call(sandbox, "PUT", "/sandbox/hooks/jobs", &script)?.status < 300);
    let server = fixture.server_at;
    for from in (0..count).step_by(LINES) {
        let line = |n| {
            json!({"to": {"address": {"channel": "webhook", "url": format!("http://{sandbox}/hook/jobs")}},
                "content": {"data": {"n": n}}, "idempotency_key": format!("job-{n}")}).to_string()
        };
        let lines: Vec<_> = (from..(from + LINES).min(count)).map(line).collect();
        insist(server, &lines.join("\n"))?;
    }
    await_failed(server, count)?;
    let rate = (count as f64 / 5.0).clamp(100.0, 5_000.0);
    let request = json!({"kind": "replay", "filter": {}, "rate_per_s": rate}).to_string();
    let job = call(server, "POST", "/v1/jobs", &request)?;
    ensure!(job.status == 202, "{}", job.body);
    let path = format!("/v1/jobs/{}", job.json()?["id"].as_str().context("no id")?);
    for kill in 1..=kills {
        await_job(server, &path, |job| done(job) >= kill * count / (kills + 2))?;
        fixture.kill();
        println!("kill {kill}");
        fixture.start()?;
    }
    let job = await_job(server, &path, |job| job["ended_at"].is_string())?;
    println!("{job}");
    ensure!(job["state"] == "done" && done(&job) == count && job["failed"] == 0, "{job}");
    await_failed(server, count)?;
    each_was_replayed_once(server, count)
}

fn done(job: &Value) -> usize {
    job["done"].as_u64().unwrap_or(0) as usize
}

/// Waits for every delivery to be a dead letter, and none pending.
fn await_failed(server: SocketAddr, count: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let stats = get(server, "/v1/stats")?.json()?;
        let states = &stats["states"];
        let of = |state: &str| states[state].as_u64().unwrap_or(0) as usize;
        let pending: usize = ["queued", "sending", "retrying", "parked"].into_iter().map(of).sum();
        if pending == 0 && of("failed") == count {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not all are dead letters: {stats}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn await_job(server: SocketAddr, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let job = get(server, path)?.json()?;
        if wanted(&job) {
            return Ok(job);
        }
        ensure!(Instant::now() < deadline, "the job does not go on: {job}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first attempt, and the one after the replay.
fn each_was_replayed_once(server: SocketAddr, count: usize) -> Result<()> {
    let request = json!({"kind": "export", "filter": {}}).to_string();
    let job = call(server, "POST", "/v1/jobs", &request)?.json()?;
    let path = format!("/v1/jobs/{}", job["id"].as_str().context("no id")?);
    await_job(server, &path, |job| job["state"] == "done")?;
    let result = get(server, &format!("{path}/result"))?;
    let mut lines = 0;
    for line in result.body.lines() {
        let delivery: Value = serde_json::from_str(line)?;
        let attempts = delivery["log"].as_array().map_or(0, Vec::len);
        ensure!(attempts == 2, "{} was attempted {attempts} times", delivery["id"]);
        lines += 1;
    }
    ensure!(lines == count, "{lines} of {count} deliveries are in the export");
    Ok(())
}
