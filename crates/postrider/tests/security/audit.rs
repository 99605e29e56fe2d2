//! The audit log: what is done cannot be hidden, and what is written cannot be changed unseen.

use std::process::Command;
use std::time::{Duration, Instant};

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::process::ProcessFixture;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::fixture::{Attacker, PATIENCE, message, server, stop, with_slow_master_key};

/// All entries as a caller sees them, oldest first.
async fn entries(caller: &Attacker) -> Vec<Value> {
    let page = caller.get("/v1/audit?oldest_first=true&limit=1000").await;
    assert_eq!(page.status, 200, "{}", page.body);
    let page = page.json();
    page["items"].as_array().unwrap().iter().map(|item| item["entry"].clone()).collect()
}

fn of<'a>(entries: &'a [Value], action: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["action"] == action).collect()
}

fn verify(server: &ProcessFixture, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command
        .args([
            "audit",
            "verify",
            "--server",
            &format!("http://{}", server.server_at),
            "--key",
            ADMIN_KEY,
        ])
        .args(arguments);
    let done = command.output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn nobody_reads_or_changes_anything_without_an_entry() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let reader = admin.scoped("content", "acme").await.from([127, 0, 0, 9]);
    let sender = admin.scoped("send,manage", "acme").await;
    let sent = sender.post("/v1/messages", &message()).await.json();
    let content = format!("/v1/messages/{}/content", sent["id"].as_str().unwrap());
    assert_eq!(reader.get(&content).await.status, 200);
    assert_eq!(sender.get("/v1/webhook-secrets").await.status, 200);
    assert_eq!(admin.call("PUT", "/v1/tenants/acme", r#"{"weight": 3}"#).await.status, 200);
    assert_eq!(admin.call("PUT", "/v1/tenants/acme", r#"{"weight": 7}"#).await.status, 200);
    let filter = json!({"filter": {"reason": "ttl"}});
    let as_acme = admin.with_header("postrider-tenant", "acme");
    assert_eq!(as_acme.post("/v1/dead-letters/discard", &filter).await.status, 200);
    let revoke = format!("/v1/keys/{}", sender.key_id());
    assert_eq!(admin.call("DELETE", &revoke, "").await.status, 204);

    let all = entries(&admin).await;
    let read = of(&all, "message.content");
    assert_eq!(read.len(), 1, "{all:#?}");
    assert_eq!(read[0]["key"], reader.key_id());
    assert_eq!(read[0]["address"], "127.0.0.9");
    assert_eq!(read[0]["tenant"], "acme");
    assert_eq!(read[0]["subject"], sent["id"]);
    assert_eq!(read[0]["outcome"], "done");
    assert_eq!(of(&all, "webhook_secrets.read")[0]["key"], sender.key_id());
    let set = of(&all, "tenant.set");
    assert_eq!(
        (&set[1]["before"]["weight"], &set[1]["after"]["weight"]),
        (&json!(3.0), &json!(7.0))
    );
    assert_eq!(set[1]["tenant"], "acme");
    assert_eq!(of(&all, "dead_letters.discard")[0]["filter"], json!({"reason": "ttl"}));
    assert_eq!(of(&all, "key.revoke")[0]["subject"], sender.key_id());
    let made = of(&all, "key.create");
    assert_eq!(made[0]["after"]["scopes"], json!(["content"]), "{:#}", made[0]);
    assert!(made.iter().all(|entry| entry["after"].get("key").is_none()), "no secret");
}

#[tokio::test]
async fn a_tenant_sees_its_own_entries_and_only_its_admin_does() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let of_a = admin.scoped("admin", "a").await;
    let of_b = admin.scoped("admin", "b").await;
    assert_eq!(of_a.post("/v1/vapid/rotate", &json!({})).await.status, 200);
    assert_eq!(of_b.post("/v1/vapid/rotate", &json!({})).await.status, 200);
    let seen = entries(&of_a).await;
    assert!(seen.iter().all(|entry| entry["tenant"] == "a"), "{seen:#?}");
    assert_eq!(of(&seen, "vapid.rotate").len(), 1);
    assert_eq!(of(&entries(&admin).await, "vapid.rotate").len(), 2);
    let other = of_a.with_header("postrider-tenant", "b");
    assert_eq!(other.get("/v1/audit").await.status, 403);
    for scope in ["read", "content", "manage"] {
        let caller = admin.scoped(scope, "a").await;
        assert_eq!(caller.get("/v1/audit").await.status, 403, "{scope}");
    }
    let unknown = admin.get("/v1/audit?limit=0").await;
    assert_eq!(unknown.status, 422, "{}", unknown.body);
}

#[tokio::test]
async fn failed_sign_ins_are_counted_and_a_flood_costs_few_entries() {
    let mut server = server("");
    let admin = Attacker::admin(&server);
    let revoked = admin.scoped("read", "acme").await;
    assert_eq!(
        admin.call("DELETE", &format!("/v1/keys/{}", revoked.key_id()), "").await.status,
        204
    );
    let guesser = admin.with_key("prk_wrong").from([127, 0, 0, 7]);
    let mut refused = 0;
    for _ in 0..300 {
        refused += u64::from(matches!(guesser.get("/v1/stats").await.status, 401 | 429));
    }
    assert_eq!(revoked.get("/v1/stats").await.status, 401);
    let reader = admin.scoped("read", "acme").await;
    assert_eq!(reader.post("/v1/vapid/rotate", &json!({})).await.status, 403);
    // The end of the server writes what is counted.
    stop(&mut server);
    server.start().unwrap();
    let all = entries(&admin).await;
    let failed = of(&all, "sign_in");
    let from_guesser: Vec<_> =
        failed.iter().filter(|entry| entry["address"] == "127.0.0.7").collect();
    let counted: u64 = from_guesser.iter().map(|entry| entry["count"].as_u64().unwrap()).sum();
    assert_eq!((refused, counted), (300, 300), "{from_guesser:#?}");
    assert!(from_guesser.len() <= 4, "{} entries", from_guesser.len());
    assert!(failed.iter().any(|entry| entry["key"] == revoked.key_id()), "{failed:#?}");
    let misused = of(&all, "POST /v1/vapid/rotate");
    assert_eq!(misused.len(), 1, "{all:#?}");
    assert_eq!(
        (&misused[0]["key"], &misused[0]["outcome"]),
        (&json!(reader.key_id()), &json!("refused 403"))
    );
    assert!(verify(&server, &[]).0);
}

const ROTATE: &str = "/v1/encryption/rotate";

#[tokio::test]
async fn a_change_that_is_cut_off_at_its_deadline_has_an_entry() {
    let server = with_slow_master_key("[server]\nrequest_timeout_s = 1\n", 3);
    std::fs::write(server.path("slow"), "").unwrap();
    let admin = Attacker::admin(&server).from([127, 0, 0, 8]);
    let late = admin.post(ROTATE, &json!({})).await;
    assert_eq!(late.status, 503, "{}", late.body);
    let all = entries(&admin).await;
    let failed = of(&all, "POST /v1/encryption/rotate");
    assert_eq!(failed.len(), 1, "{all:#?}");
    assert_eq!(failed[0]["outcome"], "failed 503, may have been done");
    assert_eq!(
        (&failed[0]["subject"], &failed[0]["address"]),
        (&json!(ROTATE), &json!("127.0.0.8"))
    );
}

#[tokio::test]
async fn nobody_hides_a_change_by_closing_the_connection() {
    let server = with_slow_master_key("", 3);
    std::fs::write(server.path("slow"), "").unwrap();
    let admin = Attacker::admin(&server);
    let stream = admin.open("POST", ROTATE, Some(0), "").await;
    // The program runs: the call has begun.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(stream);
    let begin = tokio::time::Instant::now();
    while of(&entries(&admin).await, "encryption.rotate").is_empty() {
        assert!(begin.elapsed() < PATIENCE, "a change without an entry");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A statement that changes an entry, and gives it the hash that fits: the attacker can compute, too.
fn with_its_hash(database: &std::path::Path, number: i64) -> String {
    let database = rusqlite::Connection::open(database).unwrap();
    let select = "SELECT text FROM audit WHERE number = ?1";
    let text: String = database.query_row(select, [number], |row| row.get(0)).unwrap();
    let stored: Value = serde_json::from_str(&text).unwrap();
    let (head, entry) = text.split_once(r#""entry":"#).unwrap();
    let entry = entry.strip_suffix('}').unwrap().replace("\"weight\":3", "\"weight\":9");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, entry.as_bytes());
    let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let head = head.replace(stored["hash"].as_str().unwrap(), &hash);
    let changed = format!(r#"{head}"entry":{entry}}}"#);
    assert_ne!(changed, text);
    format!("UPDATE audit SET text = '{}' WHERE number = {number}", changed.replace('\'', "''"))
}

#[tokio::test]
async fn an_entry_cannot_be_changed_or_removed_unseen() {
    let mut server = server("");
    let admin = Attacker::admin(&server);
    for weight in 1..=5 {
        let body = format!(r#"{{"weight": {weight}}}"#);
        assert_eq!(admin.call("PUT", "/v1/tenants/acme", &body).await.status, 200);
    }
    let (is_whole, text) = verify(&server, &[]);
    assert!(is_whole, "{text}");
    let last = text.split("the last one is ").nth(1).unwrap().trim().to_owned();
    stop(&mut server);
    let database = server.path("data").join("postrider.db");
    let attack = |statement: &str| {
        rusqlite::Connection::open(&database).unwrap().execute_batch(statement).unwrap();
    };
    let mut check = |arguments: &[&str]| {
        server.start().unwrap();
        let found = verify(&server, arguments);
        stop(&mut server);
        found
    };
    let saved = "CREATE TABLE saved AS SELECT * FROM audit";
    let restore = "DELETE FROM audit; INSERT INTO audit SELECT * FROM saved";
    attack(saved);
    for (statement, expected) in [
        (
            r#"UPDATE audit SET text = replace(text, '"weight":3', '"weight":9') WHERE number = 3"#,
            "was changed",
        ),
        ("DELETE FROM audit WHERE number = 3", "some are missing"),
        ("DELETE FROM audit WHERE number <= 2", "no entry says"),
    ] {
        attack(statement);
        let (is_whole, text) = check(&[]);
        assert!(!is_whole && text.contains(expected), "{statement}: {text}");
        attack(restore);
    }
    attack(&with_its_hash(&database, 3));
    let (is_whole, text) = check(&[]);
    assert!(!is_whole && text.contains("entry 4 does not follow the entry before"), "{text}");
    attack(restore);
    attack("DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)");
    let (is_whole, text) = check(&["--expect", &last]);
    assert!(!is_whole && text.contains("is missing"), "the end is known from elsewhere: {text}");
    attack(restore);
    assert!(check(&["--expect", &last]).0);
}

#[tokio::test]
async fn an_import_whose_caller_hangs_up_is_an_entry() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let tenant = admin.scoped("manage", "acme").await;
    let lines: String = (0..3_000).map(|n| format!("{{\"id\":\"person-{n}\"}}\n")).collect();
    let mut import = tenant.open("POST", "/v1/recipients/import", Some(lines.len()), "").await;
    import.write_all(lines.as_bytes()).await.unwrap();
    drop(import);
    let deadline = Instant::now() + PATIENCE;
    let entry = loop {
        let found = admin.get("/v1/audit?action=recipient.import").await.json();
        match found["items"].as_array().unwrap().first() {
            Some(item) => break item["entry"].clone(),
            None => assert!(Instant::now() < deadline, "what was imported is in no entry"),
        }
    };
    assert_eq!((&entry["count"], &entry["key"]), (&json!(3_000), &json!(tenant.key_id())));
    let as_acme = admin.with_header("postrider-tenant", "acme");
    assert_eq!(as_acme.get("/v1/recipients/person-2999").await.status, 200);
}
