//! Nothing personal and no secret leaves the server but to its provider: everything that the server logs at its most
//! talkative level, every error answer, the dead letters and the explanations are searched for it.

use std::collections::BTreeSet;

use postrider_sandbox::ReceiverRequest;
use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, state};

const TITLE: &str = "Tulpenzwiebel-title-7193";
const BODY: &str = "Tulpenzwiebel-body-7193";
const RECIPIENT: &str = "zoe-recipient-7193";

/// Texts of an address and below, long enough to be found by chance nowhere.
fn texts(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.len() >= 12 => {
            // The host of an endpoint is shown as the provider; what follows is the secret part.
            match url::Url::parse(text) {
                Ok(url) if url.has_host() => {
                    let path = url.path().trim_matches('/');
                    into.extend(path.rsplit('/').next().map(str::to_owned));
                }
                _ => drop(into.insert(text.clone())),
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => {
            let named = |name: &str| ["channel", "platform", "project"].contains(&name);
            fields.iter().filter(|(name, _)| !named(name)).for_each(|(_, item)| texts(item, into));
        }
        _ => {}
    }
}

fn assert_clean(what: &str, text: &str, secrets: &BTreeSet<String>) {
    for secret in secrets.iter().filter(|secret| secret.len() >= 6) {
        if let Some(at) = text.find(secret.as_str()) {
            let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
            let to = text[at..].find('\n').map_or(text.len(), |end| at + end);
            panic!("{secret:?} is in {what}: {}", &text[from..to]);
        }
    }
}

#[test]
fn no_log_error_dead_letter_or_explanation_shows_an_address_a_payload_or_a_key() {
    let fixture = ChannelsFixture::talkative();
    let mut secrets: BTreeSet<String> =
        [TITLE, BODY, RECIPIENT, postrider_testkit::ADMIN_KEY].map(str::to_owned).into();
    let content = json!({"title": TITLE, "body": BODY});
    let mut ids = Vec::new();
    let mut answers = Vec::new();
    for script in ["", "[\"400\", \"400\"]"] {
        let samples = fixture.samples(|_| ReceiverRequest {
            script: serde_json::from_str(if script.is_empty() { "[]" } else { script }).unwrap(),
            ..ReceiverRequest::default()
        });
        for sample in samples {
            let address = &sample.receiver.address;
            texts(address, &mut secrets);
            let mut registered = address.clone();
            registered["recipient"] = RECIPIENT.into();
            let known = fixture.api("POST", "/v1/addresses", &registered);
            let retry = json!({"retries": 0});
            for to in [json!({"address": address}), json!({"address": known["id"]})] {
                let message = json!({"to": to, "content": content, "retry": retry});
                let answer = fixture.try_api("POST", "/v1/messages", &message);
                // The first of them may have shown already that the address is gone.
                let accepted: Value = serde_json::from_str(&answer.body).unwrap();
                match accepted["deliveries"][0]["id"].as_str() {
                    Some(id) => ids.push(id.to_owned()),
                    None => answers.push(answer.body),
                }
            }
            // Mistakes in each field of the address, and one of the message.
            for field in address.as_object().unwrap().keys() {
                let mut wrong = address.clone();
                wrong[field] = json!({"unexpected": wrong[field].clone()});
                let message = json!({"to": {"address": wrong}, "content": content});
                answers.push(fixture.try_api("POST", "/v1/messages", &message).body);
            }
            let message = json!({"to": {"address": address}, "content": content, "ttl_s": -1});
            answers.push(fixture.try_api("POST", "/v1/messages", &message).body);
            let conflict = |title: &str| {
                json!({"to": {"address": address}, "content": {"title": title},
                "idempotency_key": format!("{}{script}", sample.channel)})
            };
            fixture.try_api("POST", "/v1/messages", &conflict(TITLE));
            answers.push(fixture.try_api("POST", "/v1/messages", &conflict(BODY)).body);
        }
    }
    let mut ends = BTreeSet::new();
    for id in &ids {
        let delivery = fixture.ended(id);
        ends.insert(state(&delivery).to_owned());
        let explained = fixture.api("GET", &format!("/v1/deliveries/{id}/explain"), &Value::Null);
        answers.push(explained.to_string());
        let mut shown = delivery;
        // Who asks for one delivery sees for whom it is.
        shown["recipient"] = Value::Null;
        answers.push(shown.to_string());
    }
    assert!(ends.contains("sent") && ends.contains("failed"), "{ends:?}");
    for path in
        ["/v1/dead-letters", "/v1/lanes", "/v1/stats", "/v1/accounts", "/metrics", "/v1/audit"]
    {
        answers.push(fixture.try_api("GET", path, &Value::Null).body);
    }
    answers.push(fixture.try_api("GET", "/v1/addresses", &Value::Null).body.replace(RECIPIENT, ""));
    for answer in &answers {
        assert_clean("an answer", answer, &secrets);
    }
    let log = fixture.log();
    assert!(log.lines().count() > 200, "the log is talkative: {log}");
    assert_clean("the log", &log, &secrets);
}
