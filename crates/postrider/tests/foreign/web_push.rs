//! npm's `web-push` against the sandbox, and npm's `http_ece` and `jws` against our pushes.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postrider_channels::pool::Origin;
use postrider_channels::webpush::{VapidKey, VapidSubject, VapidTokens};
use postrider_core::{KeyId, Timestamp};
use postrider_sandbox::{SandboxConfig, SubscriptionRequest};
use serde_json::json;

use crate::{browser, tools};

const PUSH: &str = r"
const webpush = require('web-push');
const https = require('https');
const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const keys = webpush.generateVAPIDKeys();
const agent = new https.Agent({ ca: given.ca });
async function push(subscription, payload, change) {
  const vapidDetails = { subject: 'mailto:ops@example.com', ...keys, ...(change || {}) };
  const options = { vapidDetails, TTL: 60, urgency: 'high', topic: 'ord-91', agent };
  try {
    return (await webpush.sendNotification(subscription, payload, options)).statusCode;
  } catch (error) {
    return error.statusCode || String(error);
  }
}
(async () => {
  const told = [];
  for (const payload of ['Grüße aus JavaScript', 'x'.repeat(3993), null]) {
    told.push(await push(given.subscriptions[0], payload));
  }
  const stranger = webpush.generateVAPIDKeys();
  told.push(await push(given.subscriptions[1], 'wrong key', { publicKey: stranger.publicKey }));
  console.log(JSON.stringify(told));
})();
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npm_web_push_s_pushes_are_decrypted_and_its_token_is_checked_by_the_sandbox() {
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    let wish = SubscriptionRequest { count: Some(2), ..SubscriptionRequest::default() };
    let subscriptions = sandbox.subscribe(&wish).unwrap();
    let given = json!({"ca": sandbox.ca_pem, "subscriptions": subscriptions});
    let told = tokio::task::spawn_blocking(move || tools::ask_node(PUSH, &given)).await.unwrap();
    assert_eq!(told, json!([201, 201, 201, 403]));
    let received = sandbox.received();
    assert_eq!((&received["accepted"], &received["undecryptable"]), (&json!(3), &json!(0)));
}

const READ: &str = r"
const ece = require('http_ece');
const jws = require('jws');
const crypto = require('crypto');
const vapid = require('web-push/src/vapid-helper.js');
const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const browser = crypto.createECDH('prime256v1');
browser.setPrivateKey(given.private, 'base64url');
const read = (body) => ece.decrypt(Buffer.from(body, 'base64url'),
  { version: 'aes128gcm', privateKey: browser, authSecret: given.auth }).toString();
const [, token, key] = given.authorization.match(/^vapid t=([^,]+), k=(.+)$/);
const raw = Buffer.from(key, 'base64url');
const half = (from) => raw.subarray(from, from + 32).toString('base64url');
const jwk = { kty: 'EC', crv: 'P-256', x: half(1), y: half(33) };
const pem = crypto.createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'pem' });
const claims = jws.decode(token).payload;
vapid.validatePublicKey(key);
vapid.validateSubject(claims.sub);
vapid.validateExpiration(claims.exp);
console.log(JSON.stringify({
  texts: given.bodies.map(read),
  signed: jws.verify(token, 'ES256', pem),
  changed: jws.verify(token.slice(0, -8) + 'AAAAAAAA', 'ES256', pem),
  aud: claims.aud, sub: claims.sub,
}));
";

#[test]
fn npm_http_ece_reads_our_pushes_and_our_token_is_one_that_web_push_would_write() {
    let texts = ["Grüße".to_owned(), "y".repeat(2000), "z".repeat(3993)];
    let bodies: Vec<_> =
        browser::encrypt(&texts).iter().map(|body| BASE64_URL_SAFE_NO_PAD.encode(body)).collect();
    let tokens = VapidTokens::new(VapidSubject::parse("mailto:ops@example.com").unwrap());
    let key = VapidKey::generate(KeyId(1)).unwrap();
    let now = Timestamp(jiff::Timestamp::now().as_millisecond());
    let endpoint = "https://push.example.com:8443/send/abc?x=1";
    let token = tokens.get(&key, &Origin::parse(endpoint).unwrap(), now, false).unwrap();
    let authorization = token.authorization.to_str().unwrap();
    let told = tools::ask_node(
        READ,
        &json!({"private": browser::PRIVATE, "auth": browser::AUTH, "bodies": bodies,
            "authorization": authorization}),
    );
    let expected = json!({
        "texts": texts, "signed": true, "changed": false,
        "aud": "https://push.example.com:8443", "sub": "mailto:ops@example.com",
    });
    assert_eq!(told, expected);
}
