//! The API keys of callers, and our own keys to sign and to hash with. Cached, so that no request waits for
//! the store.

mod api;
mod ended;
mod scopes;
pub(crate) mod session;
mod signing;
mod stored;
mod text;
mod uses;

pub(crate) use api::owner;
pub use api::{ApiKeys, Caller, DEFAULT_TENANT, KeyRejection, KeyRights, NewApiKey};
pub use ended::KeyEnd;
pub use scopes::{KeyScope, ScopeSet};
pub use signing::{RotationLimits, SigningKeyInfo, SigningKeys};
pub use stored::{ApiKey, SigningKind};
pub use text::is_random;

/// The id that a key's text names, whether there is such a key or not.
pub(crate) fn key_id(text: &str) -> Option<postrider_core::KeyId> {
    text::parse(text).map(|(id, _)| id)
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Store(#[from] postrider_core::ports::store::StoreError),
    #[error("the system has no random numbers")]
    NoRandomness,
    #[error("webpush.vapid_private_key is not a P-256 private key in base64url (32 bytes)")]
    BadVapidKey,
    #[error("the stored key {0} cannot be read")]
    Unreadable(postrider_core::KeyId),
    #[error("there are {found} keys, and {allowed} are allowed")]
    TooMany { quota: &'static str, found: u64, allowed: u64 },
    #[error("there were too many rotations in the last minute")]
    TooOften { wait: std::time::Duration },
    #[error("too many sign-in codes of {of} wait to be used")]
    TooManyCodes { of: &'static str, wait: std::time::Duration },
    #[error("the document {0} cannot be read")]
    UnreadableDocument(String),
}
