//! Bad input on every channel, by the real API: refused at the intake, with the field, what was found and
//! what is allowed; the same alone, in a batch and for the registry; nothing stored; no secret repeated.

mod device;
mod mail;
mod message;
mod web;

use std::fmt::Write as _;

use http::Method;
use serde_json::{Value, json};

use postrider_testkit::server::{ServerFixture, reply};

/// One account of each sort. Nothing is ever sent, so none of their secrets is there.
const ACCOUNTS: &str = r#"
[accounts.firebase]
channel = "fcm"
tenant = "*"
credential = "file:/nonexistent/firebase.json"
[accounts.apple]
channel = "apns"
tenant = "*"
team_id = "TEAM000000"
key_id = "KEY0000000"
credential = "file:/nonexistent/apple.p8"
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
credential = "file:/nonexistent/sms"
"#;

/// A message with something wrong.
struct Case {
    name: String,
    body: Vec<u8>,
}

/// A channel's message that is in order, and what is done to it.
struct Table {
    good: Value,
    cases: Vec<Case>,
}

impl Table {
    fn new(address: Value, content: Value) -> Self {
        // Far away, so that nothing is sent meanwhile.
        let at = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string();
        let good = json!({"to": {"address": address}, "content": content, "send_at": at});
        Self { good, cases: Vec::new() }
    }

    /// The message with `value` at a place such as `to.address.token`.
    fn set(mut self, name: &str, place: &str, value: impl Into<Value>) -> Self {
        let mut message = self.good.clone();
        *slot(&mut message, place) = value.into();
        self.cases.push(Case { name: name.into(), body: message.to_string().into() });
        self
    }

    /// One case each, named by its value.
    fn each<V: Into<Value> + Clone>(mut self, place: &str, values: &[V]) -> Self {
        for value in values {
            let value: Value = value.clone().into();
            let name: String = value.to_string().chars().take(48).collect();
            self = self.set(&format!("{place} = {name}"), place, value);
        }
        self
    }

    fn without(mut self, place: &str) -> Self {
        let mut message = self.good.clone();
        let (parent, name) = place.rsplit_once('.').unwrap();
        slot(&mut message, parent).as_object_mut().unwrap().remove(name);
        self.cases.push(Case { name: format!("no {place}"), body: message.to_string().into() });
        self
    }

    /// The message with the text `from` in its JSON replaced.
    fn raw(mut self, name: &str, from: &str, to: &str) -> Self {
        let text = self.good.to_string();
        assert!(text.contains(from), "{from} is not in {text}");
        let body = text.replacen(from, to, 1);
        self.cases.push(Case { name: name.into(), body: body.into() });
        self
    }
}

fn slot<'a>(message: &'a mut Value, place: &str) -> &'a mut Value {
    place.split('.').fold(message, |value, name| match name.parse::<usize>() {
        Ok(nth) => &mut value[nth],
        Err(_) => &mut value[name],
    })
}

/// Tries every case in every way in; the refusals are a snapshot.
async fn check(name: &str, table: Table) {
    let server = ServerFixture::with(ACCOUNTS).await;
    let good = server.post(table.good.to_string()).await;
    assert_eq!(good.status, 202, "{}: {}", table.good, good.body);
    let mut told = String::new();
    let mut answers = Vec::new();
    let mut accepted = Vec::new();
    for case in &table.cases {
        let answer = server.post(case.body.clone()).await;
        if answer.status == 202 {
            accepted.push(&case.name);
            continue;
        }
        assert_eq!(answer.content_type, "application/problem+json", "{}", case.name);
        assert!(matches!(answer.status, 400 | 422), "{}: {}", case.name, answer.body);
        keeps_secrets(case, &answer.body);
        write(&mut told, case, &answer.body);
        answers.push(answer.body);
    }
    assert!(accepted.is_empty(), "taken in: {accepted:#?}");
    let batched = in_a_batch(&server, &table, &answers).await;
    in_the_registry(&server, &table, &answers).await;
    let stored = server.admin().get("/v1/deliveries").await.unwrap();
    let good = [&good.body["id"], &batched["id"]];
    for delivery in stored["items"].as_array().unwrap() {
        assert!(good.contains(&&delivery["message"]), "stored all the same: {delivery}");
    }
    crate::without_channel_list(|| {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(name, told) });
    });
}

fn write(told: &mut String, case: &Case, body: &Value) {
    let errors = body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let _ = writeln!(told, "{}", case.name);
    if errors.is_empty() {
        // Where in the text depends on how long its ids happen to be.
        let detail = body["detail"].as_str().unwrap().split(" at line ").next().unwrap();
        let _ = writeln!(told, "    {}: {detail}", body["status"]);
    }
    for error in errors {
        let text = |name: &str| error[name].as_str().filter(|text| !text.is_empty()).unwrap();
        let (field, found, allowed) = (text("field"), text("found"), text("allowed"));
        let _ = writeln!(told, "    {field}: found {found}; allowed: {allowed}");
    }
}

/// What an address says of a person or their device is not repeated, nor is much of a text.
fn keeps_secrets(case: &Case, answer: &Value) {
    let Ok(message) = serde_json::from_slice::<Value>(&case.body) else { return };
    let answer = answer.to_string();
    let mut secrets = Vec::new();
    for name in ["token", "fid", "endpoint", "url", "email", "phone", "keys", "secrets", "headers"]
    {
        texts(&message["to"]["address"][name], &mut secrets);
    }
    texts(&message["content"], &mut secrets);
    for secret in secrets.iter().filter(|text| text.chars().count() > 12) {
        let quoted = serde_json::to_string(secret).unwrap();
        let inner = quoted.trim_matches('"');
        assert!(!answer.contains(inner), "{}: {answer} repeats {inner}", case.name);
    }
}

fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, into)),
        _ => {}
    }
}

/// Each line its own answer, and the good one in the middle is taken.
async fn in_a_batch(server: &ServerFixture, table: &Table, answers: &[Value]) -> Value {
    let lines: Vec<_> = table.cases.iter().map(|case| &case.body).collect();
    assert!(lines.iter().all(|line| !line.contains(&b'\n')));
    let good = table.good.to_string().into_bytes();
    let middle = lines.len() / 2;
    let all = [&lines[..middle], &[&good], &lines[middle..]].concat();
    let body = all.iter().flat_map(|line| [&line[..], b"\n"].concat()).collect::<Vec<u8>>();
    let path = "/v1/messages/batch";
    let client = server.admin();
    let whole = postrider::client::whole(body.into());
    let response = client.send(Method::POST, path, "application/x-ndjson", whole).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let results: Vec<Value> =
        bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(json_of).collect();
    assert_eq!(results.len(), all.len());
    assert_eq!(results[middle]["status"], 202, "{}", results[middle]);
    let refused = results.iter().enumerate().filter(|(nth, _)| *nth != middle).map(|(_, r)| r);
    for ((result, answer), case) in refused.zip(answers).zip(&table.cases) {
        assert_eq!(result["status"], answer["status"], "{}", case.name);
        assert_eq!(result["error"]["errors"], answer["errors"], "{}", case.name);
    }
    results[middle].clone()
}

fn json_of(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

/// An address that no message may go to cannot be registered either, for the same reasons.
async fn in_the_registry(server: &ServerFixture, table: &Table, answers: &[Value]) {
    for (case, answer) in table.cases.iter().zip(answers) {
        let errors = answer["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let below = |error: &Value| {
            let mut error = error.clone();
            let field = error["field"].as_str()?.strip_prefix("to.address.")?.to_owned();
            error["field"] = field.into();
            Some(error)
        };
        let Some(errors) = errors.iter().map(below).collect::<Option<Vec<_>>>() else { continue };
        let Ok(message) = serde_json::from_slice::<Value>(&case.body) else { continue };
        if errors.is_empty() || errors.iter().any(|error| error["found"] == "given twice") {
            continue;
        }
        let address = message["to"]["address"].to_string();
        let refused = reply(&server.admin(), Method::POST, "/v1/addresses", address).await;
        assert_eq!(refused.status, 422, "{}: {}", case.name, refused.body);
        assert_eq!(refused.body["errors"], json!(errors), "{}", case.name);
    }
}
