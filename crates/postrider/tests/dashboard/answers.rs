//! What pages say, read without a browser.

use axum::http::Method;
use postrider_testkit::http;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, eventually, message, send};
use serde_json::{Value, json};

use super::fixture::DashboardFixture;

/// A person who reads pages.
struct PageReader {
    address: std::net::SocketAddr,
    session: String,
}

impl PageReader {
    async fn of(server: &ServerFixture, key: &str) -> Self {
        let own = server.client(key);
        let code = own.post("/v1/sign-in-codes", &Value::Null).await.unwrap();
        let session = own.post("/v1/sign-in", &json!({"code": code["code"]})).await.unwrap();
        let session = session["key"].as_str().unwrap().to_owned();
        Self { address: server.running.addr, session }
    }

    async fn admin(server: &ServerFixture) -> Self {
        Self::of(server, postrider_testkit::ADMIN_KEY).await
    }

    async fn page(&self, path: &str) -> String {
        let (address, path, session) = (self.address, path.to_owned(), self.session.clone());
        let answer = tokio::task::spawn_blocking(move || http::page(address, &path, &session));
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// The command that a page lets a person copy.
    async fn command(&self, path: &str) -> String {
        let page = self.page(path).await;
        let (_, rest) = page.split_once("data-copy=\"").unwrap();
        rest.split('"').next().unwrap().replace("&amp;", "&")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_problem_of_an_account_shows_its_deliveries_its_lanes_and_its_attempts() {
    let text = format!(
        "{LOCAL_TARGETS}[accounts.apple]\nchannel = \"apns\"\ntenant = \"acme\"\n\
         credential = \"file:/nowhere/apple.pem\"\n[accounts.other]\nchannel = \"apns\"\n\
         tenant = \"globex\"\ncredential = \"file:/nowhere/other.pem\"\n"
    );
    let server = ServerFixture::with(&text).await;
    let sender = server.client(&server.key("send", "acme").await);
    let push = json!({
        "to": {"address": {"channel": "apns", "token": "ab".repeat(32), "topic": "com.example.app"}},
        "content": {"title": "Shipped"},
    });
    let sent = sender.post("/v1/messages", &push).await.unwrap();
    let id = sent["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let admin = server.admin();
    let is_there = |list: &Value| list["problems"].as_array().is_some_and(|all| all.len() == 2);
    let problems = eventually(&admin, "/v1/problems", is_there).await;
    let mut problems = problems["problems"].as_array().unwrap().iter();
    let problem = problems.find(|problem| problem["provider"] == "apple").unwrap();
    assert_eq!(problem["account"], "apple", "{problem}");
    let reader = PageReader::admin(&server).await;
    let page = reader.page(problem["link"].as_str().unwrap()).await;
    assert!(page.contains(&format!("/deliveries/{id}")), "{page}");
    assert!(!page.contains("No delivery of it is left"), "{page}");
    let lanes = reader.page("/lanes?channel=apns").await;
    assert!(lanes.contains(">Lane ") && !lanes.contains("No lane matches"), "{lanes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_of_lanes_are_asked_of_all_lanes() {
    let server = ServerFixture::with("[network]\nallow_private_targets = true\n").await;
    let admin = server.admin();
    let mut lines = String::new();
    for n in 0..520 {
        let mut new = message();
        new["to"]["address"]["url"] = format!("https://h{n}.example.com/hook").into();
        lines += &format!("{new}\n");
        lines += &format!("{new}\n").replace("/hook", "/other");
    }
    let mut last = message();
    last["to"]["address"]["url"] = "https://rare.example.com/hook".into();
    lines += &format!("{last}\n");
    let path = "/v1/messages/batch";
    let sent = send(&admin, Method::POST, path, "application/x-ndjson", lines).await;
    assert!(sent.status < 300, "{}", sent.status);
    let all = admin.get("/v1/lanes?limit=500").await.unwrap();
    assert_eq!(all["has_more"], true);
    let rare = "/v1/lanes?provider=https://rare.example.com&state=ready&channel=webhook";
    let found = admin.get(rare).await.unwrap();
    assert_eq!(found["lanes"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["has_more"], false);
    assert!(admin.get("/v1/lanes?state=broken").await.is_err());
    let reader = PageReader::admin(&server).await;
    let page = reader.page("/lanes?provider=https://rare.example.com").await;
    assert!(page.contains("rare.example.com</td>"), "{page}");
    let whole = reader.page("/lanes").await;
    assert!(whole.contains("there are more"), "{whole}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_export_of_the_audit_log_has_every_entry() {
    let server = ServerFixture::with("[limits]\nkeys_max = 2000\n").await;
    let admin = server.admin();
    for n in 0..1_100 {
        let key = json!({"name": format!("n{n}"), "scope": "read", "tenant": "acme"});
        admin.post("/v1/keys", &key).await.unwrap();
    }
    let reader = PageReader::admin(&server).await;
    let lines = reader.page("/audit?action=key.create&export=1").await;
    assert_eq!(lines.lines().count(), 1_100);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["entry"]["action"], "key.create");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_dead_letters_plans_exactly_its_own() {
    let fixture = DashboardFixture::new().await;
    for n in 0..2 {
        fixture.sent_until("acme", &fixture.refusing, &format!("/orders/{n}"), "failed").await;
    }
    let reader = PageReader::admin(&fixture.server).await;
    let empty = reader.page("/dead?reason=ttl").await;
    assert!(empty.contains("No dead letter matches."), "{empty}");
    let dead = fixture.server.admin().for_tenant(Some("acme".to_owned()));
    let dead = dead.get("/v1/dead-letters").await.unwrap();
    let last = &dead["items"][0]["log"][0];
    let error = last["code"].as_str().or(last["detail"].as_str()).unwrap();
    let part = &error[..error.len() - 1];
    let origin = fixture.refusing.url("");
    let exact = ("error_is", error);
    for (error, count) in
        [(exact, "<b>2</b>"), (("error_is", part), "<b>0</b>"), (("no_error", "1"), "<b>0</b>")]
    {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs([("kind", "replay"), ("of", "acme"), ("channel", "webhook")]);
        query.extend_pairs([("provider", &*origin), ("reason", "permanent"), error]);
        let page = reader.page(&format!("/jobs/plan?{}", query.finish())).await;
        assert!(page.contains(&format!("id=\"count\">{count}")), "{error:?}: {page}");
    }
    let groups = reader.page("/dead").await;
    let (_, link) = groups.split_once("href=\"/jobs/plan?kind=replay").unwrap();
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    assert!(link.contains("of=acme") && link.contains("error_is="), "{link}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_command_has_the_tenant_the_filters_and_the_search_of_its_page() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.healthy, "/orders/1", "sent").await;
    let reader = PageReader::admin(&fixture.server).await;
    for (path, command) in [
        ("/lanes?tenant=acme&state=blocked", "postrider lanes list --state blocked --tenant acme"),
        ("/jobs?kind=replay", "postrider jobs list --kind replay --tenant '*'"),
        ("/dead?reason=ttl&tenant=acme", "postrider dead list --reason ttl --tenant acme"),
        ("/?tenant=acme", "postrider problems list --tenant acme; postrider status --tenant acme"),
        (
            "/deliveries?tenant=acme&q=orders&state=sent",
            "postrider deliveries list --state sent --tag orders --tenant acme",
        ),
    ] {
        assert_eq!(reader.command(path).await.replace("&#39;", "'"), command, "{path}");
    }
    let own = fixture.server.key("read", "acme").await;
    let own = PageReader::of(&fixture.server, &own).await;
    assert_eq!(own.command("/lanes").await, "postrider lanes list");
    let page = reader.page("/deliveries?range=1h").await;
    let (_, link) = page.split_once("data-copy-link=\"").unwrap();
    let link = link.split('"').next().unwrap();
    assert!(link.contains("since=") && link.contains("until="), "{link}");
}
