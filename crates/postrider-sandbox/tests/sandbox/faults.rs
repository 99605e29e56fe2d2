//! Each fault as a sender sees it, and what the sandbox counts for it.

use std::time::{Duration, Instant};

use http::Method;
use postrider_sandbox::{FaultProfile, Sandbox, SandboxConfig, start};
use serde_json::{Value, json};

use crate::client::{self, Connection, Reply, call, request};
use crate::{over_h2, sandbox};

async fn scripted(sandbox: &Sandbox, name: &str, script: &[&str]) -> String {
    let path = format!("/sandbox/http/{name}");
    let reply = call(sandbox, Method::PUT, &path, &json!({ "script": script })).await;
    assert_eq!(reply.status.as_u16(), 200);
    format!("{}/http/{name}", sandbox.https_origin())
}

async fn send(connection: &mut Connection, url: &str, id: &str) -> hyper::Result<Reply> {
    let mut post = request(Method::POST, url, "{}");
    post.headers_mut().insert("idempotency-key", id.parse().expect("a key"));
    connection.send(post).await
}

async fn status(connection: &mut Connection, url: &str, id: &str) -> u16 {
    send(connection, url, id).await.expect("an answer").status.as_u16()
}

fn h2_reason(error: &hyper::Error) -> Option<h2::Reason> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return h2.reason();
        }
        source = error.source();
    }
    None
}

#[tokio::test]
async fn a_script_is_played_once_per_id_and_its_last_word_repeats() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["429:0", "503", "201"]).await;
    let mut connection = over_h2(&sandbox).await;
    for id in ["one", "two"] {
        for expected in [429, 503, 200, 200] {
            assert_eq!(status(&mut connection, &url, id).await, expected, "{id}");
        }
    }
    let sum = sandbox.received();
    assert_eq!(sum["refused"], json!({ "429": 2, "503": 2 }));
    assert_eq!((&sum["distinct"], &sum["duplicates"]), (&json!(2), &json!(2)));
    assert_eq!(sum["retry_after_violations"], 0);
}

#[tokio::test]
async fn coming_back_before_retry_after_is_counted() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["429:30", "503:30", "ok"]).await;
    let mut connection = over_h2(&sandbox).await;
    let first = send(&mut connection, &url, "one").await.expect("an answer");
    assert_eq!((first.status.as_u16(), first.header("retry-after")), (429, Some("30")));
    assert_eq!(status(&mut connection, &url, "one").await, 503);
    assert_eq!(status(&mut connection, &url, "one").await, 200);
    assert_eq!(status(&mut connection, &url, "other").await, 429, "another id was told nothing");
    assert_eq!(sandbox.received()["retry_after_violations"], 2);
}

#[tokio::test]
async fn a_reset_before_reading_leaves_nothing_accepted() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["reset", "ok"]).await;
    let http = sandbox.http_origin().to_owned() + "/http/a";
    assert!(send(&mut over_h2(&sandbox).await, &url, "h2").await.is_err());
    assert!(send(&mut client::plain(sandbox.http).await, &http, "h1").await.is_err());
    let sum = sandbox.received();
    assert_eq!((&sum["accepted"], &sum["unprocessed"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn a_reset_after_reading_is_accepted_and_its_repeat_told_apart() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["reset-after", "ok"]).await;
    let h1 = client::tls(&sandbox.ca_pem, sandbox.https, "http/1.1").await;
    for (mut connection, id) in [(over_h2(&sandbox).await, "h2"), (h1, "h1")] {
        assert!(send(&mut connection, &url, id).await.is_err());
        assert_eq!(status(&mut over_h2(&sandbox).await, &url, id).await, 200);
    }
    let sum = sandbox.received();
    assert_eq!((&sum["accepted"], &sum["distinct"]), (&json!(4), &json!(2)));
    assert_eq!((&sum["duplicates"], &sum["duplicates_after_reset"]), (&json!(0), &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_takes_no_answer_that_was_counted() {
    const ROUNDS: usize = 10;
    let sandbox = sandbox().await;
    let quick = scripted(&sandbox, "quick", &["ok"]).await;
    let slow = scripted(&sandbox, "slow", &["slow:3"]).await;
    let cut = scripted(&sandbox, "cut", &["reset-after"]).await;
    let mut answered = 0;
    for round in 0..ROUNDS {
        let Connection::H2(sender) = over_h2(&sandbox).await else { panic!("not HTTP/2") };
        let mut sending = tokio::task::JoinSet::new();
        for i in 0..100 {
            let url = match i {
                50 => cut.clone(),
                i if i % 2 == 0 => quick.clone(),
                _ => slow.clone(),
            };
            let mut connection = Connection::H2(sender.clone());
            let id = format!("{round}-{i}");
            sending.spawn(async move { send(&mut connection, &url, &id).await.is_ok() });
        }
        answered += sending.join_all().await.into_iter().filter(|ok| *ok).count();
    }
    assert!((1..99 * ROUNDS).contains(&answered), "{answered}: some before the cut, some after it");
    let sum = sandbox.received();
    let unanswered = sum["accepted_unanswered"].as_u64().expect("a number") as usize;
    assert!((1..=ROUNDS).contains(&unanswered), "{unanswered}");
    assert_eq!(sum["accepted"], json!(answered + unanswered));
}

#[tokio::test]
async fn a_refused_stream_says_that_it_was_not_processed() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["refused", "ok"]).await;
    let mut connection = over_h2(&sandbox).await;
    let error = send(&mut connection, &url, "one").await.expect_err("a reset stream");
    assert_eq!(h2_reason(&error), Some(h2::Reason::REFUSED_STREAM));
    assert_eq!(status(&mut connection, &url, "one").await, 200, "the connection lives on");
    assert_eq!(sandbox.received()["duplicates"], 0);
}

#[tokio::test]
async fn goaway_answers_and_then_closes_the_connection() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["goaway"]).await;
    let mut connection = over_h2(&sandbox).await;
    assert_eq!(status(&mut connection, &url, "one").await, 200);
    let Connection::H2(mut sender) = connection else { panic!("HTTP/2 was asked for") };
    let closed = async {
        while sender.ready().await.is_ok() && !sender.is_closed() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), closed).await.expect("a closed connection");
}

#[tokio::test]
async fn redirects_huge_bodies_and_delays_arrive_as_ordered() {
    let sandbox = sandbox().await;
    let redirect = scripted(&sandbox, "redirect", &["redirect"]).await;
    let huge = scripted(&sandbox, "huge", &["huge"]).await;
    let slow = scripted(&sandbox, "slow", &["slow:80"]).await;
    let mut connection = over_h2(&sandbox).await;
    let reply = send(&mut connection, &redirect, "one").await.expect("an answer");
    assert_eq!(
        (reply.status.as_u16(), reply.header("location")),
        (307, Some("/sandbox/elsewhere"))
    );
    let reply = send(&mut connection, &huge, "one").await.expect("an answer");
    assert_eq!((reply.status.as_u16(), reply.body.len()), (500, 32 << 20));
    let before = Instant::now();
    assert_eq!(status(&mut connection, &slow, "one").await, 200);
    assert!(before.elapsed() >= Duration::from_millis(80));
}

#[tokio::test]
async fn a_hanging_request_is_never_accepted() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["hang"]).await;
    let mut connection = over_h2(&sandbox).await;
    let waited =
        tokio::time::timeout(Duration::from_secs(1), send(&mut connection, &url, "one")).await;
    assert!(waited.is_err());
    let sum = sandbox.received();
    assert_eq!((&sum["total"], &sum["accepted"]), (&json!(1), &json!(0)));
}

async fn statuses(seed: u64) -> Vec<u16> {
    let mut profile = FaultProfile::built_in("demo").expect("a profile");
    profile.rules.retain(|rule| rule.fault.to_string().parse::<u16>().is_ok());
    let config = SandboxConfig { profile, seed, ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    let url = format!("{}/http/a", sandbox.https_origin());
    let mut connection = over_h2(&sandbox).await;
    let mut seen = Vec::new();
    for i in 0..200 {
        for _ in 0..2 {
            seen.push(status(&mut connection, &url, &format!("n{}", i % 100)).await);
        }
    }
    seen
}

#[tokio::test]
async fn the_same_seed_meets_the_same_requests_with_the_same_faults() {
    let first = statuses(7).await;
    assert!(first.iter().any(|s| *s != 200));
    assert_eq!(first, statuses(7).await);
    assert_ne!(first, statuses(8).await);
}

#[tokio::test]
async fn beyond_its_limits_the_sandbox_answers_429() {
    let config = SandboxConfig { rate_per_s: Some(0), ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    let url = format!("{}/http/a", sandbox.https_origin());
    let reply = send(&mut over_h2(&sandbox).await, &url, "one").await.expect("an answer");
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, Some("1")));
    let reply = call(&sandbox, Method::GET, "/sandbox/received", &Value::Null).await;
    assert_eq!(reply.json()["refused"], json!({ "429": 1 }), "its own calls are never limited");
}

#[tokio::test]
async fn the_profile_can_be_changed_while_it_runs() {
    let sandbox = sandbox().await;
    let path = "/sandbox/faults";
    let reply = call(&sandbox, Method::PUT, path, &json!({ "profile": "gone" })).await;
    assert_eq!(reply.json()["rule"][0]["fault"], "410");
    let reply = call(&sandbox, Method::PUT, path, &json!({ "profile": "/etc/hostname" })).await;
    assert_eq!(reply.status.as_u16(), 400, "no file is read for a request");
}

/// Linux gives every address of 127.0.0.0/8 to this machine.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_address_of_this_machine_is_an_origin_with_its_own_certificate() {
    let every = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let config = SandboxConfig { listen: every, allow_remote: true, ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    for host in [[127, 0, 0, 1], [127, 1, 2, 3], [127, 1, 2, 4], [127, 1, 2, 3]] {
        let address = std::net::SocketAddr::from((host, sandbox.https.port()));
        let mut connection = client::tls(&sandbox.ca_pem, address, "h2").await;
        let url = format!("https://{address}/http/a");
        assert_eq!(status(&mut connection, &url, &format!("{host:?}")).await, 200);
    }
}

#[tokio::test]
async fn a_dripping_answer_has_its_status_long_before_its_end() {
    let sandbox = sandbox().await;
    let url = scripted(&sandbox, "a", &["drip"]).await;
    let Connection::H2(mut sender) = over_h2(&sandbox).await else { panic!("HTTP/2") };
    let began = Instant::now();
    let answer = sender.send_request(request(Method::POST, &url, "{}")).await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let mut body = answer.into_body();
    let first = http_body_util::BodyExt::frame(&mut body).await.expect("a piece").expect("data");
    assert_eq!(first.into_data().expect("data").len(), 1);
    assert_eq!(sandbox.received()["accepted"], 1);
}
