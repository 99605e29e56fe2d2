//! Signatures: one receiver cannot forge a webhook to another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_channels::webhook::{WebhookSecret, sign};
use postrider_testkit::process::LOCAL_TARGETS;
use serde_json::json;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{Attacker, server};

/// A webhook as it arrived.
struct ReceivedWebhook {
    id: String,
    at: i64,
    signatures: Vec<String>,
    body: String,
}

/// Receives one webhook.
async fn receive(listener: TcpListener) -> ReceivedWebhook {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    let mut part = [0; 4096];
    let length = |text: &str| {
        let head = text.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        Some((text.find("\r\n\r\n")? + 4, length))
    };
    let (start, length): (usize, usize) = loop {
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "a whole request: {text}");
        text += &String::from_utf8_lossy(&part[..read]);
        if let Some((start, length)) = length(&text)
            && text.len() >= start + length
        {
            break (start, length);
        }
    };
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    let header = |name: &str| {
        let line = text.lines().find(|line| line.to_ascii_lowercase().starts_with(name)).unwrap();
        line.split_once(": ").unwrap().1.to_owned()
    };
    ReceivedWebhook {
        id: header("webhook-id:"),
        at: header("webhook-timestamp:").parse().unwrap(),
        signatures: header("webhook-signature:").split(' ').map(str::to_owned).collect(),
        body: text[start..start + length].to_owned(),
    }
}

#[tokio::test]
async fn a_receiver_cannot_forge_a_webhook_to_another() {
    let server = server(&format!("{LOCAL_TARGETS}[webhook]\ned25519 = true\n"));
    let admin = Attacker::admin(&server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let receiving = tokio::spawn(receive(listener));
    let message = json!({
        "to": {"address": {"channel": "webhook", "url": url}},
        "content": {"title": "Hello"},
    });
    assert_eq!(admin.post("/v1/messages", &message).await.status, 202);
    let received = receiving.await.unwrap();
    let secret_of = async |url: &str| {
        let listed = admin.get(&format!("/v1/webhook-secrets?url={url}")).await.json();
        listed["secrets"][0]["secret"].as_str().unwrap().to_owned()
    };
    let signed = |secret: &str| {
        let secret = [Arc::new(WebhookSecret::parse(secret).unwrap())];
        sign(&secret, &received.id, received.at, received.body.as_bytes())
    };
    let own = secret_of(&url).await;
    assert!(received.signatures.contains(&signed(&own)), "{:?}", received.signatures);
    // What another receiver of the same tenant has does not sign for this one.
    let other = secret_of("http://127.0.0.1:9/other").await;
    assert!(!received.signatures.contains(&signed(&other)));
    let shared = admin.get("/v1/webhook-secrets").await.json();
    let of_tenant = shared["secrets"][0]["secret"].as_str().unwrap();
    assert!(!received.signatures.contains(&signed(of_tenant)), "nor the tenant's own secret");
    // The public key checks, and cannot sign.
    let public = shared["secrets"][0]["public_key"].as_str().unwrap();
    let public = STANDARD.decode(public.strip_prefix("whpk_").unwrap()).unwrap();
    let v1a = received.signatures.iter().find_map(|text| text.strip_prefix("v1a,")).unwrap();
    let text = format!("{}.{}.{}", received.id, received.at, received.body);
    let key = aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, public);
    assert!(key.verify(text.as_bytes(), &STANDARD.decode(v1a).unwrap()).is_ok());
}
