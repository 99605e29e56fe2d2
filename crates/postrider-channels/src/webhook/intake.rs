//! A webhook endpoint: a URL and, where it has its own, its signing secrets.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError, Target};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{WebhookContent, WebhookTarget};
use crate::address::{NetworkPolicy, check_url, read};
use crate::definition::intake_of;
use crate::target::checked;

pub struct WebhookIntake {
    pub policy: NetworkPolicy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookAddressRequest {
    #[serde(rename = "channel")]
    _channel: String,
    url: String,
    /// Newest first: while a secret is being rotated, both sign.
    #[serde(default)]
    secrets: Vec<String>,
}

const SECRETS_MAX: usize = 3;

impl ChannelIntake for WebhookIntake {
    intake_of!(WebhookTarget);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let shape = "url, and optionally secrets (whsec_…, newest first)";
        let endpoint: WebhookAddressRequest = read(json, shape)?;
        let mut errors = Vec::from_iter(check_url("url", &endpoint.url, self.policy).err());
        if endpoint.secrets.len() > SECRETS_MAX {
            let found = format!("{} secrets", endpoint.secrets.len());
            errors.push(FieldError::new("secrets", found, "at most 3 secrets"));
        }
        for (nth, secret) in endpoint.secrets.iter().enumerate().take(SECRETS_MAX) {
            if let Some(found) = flaw(secret) {
                let allowed = "whsec_ and 24 to 64 bytes in base64";
                errors.push(FieldError::new(format!("secrets[{nth}]"), found, allowed));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let secrets = endpoint.secrets.into_iter().map(Into::into).collect();
        Ok(checked(WebhookTarget { url: endpoint.url.into(), secrets }))
    }

    fn own_body<'a>(&self, content: &Content<'a>) -> Option<&'a RawValue> {
        WebhookContent::of(content).ok()?.payload
    }

    fn method<'a>(&self, _target: &'a Target) -> Cow<'a, str> {
        "POST".into()
    }
}

/// Why this is not a signing secret. Does not repeat it.
fn flaw(secret: &str) -> Option<String> {
    let Some(base64) = secret.strip_prefix("whsec_") else {
        return Some("no whsec_ at its beginning".to_owned());
    };
    match STANDARD.decode(base64) {
        Ok(bytes) if (24..=64).contains(&bytes.len()) => None,
        Ok(bytes) => Some(format!("{} bytes", bytes.len())),
        Err(_) => Some("no base64 behind whsec_".to_owned()),
    }
}
