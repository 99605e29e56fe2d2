//! The history: counts by minute that survive, add up, and belong to their tenant.

use std::sync::Arc;

use http::Method;
use postrider_core::ports::store::Store;
use postrider_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};

use crate::dead_letters::doomed;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, eventually, reply};

const MINUTES: &str = "/v1/stats/history?resolution=minute";

fn counted(history: &Value, kind: &str) -> u64 {
    let points = history["points"].as_array().into_iter().flatten();
    let rows = points.flat_map(|point| point["rows"].as_array().into_iter().flatten());
    rows.filter(|row| row["kind"] == kind).filter_map(|row| row["count"].as_u64()).sum()
}

#[tokio::test]
async fn a_tenant_sees_its_own_counts_and_an_admin_sees_all() {
    let server = ServerFixture::with_local_targets().await;
    let keys = [server.key("tenant", "a").await, server.key("tenant", "b").await];
    let [a, b] = keys.each_ref().map(|key| server.client(key));
    for client in [&a, &a, &b] {
        client.post("/v1/messages", &doomed()).await.unwrap();
    }
    let own = eventually(&a, MINUTES, |history| counted(history, "deliveries") == 2).await;
    assert_eq!(own["buckets_ms"].as_array().unwrap().len(), 16);
    let row = &own["points"][0]["rows"][0];
    assert_eq!(row["latency"].as_array().unwrap().len(), 17);
    assert_eq!(row["channel"], "webhook");
    assert!(row.get("provider").is_none(), "only what was asked for is told apart");
    eventually(&b, MINUTES, |history| counted(history, "deliveries") == 1).await;
    let all = server.admin().for_tenant(Some("*".to_owned()));
    let path = format!("{MINUTES}&by=tenant,provider&kind=deliveries");
    let each = eventually(&all, &path, |history| counted(history, "deliveries") == 3).await;
    let rows =
        each["points"].as_array().unwrap().iter().flat_map(|p| p["rows"].as_array().unwrap());
    let mut tenants: Vec<_> = rows.map(|row| row["tenant"].as_str().unwrap().to_owned()).collect();
    tenants.sort();
    tenants.dedup();
    assert_eq!(tenants, ["a", "b"]);
    let hours = "/v1/stats/history?resolution=hour&by=outcome";
    eventually(&all, hours, |history| counted(history, "deliveries") == 3).await;
    let none = format!("{MINUTES}&outcome=accepted");
    assert_eq!(counted(&a.get(&none).await.unwrap(), "attempts"), 0);
}

#[tokio::test]
async fn counts_survive_a_restart_and_those_of_both_runs_add_up() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    for _ in 0..2 {
        let server = ServerFixture::build(LOCAL_TARGETS, store.clone()).await;
        server.admin().post("/v1/messages", &doomed()).await.unwrap();
        let dead = |stats: &Value| stats["totals"]["dead_lettered"] == 1;
        eventually(&server.admin(), "/v1/stats", dead).await;
        server.running.shutdown().await;
    }
    let server = ServerFixture::over(store).await;
    let history = server.admin().get(MINUTES).await.unwrap();
    assert_eq!(counted(&history, "deliveries"), 2);
}

#[tokio::test]
async fn a_wrong_question_names_the_field_and_what_is_allowed() {
    let server = ServerFixture::start().await;
    let tenant = server.client(&server.key("tenant", "a").await);
    let ask = async |query: &str| {
        let path = format!("/v1/stats/history{query}");
        let answer = reply(&tenant, Method::GET, &path, "").await;
        (answer.status, answer.body["errors"][0]["field"].clone())
    };
    assert_eq!(ask("?resolution=day").await, (422, json!("resolution")));
    assert_eq!(ask("?kind=attempts").await, (422, json!("resolution")));
    assert_eq!(ask("?resolution=minute&by=host").await, (422, json!("by")));
    assert_eq!(ask("?resolution=minute&by=tenant").await, (422, json!("by")));
    assert_eq!(ask("?resolution=minute&kind=all").await, (422, json!("kind")));
    assert_eq!(ask("?resolution=minute&from=2020-01-01T00:00:00Z").await, (422, json!("from")));
    assert_eq!(ask("?resolution=minute&from=yesterday").await, (422, json!("from")));
    assert_eq!(ask("?resolution=minute&colour=red").await.0, 400);
    assert_eq!(ask("").await.0, 403, "rates are those of the whole server");
    let rates = server.admin().get("/v1/stats/history").await.unwrap();
    assert!(rates["rates"].is_array() && rates.get("points").is_none(), "{rates}");
}
