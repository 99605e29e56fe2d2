//! A Firebase project and the service account that may send to it.

use serde::{Deserialize, Serialize};

use crate::accounts::SecretRef;

/// What `[accounts.NAME]` with `channel = "fcm"` holds beside what all accounts have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcmAccount {
    /// The service account's JSON key file as Google gives it out.
    pub credential: SecretRef,
    /// The Firebase project; that of the service account if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Where to send, other than to Google; for tests and proxies.
    #[serde(default = "google", skip_serializing_if = "is_google")]
    pub endpoint: String,
}

fn google() -> String {
    "https://fcm.googleapis.com".to_owned()
}

fn is_google(endpoint: &str) -> bool {
    endpoint == google()
}
