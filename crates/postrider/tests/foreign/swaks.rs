//! `swaks` against the sandbox's mail server: STARTTLS, TLS from the first byte, every kind of login, and refusals.

use std::process::Stdio;

use postrider_sandbox::{ReceiverRequest, SandboxConfig};
use serde_json::json;

use crate::tools;

/// What it was told last, and how it ended: 0 for a mail that was taken, by its manual 24 for a recipient that was
/// refused, 26 for a mail, 28 for a login.
fn swaks(port: u16, more: &[&str]) -> i32 {
    let mut command = tools::swaks();
    command
        .args(["--server", "127.0.0.1", "--port", &port.to_string(), "--from", "a@shop.example"])
        .args(["--ehlo", "shop.example", "--timeout", "20s", "--silent", "3"])
        .args(["--header", "Message-ID: <one@shop.example>", "--body", ".dot\\n..\\nend"])
        .args(more)
        .stdout(Stdio::null());
    command.status().unwrap().code().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaks_finds_a_mail_server_that_encrypts_and_asks_who_it_is() {
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    let wish =
        ReceiverRequest { script: vec!["554".parse().unwrap()], ..ReceiverRequest::default() };
    sandbox.set_up("email", "spam@example.org", &wish).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &sandbox.ca_pem).unwrap();
    let (smtp, smtps) = (sandbox.smtp.port(), sandbox.smtps.port());
    let told = tokio::task::spawn_blocking(move || {
        let ca = ca.display().to_string();
        let trusted = ["--tls-verify", "--tls-ca-path", &ca];
        let to = |who| ["--to", who];
        let right = ["--auth-user", "shop", "--auth-password", "right"];
        let wrong = ["--auth-user", "shop", "--auth-password", "wrong"];
        let starttls = |more: &[&str]| swaks(smtp, &[&["--tls"], more].concat());
        [
            swaks(smtp, &to("ada@example.org")),
            starttls(&[&to("ada@example.org")[..], &trusted].concat()),
            starttls(&[&to("ada@example.org")[..], &right, &["--auth", "PLAIN"]].concat()),
            starttls(&[&to("ada@example.org")[..], &right, &["--auth", "LOGIN"]].concat()),
            starttls(&[&to("ada@example.org")[..], &wrong, &["--auth", "PLAIN"]].concat()),
            starttls(&to("bad")),
            starttls(&to("spam@example.org")),
            swaks(smtps, &[&["--tls-on-connect"][..], &to("ada@example.org")].concat()),
        ]
    });
    assert_eq!(told.await.unwrap(), [0, 0, 0, 0, 28, 24, 26, 0]);
    let client = postrider::client::Client::new(sandbox.http_origin(), None).unwrap();
    let last = client.get("/sandbox/last/email/ada@example.org").await.unwrap();
    assert!(last["body"].as_str().unwrap().contains("\r\n\r\n.dot\r\n..\r\nend"), "{last}");
    assert_eq!(sandbox.received()["by_kind"]["email"], json!(6));
}
