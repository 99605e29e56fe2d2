//! The sandbox's counts and records, and the ways to set it up.

use std::collections::HashSet;

use http::Method;
use postrider_sandbox::{
    FaultProfile, SandboxConfig, SandboxSubscription, SubscriptionRequest, start,
};
use serde_json::{Value, json};

use crate::client::{self, Sender, call, request};
use crate::{over_h2, sandbox};

#[tokio::test]
async fn every_id_is_listed_with_its_history() {
    let sandbox = sandbox().await;
    let wish = SubscriptionRequest { count: Some(50), ..SubscriptionRequest::default() };
    let (subscriptions, sender) = (sandbox.subscribe(&wish).expect("subscriptions"), Sender::new());
    let mut connection = over_h2(&sandbox).await;
    for n in 0..300 {
        let plain = json!({ "id": format!("n{n}") }).to_string();
        let push = sender.push(&subscriptions[n % 50], plain.as_bytes());
        assert_eq!(connection.send(push).await.expect("an answer").status.as_u16(), 201);
    }
    let reply = call(&sandbox, Method::GET, "/sandbox/received/ids", &Value::Null).await;
    let lines: Vec<Value> =
        reply.text().lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let ids: HashSet<_> = lines.iter().map(|l| l["id"].as_str().expect("an id")).collect();
    assert_eq!((lines.len(), ids.len()), (300, 300));
    assert!(lines.iter().all(|l| l["accepted"] == 1 && l["history"][0]["result"] == 201));

    let reply = call(&sandbox, Method::DELETE, "/sandbox/received", &Value::Null).await;
    assert_eq!(reply.status.as_u16(), 204);
    let sum = sandbox.received();
    assert_eq!((&sum["total"], &sum["ids"]), (&json!(0), &json!(0)));
    let gone = call(&sandbox, Method::GET, "/sandbox/received/n7", &Value::Null).await;
    assert_eq!(gone.status.as_u16(), 404);
}

#[tokio::test]
async fn the_same_key_at_two_targets_is_no_duplicate_but_the_same_delivery_is() {
    let sandbox = sandbox().await;
    let mut connection = client::plain(sandbox.http).await;
    for id in ["order-7", "dlv_06f1w8v0m5qk3t9xz2c4b7d8ea"] {
        for name in ["a", "b"] {
            let url = format!("{}/http/{name}", sandbox.http_origin());
            let mut post = request(Method::POST, &url, "{}");
            post.headers_mut().insert("idempotency-key", id.parse().expect("a key"));
            assert_eq!(connection.send(post).await.expect("an answer").status.as_u16(), 200);
        }
    }
    assert_eq!(sandbox.received()["duplicates"], 1);
}

#[tokio::test]
async fn subscriptions_come_singly_or_in_bulk() {
    let sandbox = sandbox().await;
    let single = call(&sandbox, Method::POST, "/sandbox/subscriptions", &Value::Null).await;
    let single: SandboxSubscription = serde_json::from_slice(&single.body).expect("one");
    assert!(single.endpoint.starts_with(&format!("{}/push/", sandbox.https_origin())));
    let path = "/sandbox/subscriptions?count=1000&service=mozilla&script=503:1,201";
    let many = call(&sandbox, Method::POST, path, &Value::Null).await;
    let many: Vec<SandboxSubscription> = serde_json::from_slice(&many.body).expect("many");
    let endpoints: HashSet<_> = many.iter().map(|s| s.endpoint.as_str()).collect();
    assert_eq!(endpoints.len(), 1000);
    let url = format!("{}/sandbox/subscriptions?count=3", sandbox.http_origin());
    let mut lines = request(Method::POST, &url, "");
    lines.headers_mut().insert("accept", "application/x-ndjson".parse().expect("a value"));
    let reply = client::plain(sandbox.http).await.send(lines).await.expect("an answer");
    assert_eq!(reply.text().lines().count(), 3);
    let wrong = call(&sandbox, Method::POST, "/sandbox/subscriptions?cuont=3", &Value::Null).await;
    assert_eq!(wrong.status.as_u16(), 400);
}

#[tokio::test]
async fn the_same_seed_hands_out_the_same_keys() {
    let keys = async |seed| {
        let config = SandboxConfig { seed, ..SandboxConfig::default() };
        let sandbox = start(config).await.expect("a sandbox");
        let wish = SubscriptionRequest { count: Some(5), ..SubscriptionRequest::default() };
        let made = sandbox.subscribe(&wish).expect("subscriptions");
        made.into_iter().map(|s| (s.keys.p256dh, s.keys.auth)).collect::<Vec<_>>()
    };
    assert_eq!(keys(3).await, keys(3).await);
    assert_ne!(keys(3).await, keys(4).await);
}

#[tokio::test]
async fn the_authority_is_written_where_clients_find_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let config = SandboxConfig { ca_out: Some(file.clone()), ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    assert_eq!(std::fs::read_to_string(file).expect("a file"), sandbox.ca_pem);
    let url = format!("{}/sandbox/ca.pem", sandbox.https_origin());
    let reply = over_h2(&sandbox).await.send(request(Method::GET, &url, "")).await;
    assert_eq!(reply.expect("an answer").text(), sandbox.ca_pem);
}

#[tokio::test]
async fn a_stopped_sandbox_takes_no_connection() {
    let sandbox = sandbox().await;
    let addr = sandbox.http;
    sandbox.shutdown().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}

#[test]
fn a_profile_comes_from_a_toml_or_json_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("writing");
        FaultProfile::load(file.to_str().expect("UTF-8"))
    };
    let toml = load("a.toml", "[[rule]]\nfault = '429:2'\nshare = 0.5\nper = 'target'");
    let json = load("a.json", r#"{"rule":[{"fault":"429:2","share":0.5,"per":"target"}]}"#);
    assert_eq!(toml.expect("TOML"), json.expect("JSON"));
    assert!(load("b.toml", "[[rule]]\nfault = 'explode'").is_err());
    assert!(load("c.toml", "[[rule]]\nfault = '503'\nshares = 1").is_err());
    let missing = FaultProfile::load("stromy").expect_err("no such profile");
    assert!(missing.to_string().contains("none, mild, demo, storm"), "{missing}");
}
