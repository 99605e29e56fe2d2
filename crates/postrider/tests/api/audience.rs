//! Recipients, preferences and suppressions: what is said is kept, and asked again just before sending.

use http::Method;
use http_body_util::BodyExt as _;
use postrider::client::whole;
use postrider_sandbox::{ReceiverRequest, Sandbox, SandboxConfig};
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, TestReply, eventually, reply, send};
use serde_json::{Value, json};

struct AudienceFixture {
    sandbox: Sandbox,
    server: ServerFixture,
}

impl AudienceFixture {
    async fn new() -> Self {
        let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
        let quiet =
            "[classes.night]\nquiet_hours = \"drop\"\n[classes.news]\ncategory = \"news\"\n";
        let server = ServerFixture::with(&format!("{LOCAL_TARGETS}{quiet}")).await;
        let fixture = Self { sandbox, server };
        let news = json!({"purpose": "marketing", "titles": {"en": "News"}});
        fixture.ok(Method::PUT, "/v1/categories/news", news).await;
        fixture.ok(Method::PUT, "/v1/categories/orders", json!({})).await;
        let codes = json!({"mandatory": true});
        fixture.ok(Method::PUT, "/v1/categories/codes", codes).await;
        fixture
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> TestReply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        reply(&self.server.admin(), method, path, body).await
    }

    async fn ok(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.call(method.clone(), path, body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
        answer.body
    }

    /// What is wrong: status, field.
    async fn refused(&self, method: Method, path: &str, body: Value) -> (u16, String) {
        let answer = self.call(method, path, body).await;
        let field = answer.body["errors"][0]["field"].as_str().unwrap_or_default();
        (answer.status, field.to_owned())
    }

    fn hook(&self, name: &str) -> Value {
        json!({"channel": "webhook", "url": format!("{}/hook/{name}", self.sandbox.http_origin())})
    }

    async fn register(&self, name: &str, recipient: &str) -> Value {
        self.sandbox.set_up("hook", name, &ReceiverRequest::default()).unwrap();
        let mut address = self.hook(name);
        address["recipient"] = recipient.into();
        self.ok(Method::POST, "/v1/addresses", address).await
    }

    async fn accept(&self, to: Value, more: Value) -> Value {
        let mut message = json!({"to": to, "content": {"title": "Hi"}});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ok(Method::POST, "/v1/messages", message).await
    }

    /// How the first delivery of an accepted message ended, and why.
    async fn ended(&self, accepted: &Value) -> (String, Option<String>) {
        let id = accepted["deliveries"][0]["id"].as_str().unwrap();
        let over = |d: &Value| {
            ["sent", "suppressed", "expired", "failed", "cancelled"]
                .contains(&d["state"].as_str().unwrap())
        };
        let path = format!("/v1/deliveries/{id}");
        let delivery = eventually(&self.server.admin(), &path, over).await;
        let reason = delivery["log"][0]["code"].as_str().map(str::to_owned);
        (delivery["state"].as_str().unwrap().to_owned(), reason)
    }

    async fn would_send(&self, recipient: &str, query: &str) -> (String, String) {
        let path = format!("/v1/recipients/{recipient}/would-send?{query}");
        let answer = self.ok(Method::GET, &path, Value::Null).await;
        let one = &answer["addresses"][0];
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        (text("verdict"), text("reason"))
    }
}

fn suppressed(reason: &str) -> (String, Option<String>) {
    ("suppressed".to_owned(), Some(reason.to_owned()))
}

fn sent() -> (String, Option<String>) {
    ("sent".to_owned(), None)
}

#[tokio::test]
async fn a_no_after_the_accept_counts_and_a_mandatory_message_is_sent() {
    let fixture = AudienceFixture::new().await;
    fixture.register("a", "u-1").await;
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let to = || json!({"recipient": "u-1"});
    let orders = json!({"category": "orders", "send_at": later.to_string()});
    let accepted = fixture.accept(to(), orders).await;
    assert_eq!(accepted["withheld"], Value::Null, "nothing was said yet");
    let no = json!({"categories": {"orders": {"choice": "no"}}});
    fixture.ok(Method::PATCH, "/v1/recipients/u-1/preferences", no).await;
    assert_eq!(fixture.ended(&accepted).await, suppressed("opted_out"));
    let again = fixture.accept(to(), json!({"category": "orders"})).await;
    assert_eq!(again["withheld"][0]["reason"], "opted_out", "the fast answer: {again}");
    assert_eq!(again["withheld"][0]["delivery"], again["deliveries"][0]["id"]);
    assert_eq!(fixture.ended(&again).await, suppressed("opted_out"));
    let id = again["deliveries"][0]["id"].as_str().unwrap();
    let path = format!("/v1/deliveries/{id}/explain");
    let explained = fixture.ok(Method::GET, &path, Value::Null).await;
    assert!(explained["summary"].as_str().unwrap().contains("its recipient said no to this"));
    let code = fixture.accept(to(), json!({"category": "codes"})).await;
    assert_eq!(fixture.ended(&code).await, sent());
    let plain = fixture.accept(to(), json!({})).await;
    assert_eq!(fixture.ended(&plain).await, sent(), "a no for one category is none for others");
    let news = fixture.accept(to(), json!({"class": "news"})).await;
    assert_eq!(fixture.ended(&news).await, suppressed("not_opted_in"), "the category of its class");
    let none = whole(Default::default());
    let admin = fixture.server.admin();
    let metrics = admin.send(Method::GET, "/metrics", "text/plain", none).await.unwrap();
    let text = metrics.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| {
        line.starts_with("postrider_withheld_total{") && line.contains("outcome=\"opted_out\"")
    });
    assert!(line.is_some_and(|line| line.ends_with(" 2")), "{line:?}");
}

#[tokio::test]
async fn a_patch_keeps_other_words_and_a_put_replaces_all() {
    let fixture = AudienceFixture::new().await;
    let path = "/v1/recipients/u-2/preferences";
    let first = json!({"categories": {"news": {"choice": "yes"}}, "channels": {"webhook": "no"}});
    fixture.ok(Method::PUT, path, first).await;
    let all = fixture.ok(Method::PATCH, path, json!({"all": "no"})).await;
    let expected = json!({
        "all": "no", "categories": {"news": {"choice": "yes"}}, "channels": {"webhook": "no"}
    });
    assert_eq!(all, expected, "a choice for everything deletes none for something");
    let less = json!({"all": null, "channels": {"webhook": null}});
    let left = fixture.ok(Method::PATCH, path, less).await;
    assert_eq!(left, json!({"categories": {"news": {"choice": "yes"}}}));
    assert_eq!(fixture.ok(Method::PUT, path, json!({})).await, json!({}));
    let unknown = json!({"categories": {"nws": {"choice": "no"}}});
    assert_eq!(fixture.refused(Method::PATCH, path, unknown).await, (422, "categories.nws".into()));
    let channel = json!({"channels": {"pigeon": "no"}});
    assert_eq!(fixture.refused(Method::PATCH, path, channel).await, (422, "channels".into()));
    let maybe = json!({"all": "maybe"});
    assert_eq!(fixture.refused(Method::PATCH, path, maybe).await, (422, "all".into()));
    let field = json!({"every": "no"});
    assert_eq!(fixture.refused(Method::PATCH, path, field).await, (422, "every".into()));
}

#[tokio::test]
async fn the_three_kinds_of_suppression_reach_as_far_as_they_say() {
    let fixture = AudienceFixture::new().await;
    let address = fixture.register("b", "u-3").await;
    let hash = address["hash"].as_str().unwrap().to_owned();
    let suppress = |address: Value, kind: &str, category: Value| {
        let body = json!({"address": address, "kind": kind, "category": category});
        fixture.ok(Method::POST, "/v1/suppressions", body)
    };
    suppress(address["id"].clone(), "unsubscribe", "orders".into()).await;
    assert_eq!(fixture.would_send("u-3", "category=orders").await.1, "unsubscribed");
    assert_eq!(fixture.would_send("u-3", "").await.0, "send");
    // The same address without a registration is the same address.
    let inline = json!({"address": fixture.hook("b")});
    let order = fixture.accept(inline.clone(), json!({"category": "orders"})).await;
    assert_eq!(fixture.ended(&order).await, suppressed("unsubscribed"));
    suppress(fixture.hook("b"), "unsubscribe", Value::Null).await;
    assert_eq!(fixture.would_send("u-3", "").await.1, "unsubscribed");
    assert_eq!(fixture.would_send("u-3", "category=codes").await.0, "send");
    suppress(Value::from(hash.as_str()), "undeliverable", Value::Null).await;
    let code = fixture.accept(inline, json!({"category": "codes"})).await;
    assert_eq!(fixture.ended(&code).await, suppressed("undeliverable"));
    let listed = fixture.ok(Method::GET, "/v1/suppressions", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(listed["items"][0]["categories"]["orders"]["at"].is_string(), "{listed}");
    fixture.ok(Method::DELETE, &format!("/v1/suppressions/{hash}"), Value::Null).await;
    assert_eq!(fixture.would_send("u-3", "category=orders").await.0, "send");
    let kind = json!({"address": hash, "kind": "spam"});
    assert_eq!(fixture.refused(Method::POST, "/v1/suppressions", kind).await, (422, "kind".into()));
    let category = json!({"address": hash, "kind": "complaint", "category": "orders"});
    let refused = fixture.refused(Method::POST, "/v1/suppressions", category).await;
    assert_eq!(refused, (422, "category".into()));
}

#[tokio::test]
async fn an_anonymous_recipient_is_merged_into_a_known_one() {
    let fixture = AudienceFixture::new().await;
    fixture.register("c", "anon-1").await;
    let anonymous = json!({"zone": "Europe/Berlin", "attributes": {"plan": "free", "seen": 3}});
    let new = fixture.call(Method::PUT, "/v1/recipients/anon-1", anonymous).await;
    assert_eq!(new.status, 201, "{}", new.body);
    let said = json!({"all": "yes", "categories": {"orders": {"choice": "no"}}});
    fixture.ok(Method::PATCH, "/v1/recipients/anon-1/preferences", said).await;
    let known = json!({"attributes": {"plan": "pro"}, "aliases": ["anon-1"], "locale": "de"});
    let merged = fixture.ok(Method::PUT, "/v1/recipients/u-4", known.clone()).await;
    assert_eq!(merged["attributes"], json!({"plan": "pro", "seen": 3}));
    assert_eq!(
        (&merged["zone"], &merged["aliases"]),
        (&json!("Europe/Berlin"), &json!(["anon-1"]))
    );
    for id in ["anon-1", "u-4"] {
        let shown = fixture.ok(Method::GET, &format!("/v1/recipients/{id}"), Value::Null).await;
        assert_eq!((&shown["id"], &shown["locale"]), (&json!("u-4"), &json!("de")), "{id}");
        assert_eq!(shown["addresses"][0]["recipient"], "u-4");
        assert_eq!(shown["preferences"]["categories"]["orders"]["choice"], "no");
        let to = json!({"recipient": id});
        let order = fixture.accept(to, json!({"category": "orders"})).await;
        assert_eq!(fixture.ended(&order).await, suppressed("opted_out"), "sent to {id}");
    }
    let listed = fixture.ok(Method::GET, "/v1/recipients", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    let stolen = json!({"aliases": ["anon-1"]});
    let refused = fixture.refused(Method::PUT, "/v1/recipients/u-5", stolen).await;
    assert_eq!(refused, (422, "aliases".into()));
    let patch = json!({"aliases": null, "attributes": {"seen": null}});
    let patched = fixture.ok(Method::PATCH, "/v1/recipients/u-4", patch).await;
    assert_eq!(patched["attributes"], json!({"plan": "pro"}));
    assert_eq!(fixture.call(Method::GET, "/v1/recipients/anon-1", Value::Null).await.status, 404);
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_its_queue_is_cancelled() {
    let fixture = AudienceFixture::new().await;
    let address = fixture.register("d", "u-6").await;
    fixture.ok(Method::PUT, "/v1/recipients/u-6", json!({"aliases": ["x-6"]})).await;
    let facts =
        json!({"zone": "Asia/Tokyo", "consent": {"wording": "2026-03", "action": "ticked_box"}});
    let path = format!("/v1/addresses/{}/facts", address["id"].as_str().unwrap());
    fixture.ok(Method::PUT, &path, facts).await;
    let path = format!("/v1/addresses/{}", address["id"].as_str().unwrap());
    let shown = fixture.ok(Method::GET, &path, Value::Null).await;
    assert_eq!(shown["facts"]["consents"][0]["action"], "ticked_box");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let waiting =
        fixture.accept(json!({"recipient": "u-6"}), json!({"send_at": soon.to_string()})).await;
    fixture.ok(Method::DELETE, "/v1/recipients/x-6", Value::Null).await;
    assert_eq!(fixture.ended(&waiting).await.0, "cancelled");
    for id in ["u-6", "x-6"] {
        let path = format!("/v1/recipients/{id}");
        assert_eq!(fixture.call(Method::GET, &path, Value::Null).await.status, 404);
        assert_eq!(fixture.call(Method::DELETE, &path, Value::Null).await.status, 404);
    }
}

#[tokio::test]
async fn quiet_hours_drop_or_defer_as_the_class_says() {
    let fixture = AudienceFixture::new().await;
    fixture.register("e", "u-7").await;
    let hours = json!([{"from": "00:00", "to": "24:00"}]);
    let no_zone = json!({"quiet_hours": hours});
    let refused = fixture.refused(Method::PUT, "/v1/audience", no_zone).await;
    assert_eq!(refused, (422, "zone".into()), "an unknown zone never means that it is sent");
    let rules = json!({"zone": "Asia/Kolkata", "quiet_hours": hours});
    fixture.ok(Method::PUT, "/v1/audience", rules).await;
    let to = || json!({"recipient": "u-7"});
    let dropped = fixture.accept(to(), json!({"class": "night"})).await;
    assert_eq!(dropped["withheld"][0]["reason"], "quiet_hours");
    assert_eq!(fixture.ended(&dropped).await, suppressed("quiet_hours"));
    let urgent = fixture.accept(to(), json!({"class": "otp"})).await;
    assert_eq!(fixture.ended(&urgent).await, sent());
    // It is quiet for a whole week and more: too late for the TTL is decided at once.
    let late = fixture.accept(to(), json!({"ttl_s": 3600})).await;
    assert_eq!(fixture.ended(&late).await, ("expired".to_owned(), Some("quiet_hours".to_owned())));
    let own = json!({"quiet_hours": []});
    fixture.ok(Method::PUT, "/v1/recipients/u-7", own).await;
    let awake = fixture.accept(to(), json!({"class": "night"})).await;
    assert_eq!(fixture.ended(&awake).await, sent(), "their own words win over those of the tenant");
    let clock = |hours: i64| {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        at.to_string()[11..16].to_owned()
    };
    let now = json!({"quiet_hours": [{"from": clock(-1), "to": clock(1)}], "zone": "UTC"});
    fixture.ok(Method::PUT, "/v1/recipients/u-7", now).await;
    let waiting = fixture.accept(to(), json!({})).await;
    assert_eq!(waiting["withheld"], Value::Null, "it is only late");
    let path = format!("/v1/deliveries/{}", waiting["deliveries"][0]["id"].as_str().unwrap());
    let parked = |delivery: &Value| delivery["state"] == "parked";
    let parked = eventually(&fixture.server.admin(), &path, parked).await;
    let due: jiff::Timestamp = parked["due_at"].as_str().unwrap().parse().unwrap();
    let wait = due.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((58 * 60..=71 * 60).contains(&wait), "the end, spread over ten minutes: {wait} s");
    assert_eq!(parked["attempts"], 0);
    let explained = fixture.ok(Method::GET, &format!("{path}/explain"), Value::Null).await;
    assert!(explained["summary"].as_str().unwrap().contains("quiet hours"), "{explained}");
    assert_eq!(fixture.would_send("u-7", "").await, ("wait".to_owned(), "quiet_hours".to_owned()));
    let wrong = json!({"zone": "Mars/Base", "quiet_hours": []});
    assert_eq!(fixture.refused(Method::PUT, "/v1/audience", wrong).await, (422, "zone".into()));
    let wrong = json!({"zone": "UTC", "quiet_hours": [{"from": "25:00", "to": "07:00"}]});
    let refused = fixture.refused(Method::PUT, "/v1/audience", wrong).await;
    assert_eq!(refused, (422, "quiet_hours[0].from".into()));
}

#[tokio::test]
async fn an_import_reports_what_it_refused_and_keeps_what_people_said() {
    let fixture = AudienceFixture::new().await;
    let no = json!({"all": "no"});
    fixture.ok(Method::PATCH, "/v1/recipients/i-0/preferences", no).await;
    let mut lines: Vec<_> = (0..1_200)
        .map(|n| json!({"id": format!("i-{n}"), "zone": "UTC", "attributes": {"n": n}}).to_string())
        .collect();
    lines.insert(1, r#"{"id":"x","zone":"Nowhere"}"#.to_owned());
    lines.insert(3, "not json".to_owned());
    lines.push(r#"{"id":"i-7","locale":"fr"}"#.to_owned());
    let path = "/v1/recipients/import";
    let admin = fixture.server.admin();
    let answer = send(&admin, Method::POST, path, "application/x-ndjson", lines.join("\n")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = &answer.body;
    assert_eq!((&body["created"], &body["refused"]), (&json!(1_199), &json!(2)), "{body}");
    assert_eq!((&body["errors"][0]["line"], &body["errors"][1]["line"]), (&json!(2), &json!(4)));
    let known = fixture.ok(Method::GET, "/v1/recipients/i-0", Value::Null).await;
    assert_eq!((&known["zone"], &known["preferences"]["all"]), (&json!("UTC"), &json!("no")));
    let last = fixture.ok(Method::GET, "/v1/recipients/i-7", Value::Null).await;
    assert_eq!(
        (&last["locale"], &last["zone"]),
        (&json!("fr"), &Value::Null),
        "the last line counts"
    );
    let (mut count, mut path) = (0, "/v1/recipients?limit=500".to_owned());
    loop {
        let page = fixture.ok(Method::GET, &path, Value::Null).await;
        count += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/recipients?limit=500&cursor={next}");
    }
    assert_eq!(count, 1_200);
}

#[tokio::test]
async fn mistakes_are_named_and_tenants_do_not_see_each_other() {
    let fixture = AudienceFixture::new().await;
    let put = |body: Value| fixture.refused(Method::PUT, "/v1/recipients/u-9", body);
    assert_eq!(put(json!({"zone": "+02:00"})).await, (422, "zone".into()));
    assert_eq!(put(json!({"locale": "de_DE!"})).await, (422, "locale".into()));
    assert_eq!(put(json!({"attributes": [1]})).await, (422, "attributes".into()));
    assert_eq!(
        put(json!({"attributes": {"a": "x".repeat(9_000)}})).await,
        (422, "attributes".into())
    );
    let many: Vec<_> = (0..17).map(|n| format!("a-{n}")).collect();
    assert_eq!(put(json!({"aliases": many})).await, (422, "aliases".into()));
    assert_eq!(put(json!({"name": "Ann"})).await, (422, "name".into()));
    let long = format!("/v1/recipients/{}", "x".repeat(300));
    assert_eq!(fixture.refused(Method::PUT, &long, json!({})).await, (422, "id".into()));
    let message = json!({
        "to": {"address": fixture.hook("z")}, "content": {"title": "Hi"}, "category": "nws"
    });
    assert_eq!(
        fixture.refused(Method::POST, "/v1/messages", message).await,
        (422, "category".into())
    );
    fixture.ok(Method::PUT, "/v1/recipients/u-9", json!({"zone": "UTC"})).await;
    let other = fixture.server.key("tenant", "shop").await;
    let other = fixture.server.client(&other);
    assert_eq!(reply(&other, Method::GET, "/v1/recipients/u-9", "").await.status, 404);
    let categories = reply(&other, Method::GET, "/v1/categories", "").await;
    assert_eq!(categories.body, json!({"categories": []}));
}
