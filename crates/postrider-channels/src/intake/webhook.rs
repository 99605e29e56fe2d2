//! A webhook endpoint: a URL and, where it has its own, its signing secrets.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::content::Content;
use postrider_core::{ChannelKind, FieldError, Intake, Target};
use serde::Deserialize;

use super::{NetworkPolicy, check_url, origin, shape_error};

pub struct WebhookIntake {
    policy: NetworkPolicy,
}

impl WebhookIntake {
    pub fn new(policy: NetworkPolicy) -> Self {
        Self { policy }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    #[serde(rename = "channel")]
    _channel: String,
    url: String,
    /// Newest first: while a secret is being rotated, both sign.
    #[serde(default)]
    secrets: Vec<String>,
}

const SECRETS_MAX: usize = 3;

impl Intake for WebhookIntake {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Webhook
    }

    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>> {
        let shape = "url, and optionally secrets (whsec_…, newest first)";
        let endpoint: Endpoint =
            serde_json::from_str(address).map_err(|e| shape_error(&e, shape))?;
        let mut errors = Vec::new();
        if let Err(error) = check_url("url", &endpoint.url, self.policy) {
            errors.push(error);
        }
        if endpoint.secrets.len() > SECRETS_MAX || !endpoint.secrets.iter().all(|s| is_secret(s)) {
            let allowed = "at most 3 secrets: whsec_ and 24 to 64 bytes in base64";
            errors.push(FieldError::new("secrets", "something else", allowed));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let secrets = endpoint.secrets.into_iter().map(Into::into).collect();
        Ok(Target::Webhook { url: endpoint.url.into(), secrets })
    }

    fn provider(&self, target: &Target) -> Arc<str> {
        origin(target.place())
    }

    fn check(&self, _content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    fn ttl_s_max(&self) -> u32 {
        super::TTL_S_MAX
    }
}

fn is_secret(text: &str) -> bool {
    let bytes = text.strip_prefix("whsec_").and_then(|b64| STANDARD.decode(b64).ok());
    bytes.is_some_and(|b| (24..=64).contains(&b.len()))
}
