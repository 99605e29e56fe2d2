//! An account at Apple in the configuration: a team's signing key, or a certificate.

use serde::{Deserialize, Serialize};

use crate::accounts::SecretRef;

/// What `[accounts.NAME]` with `channel = "apns"` holds beside what all accounts have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApnsAccount {
    /// The signing key (`AuthKey_….p8`), or, without `team_id` and `key_id`, a PEM file with certificate
    /// and private key.
    pub credential: SecretRef,
    /// The team that the key belongs to, 10 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// The key's id, 10 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The bundle ids that this account may send to; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// Where to send, other than to Apple; for tests and proxies.
    #[serde(default = "production", skip_serializing_if = "is_production")]
    pub endpoint: String,
    #[serde(default = "sandbox", skip_serializing_if = "is_sandbox")]
    pub sandbox_endpoint: String,
}

fn production() -> String {
    "https://api.push.apple.com".to_owned()
}

fn sandbox() -> String {
    "https://api.sandbox.push.apple.com".to_owned()
}

fn is_production(endpoint: &str) -> bool {
    endpoint == production()
}

fn is_sandbox(endpoint: &str) -> bool {
    endpoint == sandbox()
}
