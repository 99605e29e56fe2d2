//! The requests that the fake services refuse, and their answers.

use http::Method;
use postrider_sandbox::{FakePushService, SandboxConfig, SubscriptionRequest, start};
use serde_json::{Value, json};

use crate::client::{self, Sender, call, now_s, push_with, webhook};
use crate::{one, over_h2, sandbox};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn a_push_is_decrypted_and_counted_by_its_delivery_id() {
    let sandbox = sandbox().await;
    let to = one(&sandbox, SubscriptionRequest::default());
    let id = "dlv_06f1w8v0m5qk3t9xz2c4b7d8ea";
    let plain = json!({ "title": "Hello", "id": id }).to_string();
    let reply = over_h2(&sandbox).await.send(Sender::new().push(&to, plain.as_bytes())).await;
    let reply = reply.expect("an answer");
    assert_eq!((reply.status.as_u16(), reply.header("ttl")), (201, Some("60")));
    assert!(reply.header("location").is_some_and(|l| l.starts_with(sandbox.https_origin())));
    let found = call(&sandbox, Method::GET, &format!("/sandbox/received/{id}"), &Value::Null).await;
    assert_eq!(found.json()["records"][0]["accepted"], 1);
    let name = to.endpoint.rsplit('/').next().expect("a name");
    let path = format!("/sandbox/last/push/{name}");
    let last = call(&sandbox, Method::GET, &path, &Value::Null).await.json();
    assert_eq!(last["body"], plain);
}

#[tokio::test]
async fn every_flaw_of_a_vapid_token_is_found() {
    let sandbox = sandbox().await;
    let sender = Sender::new();
    let origin = sandbox.https_origin();
    let claims = |aud: &str, exp: Value| json!({ "aud": aud, "exp": exp, "sub": "mailto:a@b.c" });
    let hour = json!(now_s() + 3600);
    let without_port = origin.rsplit_once(':').expect("a port").0;
    let good = sender.good_authorization(origin);
    let foreign = good.replace(&sender.public(), &Sender::new().public());
    let cases = [
        ("Bearer abc".to_owned(), 401, "authorization header"),
        (good.split(", k=").next().expect("t").to_owned(), 401, "authorization header"),
        (good.replace(", k=B", ", k=A"), 403, "public key"),
        (foreign, 403, "invalid JWT"),
        (sender.authorization(&claims(without_port, hour.clone())), 403, "aud claim"),
        (sender.authorization(&claims(&format!("{origin}/"), hour.clone())), 403, "aud claim"),
        (sender.authorization(&claims(origin, json!(now_s() - 1))), 403, "token has expired"),
        (sender.authorization(&claims(origin, json!(now_s() + 90_000))), 403, "exp claim MUST NOT"),
        (sender.authorization(&claims(origin, json!("soon"))), 403, "exp claim is missing"),
    ];
    let to = one(&sandbox, SubscriptionRequest::default());
    let mut connection = over_h2(&sandbox).await;
    let expected = cases.len();
    for (authorization, status, words) in cases {
        let reply = connection.send(push_with(&authorization, &to, b"x")).await.expect("an answer");
        assert_eq!(reply.status.as_u16(), status, "{words}");
        assert!(reply.text().starts_with(words), "{} for {words}", reply.text());
    }
    let sum = sandbox.received();
    assert_eq!((&sum["bad_vapid"], &sum["accepted"]), (&json!(expected), &json!(0)));
}

#[tokio::test]
async fn a_subscription_belongs_to_the_key_it_was_made_for() {
    let sandbox = sandbox().await;
    let (first, second) = (Sender::new(), Sender::new());
    let by_use = one(&sandbox, SubscriptionRequest::default());
    let wish = SubscriptionRequest {
        application_server_key: Some(second.public()),
        ..SubscriptionRequest::default()
    };
    let by_key = one(&sandbox, wish);
    let mut connection = over_h2(&sandbox).await;
    let mut status = async |sender: &Sender, to| {
        connection.send(sender.push(to, b"x")).await.expect("an answer").status.as_u16()
    };
    assert_eq!(status(&first, &by_use).await, 201);
    assert_eq!(status(&second, &by_use).await, 403);
    assert_eq!(status(&first, &by_key).await, 403);
    assert_eq!(status(&second, &by_key).await, 201);
}

#[tokio::test]
async fn headers_and_sizes_are_checked_like_the_real_services_do() {
    let sandbox = sandbox().await;
    let sender = Sender::new();
    let to = one(&sandbox, SubscriptionRequest::default());
    let mut connection = over_h2(&sandbox).await;
    for (name, value, status) in [
        ("ttl", "-1", 400),
        ("ttl", "a day", 400),
        ("urgency", "extreme", 400),
        ("topic", "not a topic", 400),
        ("content-encoding", "aesgcm", 400),
        ("topic", "orders", 201),
    ] {
        let mut push = sender.push(&to, b"x");
        push.headers_mut().insert(name, value.parse().expect("a value"));
        let reply = connection.send(push).await.expect("an answer");
        assert_eq!(reply.status.as_u16(), status, "{name}: {value}");
    }
    let mut without_ttl = sender.push(&to, b"x");
    without_ttl.headers_mut().remove("ttl");
    assert_eq!(connection.send(without_ttl).await.expect("an answer").status.as_u16(), 400);
    let largest = connection.send(sender.push(&to, &[b'a'; 3993])).await.expect("an answer");
    assert_eq!(largest.status.as_u16(), 201);
    let larger = connection.send(sender.push(&to, &[b'a'; 3994])).await.expect("an answer");
    assert_eq!(larger.status.as_u16(), 413);
}

#[tokio::test]
async fn a_body_for_another_subscription_is_undecryptable() {
    let sandbox = sandbox().await;
    let mut to = one(&sandbox, SubscriptionRequest::default());
    to.keys.auth = one(&sandbox, SubscriptionRequest::default()).keys.auth;
    let reply = over_h2(&sandbox).await.send(Sender::new().push(&to, b"x")).await;
    assert_eq!(reply.expect("an answer").status.as_u16(), 400);
    assert_eq!(sandbox.received()["undecryptable"], 1);
}

#[tokio::test]
async fn each_service_refuses_in_its_own_words() {
    let sandbox = sandbox().await;
    let sender = Sender::new();
    let mut connection = over_h2(&sandbox).await;
    let mut answers = Vec::new();
    for service in [
        FakePushService::Fcm,
        FakePushService::Mozilla,
        FakePushService::Apple,
        FakePushService::Wns,
    ] {
        for fault in ["410", "429:3", "503"] {
            let script = vec![fault.parse().expect("a fault")];
            let wish = SubscriptionRequest { service, script, ..SubscriptionRequest::default() };
            let mut push = sender.push(&one(&sandbox, wish), b"x");
            push.headers_mut().insert("x-wns-cache-policy", "cache".parse().expect("a value"));
            let reply = connection.send(push).await.expect("an answer");
            let wns = reply.header("x-wns-status").map(str::to_owned);
            let wait = reply.header("retry-after").map(str::to_owned);
            answers.push(format!(
                "{service:?} {fault}: {} retry-after={wait:?} x-wns-status={wns:?} {}",
                reply.status.as_u16(),
                reply.text(),
            ));
        }
    }
    insta::assert_snapshot!(answers.join("\n"));
}

#[tokio::test]
async fn apple_and_wns_have_rules_of_their_own() {
    let sandbox = sandbox().await;
    let sender = Sender::new();
    let mut connection = over_h2(&sandbox).await;
    let of =
        |service| one(&sandbox, SubscriptionRequest { service, ..SubscriptionRequest::default() });
    let (apple, wns) = (of(FakePushService::Apple), of(FakePushService::Wns));

    let mut odd_topic = sender.push(&apple, b"x");
    odd_topic.headers_mut().insert("topic", "abcde".parse().expect("a value"));
    let reply = connection.send(odd_topic).await.expect("an answer");
    assert_eq!(reply.json(), json!({ "reason": "BadWebPushTopic" }));

    let local = json!({
        "aud": sandbox.https_origin(), "exp": now_s() + 60, "sub": "mailto:me@localhost",
    });
    let push = push_with(&sender.authorization(&local), &apple, b"x");
    let reply = connection.send(push).await.expect("an answer");
    assert_eq!((reply.status.as_u16(), reply.json()), (403, json!({ "reason": "BadJwtToken" })));

    let mut now_or_never = sender.push(&wns, b"x");
    now_or_never.headers_mut().insert("ttl", "0".parse().expect("a value"));
    let reply = connection.send(now_or_never).await.expect("an answer");
    let why = reply.header("x-wns-error-description");
    assert_eq!(why, Some("Ttl value conflicts with X-WNS-Cache-Policy."));
}

#[tokio::test]
async fn a_webhook_is_taken_only_with_its_signature() {
    let sandbox = sandbox().await;
    call(&sandbox, Method::PUT, "/sandbox/hooks/shop", &json!({ "secret": SECRET })).await;
    let url = format!("{}/hook/shop", sandbox.http_origin());
    let mut connection = client::plain(sandbox.http).await;
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (secret, at, status) in
        [(SECRET, now_s(), 200), (other, now_s(), 401), (SECRET, now_s() - 400, 401)]
    {
        let reply = connection.send(webhook(&url, secret, "evt_1", at, "{}")).await;
        assert_eq!(reply.expect("an answer").status.as_u16(), status);
    }
    let sum = sandbox.received();
    assert_eq!((&sum["accepted"], &sum["bad_signature"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_webhook_without_a_known_secret_is_taken_as_unverified() {
    let sandbox = sandbox().await;
    let url = format!("{}/hook/any", sandbox.http_origin());
    let hook = webhook(&url, SECRET, "evt_1", 0, "{}");
    let reply = client::plain(sandbox.http).await.send(hook).await.expect("an answer");
    assert_eq!(reply.status.as_u16(), 200);
    assert_eq!(sandbox.received()["unverified"], 1);
}

#[tokio::test]
async fn one_secret_can_stand_for_every_receiver() {
    let webhook_secret = Some(SECRET.to_owned());
    let config = SandboxConfig { webhook_secret, ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    let url = format!("{}/hook/any", sandbox.http_origin());
    let mut connection = client::plain(sandbox.http).await;
    let reply = connection.send(webhook(&url, SECRET, "evt_1", 0, "{}")).await;
    assert_eq!(reply.expect("an answer").status.as_u16(), 401);
    let reply = connection.send(webhook(&url, SECRET, "evt_1", now_s(), "{}")).await;
    assert_eq!(reply.expect("an answer").status.as_u16(), 200);
}

#[tokio::test]
async fn the_plain_receiver_takes_any_method_and_remembers_it() {
    let sandbox = sandbox().await;
    let url = format!("{}/http/crm", sandbox.http_origin());
    let mut patch = client::request(Method::PATCH, &url, "a=1");
    patch.headers_mut().insert("idempotency-key", "order-7".parse().expect("a value"));
    let reply = client::prior_knowledge(sandbox.http).await.send(patch).await.expect("an answer");
    assert_eq!(reply.status.as_u16(), 200);
    let last = call(&sandbox, Method::GET, "/sandbox/last/http/crm", &Value::Null).await.json();
    assert_eq!((&last["method"], &last["body"]), (&json!("PATCH"), &json!("a=1")));
    assert_eq!(last["headers"]["idempotency-key"], "order-7");
}
