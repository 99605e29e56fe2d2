//! Templates by API: created, shown, previewed, used by messages and deleted.

use http::Method;
use postrider::client::Client;
use postrider_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::configuration::{File, reload};
use crate::providers::ProvidersFixture;
use postrider_testkit::server::{ServerFixture, TestReply, message, reply};

async fn put(client: &Client, name: &str, template: Value) -> TestReply {
    reply(client, Method::PUT, &format!("/v1/templates/{name}"), template.to_string()).await
}

async fn delete(client: &Client, name: &str) -> u16 {
    reply(client, Method::DELETE, &format!("/v1/templates/{name}"), "").await.status
}

async fn preview(client: &Client, name: &str, asked: Value) -> TestReply {
    let path = format!("/v1/templates/{name}/preview");
    reply(client, Method::POST, &path, asked.to_string()).await
}

fn english(content: Value) -> Value {
    json!({"locales": {"en": content}})
}

/// A message with a template instead of words.
fn with(template: Value) -> Value {
    let mut message = message();
    message["content"] = json!({});
    message["template"] = template;
    message
}

/// What is stored of a message.
async fn said(server: &ServerFixture, client: &Client, message: Value) -> Value {
    let sent = client.post("/v1/messages", &message).await.unwrap();
    let path = format!("/v1/messages/{}/content", sent["id"].as_str().unwrap());
    let all = server.admin().for_tenant(Some("*".to_owned()));
    all.get(&path).await.unwrap()
}

fn shipped() -> Value {
    json!({
        "default_locale": "en",
        "locales": {
            "en": {
                "title": "Order {{ order.number }} shipped",
                "body": "Hello {{ name | default('there') }}",
                "email": {"html": "<p>Hello {{ name | default('there') }}, see {{ link }}</p>"},
                "sms": {"text": "{{ order.number }}: {{ link }}"},
            },
            "de": {"title": "Bestellung {{ order.number }} ist unterwegs"},
        },
    })
}

#[tokio::test]
async fn a_template_is_made_shown_used_and_taken_back() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let made = put(&admin, "shipped", shipped()).await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!((&made.body["owner"], &made.body["source"]), (&json!("tenant"), &json!("api")));
    assert_eq!(made.body["variables"], json!(["link", "name", "order.number"]));
    assert_eq!(made.body["locales"], shipped()["locales"]);
    let list = admin.get("/v1/templates").await.unwrap();
    assert_eq!(list["templates"][0]["locales"], json!(["en", "de"]));
    assert!(list["templates"][0]["set_at"].is_string());
    let wish =
        json!({"name": "shipped", "locale": "de-AT", "variables": {"order": {"number": 91}}});
    let said = said(&server, &admin, with(wish)).await;
    assert_eq!(said, json!({"title": "Bestellung 91 ist unterwegs"}));
    assert_eq!(delete(&admin, "shipped").await, 204);
    assert_eq!(delete(&admin, "shipped").await, 404);
    assert_eq!(reply(&admin, Method::GET, "/v1/templates/shipped", "").await.status, 404);
}

#[tokio::test]
async fn what_cannot_be_saved_is_refused_with_field_line_and_what_is_allowed() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let two = json!({"title": "{{ a | shout }}", "body": "x\n{% if %}"});
    let errors = [
        put(&admin, "bad", english(two)).await,
        put(&admin, "bad", english(json!({"titel": "x"}))).await,
        put(&admin, "bad", json!({"locales": {}, "colour": 1})).await,
        put(&admin, "not%20a%20name", english(json!({"title": "x"}))).await,
        put(&admin, "bad", json!({"default_locale": "fr", "locales": {"en": {}}})).await,
    ]
    .map(|reply| {
        assert_eq!(reply.status, 422, "{}", reply.body);
        reply.body["errors"].clone()
    });
    let mut errors = json!(errors);
    errors[0][1]["allowed"] = "the filters".into();
    crate::without_channel_list(|| insta::assert_json_snapshot!(errors));
    assert_eq!(admin.get("/v1/templates").await.unwrap()["templates"], json!([]));
}

#[tokio::test]
async fn a_message_that_cannot_be_rendered_is_refused_and_counted() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    put(&admin, "shipped", shipped()).await;
    let refused = server.post(with(json!({"name": "shipped"})).to_string()).await;
    assert_eq!(refused.status, 422);
    insta::assert_json_snapshot!(refused.body);
    let unknown = server.post(with(json!({"name": "lost"})).to_string()).await;
    let wanted = json!([{"field": "template.name", "found": "lost", "allowed": "one of shipped"}]);
    assert_eq!(unknown.body["errors"], wanted);
    let metrics =
        admin.send(Method::GET, "/metrics", "", postrider::client::whole("".into())).await;
    let body = http_body_util::BodyExt::collect(metrics.unwrap().into_body()).await.unwrap();
    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    assert!(text.contains("postrider_refused_total{outcome=\"template\"} 2"), "{text}");
}

#[tokio::test]
async fn tenants_see_their_own_and_the_servers_and_nobody_elses() {
    let server = ServerFixture::with("[templates.news.locales.en]\ntitle = \"file\"").await;
    let acme = server.client(&server.key("tenant", "acme").await);
    let other = server.client(&server.key("tenant", "other").await);
    let reader = server.client(&server.key("read", "acme").await);
    assert_eq!(put(&acme, "own", english(json!({"title": "acme's"}))).await.status, 200);
    assert_eq!(put(&reader, "own", english(json!({"title": "x"}))).await.status, 403);
    assert_eq!(reply(&other, Method::GET, "/v1/templates/own", "").await.status, 404);
    assert_eq!(reader.get("/v1/templates/own").await.unwrap()["owner"], "tenant");
    let news = async |client: &Client| {
        said(&server, client, with(json!({"name": "news"}))).await["title"].clone()
    };
    assert_eq!(news(&other).await, "file");
    let all = server.admin().for_tenant(Some("*".to_owned()));
    assert_eq!(
        put(&all, "news", english(json!({"title": "server"}))).await.body["owner"],
        "server"
    );
    assert_eq!(news(&other).await, "server");
    assert_eq!(put(&acme, "news", english(json!({"title": "shadow"}))).await.status, 200);
    assert_eq!((news(&acme).await, news(&other).await), (json!("shadow"), json!("server")));
    assert_eq!(delete(&other, "news").await, 404, "not another's");
    assert_eq!((delete(&acme, "news").await, delete(&all, "news").await), (204, 204));
    assert_eq!((news(&acme).await, news(&other).await), (json!("file"), json!("file")));
    let shown = acme.get("/v1/templates/news").await.unwrap();
    assert_eq!((&shown["owner"], &shown["source"]), (&json!("server"), &json!("file")));
}

#[tokio::test]
async fn a_template_made_by_api_survives_a_restart() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let server = ServerFixture::over(store.clone()).await;
    assert_eq!(put(&server.admin(), "shipped", shipped()).await.status, 200);
    server.running.shutdown().await;
    let server = ServerFixture::over(store).await;
    let list = server.admin().get("/v1/templates").await.unwrap();
    assert_eq!(
        (&list["templates"][0]["name"], &list["templates"][0]["source"]),
        (&json!("shipped"), &json!("api"))
    );
    let wish = json!({"name": "shipped", "locale": "de", "variables": {"order": {"number": 1}}});
    assert_eq!(server.post(with(wish).to_string()).await.status, 202);
}

#[tokio::test]
async fn the_files_templates_change_with_it_and_a_wrong_one_changes_nothing() {
    let file = File::new("[templates.news.locales.en]\ntitle = \"old\"\n");
    let server = file.serve().await;
    let admin = server.admin();
    let news = async || said(&server, &admin, with(json!({"name": "news"}))).await["title"].clone();
    assert_eq!(news().await, "old");
    file.write("[templates.news.locales.en]\ntitle = \"new\"\n");
    assert_eq!(reload(&server).await.body["changed"], json!(["templates.news.locales.en.title"]));
    assert_eq!(news().await, "new");
    file.write("[templates.news.locales.en]\ntitle = \"{{ broken\"\n");
    let told = reload(&server).await;
    assert_eq!(told.status, 422, "{}", told.body);
    assert_eq!(told.body["errors"][0]["field"], "templates.news.locales.en.title");
    assert_eq!(news().await, "new");
}

#[tokio::test]
async fn a_preview_tells_everything_that_is_missing_and_what_each_channel_would_send() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    put(&admin, "shipped", shipped()).await;
    let empty = preview(&admin, "shipped", json!({"channel": "sms"})).await;
    assert_eq!(empty.status, 200, "{}", empty.body);
    assert_eq!(empty.body["ready"], false);
    assert_eq!(
        empty.body["missing"],
        json!([
            {"variable": "link", "fields": ["email.html", "sms.text"]},
            {"variable": "order.number", "fields": ["sms.text", "title"]},
        ])
    );
    let variables = json!({"order": {"number": 91}, "link": "https://a.example/?a=1&b=2"});
    let asked = json!({"variables": variables, "content": {"body": "mine"}});
    let mut full = preview(&admin, "shipped", asked).await;
    let channels = full.body["channels"].as_array_mut().unwrap();
    let kinds = postrider_channels::registry::kinds();
    assert!(
        channels.iter().map(|found| &found["channel"]).eq(kinds.iter().map(|kind| kind.name()))
    );
    // So that a new channel does not change the snapshot.
    channels.truncate(8);
    insta::assert_json_snapshot!(full.body);
    let wrong = preview(&admin, "shipped", json!({"channel": "pigeon"})).await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("channel")));
}

#[tokio::test]
async fn a_template_can_be_previewed_before_it_is_saved() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let path = "/v1/templates/preview";
    let ask = async |template: Value| {
        let asked = json!({"template": template, "variables": {"x": "ü€漢"}, "channel": "sms"});
        reply(&admin, Method::POST, path, asked.to_string()).await
    };
    let seen = ask(english(json!({"sms": {"text": "{{ x }}"}}))).await;
    let sms = &seen.body["channels"][0];
    assert_eq!((&sms["sends"]["encoding"], &sms["sends"]["segments"]), (&json!("ucs2"), &json!(1)));
    assert_eq!(sms["configured"], false, "there is no account");
    let wrong = ask(english(json!({"sms": {"text": "{{ x"}}))).await;
    assert_eq!(wrong.status, 422);
    assert_eq!(wrong.body["errors"][0]["field"], "template.locales.en.sms.text");
    assert_eq!(admin.get("/v1/templates").await.unwrap()["templates"], json!([]));
}

#[tokio::test]
async fn a_tenant_can_have_only_so_much() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    let large = english(json!({"body": "x".repeat(250_000)}));
    for n in 0..16 {
        assert_eq!(put(&admin, &format!("t{n}"), large.clone()).await.status, 200);
    }
    let refused = put(&admin, "t16", large.clone()).await;
    assert_eq!(refused.status, 403);
    let error = &refused.body["errors"][0];
    assert_eq!(error["field"], "limits.template_bytes_max");
    assert!(error["found"].as_str().unwrap().starts_with("42"), "{error}");
    assert_eq!(
        put(&admin, "t3", large.clone()).await.status,
        200,
        "in its own place there is room"
    );
    let other = server.client(&server.key("tenant", "other").await);
    assert_eq!(put(&other, "t0", large).await.status, 200, "nobody takes another's");
}

#[tokio::test]
async fn a_batch_is_rendered_line_by_line() {
    let server = ServerFixture::start().await;
    let admin = server.admin();
    put(&admin, "shipped", shipped()).await;
    let line = |n: Value| {
        with(json!({"name": "shipped", "locale": "de", "variables": {"order": {"number": n}}}))
            .to_string()
    };
    let lines = format!("{}\n{}\n{}\n", line(json!(1)), line(json!(null)), line(json!(3)));
    let kind = "application/x-ndjson";
    let body = postrider::client::whole(lines.into());
    let answer = admin.send(Method::POST, "/v1/messages/batch", kind, body).await.unwrap();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let results: Vec<Value> =
        body.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].clone()).collect();
    assert_eq!(statuses, [202, 422, 202]);
    let field = &results[1]["error"]["errors"][0]["field"];
    assert_eq!(field, "template.variables.order.number");
}

#[tokio::test]
async fn rendered_words_arrive_by_mail_text_message_and_webhook() {
    let fixture = ProvidersFixture::by_smtp().await;
    let mut template = shipped();
    template["locales"]["en"]["webhook"] =
        json!({"payload": {"order": "{{ order.number }}", "n": 1}});
    template["locales"]["en"]["email"]["subject"] =
        json!("Order {{ order.number }} for {{ name }}");
    assert_eq!(put(&fixture.server.admin(), "shipped", template).await.status, 200);
    let wish = |name: &str| {
        let order = json!({"number": "91"});
        json!({"name": "shipped", "variables": {"order": order, "name": name, "link": "https://a.example"}})
    };
    let send = async |address: Value, name: &str| {
        let message = json!({"to": {"address": address}, "template": wish(name)});
        let reply = fixture.server.post(message.to_string()).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let id = reply.body["deliveries"][0]["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/deliveries/{id}");
        postrider_testkit::server::eventually(&fixture.server.admin(), &path, |d| {
            d["state"] == "sent"
        })
        .await
    };
    send(json!({"channel": "email", "email": "ada@example.org"}), "<Ada>").await;
    let mail = fixture.last("email", "ada@example.org").await;
    assert_eq!(mail["headers"]["subject"], "Order 91 for <Ada>");
    let body = mail["body"].as_str().unwrap();
    assert!(body.contains("<p>Hello &lt;Ada&gt;, see"), "escaped in HTML: {body}");
    send(json!({"channel": "sms", "phone": "+4915112345678"}), "Ada").await;
    let sms = fixture.last("sms", "+4915112345678").await;
    assert!(sms["body"].as_str().unwrap().contains("Body=91%3A+https"), "{sms}");
    let url = format!("{}/hook/orders", fixture.sandbox.https_origin());
    send(json!({"channel": "webhook", "url": url}), "Ada").await;
    let hook = fixture.last("hook", "orders").await;
    let body: Value = serde_json::from_str(hook["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"n": 1, "order": "91"}));
}

#[tokio::test]
async fn a_variable_cannot_write_headers() {
    let fixture = ProvidersFixture::by_smtp().await;
    let template = english(json!({"email": {"subject": "Hello {{ name }}", "text": "{{ name }}"}}));
    put(&fixture.server.admin(), "hello", template).await;
    let variables = json!({"name": "x\r\nBcc: everybody@example.org"});
    let message = json!({
        "to": {"address": {"channel": "email", "email": "ada@example.org"}},
        "template": {"name": "hello", "variables": variables},
    });
    let refused = fixture.server.post(message.to_string()).await;
    assert_eq!(refused.status, 422);
    let error = &refused.body["errors"][0];
    assert_eq!(
        (&error["field"], &error["found"]),
        (&json!("content.email.subject"), &json!("a line break"))
    );
}
