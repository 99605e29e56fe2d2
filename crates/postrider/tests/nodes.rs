//! Several servers share a store in PostgreSQL, tested on the real binary.

#![cfg(feature = "postgres")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{call, get};
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use postrider_testkit::stall_proxy::StallProxy;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
const MESSAGES: usize = 300;

fn node(postgres: &PostgresServer, role: &str) -> Result<ProcessFixture> {
    node_at(&postgres.url("schema=nodes"), role, "")
}

fn node_at(url: &str, role: &str, config: &str) -> Result<ProcessFixture> {
    let store = format!("[store]\nurl = \"{url}\"\n");
    let server = format!("[server]\nrole = \"{role}\"\n");
    ProcessFixture::started(BINARY, &format!("{LOCAL_TARGETS}{server}{store}{config}"))
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
fn servers_share_a_store_and_go_on_when_one_is_killed() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let mut api = node(&postgres, "api")?;
    let ready = api.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", &[])?;
    let origin = ready["http"].as_str().unwrap_or_default();
    let sandbox = origin.trim_start_matches("http://").parse()?;
    let mut first = node(&postgres, "worker")?;
    let second = node(&postgres, "worker")?;
    assert_eq!(post(first.server_at, sandbox, 0)?, 503, "a worker accepts nothing");
    for number in 0..MESSAGES {
        assert_eq!(post(api.server_at, sandbox, number)?, 202);
        if number == MESSAGES / 2 {
            first.kill();
        }
    }
    await_sent(api.server_at, MESSAGES as u64)?;
    let status = stats(second.server_at)?;
    assert!(status["engine"]["name"].as_str().is_some_and(|name| name.starts_with("PostgreSQL")));
    let problems = status["problems"].to_string();
    assert!(problems.contains("fsync_off"), "the tests run without fsync: {problems}");
    Ok(())
}

/// How often the provider got each delivery.
fn calls_by_id(sandbox: SocketAddr) -> Result<Vec<u64>> {
    let text = get(sandbox, "/sandbox/received/ids")?.body;
    let count = |line: &str| -> Result<u64> {
        let entry: Value = serde_json::from_str(line)?;
        entry["accepted"].as_u64().with_context(|| format!("no count in {line}"))
    };
    text.lines().map(count).collect()
}

#[test]
fn a_worker_that_is_cut_off_loses_its_work_to_another_and_its_late_results_are_refused()
-> Result<()> {
    let postgres = PostgresServer::start()?;
    let proxy = StallProxy::start(([127, 0, 0, 1], postgres.port).into())?;
    let mut api = node(&postgres, "api")?;
    let ready = api.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", &[])?;
    let origin = ready["http"].as_str().unwrap_or_default();
    let sandbox = origin.trim_start_matches("http://").parse()?;
    let direct = postgres.url("schema=nodes");
    let behind = direct.replace(&postgres.port.to_string(), &proxy.address.port().to_string());
    let cut_off = node_at(&behind, "worker", "")?;
    let other = node(&postgres, "worker")?;
    for number in 0..MESSAGES {
        assert_eq!(post(api.server_at, sandbox, number)?, 202);
        if number == MESSAGES / 3 {
            proxy.stall();
        }
    }
    await_sent(api.server_at, MESSAGES as u64)?;
    proxy.go_on();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !cut_off.server_log()?.contains("shards were lost") {
        ensure!(Instant::now() < deadline, "it still believes that it holds its shards");
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in 0..20 {
        assert_eq!(post(api.server_at, sandbox, MESSAGES + number)?, 202);
    }
    await_sent(other.server_at, MESSAGES as u64 + 20)?;
    let calls = calls_by_id(sandbox)?;
    assert_eq!(calls.len(), MESSAGES + 20, "each delivery has its id in all calls");
    let repeats: u64 = calls.iter().map(|calls| calls - 1).sum();
    assert!(repeats <= 64, "{repeats} repeats: only what was being sent may be sent again");
    Ok(())
}

#[test]
fn a_tenants_rate_holds_for_all_workers_together() -> Result<()> {
    const RATE: usize = 40;
    const SECONDS: usize = 5;
    let postgres = PostgresServer::start()?;
    let rate = format!("[tenants.default]\nrate_per_s = {RATE}\nrate_burst = 1\n");
    let url = postgres.url("schema=nodes");
    let mut api = node_at(&url, "api", &rate)?;
    let ready = api.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", &[])?;
    let origin = ready["http"].as_str().unwrap_or_default();
    let sandbox: SocketAddr = origin.trim_start_matches("http://").parse()?;
    let workers = [node_at(&url, "worker", &rate)?, node_at(&url, "worker", &rate)?];
    for number in 0..RATE * (SECONDS + 4) {
        assert_eq!(post(api.server_at, sandbox, number)?, 202);
    }
    let received = || -> Result<u64> {
        get(sandbox, "/sandbox/received")?.json()?["total"].as_u64().context("no total")
    };
    let (before, began) = (received()?, Instant::now());
    std::thread::sleep(Duration::from_secs(SECONDS as u64));
    let (made, seconds) = (received()? - before, began.elapsed().as_secs_f64());
    let per_s = made as f64 / seconds;
    let limit = RATE as f64;
    // How much of it is used on a busy machine is another matter: `cargo xtask prove nodes --only limits`.
    assert!((0.4 * limit..=limit + 1.0).contains(&per_s), "{per_s:.1} calls per second of {limit}");
    drop(workers);
    Ok(())
}

#[test]
fn the_doctor_says_what_the_server_promises() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let doctor = |url: &str| -> Result<(String, bool)> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(BINARY);
        command.args(["doctor", "--store", url, "--time-from", "http://127.0.0.1:1"]);
        let done = command.current_dir(folder.path()).output()?;
        Ok((String::from_utf8_lossy(&done.stdout).into_owned(), done.status.success()))
    };
    let (text, _) = doctor(&postgres.url("schema=examined"))?;
    assert!(text.contains("its tables will be made at the first start"), "{text}");
    assert!(text.contains("an acknowledged message survives"), "{text}");
    assert!(text.contains("fsync is off"), "{text}");
    let tables = postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'examined'")?;
    assert_eq!(tables, "0", "a look changes nothing");
    let (text, is_well) = doctor("postgres://postgres@127.0.0.1:1/postgres")?;
    assert!(text.contains("cannot connect") && !is_well, "{text}");
    Ok(())
}

#[test]
fn a_folder_moves_to_postgresql_by_a_command() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let mut old =
        ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}[server]\nrole = \"api\"\n"))?;
    let sandbox = old.start_sandbox(&[])?;
    old.start()?;
    for number in 0..20 {
        assert_eq!(post(old.server_at, sandbox, number * 200)?, 202);
    }
    old.signal("TERM")?;
    old.await_end()?;
    let (from, to) = (old.path("data").display().to_string(), postgres.url("schema=nodes"));
    let done =
        Command::new(BINARY).args(["migrate-store", "--from", &from, "--to", &to]).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{said}");
    let new = node(&postgres, "all")?;
    await_sent(new.server_at, 20)
}
