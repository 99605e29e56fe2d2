//! A backup is taken while messages are accepted, and restored elsewhere.
//!
//! Short here; `cargo xtask prove backup` runs it with 1 000 accepts per second.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

use super::BINARY;
use super::fixture::*;

/// Nothing is sent, so that everything is pending.
const API_ONLY: &str = "[server]\nrole = \"api\"\n";

#[test]
fn a_backup_under_load_has_everything_and_sends_nothing_until_it_is_released() -> Result<()> {
    let seconds = from_environment("POSTRIDER_BACKUP_SECONDS", 3);
    let per_second = from_environment("POSTRIDER_BACKUP_PER_S", 200);
    let mut old = ProcessFixture::new(BINARY, API_ONLY)?;
    let sandbox_at = old.start_sandbox(&[])?;
    old.write_config(&format!("{API_ONLY}{LOCAL_TARGETS}"))?;
    old.start()?;
    let target = format!("http://{sandbox_at}/hook/a");
    let (data, backup) = (shown(&old.path("data")), shown(&old.path("backup")));
    let server = old.server_at;
    let (accepted, manifest) = std::thread::scope(|scope| -> Result<_> {
        let target = &target;
        let caller = scope.spawn(move || accept(server, target, seconds, per_second));
        std::thread::sleep(Duration::from_millis(u64::from(seconds) * 600));
        let manifest = postrider_json(&["backup", &backup, "--data", &data, "--json"])?;
        Ok((caller.join().expect("the callers")?, manifest))
    })?;
    let metrics = get(server, "/metrics")?.body;
    let line = metrics.lines().find(|l| l.starts_with("postrider_store_backup_timestamp_seconds"));
    ensure!(line.is_some_and(|line| !line.ends_with(" 0.0")), "{line:?}");
    old.kill();
    let taken_at = taken_at_ms(&old)?;
    let before: HashSet<_> = accepted
        .iter()
        .filter(|accepted| accepted.answered_at < taken_at)
        .map(|accepted| accepted.delivery.clone())
        .collect();
    let mut took: Vec<_> = accepted.iter().map(|accepted| accepted.took).collect();
    took.sort_unstable();
    println!("accepted:             {} in {seconds} s", accepted.len());
    println!("before the backup:    {}", before.len());
    println!("in the backup:        {} pending", manifest["pending"]);
    println!("accepts, p99:         {:?}", took[took.len() * 99 / 100]);
    ensure!(!before.is_empty() && before.len() < accepted.len(), "it was taken in the middle");

    let mut new = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    let data = shown(&new.path("data"));
    let restored = postrider_json(&["restore", &backup, "--data", &data, "--json"])?;
    ensure!(restored["held"] == manifest["pending"], "{restored} {manifest}");
    ensure!(restored["messages"] == manifest["messages"], "{restored} {manifest}");
    new.start()?;
    let there = all_deliveries(new.server_at)?;
    let missing = before.iter().filter(|id| !there.contains(*id)).count();
    println!("missing:              {missing}");
    ensure!(missing == 0, "{missing} acknowledged deliveries are not in the backup");
    held_is_visible(new.server_at, &there, &restored)?;
    new_work_goes_on(new.server_at, sandbox_at, &target)?;
    ensure!(received(sandbox_at)?.is_disjoint(&there), "something held was sent");

    let at = format!("http://{}", new.server_at);
    let release = ["deliveries", "release", "--all", "--tenant", "*", "--json", "--server", &at];
    let released = postrider_json(&release)?;
    ensure!(released["released"] == restored["held"], "{released} {restored}");
    await_that("everything released is sent", || Ok(received(sandbox_at)?.is_superset(&there)))?;
    println!("released and sent:    {}", there.len());
    ensure!(stats(new.server_at)?["held"] == 0);
    Ok(())
}

fn taken_at_ms(fixture: &ProcessFixture) -> Result<i64> {
    let manifest = std::fs::read(fixture.path("backup/backup.json"))?;
    let manifest: Value = serde_json::from_slice(&manifest)?;
    manifest["taken_at"].as_i64().context("a time")
}

fn held_is_visible(server: SocketAddr, ids: &HashSet<String>, restored: &Value) -> Result<()> {
    let stats = stats(server)?;
    ensure!(stats["held"] == restored["held"], "{stats:#}");
    ensure!(stats["problems"][0]["code"] == "deliveries_held", "{stats:#}");
    let at = format!("http://{server}");
    let status = postrider(&["status", "--tenant", "*", "--server", &at])?.stdout;
    let status = String::from_utf8(status)?;
    ensure!(status.contains(&format!("held       {} from a backup", restored["held"])), "{status}");
    let id = ids.iter().next().context("an id")?;
    let why = postrider_json(&["explain", id, "--json", "--server", &at])?;
    ensure!(why["waits_for"] == "an operator to release it", "{why:#}");
    ensure!(why["delivery"]["held"] == true && why["state"] == "parked", "{why:#}");
    let metrics = get(server, "/metrics")?.body;
    let wanted = format!("postrider_held_deliveries {}", restored["held"]);
    ensure!(metrics.lines().any(|line| line == wanted), "no line {wanted}");
    let listed = TestConnection::open(server)?.get_json("/v1/deliveries?held=true&limit=5")?;
    ensure!(listed["items"].as_array().is_some_and(|items| items.len() == 5), "{listed:#}");
    Ok(())
}

/// A message that is accepted after the restore is sent at once.
fn new_work_goes_on(server: SocketAddr, sandbox: SocketAddr, target: &str) -> Result<()> {
    let body = format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{target}"}}}}}}"#);
    let answer = TestConnection::open(server)?.call_ok("POST", "/v1/messages", None, &body)?;
    let answer: Value = serde_json::from_str(&answer)?;
    let id = answer["deliveries"][0]["id"].as_str().context("an id")?.to_owned();
    await_that("new work is sent", || Ok(received(sandbox)?.contains(&id)))
}
