//! Nothing personal and no secret leaves the server but to its provider: everything that the server logs at its most
//! talkative level, every error answer, the dead letters and the explanations are searched for it.

use std::collections::BTreeSet;

use postrider_sandbox::ReceiverRequest;
use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, Sample, state};

const TITLE: &str = "Tulpenzwiebel-title-7193";
const BODY: &str = "Tulpenzwiebel-body-7193";
const RECIPIENT: &str = "zoe-recipient-7193";
/// The private key of the example in RFC 8292 and RFC 8291.
const VAPID_KEY: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";

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

/// The credentials of the accounts, the keys of the server, and the tokens that were made of them.
fn credentials(fixture: &ChannelsFixture, samples: &[Sample], into: &mut BTreeSet<String>) {
    for file in fixture.credential_files() {
        let lines =
            file.lines().flat_map(|line| line.split('"')).flat_map(|part| part.split("\\n"));
        let long = lines.map(str::trim).filter(|part| part.len() >= 16 && !part.contains(' '));
        into.extend(long.filter(|part| !part.starts_with("https://")).map(str::to_owned));
    }
    let secrets = fixture.api("GET", "/v1/webhook-secrets", &Value::Null);
    let secret = secrets["secrets"][0]["secret"].as_str().unwrap();
    into.insert(secret.trim_start_matches("whsec_").to_owned());
    for sample in samples {
        let last = fixture.last(&sample.receiver.path());
        let sent = last["headers"]["authorization"].as_str().unwrap_or_default();
        let parts = sent.split([' ', ',']).map(|part| part.trim_start_matches("t="));
        // The public key of VAPID is no secret.
        let secret = parts.filter(|part| part.len() >= 16 && !part.starts_with("k="));
        into.extend(secret.map(str::to_owned));
    }
}

fn assert_clean(what: &str, text: &str, secrets: &BTreeSet<String>) {
    for secret in secrets {
        if let Some(at) = text.find(secret.as_str()) {
            let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
            let to = text[at..].find('\n').map_or(text.len(), |end| at + end);
            panic!("{secret:?} is in {what}: {}", &text[from..to]);
        }
    }
}

#[test]
fn no_log_error_dead_letter_or_explanation_shows_an_address_a_payload_or_a_key() {
    let fixture = ChannelsFixture::talkative(&format!("vapid_private_key = \"{VAPID_KEY}\"\n"));
    let mut secrets: BTreeSet<String> =
        [TITLE, BODY, RECIPIENT, VAPID_KEY, postrider_testkit::ADMIN_KEY].map(str::to_owned).into();
    let content = json!({"title": TITLE, "body": BODY});
    let mut ids = Vec::new();
    let mut answers = Vec::new();
    let mut all_samples = Vec::new();
    for script in ["", "[\"400\", \"400\"]"] {
        let samples = fixture.samples(|_| ReceiverRequest {
            script: serde_json::from_str(if script.is_empty() { "[]" } else { script }).unwrap(),
            ..ReceiverRequest::default()
        });
        for sample in &samples {
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
        all_samples.extend(samples);
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
    credentials(&fixture, &all_samples, &mut secrets);
    // A token of a bot and one of a topic, keys in PEM, a token that was fetched, and signed ones.
    for begin in ["1234567890:", "tk_", "MIGHAgEAMBMG", "MIIE", "ya29.", "eyJ0eXAi", "eyJhbGci"] {
        let is_there = secrets.iter().any(|secret| secret.starts_with(begin));
        assert!(is_there, "{begin} is not looked for: {secrets:#?}");
    }
    secrets.retain(|secret| secret.len() >= 6);
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

/// What the demo has in its messages, addresses, credentials and tokens, and what no log line may have.
const OF_THE_DEMO: [&str; 24] = [
    // Payloads.
    "is on its way",
    "Web Push, accepted at once",
    "accepted, over STARTTLS",
    "a person decides, nothing is sent twice",
    "crowd-",
    // Addresses and recipients.
    "@customer.example",
    "ada@",
    "+1555000",
    "APA91b",
    "000000000000000000000000000000000000000000000000",
    "/hook/",
    "/http/retry-queue",
    "slack/team",
    "slack.team",
    "/push/",
    "hooks.slack.com/services",
    // Keys of the server and of the accounts, and what is made of them.
    "whsec_",
    "prk_",
    "PRIVATE KEY",
    "MIGHAgEAMBMGByqGSM49AgEG",
    "eyJ",
    "ya29.",
    "Basic ",
    "#code=",
];

#[test]
fn the_demo_at_its_most_talkative_shows_no_address_payload_or_key() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["demo", "--exit", "--log", "trace", "--messages", "60", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (told, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{log}");
    for (word, lines) in [(" TRACE ", 1_000), (" postrider", 100)] {
        let found = log.lines().filter(|line| line.contains(word)).count();
        assert!(found > lines, "the log is talkative: {found} lines with {word}");
    }
    let words: BTreeSet<String> = OF_THE_DEMO.map(str::to_owned).into();
    assert_clean("the log", &log, &words);
    // The story has the titles of its messages and a link that opens the dashboard once, and no other secret.
    let words = ["whsec_", "prk_", "PRIVATE KEY", "eyJ", "ya29.", "@customer.example"];
    let words: BTreeSet<String> = words.map(str::to_owned).into();
    assert_clean("the story", &told, &words);
}
