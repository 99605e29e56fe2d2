//! Tenants that are pinned to a region, tested on the real binary over PostgreSQL.

#![cfg(feature = "postgres")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, get};
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

fn config(postgres: &PostgresServer, role: &str, region: &str) -> String {
    format!(
        "{LOCAL_TARGETS}[server]\nrole = \"{role}\"\nregion = \"{region}\"\n[store]\nurl = \"{}\"\n\
         regions = [\"eu\", \"us\"]\n[tenants.acme]\nregion = \"eu\"\n",
        postgres.url("schema=regions")
    )
}

fn sent(server: SocketAddr) -> Result<u64> {
    let stats = get(server, "/v1/stats")?.json()?;
    Ok(stats["totals"]["sent"].as_u64().or(stats["states"]["sent"].as_u64()).unwrap_or(0))
}

fn until(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn post(api: SocketAddr, tenant: &str, sandbox: SocketAddr) -> Result<String> {
    let url = format!("http://{sandbox}/hook/ok");
    let body = format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#);
    let answer = TestConnection::open(api)?.call_ok("POST", "/v1/messages", Some(tenant), &body)?;
    let at = answer.find("dlv_").with_context(|| format!("no delivery in {answer}"))?;
    Ok(answer[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

fn state(api: SocketAddr, id: &str) -> Result<String> {
    let delivery = TestConnection::open(api)?.get_json(&format!("/v1/deliveries/{id}"))?;
    Ok(delivery["state"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_pinned_tenant_waits_for_a_worker_of_its_region_and_is_told_so() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let mut api = ProcessFixture::started(BINARY, &config(&postgres, "api", "us"))?;
    let sandbox = api.start_sandbox(&[])?;
    let american = ProcessFixture::started(BINARY, &config(&postgres, "worker", "us"))?;
    let (pinned, other) =
        (post(api.server_at, "acme", sandbox)?, post(api.server_at, "other", sandbox)?);
    until("the other tenant is sent for", || Ok(state(api.server_at, &other)? == "sent"))?;
    assert_eq!(state(api.server_at, &pinned)?, "queued");
    let stats = get(api.server_at, "/v1/stats")?.json()?;
    let problems = stats["problems"].to_string();
    ensure!(problems.contains("region_without_worker"), "{problems}");
    ensure!(problems.contains("no worker of region eu"), "{problems}");
    let path = format!("/v1/deliveries/{pinned}/explain");
    let explained = TestConnection::open(american.server_at)?.get_json(&path)?;
    assert_eq!(explained["waits_for"], "a worker of the region eu");
    let metrics = get(api.server_at, "/metrics")?.body;
    ensure!(metrics.contains("region_without_worker"), "the metric counts it");

    let european = ProcessFixture::started(BINARY, &config(&postgres, "worker", "eu"))?;
    until("it is sent from its region", || Ok(state(api.server_at, &pinned)? == "sent"))?;
    until("the problem is over", || {
        let stats = get(api.server_at, "/v1/stats")?.json()?;
        Ok(!stats["problems"].to_string().contains("region_without_worker"))
    })?;
    assert!(sent(european.server_at)? >= 1);
    Ok(())
}

#[test]
fn a_list_of_regions_that_contradicts_the_store_is_refused() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let _first = ProcessFixture::started(BINARY, &config(&postgres, "api", "us"))?;
    let other = config(&postgres, "api", "us").replace("[\"eu\", \"us\"]", "[\"us\", \"eu\"]");
    let mut second = ProcessFixture::new(BINARY, &other)?;
    second.spawn()?;
    second.await_end()?;
    let log = second.server_log()?;
    ensure!(log.contains("the store has [\"eu\", \"us\"]"), "{log}");
    Ok(())
}
