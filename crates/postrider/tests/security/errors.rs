//! Errors and outputs: no secret, nothing that steers a terminal, no meaning in cursors.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

use crate::fixture::{Attacker, message, server};

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

#[test]
fn no_error_about_the_configuration_shows_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postrider.toml");
    for text in [
        "[admin]\nkey = s3cr3t-of-the-operator",
        "[admin]\nkey = \"s3cr3t-of-the-operator",
        "[admin]\nkeey = \"s3cr3t-of-the-operator\"",
        "[server]\nbody_bytes_max = \"s3cr3t-of-the-operator\"",
    ] {
        std::fs::write(&file, text).unwrap();
        for command in [&["serve", "--config"][..], &["config", "check", "--config"][..]] {
            let output = Command::new(BINARY).args(command).arg(&file).output().unwrap();
            let shown = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(2), "{shown}");
            assert!(!shown.contains("s3cr3t"), "{shown}");
            assert!(shown.contains("line 2"), "the place is named: {shown}");
        }
    }
    // A secret in a place where its name belongs.
    for (text, field) in [
        ("[http]\ncredentials = [\"env:A https://a.example *\", \"s3cr3t\"]", "entry 2"),
        ("[http]\ncredentials = [\"s3cr3t https://a.example *\"]", "http.credentials"),
        ("[http]\nsecret_names = [\"Bearer s3cr3t\"]", "http.secret_names"),
        (
            "[accounts.a]\nchannel = \"sms\"\ntenant = \"*\"\naccount_sid = \"AC1\"\nfrom = \"+1\"\n\
          credential = \"s3cr3t\"",
            "accounts.a",
        ),
        (
            "[accounts.a]\nchannel = \"sms\"\ntenant = \"*\"\nprovider = \"http\"\nurl = \"https://a.example\"\n\
          fields = { a = \"{to} {text}\" }\nauth = \"Bearer s3cr3t\"",
            "auth",
        ),
        ("[accounts.a]\nchannel = \"ntfy\"\ntenant = \"*\"\nuser = \"me:s3cr3t\"", "user"),
        ("[network]\nproxy = \"http://me:s3cr3t@proxy.example:1\"", "line 2"),
        ("[store]\nurl = \"me:s3cr3t@host/database\"", "store.url"),
        ("[store]\nurl = \"postgres://me:s3cr3t@host/database\"", "store.url"),
        ("[store]\npassword = \"s3cr3t\"", "line 2"),
        ("[webpush]\nvapid_private_key = \"s3cr3t\"", ""),
        ("[encryption]\nkey = \"s3cr3t\"", "line 2"),
        (
            "[traces]\nendpoint = \"https://a.example\"\nheaders = { authorization = \"s3cr3t\" }",
            "line 3",
        ),
        (
            "[alerts.routes.a]\nkind = \"slack\"\nurl = \"https://a.example\"\nbackup = \"s3cr3t\"",
            "backup",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let check = ["config", "check", "--config"];
        let output = Command::new(BINARY).args(check).arg(&file).output().unwrap();
        let shown = [output.stderr, output.stdout].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(!shown.contains("s3cr3t"), "{text}: {shown}");
        assert!(field.is_empty() || output.status.code() == Some(2), "{text}: {shown}");
        assert!(shown.contains(field), "the place is named: {shown}");
    }
    let output = Command::new(BINARY)
        .args(["config", "check"])
        .current_dir(&folder)
        .env("POSTRIDER_SERVER__BODY_BYTES_MAX", "s3cr3t-of-the-operator")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !shown.contains("s3cr3t"), "{shown}");
}

#[tokio::test]
async fn control_characters_are_refused_in_names_and_recipients() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let evil = "ann\u{1b}]0;owned\u{7}";
    let address = json!({"channel": "webhook", "url": "https://example.com/", "recipient": evil});
    let mut tagged = message();
    tagged["tags"] = json!([evil]);
    assert_eq!(admin.post("/v1/messages", &message()).await.status, 202);
    let lane = admin.get("/v1/lanes").await.json()["lanes"][0]["id"].as_u64().unwrap();
    let pause = format!("/v1/lanes/{lane}/pause");
    for (method, path, body) in [
        ("POST", "/v1/keys", json!({"name": evil, "scope": "read"})),
        ("POST", "/v1/addresses", address),
        ("POST", "/v1/messages", tagged),
        ("PUT", "/v1/templates/%1b%5d0", json!({"locales": {"en": {"title": "x"}}})),
        ("PUT", "/v1/recipients/ann%1b%5d0%07", json!({})),
        ("PUT", "/v1/recipients/ann", json!({"aliases": [evil]})),
        ("PUT", "/v1/categories/news%1b%5d0", json!({})),
        ("PUT", "/v1/categories/news", json!({"titles": {"en": evil}})),
        ("POST", &pause, json!({"reason": evil})),
        ("POST", "/v1/event-subscriptions", json!({"name": evil})),
    ] {
        let answer = admin.call(method, path, &body.to_string()).await;
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        assert!(!answer.body.contains('\u{1b}'), "{}", answer.body);
    }
    let lines = format!("{}\n{}\n", json!({"id": evil}), json!({"id": "bob"}));
    let imported = admin.call("POST", "/v1/recipients/import", &lines).await;
    let found = imported.json();
    assert_eq!((&found["created"], &found["refused"]), (&json!(1), &json!(1)), "{found}");
    assert!(!imported.body.contains('\u{1b}'), "{}", imported.body);
}

/// A server that gives every caller this answer, as far as the test needs it.
fn lying_server(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let status = if body.contains("detail") { "422 Unprocessable" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn what_others_wrote_does_not_steer_the_terminal() {
    let listed = r#"{"keys":[{"id":"key_1","name":"a\u001b[2Jb\u009bc"}]}"#;
    let refused = r#"{"title":"no\u001b[2J","detail":"x\u001b]0;owned\u0007"}"#;
    for (body, more) in [(listed, None), (listed, Some("--json")), (refused, None)] {
        let url = lying_server(body);
        let output = Command::new(BINARY)
            .args(["keys", "list", "--server", &url, "--key", "k"])
            .args(more)
            .output()
            .unwrap();
        let shown = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(shown).unwrap();
        assert!(text.contains("u001b"), "it is shown, escaped: {text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[tokio::test]
async fn cursors_mean_nothing_to_callers() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let made = admin.post("/v1/messages", &message()).await.json();
        ids.push(made["deliveries"][0]["id"].as_str().unwrap().to_owned());
    }
    let first = admin.get("/v1/deliveries?limit=2").await.json();
    let next = first["next"].as_str().unwrap();
    assert!(!ids.iter().any(|id| next.contains(id.as_str())), "{next}");
    let rest = admin.get(&format!("/v1/deliveries?limit=2&cursor={next}")).await.json();
    assert_eq!(rest["items"][0]["id"], ids[0], "{rest}");
    for forged in [ids[1].as_str(), "x", "AAAA"] {
        let answer = admin.get(&format!("/v1/deliveries?cursor={forged}")).await;
        assert_eq!(answer.status, 422, "{forged}: {}", answer.body);
    }
    // The audit log: its entries are numbered over all tenants.
    for n in 0..3 {
        admin.scoped("send", &format!("tenant-{n}")).await;
    }
    let entries = admin.get("/v1/audit?limit=2").await.json();
    let next = entries["next"].as_str().unwrap();
    assert!(next.parse::<u64>().is_err(), "{next}");
    let rest = admin.get(&format!("/v1/audit?limit=2&cursor={next}")).await.json();
    assert_ne!(rest["items"][0], entries["items"][1], "{rest}");
    let of_another_list = first["next"].as_str().unwrap();
    for forged in ["1", "x", of_another_list] {
        let answer = admin.get(&format!("/v1/audit?cursor={forged}")).await;
        assert_eq!(answer.status, 422, "{forged}: {}", answer.body);
    }
}
