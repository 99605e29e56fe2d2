//! Examples for the description of the API: bodies that can be sent as they are, and parameters.

use postrider_channels::definition::ChannelDefinition;
use postrider_channels::registry;
use serde_json::{Value, json};

/// Adds them to every operation.
pub(super) fn add(document: &mut Value) {
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default();
                if let Some(example) = parameter_example(path, name) {
                    parameter["example"] = example;
                }
            }
            let content =
                operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
            for body in content.into_iter().flatten().map(|(_, body)| body) {
                let examples = body_examples(method, path)
                    .into_iter()
                    .map(|(name, value)| (name, json!({"value": value})));
                body["examples"] = Value::Object(examples.collect());
            }
        }
    }
}

type NamedExamples = Vec<(String, Value)>;

/// Bodies by what they are for.
fn body_examples(method: &str, path: &str) -> NamedExamples {
    let named = match (method, path) {
        ("post", "/v1/messages") => return messages(),
        ("post", "/v1/messages/batch") => {
            let lines = ["ada@example.com", "bob@example.com"].map(|email| {
                let to = json!({"address": {"channel": "email", "email": email}});
                json!({"to": to, "content": {"title": "News"}, "class": "marketing"}).to_string()
            });
            vec![("two mails", format!("{}\n", lines.join("\n")).into())]
        }
        ("post", "/v1/addresses") => {
            let mut examples = addresses();
            for (_, address) in &mut examples {
                address["recipient"] = "u-42".into();
            }
            return examples;
        }
        ("post", "/v1/dead-letters/replay") => vec![
            (
                "fifty per second",
                json!({"filter": {"reason": "retries_exhausted"}, "rate_per_s": 50}),
            ),
            ("one", json!({"ids": [DELIVERY], "ttl_s": 3600})),
        ],
        ("post", "/v1/receipts/{token}") => {
            vec![(
                "a notification was shown",
                json!({"event": "displayed", "at": 1_794_726_737_706_i64}),
            )]
        }
        ("post", "/v1/callbacks/{account}/{token}") => {
            vec![("of Twilio", "MessageSid=SM1&MessageStatus=delivered".into())]
        }
        ("post", "/v1/dead-letters/discard") => {
            vec![("by filter", json!({"filter": {"channel": "webhook", "error": "404"}}))]
        }
        ("post", "/v1/deliveries/release") => {
            vec![("all, slowly", json!({"filter": {}, "rate_per_s": 100}))]
        }
        ("post", "/v1/jobs") => vec![
            (
                "how many would be replayed",
                json!({"kind": "replay", "filter": {"reason": "retries_exhausted"}, "dry_run": true}),
            ),
            (
                "replay them slowly",
                json!({"kind": "replay", "filter": {"reason": "retries_exhausted"}, "rate_per_s": 50}),
            ),
            (
                "export as CSV",
                json!({"kind": "export", "filter": {"channel": "webhook"}, "format": "csv"}),
            ),
        ],
        ("patch", "/v1/jobs/{id}") => vec![("slower", json!({"rate_per_s": 10}))],
        ("post", "/v1/keys") => vec![
            (
                "for one tenant",
                json!({"name": "shop backend", "tenant": "shop", "scopes": ["send", "read"]}),
            ),
            (
                "for monitoring",
                json!({"name": "metrics", "tenant": "*", "scopes": ["read"], "expires_in_s": 7_776_000,
                "networks": ["10.0.0.0/8"]}),
            ),
        ],
        ("post", "/v1/lanes/{id}/pause") => {
            let reason = "their maintenance until 14:00";
            vec![("for an hour", json!({"reason": reason, "for_s": 3600}))]
        }
        ("post", "/v1/accounts/{name}/pause") => {
            let reason = "a new contract from noon on";
            vec![("for an hour", json!({"reason": reason, "for_s": 3600}))]
        }
        ("post", "/v1/providers/pause") => vec![(
            "a receiver for an hour",
            json!({"channel": "webhook", "provider": "https://hooks.example.com",
            "reason": "their maintenance until 14:00", "for_s": 3600}),
        )],
        ("post", "/v1/providers/resume") => vec![(
            "a receiver",
            json!({"channel": "webhook", "provider": "https://hooks.example.com"}),
        )],
        ("post", "/v1/portal-links") => {
            vec![("reads for a week", json!({"tenant": TENANT, "expires_in_s": 604_800}))]
        }
        ("post", "/v1/lanes/{id}/breaker") => vec![("open it", json!({"force": "open"}))],
        ("post", "/v1/sign-in") => vec![("a code from a link", json!({"code": SIGN_IN_CODE}))],
        ("post", "/v1/encryption/tenants/{name}/destroy") => {
            vec![("the name once more", json!({"confirm": TENANT}))]
        }
        ("post", "/v1/problems/{id}/mute") => vec![("for an hour", json!({"for_s": 3600}))],
        ("post", "/v1/event-subscriptions") => vec![
            (
                "what fails",
                json!({"name": "support", "url": "https://example.com/events",
                "events": {"types": ["delivery.failed", "address.*"], "channels": ["email"]}}),
            ),
            ("to read only", json!({"name": "warehouse", "after": "start"})),
        ],
        ("put", "/v1/event-subscriptions/{id}") => vec![(
            "another receiver",
            json!({"name": "support", "url": "https://example.com/events/v2",
            "events": {"types": ["delivery.*"]}, "enabled": true}),
        )],
        ("post", "/v1/notes") => vec![(
            "for everybody, four hours",
            json!({"text": "Push to Apple is late; we are on it", "to": "*", "for_s": 14_400}),
        )],
        ("post", "/v1/alerts/test") => vec![("all routes", json!({}))],
        ("put", "/v1/classes/{name}") => {
            let retry = json!({"retries": 3, "base_ms": 2000, "cap_ms": 60_000});
            vec![(
                "patient for ten minutes",
                json!({"ttl_s": 600, "priority": "high", "retry": retry}),
            )]
        }
        ("put", "/v1/tenants/{name}") => {
            vec![("twice the share", json!({"weight": 2, "rate_per_s": 50}))]
        }
        ("put", "/v1/limits/{section}") => vec![("a rate", json!({"rate_per_s": 50}))],
        ("put", "/v1/templates/{name}") => vec![("two languages", template())],
        ("post", "/v1/templates/{name}/preview") => {
            vec![("in German", json!({"locale": "de", "variables": {"order": {"number": 91}}}))]
        }
        ("post", "/v1/templates/preview") => {
            let variables = json!({"order": {"number": 91}});
            vec![("before it is saved", json!({"template": template(), "variables": variables}))]
        }
        _ => return audience_examples(method, path),
    };
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Bodies about recipients and what they want.
fn audience_examples(method: &str, path: &str) -> NamedExamples {
    let night = json!([{"from": "22:00", "to": "07:00"}]);
    let named = match (method, path) {
        ("put", "/v1/addresses/{id}/facts") => {
            let consent = json!({"wording": "2026-03", "action": "ticked_box"});
            vec![("another zone, and a consent", json!({"zone": "Asia/Tokyo", "consent": consent}))]
        }
        ("put", "/v1/recipients/{id}") => {
            let attributes = json!({"plan": "pro"});
            vec![("from Berlin", json!({"zone": "Europe/Berlin", "attributes": attributes}))]
        }
        ("patch", "/v1/recipients/{id}") => vec![("only the language", json!({"locale": "de"}))],
        ("put" | "patch", "/v1/recipients/{id}/preferences") => {
            vec![("nothing by text message", json!({"channels": {"sms": "no"}}))]
        }
        ("post", "/v1/recipients/import") => {
            let lines = ["u-1", "u-2"].map(|id| json!({"id": id, "zone": "UTC"}).to_string());
            vec![("two recipients", format!("{}\n", lines.join("\n")).into())]
        }
        ("put", "/v1/categories/{name}") => {
            vec![("news", json!({"purpose": "marketing", "titles": {"en": "News"}}))]
        }
        ("put", "/v1/audience") => {
            vec![("quiet nights", json!({"zone": "Europe/Berlin", "quiet_hours": night}))]
        }
        ("post", "/v1/suppressions") => {
            let address = json!({"channel": "webhook", "url": "https://example.com/hooks/orders"});
            vec![("a complaint", json!({"address": address, "kind": "complaint"}))]
        }
        _ => Vec::new(),
    };
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const MESSAGE: &str = "msg_01jc5w7k3v0000000000000000";
const DELIVERY: &str = "dlv_01jc5w7k3v0000000000000000";
const ADDRESS: &str = "adr_01jc5w7k3v0000000000000000";
const TENANT: &str = "shop";
const RECEIPT_TOKEN: &str = "AZqXBk6oAAAAAAAAAAAAB2tXO0Bv6Y8mF9xQwQ1nK2c5Zt3J";
const SIGN_IN_CODE: &str = "code_from-the-link-that-the-server-printed";

fn parameter_example(path: &str, name: &str) -> Option<Value> {
    let example = match name {
        "id" if path.starts_with("/v1/messages") => MESSAGE,
        "id" if path.starts_with("/v1/deliveries") => DELIVERY,
        "id" if path.starts_with("/v1/addresses") => ADDRESS,
        "id" if path.starts_with("/v1/keys") => "key_01jc5w7k3v0000000000000000",
        "id" if path.starts_with("/v1/lanes") => return Some(1.into()),
        "id" if path.starts_with("/v1/event-subscriptions") => "evs_01jc5w7k3v0000000000000000",
        "after" => "start",
        "types" => "delivery.failed,address.*",
        "id" if path.starts_with("/v1/notes") => "note_5f2b8c1e9a7d40365f2b",
        "id" if path.starts_with("/v1/problems") => "prb_5f2b8c1e9a7d4036",
        "id" if path.starts_with("/v1/recipients") => "u-42",
        "name" if path.starts_with("/v1/categories") => "news",
        "id" if path.starts_with("/v1/jobs") => "job_01jc5w7k3v0000000000000000",
        "state" if path.starts_with("/v1/jobs") => "running",
        "kind" if path.starts_with("/v1/jobs") => "replay",
        "provider" => "https://hooks.example.com",
        "class" => "transactional",
        "account" => "mail-eu",
        "campaign" => "autumn",
        "name" if path.starts_with("/v1/classes") => "otp",
        "name" if path.starts_with("/v1/templates") => "shipped",
        "name" if path.starts_with("/v1/accounts") => "mail-eu",
        "name" => TENANT,
        "token" => RECEIPT_TOKEN,
        "section" => "webhook",
        "hash" => "5f2b8c1e9a7d4036",
        "state" => "retrying",
        "channel" => "webhook",
        "reason" => "retries_exhausted",
        "recipient" => "u-42",
        "message" => MESSAGE,
        "tag" => "orders",
        "error" => "503",
        "since" => "2026-11-01T00:00:00Z",
        "until" => "2026-11-02T00:00:00Z",
        "action" => "key.create",
        "url" => "https://example.com/hooks",
        "idempotency_key" | "Idempotency-Key" => "ord-91:shipped",
        "limit" => return Some(50.into()),
        _ => return None,
    };
    Some(example.into())
}

/// One message of each kind of destination.
fn messages() -> NamedExamples {
    let content = json!({"title": "Shipped", "body": "Order 91 is on its way"});
    let mut examples: NamedExamples = addresses()
        .into_iter()
        .map(|(name, address)| {
            let to = json!({"address": address});
            (name, json!({"to": to, "content": content, "ttl_s": 3600, "tags": ["orders"]}))
        })
        .collect();
    let key = "ord-91:shipped";
    let others = [
        (
            "all addresses of a recipient",
            json!({"to": {"recipient": "u-42"}, "content": content, "idempotency_key": key}),
        ),
        (
            "several recipients",
            json!({"to": {"recipients": ["u-42", "u-43"]}, "content": content, "campaign": "autumn"}),
        ),
    ];
    examples.extend(others.map(|(name, message)| (name.to_owned(), message)));
    examples
}

/// One address of each channel, by its name.
fn addresses() -> NamedExamples {
    let example = |channel: &dyn ChannelDefinition| {
        let address = serde_json::from_str(channel.facts().address_example);
        (channel.kind().to_string(), address.unwrap_or_default())
    };
    registry::all().map(example).collect()
}

fn template() -> Value {
    json!({
        "default_locale": "en",
        "locales": {
            "en": {"title": "Order {{ order.number }} has shipped"},
            "de": {"title": "Bestellung {{ order.number }} ist unterwegs"}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::openapi;

    #[test]
    fn every_body_and_every_parameter_of_a_path_has_an_example() {
        let document: Value = serde_json::from_str(&openapi::json()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert_ne!(operation.get("requestBody"), Some(&Value::Null), "{method} {path}");
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let is_needed = parameter["in"] == "path";
                    let has_example = parameter.get("example").is_some();
                    assert!(has_example || !is_needed, "{method} {path}: {parameter}");
                }
                for (kind, body) in
                    operation["requestBody"]["content"].as_object().into_iter().flatten()
                {
                    let examples = body["examples"].as_object().unwrap();
                    assert!(!examples.is_empty(), "{method} {path} {kind}");
                }
            }
        }
    }
}
