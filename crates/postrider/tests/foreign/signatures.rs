//! `standardwebhooks` verifies our webhook signatures, `http_ece` decrypts our pushes, and the sandbox accepts pushes
//! of `pywebpush`.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use postrider_channels::webhook::{WebhookSecret, sign};
use postrider_sandbox::{SandboxConfig, SubscriptionRequest};
use serde_json::json;

use crate::{browser, tools};

const HOOKS: &str = r#"
import json, sys
from standardwebhooks import Webhook, WebhookVerificationError
given = json.load(sys.stdin)
def verifies(body):
    try:
        Webhook(given["secret"]).verify(body, given["headers"])
        return True
    except WebhookVerificationError:
        return False
print(json.dumps([verifies(given["body"]), verifies(given["body"] + " ")]))
"#;

#[test]
fn standardwebhooks_verifies_what_we_sign() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = r#"{"type":"message","content":{"title":"Grüße"}}"#;
    let now = jiff::Timestamp::now().as_second();
    let other = WebhookSecret::generate().and_then(|raw| WebhookSecret::from_raw(&raw)).unwrap();
    let secrets = [Arc::new(other), Arc::new(WebhookSecret::parse(secret).unwrap())];
    let headers = json!({
        "webhook-id": "dlv_1", "webhook-timestamp": now.to_string(),
        "webhook-signature": sign(&secrets, "dlv_1", now, body.as_bytes()),
    });
    let told = tools::ask(HOOKS, &json!({"secret": secret, "body": body, "headers": headers}));
    assert_eq!(told, json!([true, false]));
}

const DECRYPT: &str = r#"
import base64, http_ece, json, sys
from cryptography.hazmat.primitives.asymmetric import ec
given = json.load(sys.stdin)
key = ec.derive_private_key(int.from_bytes(base64.urlsafe_b64decode(given["private"] + "=="), "big"), ec.SECP256R1())
auth = base64.urlsafe_b64decode(given["auth"] + "==")
told = []
for body in given["bodies"]:
    plain = http_ece.decrypt(base64.b64decode(body), private_key=key, auth_secret=auth, version="aes128gcm")
    told.append(plain.decode())
print(json.dumps(told))
"#;

#[test]
fn http_ece_decrypts_what_we_encrypt() {
    let texts = ["Grüße".to_owned(), "x".to_owned(), "y".repeat(2000), "z".repeat(3993)];
    let bodies: Vec<_> =
        browser::encrypt(&texts).iter().map(|body| BASE64_STANDARD.encode(body)).collect();
    let given = json!({"private": browser::PRIVATE, "auth": browser::AUTH, "bodies": bodies});
    let told = tools::ask(DECRYPT, &given);
    assert_eq!(told, json!(texts));
}

const PUSH: &str = r#"
import json, os, sys, tempfile
given = json.load(sys.stdin)
with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
    file.write(given["ca"])
os.environ["REQUESTS_CA_BUNDLE"] = file.name
from pywebpush import webpush
told = []
for subscription in given["subscriptions"]:
    answer = webpush(subscription, "Grüße aus Python", vapid_private_key=given["key"],
                     vapid_claims={"sub": "mailto:ops@example.com"}, ttl=60)
    told.append(answer.status_code)
print(json.dumps(told))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pywebpush_s_pushes_are_decrypted_by_the_sandbox() {
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    let wish = SubscriptionRequest { count: Some(2), ..SubscriptionRequest::default() };
    let subscriptions = sandbox.subscribe(&wish).unwrap();
    let key = BASE64_URL_SAFE_NO_PAD.encode([7u8; 32]);
    let given = json!({"ca": sandbox.ca_pem, "subscriptions": subscriptions, "key": key});
    let told = tokio::task::spawn_blocking(move || tools::ask(PUSH, &given)).await.unwrap();
    assert_eq!(told, json!([201, 201]));
    let received = sandbox.received();
    assert_eq!((&received["accepted"], &received["undecryptable"]), (&json!(2), &json!(0)));
}
