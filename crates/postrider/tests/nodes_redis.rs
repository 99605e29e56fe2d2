//! Several servers share a store in Redis, tested on the real binary.

#![cfg(feature = "redis")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_testkit::http::{call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use postrider_testkit::redis::RedisServer;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
const MESSAGES: usize = 300;

fn node(redis: &RedisServer, role: &str) -> Result<ProcessFixture> {
    let store = format!("[store]\nurl = \"{}\"\n", redis.url("prefix=nodes"));
    ProcessFixture::started(BINARY, &format!("{LOCAL_TARGETS}[server]\nrole = \"{role}\"\n{store}"))
}

fn post(server: SocketAddr, sandbox: SocketAddr, number: usize) -> Result<u16> {
    // Each name is an origin of its own, so that both workers have some.
    let url = format!("http://127.0.0.{}:{}/hook/ok", 1 + number % 200, sandbox.port());
    let body = format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#);
    Ok(call(server, "POST", "/v1/messages", &body)?.status)
}

fn stats(server: SocketAddr) -> Result<Value> {
    get(server, "/v1/stats")?.json()
}

fn await_sent(server: SocketAddr, count: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = stats(server)?;
        if stats["states"]["sent"].as_u64() == Some(count) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{}", stats["states"]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn servers_share_a_store_in_redis_and_go_on_when_one_is_killed() -> Result<()> {
    let redis = RedisServer::start()?;
    let mut api = node(&redis, "api")?;
    let ready = api.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", &[])?;
    let origin = ready["http"].as_str().unwrap_or_default();
    let sandbox = origin.trim_start_matches("http://").parse()?;
    let mut first = node(&redis, "worker")?;
    let second = node(&redis, "worker")?;
    assert_eq!(post(first.server_at, sandbox, 0)?, 503, "a worker accepts nothing");
    for number in 0..MESSAGES {
        assert_eq!(post(api.server_at, sandbox, number)?, 202);
        if number == MESSAGES / 2 {
            first.kill();
        }
    }
    await_sent(api.server_at, MESSAGES as u64)?;
    let status = stats(second.server_at)?;
    assert!(status["engine"]["name"].as_str().is_some_and(|name| name.starts_with("Redis 7")));
    assert!(status["engine"]["promise"].to_string().contains("loss of power of the server"));
    Ok(())
}

#[test]
fn the_doctor_says_what_redis_promises_and_what_is_refused() -> Result<()> {
    let redis = RedisServer::start()?;
    let doctor = |url: &str| -> Result<(String, bool)> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(BINARY);
        command.args(["doctor", "--store", url, "--time-from", "http://127.0.0.1:1"]);
        let done = command.current_dir(folder.path()).output()?;
        Ok((String::from_utf8_lossy(&done.stdout).into_owned(), done.status.success()))
    };
    let (text, _) = doctor(&redis.url("prefix=examined"))?;
    assert!(text.contains("it has no store yet"), "{text}");
    assert!(text.contains("an acknowledged message survives"), "{text}");
    assert_eq!(redis.run(&["DBSIZE"])?, ":0", "a look changes nothing");
    redis.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    let (text, is_well) = doctor(&redis.url("prefix=examined"))?;
    assert!(text.contains("risk=eviction") && !is_well, "{text}");
    let (text, is_well) = doctor("redis://127.0.0.1:1/0")?;
    assert!(text.contains("cannot connect") && !is_well, "{text}");
    Ok(())
}

#[test]
fn a_folder_moves_to_redis_by_a_command() -> Result<()> {
    let redis = RedisServer::start()?;
    let mut old =
        ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}[server]\nrole = \"api\"\n"))?;
    let sandbox = old.start_sandbox(&[])?;
    old.start()?;
    for number in 0..20 {
        assert_eq!(post(old.server_at, sandbox, number * 200)?, 202);
    }
    old.signal("TERM")?;
    old.await_end()?;
    let (from, to) = (old.path("data").display().to_string(), redis.url("prefix=nodes"));
    let done =
        Command::new(BINARY).args(["migrate-store", "--from", &from, "--to", &to]).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{said}");
    let new = node(&redis, "all")?;
    await_sent(new.server_at, 20)
}
