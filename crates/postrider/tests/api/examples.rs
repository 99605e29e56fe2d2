//! The examples of the API's description, sent to a server as they are.

use http::Method;
use postrider_testkit::server::{ServerFixture, send};
use serde_json::Value;

/// Accounts of channels that have some; nothing is sent to them.
const ACCOUNTS: &str = r#"
[accounts.mail]
channel = "email"
tenant = "*"
from = "news@shop.example"
host = "mail.shop.example"
[accounts.phone]
channel = "sms"
tenant = "*"
account_sid = "AC1"
from = "+15550100"
credential = "env:NO_SECRET"
[accounts.firebase]
channel = "fcm"
tenant = "*"
project = "shop"
credential = "env:NO_SECRET"
[accounts.apple]
channel = "apns"
tenant = "*"
team_id = "TEAM123456"
key_id = "KEY1234567"
credential = "env:NO_SECRET"
[accounts.bot]
channel = "telegram"
tenant = "*"
credential = "env:NO_SECRET"
[accounts.topics]
channel = "ntfy"
tenant = "*"
[alerts.routes.tool]
kind = "webhook"
url = "https://alerts.example.com/postrider"
"#;

#[tokio::test]
async fn every_example_of_the_description_is_understood() {
    let server = ServerFixture::with(ACCOUNTS).await;
    let document: Value = serde_json::from_str(&postrider::api::openapi::json()).unwrap();
    // A recipient has addresses before a message is sent to it.
    let addresses = examples(&document, "post", "/v1/addresses");
    assert!(addresses.len() >= 10);
    for (name, body) in addresses {
        check(&server, "POST", "/v1/addresses", &name, body).await;
    }
    let other = r#"{"channel": "webhook", "url": "https://example.com/2", "recipient": "u-43"}"#;
    check(&server, "POST", "/v1/addresses", "second recipient", other.to_owned()).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let target = with_parameters(path, &item[method]);
            for (name, body) in examples(&document, method, path) {
                check(&server, &method.to_uppercase(), &target, &name, body).await;
            }
        }
    }
}

/// The examples of one operation by name, as texts.
fn examples(document: &Value, method: &str, path: &str) -> Vec<(String, String)> {
    let content = &document["paths"][path][method]["requestBody"]["content"];
    let bodies = content.as_object().into_iter().flatten();
    let all = bodies.flat_map(|(_, body)| body["examples"].as_object().into_iter().flatten());
    all.map(|(name, example)| {
        let text = example["value"].as_str().map(str::to_owned);
        (name.clone(), text.unwrap_or_else(|| example["value"].to_string()))
    })
    .collect()
}

/// The path with the examples of its parameters.
fn with_parameters(path: &str, operation: &Value) -> String {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    parameters.filter(|parameter| parameter["in"] == "path").fold(path.to_owned(), |path, one| {
        let value = one["example"].as_str().map(str::to_owned);
        let value = value.unwrap_or_else(|| one["example"].to_string());
        path.replace(&format!("{{{}}}", one["name"].as_str().unwrap()), &value)
    })
}

async fn check(server: &ServerFixture, method: &str, path: &str, name: &str, body: String) {
    let method: Method = method.parse().unwrap();
    let kind = if path.ends_with("/batch") { "application/x-ndjson" } else { "application/json" };
    let answer = send(&server.admin(), method.clone(), path, kind, body).await;
    // Some examples speak of what is not there; none is written wrongly.
    let is_understood = ![400, 413, 415, 422, 500].contains(&answer.status);
    assert!(is_understood, "{method} {path}, {name}: {} {}", answer.status, answer.body);
}
