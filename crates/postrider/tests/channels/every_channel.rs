//! One message per channel, to an address in the message: each arrives once and has its TTL in its provider's own
//! field. The channels come from the sandbox's list of fakes. `cargo xtask prove channels` prints the table.

use std::time::{SystemTime, UNIX_EPOCH};

use postrider_sandbox::ReceiverRequest;
use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, state};

const TTL_S: i64 = 600;
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

#[test]
fn one_message_per_channel_arrives_once_with_its_ttl_in_the_provider_s_own_field() {
    let fixture = ChannelsFixture::new();
    let mut samples = fixture.samples(|channel| ReceiverRequest {
        secret: (channel == "webhook").then(|| SECRET.to_owned()),
        ..ReceiverRequest::default()
    });
    for sample in samples.iter_mut().filter(|sample| sample.channel == "webhook") {
        sample.receiver.address["secrets"] = json!([SECRET]);
    }
    let messages = samples.iter().map(|sample| message(&sample.receiver.address));
    let ids: Vec<String> = messages.map(|message| fixture.send(&message)).collect();
    println!("{:<8} {:<28} value", "channel", "TTL field");
    for (sample, id) in samples.iter().zip(&ids) {
        let (channel, (field, read_ttl)) = (sample.channel, sample.receiver.ttl);
        let delivery = fixture.ended(id);
        assert_eq!(state(&delivery), "sent", "{channel}: {delivery:#}");
        assert_eq!(delivery["attempts"], 1, "{channel}: {delivery:#}");
        let arrived = fixture.last(&sample.receiver.path());
        let Some(value) = read_ttl(&arrived) else {
            assert_eq!(field, "none", "{channel}: {arrived:#}");
            println!("{channel:<8} {field:<28} –");
            continue;
        };
        println!("{channel:<8} {field:<28} {value}");
        let left = left_s(&value).unwrap_or_default();
        assert!((TTL_S - 10..=TTL_S).contains(&left), "{channel} {field}: {value}");
    }
    let (received, count) = (fixture.received(), samples.len());
    for sample in &samples {
        let kind = sample.receiver.kind.name();
        assert_eq!(received["by_kind"][kind], 1, "{kind}: {received:#}");
    }
    assert_eq!((&received["accepted"], &received["distinct"]), (&json!(count), &json!(count)));
    assert_eq!((&received["duplicates"], &received["unverified"]), (&json!(0), &json!(0)));
}

fn message(address: &Value) -> Value {
    json!({"to": {"address": address}, "ttl_s": TTL_S, "content": {"title": "Shipped", "body": "Order 91"}})
}

/// The seconds that are left: `600`, `600s`, `600;R`, or the second of the end since 1970.
fn left_s(value: &str) -> Option<i64> {
    let number: i64 = value.trim_end_matches(";R").trim_end_matches('s').parse().ok()?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
    Some(if number > now_s { number - now_s } else { number })
}
