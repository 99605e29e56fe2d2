//! Messages mutated at random: the intake never fails, and what it accepts can be delivered to the strict
//! fakes of the sandbox. Seeded: a failure names the seed and prints the message.

use http::Method;
use http_body_util::BodyExt as _;
use postrider_sandbox::{Sandbox, SubscriptionRequest};
use postrider_testkit::server::{ServerFixture, TestFolder, eventually};
use serde_json::{Value, json};

use crate::providers::{ProvidersFixture, device_accounts, message_accounts};

/// A small generator of numbers, the same on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Pieces that break things.
const PIECES: [&str; 24] = [
    "",
    " ",
    "\n",
    "\r\n",
    "\u{0}",
    "\u{7f}",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "😀",
    "ü",
    "&",
    "<!channel>",
    "@everyone",
    "\"",
    "\\",
    "%0d%0a",
    "{{x}}",
    ".\r\n",
    "..",
    "=?utf-8?q?x?=",
    "'",
    ";",
];
const LENGTHS: [usize; 10] = [31, 64, 78, 255, 256, 900, 998, 1600, 2000, 4096];

fn odd_text(chance: &mut Chance, text: &str) -> String {
    let piece = *chance.pick(&PIECES);
    let at = text.char_indices().map(|(at, _)| at).nth(chance.below(text.chars().count().max(1)));
    let at = at.unwrap_or(0);
    match chance.below(7) {
        0 => piece.to_owned(),
        1 => format!("{}{piece}{}", &text[..at], &text[at..]),
        2 => text[..at].to_owned(),
        3 => format!("{text}{piece}"),
        4 => text.to_uppercase(),
        5 => "ä€😀x".chars().cycle().take(*chance.pick(&LENGTHS)).collect(),
        _ => piece.repeat(1 + chance.below(40)),
    }
}

fn odd_value(chance: &mut Chance) -> Value {
    match chance.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!([]),
        6 => json!({}),
        7 => json!([[[{"a": [1, {"b": "c"}]}]]]),
        8 => json!("x".repeat(*chance.pick(&LENGTHS))),
        9 => json!({"from": "x", "google.y": 1}),
        10 => json!(10),
        _ => json!(odd_text(chance, "text")),
    }
}

/// Changes something below `value`, wherever chance leads.
fn mutate(chance: &mut Chance, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() && chance.below(5) > 0 => {
            let names: Vec<_> = fields.keys().cloned().collect();
            let name = chance.pick(&names).clone();
            match chance.below(12) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(odd_text(chance, &name), odd_value(chance))),
                _ => fields.get_mut(&name).into_iter().for_each(|inner| mutate(chance, inner)),
            }
        }
        Value::Array(items) if !items.is_empty() && chance.below(4) > 0 => {
            let nth = chance.below(items.len());
            mutate(chance, &mut items[nth]);
        }
        Value::String(text) if chance.below(4) > 0 => *text = odd_text(chance, text),
        _ => *value = odd_value(chance),
    }
}

struct RandomFixture(ProvidersFixture);

impl RandomFixture {
    /// Sends mail by this account.
    async fn with(mail: &str) -> Self {
        let accounts = |sandbox: &Sandbox, folder: &TestFolder| {
            message_accounts(sandbox, folder, &format!("{mail}\nSECRET"))
                + &device_accounts(sandbox, folder)
        };
        Self(ProvidersFixture::new(accounts).await)
    }

    fn address(&self, channel: &str) -> Value {
        let at = |path: &str| format!("{}/{path}", self.0.sandbox.https_origin());
        match channel {
            "webpush" => {
                let made = self.0.sandbox.subscribe(&SubscriptionRequest::default()).unwrap();
                let made = serde_json::to_value(&made[0]).unwrap();
                json!({"channel": "webpush", "endpoint": made["endpoint"], "keys": made["keys"]})
            }
            "webhook" => json!({"channel": "webhook", "url": at("hook/shop")}),
            "http" => json!({"channel": "http", "method": "PUT", "url": at("http/orders"),
                "headers": {"x-source": "shop", "accept": "application/json"}}),
            "fcm" => json!({"channel": "fcm", "token": "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZ"}),
            "apns" => json!({"channel": "apns", "token": "7cfc13adff785122b4ad28809a342098",
                "topic": "com.example.app", "environment": "production"}),
            "email" => {
                json!({"channel": "email", "email": "grace.hopper@example.net", "name": "Grace"})
            }
            "sms" => json!({"channel": "sms", "phone": "+15005550006"}),
            other => json!({"channel": "chat", "url": at(&format!("{other}/ops"))}),
        }
    }

    /// Sends these in one batch, and gives each with its result.
    async fn batch(&self, messages: Vec<Value>) -> Vec<(Value, Value)> {
        let lines: String = messages.iter().map(|message| format!("{message}\n")).collect();
        let whole = postrider::client::whole(lines.into());
        let path = "/v1/messages/batch";
        let client = self.0.server.admin();
        let sent = client.send(Method::POST, path, "application/x-ndjson", whole).await.unwrap();
        let bytes = sent.into_body().collect().await.unwrap().to_bytes();
        let results = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let results: Vec<Value> =
            results.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(results.len(), messages.len());
        messages.into_iter().zip(results).collect()
    }

    /// Mutates the content and the harmless parts of the address, and has it all delivered.
    async fn survive(&self, channel: &str, content: &Value, seeds: std::ops::Range<u64>) {
        let address = self.address(channel);
        // Another host, key or secret would be wrong in a way that only the world knows.
        let kept = ["channel", "url", "endpoint", "keys", "secrets", "credential", "vapid_key"];
        let first = seeds.start;
        let mutated = |seed: u64| {
            let mut chance = Chance(seed);
            let mut message = json!({"to": {"address": address}, "content": content, "ttl_s": 900,
                "collapse_key": "ord-91", "idempotency_key": format!("{channel}-{first}-{seed}")});
            for _ in 0..=chance.below(2) {
                match chance.below(4) {
                    0 => mutate(&mut chance, &mut message["to"]["address"]),
                    1 => mutate(&mut chance, &mut message["collapse_key"]),
                    _ => mutate(&mut chance, &mut message["content"]),
                }
            }
            if let Some(fields) = message["to"]["address"].as_object_mut() {
                kept.iter().for_each(|name| match address.get(name) {
                    Some(value) => drop(fields.insert((*name).to_owned(), value.clone())),
                    None => drop(fields.remove(*name)),
                });
            }
            message
        };
        let answers = self.batch(seeds.map(mutated).collect()).await;
        let taken = answers.iter().filter(|(_, answer)| answer["status"] == 202).count();
        for (message, answer) in &answers {
            assert!(
                matches!(answer["status"].as_u64(), Some(202 | 400 | 422)),
                "{message}: {answer}"
            );
        }
        assert!(taken * 10 > answers.len(), "{channel}: of {} only {taken} taken", answers.len());
        assert!(taken < answers.len(), "{channel}: nothing was refused");
        self.all_ended_well(channel, &answers).await;
    }

    async fn all_ended_well(&self, channel: &str, answers: &[(Value, Value)]) {
        let client = self.0.server.admin();
        for (message, answer) in answers.iter().filter(|(_, answer)| answer["status"] == 202) {
            let id = answer["deliveries"][0]["id"].as_str().unwrap();
            let over = |d: &Value| !["queued", "sending"].contains(&d["state"].as_str().unwrap());
            let end = eventually(&client, &format!("/v1/deliveries/{id}"), over).await;
            assert_eq!(end["state"], "sent", "{channel}: {message}\n{}", end["log"]);
        }
    }
}

const ROUNDS: u64 = 120;
const RELAY: &str = "host = \"localhost\"\nport = SMTP\nuser = \"shop\"";

fn common() -> Value {
    json!({"title": "Shipped", "body": "Order 91 is on its way.\nThanks!", "url": "https://shop.example/o/91",
        "data": {"order": 91, "lines": ["a", "b"]}})
}

fn mail() -> Value {
    json!({"email": {"subject": "Shipped", "text": "Order 91", "html": "<p>Order <b>91</b></p>",
        "reply_to": "help@shop.example", "unsubscribe_url": "https://shop.example/u?t=1",
        "unsubscribe_mailto": "off@shop.example"}, "body": "Order 91"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_get_whatever_the_gate_lets_through() {
    let fixture = RandomFixture::with(RELAY).await;
    for channel in ["webpush", "fcm", "apns"] {
        fixture.survive(channel, &common(), 0..ROUNDS).await;
    }
    fixture
        .survive("webpush", &json!({"webpush": {"raw": "{\"a\": 1}"}}), 1_000..1_000 + ROUNDS)
        .await;
    let message = json!({"notification": {"title": "Hi", "body": "there"}, "data": {"k": "v"},
        "android": {"ttl": "600s", "priority": "HIGH", "collapse_key": "k", "data": {"a": "b"},
            "notification": {"icon": "x", "color": "#ff0000"}},
        "apns": {"headers": {"apns-priority": "10"}, "payload": {"aps": {"alert": "x"}}},
        "webpush": {"headers": {"Urgency": "high"}, "fcmOptions": {"link": "https://shop.example"}},
        "fcmOptions": {"analyticsLabel": "x"}});
    let own = json!({"title": "Hi", "fcm": {"message": message}});
    fixture.survive("fcm", &own, 2_000..2_000 + 2 * ROUNDS).await;
    let own = json!({"title": "Hi", "apns": {"payload": {"aps": {"alert": {"title": "x"}, "badge": 1},
        "order": {"id": 91}}, "push_type": "alert", "priority": 5}});
    fixture.survive("apns", &own, 3_000..3_000 + ROUNDS).await;
    let silent = json!({"apns": {"payload": {"aps": {"content-available": 1}}, "priority": 5}});
    fixture.survive("apns", &silent, 4_000..4_000 + ROUNDS).await;
    assert_eq!(flaws(&fixture), 0, "{}", fixture.0.sandbox.received());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_get_whatever_the_gate_lets_through() {
    let fixture = RandomFixture::with(RELAY).await;
    for channel in ["email", "sms", "slack", "discord", "teams"] {
        fixture.survive(channel, &common(), 0..ROUNDS).await;
    }
    fixture.survive("email", &mail(), 1_000..1_000 + 2 * ROUNDS).await;
    fixture
        .survive("sms", &json!({"sms": {"text": "Your code is 123456"}}), 2_000..2_000 + ROUNDS)
        .await;
    let slack = json!({"chat": {"payload": {"text": "x", "blocks": [{"type": "divider"}]}}});
    fixture.survive("slack", &slack, 3_000..3_000 + ROUNDS).await;
    let discord = json!({"chat": {"payload": {"content": "x", "embeds": [{"title": "t",
        "description": "d", "fields": [{"name": "n", "value": "v"}]}]}}});
    fixture.survive("discord", &discord, 4_000..4_000 + ROUNDS).await;
    assert_eq!(flaws(&fixture), 0, "{}", fixture.0.sandbox.received());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_apis_take_whatever_the_gate_lets_through() {
    let ses = "provider = \"ses\"\nregion = \"eu-central-1\"\nkey_id = \"AKIDSANDBOX\"\nendpoint = \"HTTPS\"";
    let sendgrid = "provider = \"sendgrid\"\nendpoint = \"HTTPS\"";
    for account in [ses, sendgrid] {
        let fixture = RandomFixture::with(account).await;
        fixture.survive("email", &common(), 0..ROUNDS).await;
        fixture.survive("email", &mail(), 1_000..1_000 + ROUNDS).await;
        assert_eq!(flaws(&fixture), 0, "{}", fixture.0.sandbox.received());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_get_whatever_the_gate_lets_through() {
    let fixture = RandomFixture::with(RELAY).await;
    for channel in ["webhook", "http"] {
        fixture.survive(channel, &common(), 0..ROUNDS).await;
    }
    fixture
        .survive(
            "webhook",
            &json!({"webhook": {"payload": {"a": [1, "x"]}}}),
            1_000..1_000 + ROUNDS,
        )
        .await;
    fixture.survive("http", &json!({"http": {"body": "raw text"}}), 2_000..2_000 + ROUNDS).await;
    assert_eq!(flaws(&fixture), 0, "{}", fixture.0.sandbox.received());
}

fn flaws(fixture: &RandomFixture) -> u64 {
    let received = fixture.0.sandbox.received();
    let names = ["bad_vapid", "bad_signature", "undecryptable", "bad_request"];
    names.iter().map(|name| received[name].as_u64().unwrap()).sum()
}

/// Bytes flipped, lost and doubled anywhere in the JSON, addresses included: nothing is sent, and
/// nothing falls over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bytes_make_the_gate_fail() {
    let fixture = RandomFixture::with(RELAY).await;
    let server = ServerFixture::with("").await;
    let tomorrow = postrider_testkit::server::message()["send_at"].clone();
    let channels =
        ["webpush", "webhook", "http", "fcm", "apns", "email", "sms", "slack", "discord", "teams"];
    for seed in 0..1_500_u64 {
        let mut chance = Chance(seed);
        let channel = *chance.pick(&channels);
        let mut message = json!({"to": {"address": fixture.address_of_the_web(channel)},
            "content": common(), "send_at": tomorrow, "ttl_s": 60, "tags": ["a"],
            "retry": {"retries": 3}, "class": "otp"});
        if chance.below(2) == 0 {
            mutate(&mut chance, &mut message);
            if let Some(fields) = message.as_object_mut() {
                fields.insert("send_at".to_owned(), tomorrow.clone());
            }
        }
        let mut bytes = message.to_string().into_bytes();
        for _ in 0..chance.below(4) {
            let at = chance.below(bytes.len());
            match chance.below(4) {
                0 => bytes[at] ^= 1 << chance.below(8),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, *chance.pick(b"{}[]\",:\\0\xff\x00")),
                _ => bytes.truncate(at + 1),
            }
        }
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let to = if channel == "webhook" { &server } else { &fixture.0.server };
        let reply = to.post(bytes).await;
        assert!(matches!(reply.status, 202 | 400 | 422), "seed {seed}: {} {shown}", reply.body);
    }
    assert_eq!(server.post(postrider_testkit::server::message().to_string()).await.status, 202);
}

impl RandomFixture {
    /// The same address, but out in the world: for what is never sent.
    fn address_of_the_web(&self, channel: &str) -> Value {
        let text = self.address(channel).to_string();
        serde_json::from_str(
            &text.replace(self.0.sandbox.https_origin(), "https://push.example.com"),
        )
        .unwrap()
    }
}
