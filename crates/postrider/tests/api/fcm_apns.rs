//! FCM and APNs from the API to the sandbox's providers and back.

use serde_json::{Value, json};

use crate::providers::{ProvidersFixture, device_accounts};

const APPLE: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";
/// Registered by a development build.
const APPLE_DEV: &str = "defc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";
const ANDROID: &str = "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZFBaFUH";

async fn start() -> ProvidersFixture {
    ProvidersFixture::new(device_accounts).await
}

fn fcm() -> Value {
    json!({"channel": "fcm", "token": ANDROID})
}

fn apns(token: &str) -> Value {
    json!({"channel": "apns", "token": token, "topic": "com.example.app"})
}

fn shipped() -> Value {
    json!({"title": "Shipped", "body": "Order 91", "data": {"order": 91}})
}

#[tokio::test]
async fn a_message_reaches_a_device_by_fcm_with_its_ttl() {
    let fixture = start().await;
    let delivery = fixture.send(fcm(), shipped()).await;
    assert_eq!(delivery["state"], "sent", "{delivery}");
    let name = delivery["log"][0]["provider_id"].as_str().unwrap();
    assert!(name.starts_with("projects/sandbox-project/messages/"), "{name}");
    let last = fixture.ask_sandbox(&format!("/sandbox/last/fcm/{ANDROID}")).await;
    let body: Value = serde_json::from_str(last["body"].as_str().unwrap()).unwrap();
    let message = &body["message"];
    assert_eq!(message["data"]["order"], "91");
    assert_eq!(message["android"]["collapseKey"], "ord-91");
    let ttl: u32 =
        message["android"]["ttl"].as_str().unwrap().trim_end_matches('s').parse().unwrap();
    assert!((590..=600).contains(&ttl), "{ttl}");
    assert_eq!(fixture.sandbox.received()["by_kind"]["fcm"], 1);
}

#[tokio::test]
async fn a_message_reaches_a_device_by_apns_with_its_expiration_and_the_delivery_s_id() {
    let fixture = start().await;
    fixture.script("apns", APPLE, &["503", "ok"]);
    let delivery = fixture.send(apns(APPLE), shipped()).await;
    assert_eq!(delivery["state"], "sent", "{delivery}");
    assert_eq!(delivery["log"][0]["code"], "ServiceUnavailable");
    let last = fixture.ask_sandbox(&format!("/sandbox/last/apns/{APPLE}")).await;
    let id = last["headers"]["apns-id"].as_str().unwrap();
    assert_eq!(delivery["log"][1]["provider_id"], id);
    let at: i64 = last["headers"]["apns-expiration"].as_str().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((580..=600).contains(&(at - now.as_secs() as i64)), "{at}");
    assert_eq!(last["headers"]["apns-collapse-id"], "ord-91");
    // Both attempts were the same delivery to the receiving end.
    let id = delivery["id"].as_str().unwrap();
    let seen = fixture.ask_sandbox(&format!("/sandbox/received/{id}")).await;
    assert_eq!(seen["records"][0]["attempts"], 2);
}

#[tokio::test]
async fn a_development_device_is_found_in_its_own_environment() {
    let fixture = start().await;
    let delivery = fixture.send(apns(APPLE_DEV), shipped()).await;
    assert_eq!(delivery["state"], "sent", "{delivery}");
    let mut at_home = apns(APPLE_DEV);
    at_home["environment"] = json!("production");
    let wrong = fixture.send(at_home, shipped()).await;
    assert_eq!(wrong["log"][0]["code"], "BadDeviceToken.proven", "{wrong}");
}

#[tokio::test]
async fn a_dead_device_is_gone_and_a_malformed_message_is_not_the_device_s_fault() {
    let fixture = start().await;
    fixture.script("fcm", ANDROID, &["404"]);
    let gone = fixture.send(fcm(), shipped()).await;
    assert_eq!((&gone["state"], &gone["log"][0]["code"]), (&json!("gone"), &json!("UNREGISTERED")));
    fixture.script("apns", APPLE, &["410"]);
    let gone = fixture.send(apns(APPLE), shipped()).await;
    assert_eq!((&gone["state"], &gone["log"][0]["code"]), (&json!("gone"), &json!("Unregistered")));
    let other = json!({"channel": "fcm", "token": "another-device-token"});
    fixture.script("fcm", "another-device-token", &["400"]);
    let dropped = fixture.send(other, shipped()).await;
    assert_eq!(dropped["state"], "failed", "{dropped}");
}

#[tokio::test]
async fn the_next_account_takes_over_when_google_refuses_the_first() {
    let fixture = ProvidersFixture::new(|sandbox, folder| {
        let mut stranger = sandbox.fcm_service_account();
        stranger["client_email"] = json!("stranger@elsewhere.example");
        let unknown_key = folder.write("stranger.json", &stranger.to_string());
        let account = |name: &str, priority: u8| {
            format!(
                "[accounts.{name}]\nchannel = \"fcm\"\ntenant = \"*\"\npriority = {priority}\nendpoint = \"{}\"\n\
                 credential = \"file:{unknown_key}\"\n",
                sandbox.https_origin()
            )
        };
        account("a_first", 0) + &account("z_spare", 9) + &device_accounts(sandbox, folder)
    })
    .await;
    let delivery = fixture.send(fcm(), shipped()).await;
    assert_eq!(delivery["state"], "sent", "{delivery}");
    let detail = delivery["log"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("account a_first left out"), "{detail}");
    let list = fixture.server.admin().get("/v1/accounts").await.unwrap();
    let named = |name: &str| {
        let all = list["accounts"].as_array().unwrap();
        all.iter().find(|account| account["name"] == name).unwrap().clone()
    };
    let (first, used) = (named("a_first"), named("firebase"));
    assert_eq!((&first["state"], &first["held_by"]), (&json!("held"), &json!("credential")));
    assert_eq!(
        (&first["failovers"], &used["state"], &used["calls"]),
        (&json!(1), &json!("ready"), &json!(1))
    );
}

#[tokio::test]
async fn what_could_never_be_delivered_is_refused_with_field_and_reason() {
    let fixture = start().await;
    let refused = async |address: Value, content: Value| {
        let message = json!({"to": {"address": address}, "content": content});
        let reply = fixture.server.post(message.to_string()).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        reply.body["errors"][0]["field"].as_str().unwrap().to_owned()
    };
    let token = "to.address.token";
    assert_eq!(refused(json!({"channel": "fcm"}), shipped()).await, token);
    assert_eq!(refused(json!({"channel": "fcm", "token": "a b"}), shipped()).await, token);
    assert_eq!(refused(apns("xyz"), shipped()).await, token);
    let topic = json!({"channel": "apns", "token": APPLE, "topic": "com example"});
    assert_eq!(refused(topic, shipped()).await, "to.address.topic");
    let place = json!({"channel": "apns", "token": APPLE, "topic": "a.b", "environment": "moon"});
    assert_eq!(refused(place, shipped()).await, "to.address.environment");
    let reserved = json!({"data": {"google.x": "y"}});
    assert_eq!(refused(fcm(), reserved).await, "content.data.google.x");
    let large = json!({"title": "x".repeat(4097)});
    assert_eq!(refused(fcm(), large.clone()).await, "content");
    assert_eq!(refused(apns(APPLE), large).await, "content");
    let loud = json!({"data": {}, "apns": {"priority": 10}});
    assert_eq!(refused(apns(APPLE), loud).await, "content.apns.priority");
}
