//! Jobs: replay, discard, cancel and export by filter, in the background.

use http::Method;
use postrider::client::Client;
use serde_json::{Value, json};

use super::dead_letters::doomed;
use postrider_testkit::server::{ServerFixture, eventually, message, reply};

async fn dead_letters(admin: &Client, count: usize) {
    for _ in 0..count {
        admin.post("/v1/messages", &doomed()).await.unwrap();
    }
    let all = |page: &Value| page["items"].as_array().unwrap().len() == count;
    eventually(admin, "/v1/dead-letters", all).await;
}

async fn ended(client: &Client, job: &Value) -> Value {
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    eventually(client, &path, |job| job["ended_at"].is_string()).await
}

#[tokio::test]
async fn a_replay_is_counted_first_and_then_done_in_the_background() {
    let server = ServerFixture::with_local_targets().await;
    let admin = server.admin();
    dead_letters(&admin, 3).await;
    let mut request = json!({"kind": "replay", "filter": {"channel": "webhook"}, "dry_run": true});
    let would = admin.post("/v1/jobs", &request).await.unwrap();
    assert_eq!((&would["count"], &would["takes_s"]), (&json!(3), &json!(1)));
    assert_eq!(would["sample"].as_array().unwrap().len(), 3);
    assert!(admin.get("/v1/jobs").await.unwrap()["items"].as_array().unwrap().is_empty());
    request["dry_run"] = false.into();
    let made = reply(&admin, Method::POST, "/v1/jobs", request.to_string()).await;
    assert_eq!(made.status, 202);
    let job = ended(&admin, &made.body).await;
    assert_eq!(job["state"], "done");
    assert_eq!((&job["done"], &job["failed"], &job["total"]), (&json!(3), &json!(0), &json!(3)));
    let tried_twice = |page: &Value| {
        let items = page["items"].as_array().unwrap();
        items.len() == 3 && items.iter().all(|item| item["log"].as_array().unwrap().len() == 2)
    };
    eventually(&admin, "/v1/dead-letters", tried_twice).await;
    let discard =
        json!({"kind": "discard", "filter": {"reason": "retries_exhausted"}, "reason": "test"});
    let job = ended(&admin, &admin.post("/v1/jobs", &discard).await.unwrap()).await;
    assert_eq!((&job["done"], &job["reason"]), (&json!(3), &json!("test")));
    assert!(admin.get("/v1/dead-letters").await.unwrap()["items"].as_array().unwrap().is_empty());
    let audit = admin.get("/v1/audit?action=job.create").await.unwrap();
    assert_eq!(audit["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_job_is_paused_changed_resumed_and_aborted() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    for _ in 0..4 {
        admin.post("/v1/messages", &message()).await.unwrap();
    }
    // One in ten seconds.
    let slow = json!({"kind": "cancel", "filter": {}, "rate_per_s": 0.1});
    let job = admin.post("/v1/jobs", &slow).await.unwrap();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    eventually(&admin, &path, |job| job["state"] == "running" && job["total"] == 4).await;
    let act =
        async |verb: &str| reply(&admin, Method::POST, &format!("{path}/{verb}"), Vec::new()).await;
    assert_eq!(act("pause").await.body["state"], "paused");
    assert_eq!(act("pause").await.status, 200, "a repeat is harmless");
    let faster = reply(&admin, Method::PATCH, &path, json!({"rate_per_s": 1000}).to_string()).await;
    assert_eq!((faster.status, &faster.body["rate_per_s"]), (200, &json!(1000.0)));
    assert_eq!(act("resume").await.status, 200);
    let done = ended(&admin, &job).await;
    assert_eq!((&done["state"], &done["done"]), (&json!("done"), &json!(4)));
    for verb in ["pause", "resume", "abort"] {
        assert_eq!(act(verb).await.status, 409, "{verb}");
    }
    let cancelled = admin.get("/v1/deliveries?state=cancelled").await.unwrap();
    assert_eq!(cancelled["items"].as_array().unwrap().len(), 4);
    let job = admin.post("/v1/jobs", &slow).await.unwrap();
    let path = format!("/v1/jobs/{}/abort", job["id"].as_str().unwrap());
    let aborted = reply(&admin, Method::POST, &path, Vec::new()).await;
    assert!(matches!(aborted.status, 200 | 409), "it may have found nothing to do already");
}

#[tokio::test]
async fn an_export_is_downloaded_in_either_form() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let mut to_ada = message();
    to_ada["to"]["address"]["url"] = "https://ada.example/hook".into();
    admin.post("/v1/messages", &to_ada).await.unwrap();
    admin.post("/v1/messages", &message()).await.unwrap();
    let request = |format: &str| json!({"kind": "export", "filter": {"provider": "https://ada.example"}, "format": format});
    for format in ["ndjson", "csv"] {
        let job = ended(&admin, &admin.post("/v1/jobs", &request(format)).await.unwrap()).await;
        assert_eq!(job["done"], 1);
        let url = job["result_url"].as_str().unwrap();
        let text = admin.bytes(Method::GET, url, None).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), if format == "csv" { 2 } else { 1 }, "{text}");
        assert!(text.contains("https://ada.example") && !text.contains("/hook"), "{text}");
        if format == "ndjson" {
            let line: Value = serde_json::from_str(lines[0]).unwrap();
            assert_eq!(line["provider"], "https://ada.example");
        }
    }
    let refused = reply(&admin, Method::POST, "/v1/jobs", request("parquet").to_string()).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body["errors"][0]["allowed"].as_str().unwrap().contains("ndjson or csv"));
}

#[tokio::test]
async fn a_tenant_sees_and_changes_its_own_jobs_only() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let acme = server.client(&server.key("tenant", "acme").await);
    let other = server.client(&server.key("tenant", "other").await);
    let slow = json!({"kind": "export", "filter": {}});
    let job = acme.post("/v1/jobs", &slow).await.unwrap();
    assert_eq!(job["tenant"], "acme");
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(ended(&acme, &job).await["state"], "done");
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::GET, format!("{path}/result")),
        (Method::POST, format!("{path}/abort")),
    ] {
        assert_eq!(reply(&other, method, &path, Vec::new()).await.status, 404, "{path}");
    }
    assert!(other.get("/v1/jobs").await.unwrap()["items"].as_array().unwrap().is_empty());
    let all = server
        .admin()
        .for_tenant(Some("*".to_owned()))
        .get("/v1/jobs?kind=export&state=done")
        .await
        .unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let reader = json!({"name": "reader", "tenant": "acme", "scopes": ["read"]});
    let reader = admin.post("/v1/keys", &reader).await.unwrap();
    let reader = server.client(reader["key"].as_str().unwrap());
    for kind in ["replay", "discard", "cancel"] {
        let request = json!({"kind": kind, "filter": {}, "dry_run": true}).to_string();
        assert_eq!(reply(&reader, Method::POST, "/v1/jobs", request).await.status, 403, "{kind}");
    }
}

#[tokio::test]
async fn a_repeat_of_the_call_makes_no_second_job() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let post = async |body: Value| {
        let request = http::Request::builder().method("POST").uri("/v1/jobs");
        let request =
            request.header("host", "localhost").header("content-type", "application/json");
        let request = request.header("idempotency-key", "twice");
        let request =
            request.header("authorization", format!("Bearer {}", postrider_testkit::ADMIN_KEY));
        let stream = tokio::net::TcpStream::connect(server.running.addr).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
        let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let export = json!({"kind": "export", "filter": {}});
    let (status, first) = post(export.clone()).await;
    assert_eq!(status, 202);
    let (status, second) = post(export).await;
    assert_eq!((status, &second["id"]), (202, &first["id"]));
    let (status, _) = post(json!({"kind": "discard", "filter": {}})).await;
    assert_eq!(status, 409);
    assert_eq!(admin.get("/v1/jobs").await.unwrap()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_job_cannot_do_is_refused() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    for (request, field) in [
        (json!({"kind": "explode", "filter": {}}), "kind"),
        (json!({"kind": "replay", "filter": {}, "rate_per_s": 0}), "rate_per_s"),
        (json!({"kind": "discard", "filter": {}, "ttl_s": 5}), "ttl_s"),
        (json!({"kind": "replay", "filter": {"state": "sent"}}), "filter.state"),
        (json!({"kind": "replay", "filter": {"provider": ""}}), "provider"),
    ] {
        let refused = reply(&admin, Method::POST, "/v1/jobs", request.to_string()).await;
        assert_eq!(refused.status, 422, "{request}");
        assert_eq!(refused.body["errors"][0]["field"], field);
    }
    for _ in 0..4 {
        admin.post("/v1/messages", &message()).await.unwrap();
    }
    let slow = json!({"kind": "cancel", "filter": {}, "rate_per_s": 0.1}).to_string();
    for _ in 0..10 {
        assert_eq!(reply(&admin, Method::POST, "/v1/jobs", slow.clone()).await.status, 202);
    }
    assert_eq!(reply(&admin, Method::POST, "/v1/jobs", slow).await.status, 429);
}
