//! Encryption at rest: who has the disk has nothing.

use std::path::Path;
use std::time::Duration;

use postrider_testkit::process::ProcessFixture;
use serde_json::{Value, json};

use crate::fixture::{Attacker, stop};

const FIRST: &str = "8f1d2b7c9a3e4f50617283940a1b2c3d4e5f60718293a4b5c6d7e8f9010203e1";
const SECOND: &str = "QyHn0v6kPz3tXwLm9aBsRf2uJd8eGc5iVo7TqYhK1xE=";

/// What an attacker looks for on the disk.
const BODY: &str = "the-body-that-nobody-may-read";
const PATH: &str = "the-path-that-nobody-may-read";
const RECIPIENT: &str = "ada-that-nobody-may-find";
const PHONE: &str = "+4915112345678";
const ALIAS: &str = "anon-that-nobody-may-find";
const ATTRIBUTE: &str = "the-attribute-that-nobody-may-read";
const VARIABLE: &str = "the-variable-that-nobody-may-read";
/// How every private key of VAPID begins: PKCS#8 of a P-256 key, in base64.
const VAPID_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEG";

fn config(key: &str, previous: &[&str]) -> String {
    let previous: Vec<_> = previous.iter().map(|name| format!("\"file:{name}\"")).collect();
    format!("[encryption]\nkey = \"file:{key}\"\nprevious_keys = [{}]\n", previous.join(", "))
}

/// A server whose master keys are files of its folder.
fn fixture() -> (ProcessFixture, [String; 2]) {
    let server = ProcessFixture::new(env!("CARGO_BIN_EXE_postrider"), "").unwrap();
    let files = [("first", FIRST), ("second", SECOND)].map(|(name, key)| {
        let path = server.path(name);
        std::fs::write(&path, key).unwrap();
        path.display().to_string()
    });
    (server, files)
}

fn message(number: usize) -> Value {
    let mut message = crate::fixture::message();
    let url = format!("https://hooks.example.com/{PATH}/{number}");
    message["to"] = json!({"address": {"channel": "webhook", "url": url}});
    message["content"] = json!({"title": "Hello", "body": BODY});
    message
}

async fn send(caller: &Attacker, number: usize) -> String {
    let sent = caller.post("/v1/messages", &message(number)).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    sent.json()["id"].as_str().unwrap().to_owned()
}

async fn content(caller: &Attacker, id: &str) -> String {
    let read = caller.get(&format!("/v1/messages/{id}/content")).await;
    assert_eq!(read.status, 200, "{}", read.body);
    read.body
}

/// The files of a folder that contain a word, also in folders below.
fn found(folder: &Path, word: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(found(&path, word));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        if memchr::memmem::find(&bytes, word.as_bytes()).is_some() {
            files.push(path.display().to_string());
        }
    }
    files
}

const GATEWAY: &str = "[accounts.phone]\nchannel = \"sms\"\ntenant = \"*\"\naccount_sid = \"AC1\"\n\
                       from = \"+15550100\"\ncredential = \"env:NO_SECRET\"\n";

/// A VAPID key, a phone number, and a subscription and a job that name others.
async fn keep_documents(admin: &Attacker, of_all: &Attacker) {
    let subscription = json!({"name": "mine", "enabled": false,
        "url": format!("https://hooks.example.com/{PATH}/events")});
    let phone = json!({"channel": "sms", "phone": PHONE});
    let job = json!({"kind": "cancel", "filter": {"recipient": RECIPIENT}, "rate_per_s": 0.1});
    for (caller, path, body, status) in [
        (admin, "/v1/vapid/rotate", json!({}), 200),
        (admin, "/v1/addresses", phone, 201),
        (admin, "/v1/event-subscriptions", subscription.clone(), 201),
        (of_all, "/v1/event-subscriptions", subscription, 201),
        (admin, "/v1/jobs", job, 202),
    ] {
        let made = caller.post(path, &body).await;
        assert_eq!(made.status, status, "{path}: {}", made.body);
    }
}

/// A recipient with another id, attributes and preferences, an address that is suppressed, and messages of a template
/// and of a campaign.
async fn keep_people(admin: &Attacker) {
    let recipient = format!("/v1/recipients/{RECIPIENT}");
    let profile =
        json!({"zone": "Europe/Berlin", "aliases": [ALIAS], "attributes": {"note": ATTRIBUTE}});
    let preferences = json!({"channels": {"sms": "no"}, "snooze_until": "2027-01-01T00:00:00Z"});
    let texts = json!({"locales": {"en": {"title": "Hello", "body": "{{ text }}"}}});
    let suppressed = json!({"kind": "unsubscribe", "address": {"channel": "webhook",
        "url": format!("https://hooks.example.com/{PATH}/suppressed")}});
    let mut of_template = message(0);
    of_template["content"] = json!({});
    of_template["template"] = json!({"name": "hello", "variables": {"text": VARIABLE}});
    let mut of_campaign = message(0);
    of_campaign["campaign"] = "spring".into();
    of_campaign["to"] = json!({"recipients": [RECIPIENT, ALIAS]});
    for (method, path, body) in [
        ("PUT", recipient.clone(), profile),
        ("PATCH", format!("{recipient}/preferences"), preferences),
        ("PUT", format!("/v1/recipients/{ALIAS}/preferences"), json!({"all": "yes"})),
        ("POST", "/v1/suppressions".to_owned(), suppressed),
        ("PUT", "/v1/templates/hello".to_owned(), texts),
        ("POST", "/v1/messages".to_owned(), of_template),
        ("POST", "/v1/messages".to_owned(), of_campaign),
    ] {
        let made = admin.call(method, &path, &body.to_string()).await;
        assert!((200..300).contains(&made.status), "{path}: {}", made.body);
    }
    // Everything is there for those who may read it.
    let shown = admin.get(&format!("/v1/recipients/{ALIAS}")).await.body;
    assert!([RECIPIENT, ALIAS, ATTRIBUTE].iter().all(|word| shown.contains(word)), "{shown}");
}

/// Copies the store with the command for that.
fn back_up(server: &ProcessFixture, name: &str) {
    let (data, to) = (server.path("data"), server.path(name));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_postrider"));
    let output = command.arg("backup").arg(to).arg("--data").arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Subscriptions and jobs as their tenant sees them.
async fn documents(admin: &Attacker) -> String {
    let (subscriptions, jobs) =
        (admin.get("/v1/event-subscriptions").await, admin.get("/v1/jobs").await);
    format!("{}{}", subscriptions.body, jobs.body)
}

#[tokio::test]
async fn documents_from_before_encryption_was_turned_on_are_sealed_at_the_start() {
    let (mut server, [first, _]) = fixture();
    server.write_config(GATEWAY).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    keep_documents(&admin, &admin.with_header("postrider-tenant", "*")).await;
    stop(&mut server);
    let data = server.path("data");
    // So these are the words to look for, and the last ones are in documents only.
    for word in [PATH, RECIPIENT, VAPID_KEY, PHONE] {
        assert!(!found(&data, word).is_empty(), "{word} is nowhere");
    }
    server.write_config(&format!("{GATEWAY}{}", config(&first, &[]))).unwrap();
    server.start().unwrap();
    let shown = documents(&Attacker::admin(&server)).await;
    assert!(shown.contains(PATH) && shown.contains(RECIPIENT), "{shown}");
    stop(&mut server);
    let database = rusqlite::Connection::open(data.join("postrider.db")).unwrap();
    let mut rows = database.prepare("SELECT name, json FROM document").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    for (name, json) in rows.unwrap().map(Result::unwrap) {
        for word in [PATH, RECIPIENT, VAPID_KEY] {
            assert!(!json.contains(word), "{word} is in {name}");
        }
    }
}

#[tokio::test]
async fn the_data_folder_has_no_body_address_recipient_or_secret() {
    let (mut server, [first, _]) = fixture();
    server.write_config(&format!("{GATEWAY}{}", config(&first, &[]))).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    keep_documents(&admin, &admin.with_header("postrider-tenant", "*")).await;
    let mut sent = Vec::new();
    for number in 0..20 {
        sent.push(send(&admin, number).await);
    }
    let address = json!({"recipient": RECIPIENT, "channel": "webhook",
        "url": format!("https://hooks.example.com/{PATH}/registered")});
    let registered = admin.post("/v1/addresses", &address).await;
    assert_eq!(registered.status, 201, "{}", registered.body);
    let to_recipient = {
        let mut message = message(0);
        message["to"] = json!({"recipient": RECIPIENT});
        message
    };
    for _ in 0..3 {
        let sent = admin.post("/v1/messages", &to_recipient).await;
        assert_eq!(sent.status, 202, "{}", sent.body);
    }
    keep_people(&admin).await;
    let secrets = admin.get("/v1/webhook-secrets").await.json();
    let secret =
        secrets["secrets"][0]["secret"].as_str().unwrap().trim_start_matches("whsec_").to_owned();
    // Everything is there for those who may read it.
    assert!(content(&admin, &sent[0]).await.contains(BODY));
    let found_by = format!("/v1/deliveries?recipient={RECIPIENT}");
    assert_eq!(admin.get(&found_by).await.json()["items"].as_array().unwrap().len(), 4);
    let of_all = admin.with_header("postrider-tenant", "*");
    assert_eq!(of_all.get(&found_by).await.json()["items"].as_array().unwrap().len(), 4);
    let addresses = admin.get(&format!("/v1/addresses?recipient={RECIPIENT}")).await.json();
    assert_eq!(addresses["items"].as_array().unwrap().len(), 1, "{addresses:#}");
    for copy in ["backup", "second-backup"] {
        let shown = documents(&admin).await;
        assert!(shown.contains(PATH) && shown.contains(RECIPIENT), "{shown}");
        back_up(&server, copy);
        for word in [BODY, PATH, RECIPIENT, PHONE, ALIAS, ATTRIBUTE, VARIABLE, VAPID_KEY, &secret] {
            for folder in ["data", copy] {
                let files = found(&server.path(folder), word);
                assert!(files.is_empty(), "{word} is in {files:?}");
            }
        }
        // Also after the journal was written back.
        stop(&mut server);
        server.start().unwrap();
    }
    assert!(content(&admin, &sent[19]).await.contains(BODY));
    assert_eq!(admin.get("/v1/webhook-secrets").await.json(), secrets);
}

#[tokio::test]
async fn without_the_right_master_key_the_server_does_not_start() {
    let (mut server, [first, second]) = fixture();
    server.write_config(&config(&first, &[])).unwrap();
    server.start().unwrap();
    send(&Attacker::admin(&server), 1).await;
    stop(&mut server);
    for (wrong, expected) in [
        (config(&second, &[]), "is wrapped by the master key"),
        (String::new(), "the configuration names no master key"),
        (config("/does/not/exist", &[]), "encryption.key"),
    ] {
        server.write_config(&wrong).unwrap();
        let before = server.server_log().unwrap().len();
        server.spawn().unwrap();
        assert!(!server.await_end().unwrap().success());
        let log = server.server_log().unwrap().split_off(before);
        assert!(log.contains(expected), "{log}");
        assert!(!log.contains(FIRST) && !log.contains(SECOND), "no key in the log");
    }
}

#[tokio::test]
async fn a_killed_rotation_of_the_master_key_loses_nothing() {
    let (mut server, [first, second]) = fixture();
    server.write_config(&config(&first, &[])).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    let mut sent = Vec::new();
    for number in 0..60 {
        let tenant = format!("tenant-{number}");
        let caller = admin.with_header("postrider-tenant", &tenant);
        sent.push((send(&caller, number).await, caller));
    }
    let (mut new, mut old) = (second, first);
    let mut whole = None;
    let mut halves = 0;
    for round in 0..30 {
        server.write_config(&config(&new, &[&old])).unwrap();
        let begin = tokio::time::Instant::now();
        let mut rotation = admin.open("POST", "/v1/encryption/rotate", Some(0), "").await;
        // The first one shows how long it takes. The others are killed at some time of it.
        let Some(whole) = whole else {
            crate::fixture::read_until(&mut rotation, "\r\n\r\n").await;
            whole = Some(begin.elapsed());
            std::mem::swap(&mut new, &mut old);
            continue;
        };
        tokio::time::sleep(whole.mul_f64(f64::from(1 + round % 8) / 9.0)).await;
        server.kill();
        let _ = crate::fixture::read_some(&mut rotation).await;
        let before = server.server_log().unwrap().len();
        server.start().unwrap();
        let log = server.server_log().unwrap().split_off(before);
        // All keys are of one master key now; how many were of the other one is logged.
        let left = log.split("rewrapped=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let left: usize = left.and_then(|count| count.parse().ok()).expect("it is logged");
        halves += usize::from((1..sent.len()).contains(&left));
        for (id, caller) in &sent {
            assert!(content(caller, id).await.contains(BODY), "round {round}");
        }
        let rotated = admin.post("/v1/encryption/rotate", &json!({})).await;
        assert_eq!(rotated.status, 200, "{}", rotated.body);
        let names = rotated.json()["encryption"]["data_keys"].as_object().unwrap().len();
        assert_eq!(names, 1, "{}", rotated.body);
        std::mem::swap(&mut new, &mut old);
        if halves == 3 {
            break;
        }
    }
    assert_eq!(halves, 3, "the server was killed before and after its rotations only");
    // The old key is not needed any more.
    server.write_config(&config(&old, &[])).unwrap();
    stop(&mut server);
    server.start().unwrap();
    assert!(content(&sent[7].1, &sent[7].0).await.contains(BODY));
}

#[tokio::test]
async fn a_destroyed_key_takes_the_data_of_its_tenant_and_no_others() {
    let (mut server, [first, _]) = fixture();
    server.write_config(&format!("{GATEWAY}{}", config(&first, &[]))).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    let [acme, shop] = ["acme", "shop"].map(|name| admin.with_header("postrider-tenant", name));
    let (of_acme, of_shop) = (send(&acme, 1).await, send(&shop, 2).await);
    let path = "/v1/encryption/tenants/acme/destroy";
    let unsure = admin.post(path, &json!({"confirm": "shop"})).await;
    assert_eq!(unsure.status, 422, "{}", unsure.body);
    let tenant_admin = admin.scoped("admin", "acme").await;
    let refused = tenant_admin.post(path, &json!({"confirm": "acme"})).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    for caller in [&acme, &shop] {
        keep_documents(caller, caller).await;
    }
    assert_eq!(admin.post(path, &json!({"confirm": "acme"})).await.status, 204);
    for _ in 0..2 {
        let (gone, there) = (documents(&acme).await, documents(&shop).await);
        assert!(!gone.contains(PATH) && !gone.contains(RECIPIENT), "{gone}");
        assert!(there.contains(PATH) && there.contains(RECIPIENT), "{there}");
        assert_eq!(acme.get(&format!("/v1/messages/{of_acme}/content")).await.status, 404);
        assert!(content(&shop, &of_shop).await.contains(BODY));
        stop(&mut server);
        server.start().unwrap();
    }
    let after = send(&acme, 3).await;
    assert!(content(&acme, &after).await.contains(BODY), "what comes later has a new key");
    let audited = admin.get("/v1/audit?action=encryption.destroy").await.json();
    assert_eq!(audited["items"][0]["entry"]["tenant"], "acme");
}

#[tokio::test]
async fn the_key_of_endpoint_hashes_rotates_and_addresses_stay_themselves() {
    let (mut server, [first, _]) = fixture();
    server.write_config(&config(&first, &[])).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    let address = json!({"channel": "webhook", "url": format!("https://hooks.example.com/{PATH}")});
    let made = admin.post("/v1/addresses", &address).await.json();
    let path = format!("/v1/addresses/{}", made["id"].as_str().unwrap());
    let tenant = admin.scoped("admin", "acme").await;
    let rotate = "/v1/encryption/hash-key/rotate";
    assert_eq!(tenant.call("POST", rotate, "").await.status, 403, "only the operator rotates");
    let rotated = admin.call("POST", rotate, "").await;
    assert_eq!((rotated.status, &rotated.json()["hash_keys"]), (200, &json!(2)));
    let begin = tokio::time::Instant::now();
    let shown = loop {
        let shown = admin.get(&path).await.json();
        if shown["hash"] != made["hash"] {
            break shown;
        }
        assert!(begin.elapsed() < crate::fixture::PATIENCE, "the hash stays: {shown}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let again = admin.post("/v1/addresses", &address).await;
    assert_eq!((again.status, &again.json()["id"]), (200, &made["id"]), "{}", again.body);
    stop(&mut server);
    server.start().unwrap();
    let again = admin.post("/v1/addresses", &address).await.json();
    assert_eq!(
        (&again["id"], &again["hash"]),
        (&made["id"], &shown["hash"]),
        "after a restart, too"
    );
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(admin.call("POST", rotate, "").await.status);
    }
    assert_eq!(statuses.last(), Some(&429), "rotations are bounded: {statuses:?}");
}
