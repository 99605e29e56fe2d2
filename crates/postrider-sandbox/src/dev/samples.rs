//! A message to try per channel, as JSON and as a curl line.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{ReceiverRequest, Sandbox};

/// One channel's message.
pub(super) struct DevSample {
    pub(super) channel: &'static str,
    pub(super) message: Value,
}

impl DevSample {
    /// One per channel that has a fake provider.
    pub(super) fn all(sandbox: &Sandbox) -> Result<Vec<Self>> {
        let channels = sandbox.sample_channels().into_iter();
        let make = |channel| {
            let receiver = sandbox.sample(channel, "orders", &ReceiverRequest::default())?;
            let message = json!({"to": {"address": receiver.address}, "content": content(channel)});
            Ok(Self { channel, message })
        };
        channels.map(make).collect()
    }

    /// For a shell that has the key in `POSTRIDER_KEY`.
    pub(super) fn curl(&self, server: &str) -> String {
        // JSON as it is written here has no single quotes.
        format!(
            "curl {server}/v1/messages -H \"Authorization: Bearer $POSTRIDER_KEY\" \
             -H 'Content-Type: application/json' -d '{}'",
            self.message
        )
    }
}

fn content(channel: &str) -> Value {
    let mut content = json!({
        "title": "Order 91 is on its way",
        "body": "It arrives tomorrow between 9 and 12.",
        "url": "https://shop.example/orders/91",
    });
    if channel == "email" {
        content["email"] = json!({ "html": HTML });
    }
    content
}

const HTML: &str = concat!(
    "<div style=\"font-family:sans-serif;max-width:32rem;margin:auto;padding:1.5rem\">",
    "<h1 style=\"color:#2f6db5;font-size:1.4rem\">Order 91 is on its way</h1>",
    "<p>It arrives <b>tomorrow between 9 and 12</b>.</p>",
    "<p><a href=\"https://shop.example/orders/91\" style=\"background:#2f6db5;color:#fff;padding:.6rem 1rem;",
    "border-radius:.4rem;text-decoration:none\">Follow it</a></p></div>",
);
