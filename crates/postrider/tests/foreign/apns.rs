//! `@parse/node-apn` against the sandbox's APNs: valid pushes are accepted, wrong ones are refused with Apple's
//! reason, and it understands the answer.

use postrider_sandbox::{ReceiverRequest, SandboxConfig};
use serde_json::{Value, json};

use crate::tools;

const DEVICE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

const SEND: &str = r"
const apn = require('@parse/node-apn');
const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const provider = (key) => new apn.Provider({
  token: { key: Buffer.from(key), keyId: given.key_id, teamId: given.team_id },
  address: '127.0.0.1', port: given.port, ca: given.ca, production: true, requestTimeout: 20000,
});
async function send(from, change) {
  const note = new apn.Notification();
  Object.assign(note, { topic: 'com.example.app', pushType: 'alert', priority: 10, alert: 'Shipped' });
  note.expiry = Math.floor(Date.now() / 1000) + 600;
  Object.assign(note, change.note || {});
  const result = await from.send(note, change.device || given.device);
  const failed = result.failed[0];
  if (!failed) return 'sent';
  return failed.response ? `${failed.status} ${failed.response.reason}` : String(failed.error);
}
(async () => {
  const ours = provider(given.key), told = [];
  for (const change of given.changes) told.push(await send(ours, change));
  const stranger = provider(given.other_key);
  told.push(await send(stranger, {}));
  await Promise.all([ours.shutdown(), stranger.shutdown()]);
  console.log(JSON.stringify(told));
})();
";

fn changes() -> Vec<(Value, &'static str)> {
    let id = "123e4567-e89b-12d3-a456-426614174000";
    let large = json!({"aps": {"alert": "x".repeat(4100)}});
    let silent = json!({"aps": {"content-available": 1}});
    vec![
        (json!({"note": {"id": id, "collapseId": "ord-91"}}), "sent"),
        (json!({"note": {"pushType": "shout"}}), "400 InvalidPushType"),
        (json!({"note": {"priority": 7}}), "400 BadPriority"),
        (json!({"note": {"pushType": "background", "rawPayload": silent}}), "400 BadPriority"),
        (json!({"note": {"id": "not-a-uuid"}}), "400 BadMessageId"),
        (json!({"note": {"collapseId": "x".repeat(65)}}), "400 BadCollapseId"),
        (json!({"note": {"topic": "com example"}}), "400 BadTopic"),
        (json!({"note": {"pushType": "voip"}}), "400 TopicDisallowed"),
        (json!({"note": {"rawPayload": large}}), "413 PayloadTooLarge"),
        (json!({"device": format!("de{}", &DEVICE[2..])}), "400 BadDeviceToken"),
        (json!({"device": format!("aa{}", &DEVICE[2..])}), "410 Unregistered"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_apn_is_taken_and_refused_as_by_apple() {
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    let script = vec!["410".parse().unwrap()];
    let wish = ReceiverRequest { script, ..ReceiverRequest::default() };
    sandbox.set_up("apns", &format!("aa{}", &DEVICE[2..]), &wish).unwrap();
    let mut given = sandbox.apns_key();
    given["other_key"] = json!(rcgen::KeyPair::generate().unwrap().serialize_pem());
    given["ca"] = json!(sandbox.ca_pem);
    given["port"] = json!(sandbox.https.port());
    given["device"] = json!(DEVICE);
    let (asked, expected): (Vec<_>, Vec<_>) = changes().into_iter().unzip();
    given["changes"] = json!(asked);
    let told = tokio::task::spawn_blocking(move || tools::ask_node(SEND, &given)).await.unwrap();
    let mut expected = json!(expected);
    expected.as_array_mut().unwrap().push(json!("403 InvalidProviderToken"));
    assert_eq!(told, expected);
    assert_eq!(sandbox.received()["by_kind"]["apns"].as_u64(), Some(2 + 10));
}
