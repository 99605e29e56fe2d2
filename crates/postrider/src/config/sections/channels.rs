//! How each channel sends: limits per origin, deadlines, keys and credentials.

use super::check;
use crate::config::ConfigError;
use crate::config::section::{Secret, section};

section! {
    /// Web Push.
    WebpushChannel as "webpush" {
        /// Whom a push service can write to about our traffic: mailto: or https:.
        subject: String = "mailto:postrider@example.com".to_owned(),
        /// Requests in flight per push service.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// Requests per second to one origin with one tenant's credential; 0 for no limit.
        rate_per_credential_s: f64 = 0.0,
        /// Requests per second to one address, one at a time; 0 for no limit.
        rate_per_address_s: f64 = 0.0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
        /// The VAPID private key of the tenant `default`, as `web-push generate-vapid-keys` prints
        /// it. Also VAPID_PRIVATE_KEY. Without one, the first start makes a key pair.
        vapid_private_key: Option<Secret> = None,
    }
}

section! {
    /// Webhooks.
    WebhookChannel as "webhook" {
        /// Requests in flight per origin.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// Requests per second to one origin with one tenant's credential; 0 for no limit.
        rate_per_credential_s: f64 = 0.0,
        /// Requests per second to one address, one at a time; 0 for no limit.
        rate_per_address_s: f64 = 0.0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
        /// A replaced secret goes on signing beside the new one for this long.
        secret_overlap_s: u64 = 86_400,
    }
}

section! {
    /// Generic HTTP requests.
    HttpChannel as "http" {
        /// Which credentials callers may name, each with the one origin that it may be sent to, e.g.
        /// ["env:BILLING_TOKEN https://api.billing.example", "file:/run/secrets/crm https://crm.example"].
        credentials: Vec<String> = Vec::new(),
        /// Requests in flight per origin.
        concurrency: usize = 100,
        /// Requests per second to one origin; 0 for no limit.
        rate_per_s: f64 = 0.0,
        /// How many of them may come at once.
        rate_burst: u32 = 10,
        /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
        rate_ramp_s: u32 = 0,
        /// Requests per second to one origin with one tenant's credential; 0 for no limit.
        rate_per_credential_s: f64 = 0.0,
        /// Requests per second to one address, one at a time; 0 for no limit.
        rate_per_address_s: f64 = 0.0,
        /// An attempt without an answer ends after this long.
        timeout_s: u64 = 30,
    }
}

impl WebpushChannel {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        let subject = self.subject.as_str();
        let contact = subject.strip_prefix("mailto:").map(|m| m.contains('@'));
        let contact = contact.unwrap_or_else(|| subject.starts_with("https://"));
        check(
            contact && !subject.contains("localhost"),
            "webpush.subject",
            format!("{subject:?}"),
            "a mailto: or https: contact that push services can reach, e.g. mailto:ops@example.com",
        )?;
        check(self.concurrency > 0, "webpush.concurrency", self.concurrency, "at least 1")
    }
}

impl HttpChannel {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        for entry in &self.credentials {
            if credential(entry).is_none() {
                return Err(ConfigError::invalid(
                    "http.credentials",
                    format!("{entry:?}"),
                    "env:NAME or file:PATH, a space, and an origin such as https://api.example.com",
                ));
            }
        }
        Ok(())
    }

    /// The credentials that callers may name, with their origins.
    pub fn allowed_credentials(&self) -> Vec<(String, String)> {
        self.credentials.iter().filter_map(|entry| credential(entry)).collect()
    }
}

fn credential(entry: &str) -> Option<(String, String)> {
    let (reference, origin) = entry.rsplit_once(' ')?;
    let reference = reference.trim();
    let known = ["env:", "file:"]
        .iter()
        .any(|kind| reference.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
    let normal = postrider_channels::address::origin(origin);
    (known && origin.contains("://") && *normal == *origin.trim_end_matches('/'))
        .then(|| (reference.to_owned(), normal.to_string()))
}
