//! Every kind of bad input gets a precise refusal: which field, what was found, what is allowed.

use http::Method;
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, TestReply, message, reply, send};

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn refused(name: &str, reply: &TestReply) {
    assert_eq!(reply.content_type, "application/problem+json", "{name}");
    assert_eq!(reply.body["status"], reply.status, "{name}");
    crate::without_channel_list(|| insta::assert_json_snapshot!(name, reply.body));
}

fn with(change: impl Fn(&mut Value)) -> String {
    let mut message = message();
    change(&mut message);
    message.to_string()
}

fn push(p256dh: &str) -> Value {
    json!({"channel": "webpush", "endpoint": "https://push.example.com/x", "keys": {"p256dh": p256dh, "auth": AUTH}})
}

#[tokio::test]
async fn an_oversized_body_is_refused_unread() {
    let server = ServerFixture::start().await;
    let body = with(|m| m["content"]["body"] = "x".repeat(1 << 20).into());
    refused("oversized_body", &server.post(body).await);
}

#[tokio::test]
async fn invalid_json_is_refused_with_its_place() {
    let server = ServerFixture::start().await;
    refused("invalid_json", &server.post("{\"to\": oops}").await);
}

#[tokio::test]
async fn an_unknown_field_is_refused_by_name() {
    let server = ServerFixture::start().await;
    refused("unknown_field", &server.post(with(|m| m["titel"] = "x".into())).await);
    let inside = with(|m| m["content"]["titel"] = "x".into());
    refused("unknown_content_field", &server.post(inside).await);
}

#[tokio::test]
async fn a_plain_http_endpoint_is_refused() {
    let server = ServerFixture::start().await;
    let body = with(|m| m["to"]["address"]["url"] = "http://example.com/hook".into());
    refused("plain_http", &server.post(body).await);
}

#[tokio::test]
async fn a_private_address_is_refused() {
    let server = ServerFixture::start().await;
    let body = with(|m| m["to"]["address"]["url"] = "https://169.254.169.254/latest".into());
    refused("private_ip", &server.post(body).await);
}

#[tokio::test]
async fn a_bad_p256dh_is_refused() {
    let server = ServerFixture::start().await;
    let short = with(|m| m["to"]["address"] = push("BCVxsr7N"));
    refused("bad_p256dh_length", &server.post(short).await);
    let off_curve = P256DH.replacen("xsr7", "xsr8", 1);
    let off = with(|m| m["to"]["address"] = push(&off_curve));
    refused("bad_p256dh_point", &server.post(off).await);
}

#[tokio::test]
async fn a_negative_ttl_is_refused() {
    let server = ServerFixture::start().await;
    refused("ttl_negative", &server.post(with(|m| m["ttl_s"] = (-1).into())).await);
}

#[tokio::test]
async fn a_payload_of_3994_bytes_is_refused_and_3993_are_taken() {
    let server = ServerFixture::start().await;
    let sized = |n: usize| {
        with(|m| {
            m["to"]["address"] = push(P256DH);
            m["content"] = json!({"webpush": {"raw": "x".repeat(n)}});
        })
    };
    refused("payload_3994", &server.post(sized(3994)).await);
    assert_eq!(server.post(sized(3993)).await.status, 202);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_a_conflict() {
    let server = ServerFixture::start().await;
    let body = |title: &str| {
        with(|m| {
            m["idempotency_key"] = "k-1".into();
            m["content"]["title"] = title.into();
        })
    };
    assert_eq!(server.post(body("one")).await.status, 202);
    let reply = server.post(body("two")).await;
    assert_eq!(reply.status, 409);
    insta::with_settings!({filters => vec![("msg_[0-9a-z]{26}", "msg_…")]}, {
        refused("idempotency_conflict", &reply);
    });
}

#[tokio::test]
async fn a_wrong_a_missing_and_a_revoked_key_are_told_apart() {
    let server = ServerFixture::start().await;
    let ask = async |key: &str| reply(&server.client(key), Method::GET, "/v1/stats", "").await;
    refused("wrong_key", &ask("prk_nonsense").await);
    let right = server.key("tenant", "default").await;
    let other = if right.ends_with('A') { 'B' } else { 'A' };
    let forged = format!("{}{other}", &right[..right.len() - 1]);
    assert_eq!(ask(&forged).await.status, 401);
    assert_eq!(ask(&right).await.status, 200);
    let keys = server.admin().get("/v1/keys").await.unwrap();
    let id = keys["keys"][0]["id"].as_str().unwrap();
    server.admin().delete(&format!("/v1/keys/{id}")).await.unwrap();
    let revoked = ask(&right).await;
    assert_eq!(revoked.status, 401);
    insta::with_settings!({filters => vec![(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME")]}, {
        refused("revoked_key", &revoked);
    });
    let nobody = postrider::client::Client::new(&server.running.url(), None).unwrap();
    refused("no_key", &reply(&nobody, Method::GET, "/v1/stats", "").await);
}

#[tokio::test]
async fn wrong_paths_methods_types_and_queries_are_problems_too() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    refused("unknown_path", &reply(&admin, Method::GET, "/v1/nothing", "").await);
    refused("wrong_method", &reply(&admin, Method::DELETE, "/v1/messages", "").await);
    let form = "application/x-www-form-urlencoded";
    let typed = send(&admin, Method::POST, "/v1/messages", form, "a=b").await;
    refused("wrong_type", &typed);
    refused("unknown_query", &reply(&admin, Method::GET, "/v1/deliveries?stat=x", "").await);
    refused("needless_query", &reply(&admin, Method::GET, "/v1/stats?a=b", "").await);
    let unknown = json!({"name": "x", "scope": "read", "tennant": "y"}).to_string();
    refused("unknown_key_field", &reply(&admin, Method::POST, "/v1/keys", unknown).await);
    let nameless = json!({"scope": "read"}).to_string();
    refused("missing_key_field", &reply(&admin, Method::POST, "/v1/keys", nameless).await);
    refused("bad_state", &reply(&admin, Method::GET, "/v1/deliveries?state=lost", "").await);
    refused("bad_id", &reply(&admin, Method::GET, "/v1/messages/dlv_x", "").await);
    let both = json!({"ids": [], "filter": {}}).to_string();
    refused("replay_both", &reply(&admin, Method::POST, "/v1/dead-letters/replay", both).await);
}
