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
use postrider_testkit::stall_proxy::StallProxy;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
const MESSAGES: usize = 200;

fn config(postgres: &PostgresServer, role: &str) -> String {
    let url = postgres.url("schema=failover");
    format!(
        "{LOCAL_TARGETS}[server]\nrole = \"{role}\"\nnode = \"{role}\"\n[store]\nurl = \"{url}\"\n"
    )
}

/// A node that reaches its store over a proxy.
fn config_at(way: &StallProxy, role: &str, name: &str) -> String {
    let port = way.address.port();
    let url =
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable&schema=failover");
    format!(
        "{LOCAL_TARGETS}[server]\nrole = \"{role}\"\nnode = \"{name}\"\n[store]\nurl = \"{url}\"\n"
    )
}

/// Hands a message in; answers the delivery if it was acknowledged.
fn post(server: SocketAddr, sandbox: SocketAddr, number: usize) -> Result<Option<String>> {
    hand_in(server, sandbox, number, "ok")
}

/// Hands a message in that has to be acknowledged.
fn post_to(server: SocketAddr, sandbox: SocketAddr, number: usize, hook: &str) -> Result<String> {
    hand_in(server, sandbox, number, hook)?.context("not acknowledged")
}

fn hand_in(
    server: SocketAddr,
    sandbox: SocketAddr,
    number: usize,
    hook: &str,
) -> Result<Option<String>> {
    let url = format!("http://127.0.0.{}:{}/hook/{hook}", 1 + number % 50, sandbox.port());
    let body = format!(
        r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"idempotency_key":"{hook}-{number}"}}"#
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

/// Where a sandbox listens.
fn sandbox_of(node: &mut ProcessFixture, options: &[&str]) -> Result<SocketAddr> {
    let ready = node.start_sandbox_of(BINARY.as_ref(), "0.0.0.0:0", options)?;
    let origin = ready["http"].as_str().context("the sandbox says where it listens")?;
    Ok(origin.trim_start_matches("http://").parse()?)
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Deliveries in a state, by all nodes of a store.
fn in_state(node: &ProcessFixture, state: &str) -> Result<u64> {
    Ok(get(node.server_at, "/v1/stats")?.json()?["states"][state].as_u64().unwrap_or(0))
}

fn metric(node: &ProcessFixture, name: &str) -> Result<f64> {
    let text = get(node.server_at, "/metrics")?.body;
    let of = text.lines().filter(|line| line.starts_with(name));
    Ok(of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// A worker that cannot reach the store during the failover reaches the new primary afterwards.
#[test]
fn what_a_cut_off_worker_sent_before_the_failover_is_not_settled_after_it() -> Result<()> {
    let primary = PostgresServer::start()?;
    let replica = primary.start_replica()?;
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
    primary.sql("SELECT pg_reload_conf()")?;
    let (old, new) = (([127, 0, 0, 1], primary.port).into(), ([127, 0, 0, 1], replica.port).into());
    // The name of the store, as the nodes know it: it leads to another server after the failover.
    let (way, way_of_first) = (StallProxy::start(old)?, StallProxy::start(old)?);
    let mut api = ProcessFixture::started(BINARY, &config_at(&way, "api", "api"))?;
    let faults = api.path("faults.toml");
    std::fs::write(&faults, "[[rule]]\nfault = \"slow:3000\"\nname = \"slow\"\n")?;
    let sandbox = sandbox_of(&mut api, &["--faults", &faults.display().to_string()])?;
    let first = ProcessFixture::started(BINARY, &config_at(&way_of_first, "worker", "first"))?;
    let in_flight: Vec<_> = (0..2)
        .map(|number| post_to(api.server_at, sandbox, number, "slow"))
        .collect::<Result<_>>()?;
    until("the first worker sends", || Ok(in_state(&api, "sending")? == 2))?;
    way_of_first.stall();
    primary.crash()?;
    replica.promote()?;
    way.lead_to(new);
    let second = ProcessFixture::started(BINARY, &config_at(&way, "worker", "second"))?;
    until("the second worker has sent them", || Ok(in_state(&api, "sent").unwrap_or(0) == 2))?;
    way_of_first.lead_to(new);
    way_of_first.go_on();
    until("late results are refused", || Ok(metric(&first, "postrider_fenced_total")? >= 2.0))?;
    let calls = received(sandbox)?;
    for id in &in_flight {
        assert_eq!(calls.get(id), Some(&2), "it was being sent, and was sent again");
        let shown = get(api.server_at, &format!("/v1/deliveries/{id}"))?.json()?;
        assert_eq!(shown["state"], "sent", "{shown}");
        assert_eq!(shown["attempts"], 1, "the late result counts nothing: {shown}");
    }
    // Both work on, each in its own shards.
    for number in 0..MESSAGES {
        post_to(api.server_at, sandbox, number, "ok")?;
    }
    let all = MESSAGES as u64 + 2;
    until("everything is sent", || Ok(in_state(&api, "sent")? == all))?;
    until("both workers send", || {
        let number = received(sandbox)?.len();
        post_to(api.server_at, sandbox, number + MESSAGES, "ok")?;
        let sent = |node: &ProcessFixture| metric(node, "postrider_attempts_total");
        Ok(sent(&first)? > 2.0 && sent(&second)? > 2.0)
    })?;
    let calls = received(sandbox)?;
    let repeats: u64 = calls.values().map(|calls| calls.saturating_sub(1)).sum();
    assert_eq!(repeats, 2, "only what was being sent is sent again");
    Ok(())
}

/// The old primary is not stopped, and a worker and an API node are left with it.
#[test]
fn a_worker_left_at_the_old_primary_sends_no_more_than_it_may_have_in_flight() -> Result<()> {
    const IN_FLIGHT: u64 = 8 + 8;
    let primary = PostgresServer::start()?;
    let replica = primary.start_replica()?;
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
    primary.sql("SELECT pg_reload_conf()")?;
    let old = StallProxy::start(([127, 0, 0, 1], primary.port).into())?;
    let new = StallProxy::start(([127, 0, 0, 1], replica.port).into())?;
    let limits =
        "[dispatch]\nconcurrency = 8\nsettle_batch = 8\n[tenants.default]\nrate_per_s = 50\n";
    let config = |way: &StallProxy, role: &str, name: &str| config_at(way, role, name) + limits;
    let mut left_api = ProcessFixture::started(BINARY, &config(&old, "api", "left-api"))?;
    let sandbox = sandbox_of(&mut left_api, &[])?;
    let mut acknowledged = Vec::new();
    for number in 0..MESSAGES {
        acknowledged.push(post_to(left_api.server_at, sandbox, number, "ok")?);
    }
    let left = ProcessFixture::started(BINARY, &config(&old, "worker", "left"))?;
    until("the worker sends", || Ok(received(sandbox)?.len() > 20))?;
    replica.promote()?;
    // The old primary has no replica any more: it acknowledges nothing.
    let refused = post(left_api.server_at, sandbox, 9_999)?;
    assert_eq!(refused, None, "an API node that is left there acknowledges nothing");
    let settled = in_state(&left_api, "sent")?;
    let sent_there = metric(&left, "postrider_attempts_total")? as u64;
    assert!(sent_there <= settled + IN_FLIGHT, "{sent_there} calls, {settled} settled");
    let api = ProcessFixture::started(BINARY, &config(&new, "api", "api"))?;
    let _worker = ProcessFixture::started(BINARY, &config(&new, "worker", "worker"))?;
    until("everything is sent", || Ok(in_state(&api, "sent")? >= MESSAGES as u64))?;
    assert_eq!(metric(&left, "postrider_attempts_total")? as u64, sent_there, "it sends no more");
    let calls = received(sandbox)?;
    assert!(acknowledged.iter().all(|id| calls.contains_key(id)), "everything arrived");
    let repeats: u64 = calls.values().map(|calls| calls.saturating_sub(1)).sum();
    assert!(repeats <= IN_FLIGHT, "{repeats}: only what was being sent may be sent again");
    Ok(())
}
