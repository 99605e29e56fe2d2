//! What addresses are blamed for, as an operator sees it and forgives it.

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};
use postrider_sandbox::{FakeKind, ReceiverRequest, Sandbox, SandboxConfig};
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, eventually, reply};

const SETTINGS: &str = r#"
[network]
allow_private_targets = true
allow_plain_http = true
[[classify]]
service = "webhook"
status = 404
outcome = "drop_message"
strike = "number"
[[classify]]
service = "webhook"
status = 422
outcome = "drop_message"
strike = "blocked"
[strikes]
blocked = 1
"#;

struct Town {
    sandbox: Sandbox,
    server: ServerFixture,
}

impl Town {
    async fn new() -> Self {
        let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
        Self { sandbox, server: ServerFixture::with(SETTINGS).await }
    }

    fn admin(&self) -> Client {
        self.server.admin()
    }

    /// Registers a receiver that answers so; the last word repeats.
    async fn register(&self, script: &[&str]) -> Value {
        let script = script.iter().map(|word| word.parse().unwrap()).collect();
        let wish = ReceiverRequest { script, ..ReceiverRequest::default() };
        self.sandbox.set_up(FakeKind::HOOK, "a", &wish).unwrap();
        self.admin().post("/v1/addresses", &self.hook()).await.unwrap()
    }

    fn hook(&self) -> Value {
        json!({"channel": "webhook", "url": format!("{}/hook/a", self.sandbox.http_origin())})
    }

    /// One more message, and how it ended.
    async fn send(&self) -> Value {
        let message = json!({"to": {"address": self.hook()}, "content": {"title": "Hi"}});
        let sent = self.admin().post("/v1/messages", &message).await.unwrap();
        let id = sent["deliveries"][0]["id"].as_str().unwrap();
        let over = |d: &Value| ["failed", "gone", "sent"].contains(&d["state"].as_str().unwrap());
        eventually(&self.admin(), &format!("/v1/deliveries/{id}"), over).await
    }

    async fn address(&self, known: &Value) -> Value {
        let id = known["id"].as_str().unwrap();
        self.admin().get(&format!("/v1/addresses/{id}")).await.unwrap()
    }
}

#[tokio::test]
async fn two_strikes_for_an_unknown_number_are_seen_and_then_it_is_gone() {
    let town = Town::new().await;
    let known = town.register(&["404"]).await;
    let first = town.send().await;
    assert_eq!((&first["state"], &first["reason"]), (&json!("failed"), &json!("permanent")));
    assert_eq!(first["log"][0]["strike"], "number");
    let address = town.address(&known).await;
    assert_eq!(address["status"], "active");
    let strike = &address["strikes"][0];
    assert_eq!(
        (&strike["kind"], &strike["count"], &strike["suspect"]),
        (&json!("number"), &json!(1), &json!(false))
    );
    let second = town.send().await;
    assert_eq!((&second["state"], &second["log"][0]["outcome"]), (&json!("gone"), &json!("gone")));
    let address = town.address(&known).await;
    assert_eq!((&address["status"], &address["strikes"][0]["count"]), (&json!("gone"), &json!(2)));
    let none = whole(Default::default());
    let metrics = town.admin().send(Method::GET, "/metrics", "text/plain", none).await.unwrap();
    let text = metrics.into_body().collect().await.unwrap().to_bytes();
    let line = r#"postrider_strikes_total{channel="webhook",kind="number"} 2"#;
    assert!(String::from_utf8_lossy(&text).contains(line));
}

#[tokio::test]
async fn a_suspect_address_is_listed_until_it_is_forgiven() {
    let town = Town::new().await;
    let known = town.register(&["422"]).await;
    town.send().await;
    assert_eq!(town.address(&known).await["status"], "suspect");
    let admin = town.admin();
    let listed = admin.get("/v1/strikes?suspect=true").await.unwrap();
    let hash = known["hash"].as_str().unwrap();
    assert_eq!((&listed["items"][0]["hash"], &listed["next"]), (&known["hash"], &Value::Null));
    assert_eq!(listed["items"][0]["suspect"], true);
    let other = town.server.key("tenant", "other").await;
    let theirs = town.server.client(&other).get("/v1/strikes").await.unwrap();
    assert_eq!(theirs["items"], json!([]), "another tenant sees nothing of it");
    let path = format!("/v1/strikes/{hash}");
    let forbidden = reply(&town.server.client(&other), Method::DELETE, &path, "").await;
    assert_eq!(forbidden.status, 404);
    assert_eq!(reply(&admin, Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reply(&admin, Method::DELETE, &path, "").await.status, 404);
    let address = town.address(&known).await;
    assert_eq!((&address["status"], &address["strikes"]), (&json!("active"), &Value::Null));
    let nonsense = reply(&admin, Method::DELETE, "/v1/strikes/abc", "").await;
    assert_eq!(nonsense.status, 422, "{}", nonsense.body);
    assert!(nonsense.body.to_string().contains("32 hexadecimal digits"), "{}", nonsense.body);
}

#[tokio::test]
async fn the_rules_of_strikes_can_be_changed_while_the_server_runs() {
    let town = Town::new().await;
    let known = town.register(&["422"]).await;
    let set = json!({"blocked": 0});
    let put = reply(&town.admin(), Method::PUT, "/v1/limits/strikes", set.to_string()).await;
    assert_eq!(put.status, 200, "{}", put.body);
    town.send().await;
    assert_eq!(town.address(&known).await["status"], "active", "0 is never");
}
