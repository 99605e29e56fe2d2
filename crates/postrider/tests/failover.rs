//! Failover to a replica of PostgreSQL, as docs/postgres.md describes it, with a real streaming replica: the old server
//! is stopped, the replica is promoted, and the servers go on there. Nothing that was acknowledged is lost.

#![cfg(feature = "postgres")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{call, get};
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
const MESSAGES: usize = 200;

fn config(postgres: &PostgresServer, role: &str) -> String {
    let url = postgres.url("schema=failover");
    format!(
        "{LOCAL_TARGETS}[server]\nrole = \"{role}\"\nnode = \"{role}\"\n[store]\nurl = \"{url}\"\n"
    )
}

/// Hands a message in; answers the delivery if it was acknowledged.
fn post(server: SocketAddr, sandbox: SocketAddr, number: usize) -> Result<Option<String>> {
    let url = format!("http://127.0.0.{}:{}/hook/ok", 1 + number % 50, sandbox.port());
    let body = format!(
        r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"idempotency_key":"failover-{number}"}}"#
    );
    let Ok(answer) = call(server, "POST", "/v1/messages", &body) else { return Ok(None) };
    if answer.status != 202 {
        return Ok(None);
    }
    let id = answer.json()?["deliveries"][0]["id"].as_str().map(str::to_owned);
    Ok(Some(id.context("no delivery in the answer")?))
}

fn received(sandbox: SocketAddr) -> Result<HashMap<String, u64>> {
    let text = get(sandbox, "/sandbox/received/ids")?.body;
    let entry = |line: &str| -> Result<(String, u64)> {
        let entry: Value = serde_json::from_str(line)?;
        let id = entry["id"].as_str().context("no id")?.to_owned();
        Ok((id, entry["accepted"].as_u64().unwrap_or(0)))
    };
    text.lines().map(entry).collect()
}

#[test]
fn a_promoted_replica_has_everything_that_was_acknowledged() -> Result<()> {
    let primary = PostgresServer::start()?;
    let replica = primary.start_replica()?;
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
    primary.sql("SELECT pg_reload_conf()")?;
    let mut api = ProcessFixture::started(BINARY, &config(&primary, "api"))?;
    let ready = api.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", &[])?;
    let origin = ready["http"].as_str().unwrap_or_default();
    let sandbox: SocketAddr = origin.trim_start_matches("http://").parse()?;
    let mut worker = ProcessFixture::started(BINARY, &config(&primary, "worker"))?;
    let mut acknowledged = Vec::new();
    for number in 0..MESSAGES {
        acknowledged.extend(post(api.server_at, sandbox, number)?);
    }
    ensure!(acknowledged.len() == MESSAGES, "{} were acknowledged", acknowledged.len());
    // The old side is stopped first: nobody may write there once the other one is the primary.
    primary.crash()?;
    replica.promote()?;
    for (node, role) in [(&mut api, "api"), (&mut worker, "worker")] {
        node.kill();
        node.write_config(&config(&replica, role))?;
        node.start()?;
    }
    for number in 0..MESSAGES + 20 {
        let id = post(api.server_at, sandbox, number)?.context("not acknowledged")?;
        if number < MESSAGES {
            assert!(acknowledged.contains(&id), "the replica knows the key of {number}");
        } else {
            acknowledged.push(id);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let received = received(sandbox)?;
        let missing = acknowledged.iter().filter(|id| !received.contains_key(*id)).count();
        if missing == 0 {
            let repeats: u64 = received.values().map(|calls| calls.saturating_sub(1)).sum();
            assert_eq!(received.len(), acknowledged.len(), "repeats have their own ids");
            assert!(repeats <= 64, "{repeats}: only what was being sent may be sent again");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{missing} did not arrive");
        std::thread::sleep(Duration::from_millis(100));
    }
}
