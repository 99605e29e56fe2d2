//! Strikes against addresses: an operator sees them and removes them.

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::{Client, whole};
use postrider_sandbox::{ReceiverRequest, Sandbox, SandboxConfig};
use serde_json::{Value, json};

use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{STRIKE_RULES, ServerFixture, eventually, reply};

struct StrikesFixture {
    sandbox: Sandbox,
    server: ServerFixture,
}

impl StrikesFixture {
    async fn new() -> Self {
        let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
        let server = ServerFixture::with(&format!("{LOCAL_TARGETS}{STRIKE_RULES}")).await;
        Self { sandbox, server }
    }

    fn admin(&self) -> Client {
        self.server.admin()
    }

    /// Registers a receiver that answers so; the last word repeats.
    async fn register(&self, script: &[&str]) -> Value {
        let script = script.iter().map(|word| word.parse().unwrap()).collect();
        let wish = ReceiverRequest { script, ..ReceiverRequest::default() };
        self.sandbox.set_up("hook", "a", &wish).unwrap();
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
    let fixture = StrikesFixture::new().await;
    let known = fixture.register(&["404"]).await;
    let first = fixture.send().await;
    assert_eq!((&first["state"], &first["reason"]), (&json!("failed"), &json!("permanent")));
    assert_eq!(first["log"][0]["strike"], "number");
    let address = fixture.address(&known).await;
    assert_eq!(address["status"], "active");
    let strike = &address["strikes"][0];
    assert_eq!(
        (&strike["kind"], &strike["count"], &strike["suspect"]),
        (&json!("number"), &json!(1), &json!(false))
    );
    let second = fixture.send().await;
    assert_eq!((&second["state"], &second["log"][0]["outcome"]), (&json!("gone"), &json!("gone")));
    let address = fixture.address(&known).await;
    assert_eq!((&address["status"], &address["strikes"][0]["count"]), (&json!("gone"), &json!(2)));
    let none = whole(Default::default());
    let metrics = fixture.admin().send(Method::GET, "/metrics", "text/plain", none).await.unwrap();
    let text = metrics.into_body().collect().await.unwrap().to_bytes();
    let line = r#"postrider_strikes_total{channel="webhook",kind="number"} 2"#;
    assert!(String::from_utf8_lossy(&text).contains(line));
}

#[tokio::test]
async fn a_suspect_address_is_listed_until_it_is_forgiven() {
    let fixture = StrikesFixture::new().await;
    let known = fixture.register(&["422"]).await;
    fixture.send().await;
    assert_eq!(fixture.address(&known).await["status"], "suspect");
    let admin = fixture.admin();
    let listed = admin.get("/v1/strikes?suspect=true").await.unwrap();
    let hash = known["hash"].as_str().unwrap();
    assert_eq!((&listed["items"][0]["hash"], &listed["next"]), (&known["hash"], &Value::Null));
    assert_eq!(listed["items"][0]["suspect"], true);
    let other = fixture.server.key("tenant", "other").await;
    let theirs = fixture.server.client(&other).get("/v1/strikes").await.unwrap();
    assert_eq!(theirs["items"], json!([]), "another tenant sees nothing of it");
    let path = format!("/v1/strikes/{hash}");
    let forbidden = reply(&fixture.server.client(&other), Method::DELETE, &path, "").await;
    assert_eq!(forbidden.status, 404);
    assert_eq!(reply(&admin, Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reply(&admin, Method::DELETE, &path, "").await.status, 404);
    let address = fixture.address(&known).await;
    assert_eq!((&address["status"], &address["strikes"]), (&json!("active"), &Value::Null));
    let nonsense = reply(&admin, Method::DELETE, "/v1/strikes/abc", "").await;
    assert_eq!(nonsense.status, 422, "{}", nonsense.body);
    assert!(nonsense.body.to_string().contains("32 hexadecimal digits"), "{}", nonsense.body);
}

#[tokio::test]
async fn the_rules_of_strikes_can_be_changed_while_the_server_runs() {
    let fixture = StrikesFixture::new().await;
    let known = fixture.register(&["422"]).await;
    let set = json!({"blocked": 0});
    let put = reply(&fixture.admin(), Method::PUT, "/v1/limits/strikes", set.to_string()).await;
    assert_eq!(put.status, 200, "{}", put.body);
    fixture.send().await;
    assert_eq!(fixture.address(&known).await["status"], "active", "0 is never");
}
