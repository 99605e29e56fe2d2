//! Keys as documents of the store: their names and their JSON. Shows no secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{KeyId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::KeyError;

/// An API key is `key/api/ID`.
pub(super) const API_KEYS: &str = "key/api/";
/// The keys of one tenant and kind are `key/signing/TENANT/KIND`.
pub(super) const SIGNING_KEYS: &str = "key/signing/";
/// Stands for no tenant in a name.
const NO_TENANT: &str = "-";

/// What a caller may do with an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Everything, for every tenant.
    Admin,
    /// Send, read and act, within one tenant.
    Tenant,
    /// Read, within one tenant.
    Read,
    /// Read, also stored bodies, within one tenant.
    Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: Box<str>,
    pub scope: KeyScope,
    /// SHA-256 of the secret. The secret itself is shown once and not stored.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct ApiKeyDocument {
    tenant: TenantId,
    name: Box<str>,
    scope: KeyScope,
    /// Base64.
    secret_hash: String,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

pub(super) fn api_key_name(id: KeyId) -> String {
    format!("{API_KEYS}{id}")
}

pub(super) fn api_key_text(key: &ApiKey) -> Result<String, KeyError> {
    let document = ApiKeyDocument {
        tenant: key.tenant.clone(),
        name: key.name.clone(),
        scope: key.scope,
        secret_hash: STANDARD.encode(key.secret_hash),
        created_at: key.created_at,
        revoked_at: key.revoked_at,
    };
    serde_json::to_string(&document).map_err(|_| KeyError::UnreadableDocument(api_key_name(key.id)))
}

pub(super) fn api_key_id(name: &str) -> Option<KeyId> {
    name.strip_prefix(API_KEYS)?.parse().ok()
}

pub(super) fn api_key(name: &str, text: &str) -> Result<ApiKey, KeyError> {
    let read = || {
        let found: ApiKeyDocument = serde_json::from_str(text).ok()?;
        Some(ApiKey {
            id: api_key_id(name)?,
            tenant: found.tenant,
            name: found.name,
            scope: found.scope,
            secret_hash: STANDARD.decode(found.secret_hash).ok()?.try_into().ok()?,
            created_at: found.created_at,
            revoked_at: found.revoked_at,
        })
    };
    read().ok_or_else(|| KeyError::UnreadableDocument(name.to_owned()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SigningKind {
    /// P-256 private key, PKCS#8.
    Vapid,
    /// Standard Webhooks secret: the raw bytes behind `whsec_`.
    Webhook,
    /// Key under which endpoints are hashed. Belongs to no tenant.
    Hash,
}

impl SigningKind {
    const ALL: [Self; 3] = [Self::Vapid, Self::Webhook, Self::Hash];

    fn name(self) -> &'static str {
        match self {
            Self::Vapid => "vapid",
            Self::Webhook => "webhook",
            Self::Hash => "hash",
        }
    }
}

/// A key that signs for us.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SigningKey {
    pub(super) id: KeyId,
    #[serde(with = "base64_text")]
    pub(super) secret: Vec<u8>,
    pub(super) created_at: Timestamp,
    /// When it stopped being the active one.
    pub(super) retired_at: Option<Timestamp>,
}

impl SigningKey {
    pub(super) fn is_active(&self) -> bool {
        self.retired_at.is_none()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// All keys of one tenant and kind, so that a rotation is one write.
#[derive(Serialize, Deserialize)]
struct SigningKeysDocument {
    keys: Vec<SigningKey>,
}

pub(super) fn signing_keys_name(tenant: &TenantId, kind: SigningKind) -> String {
    let tenant = Some(tenant.as_str()).filter(|name| !name.is_empty()).unwrap_or(NO_TENANT);
    format!("{SIGNING_KEYS}{tenant}/{}", kind.name())
}

pub(super) fn signing_keys_owner(name: &str) -> Option<(TenantId, SigningKind)> {
    let (tenant, kind) = name.strip_prefix(SIGNING_KEYS)?.rsplit_once('/')?;
    let kind = SigningKind::ALL.into_iter().find(|known| known.name() == kind)?;
    let is_of_tenant = kind != SigningKind::Hash;
    Some((TenantId::new(if is_of_tenant { tenant } else { "" }), kind))
}

pub(super) fn signing_keys_text(name: &str, keys: &[SigningKey]) -> Result<String, KeyError> {
    let document = SigningKeysDocument { keys: keys.to_vec() };
    serde_json::to_string(&document).map_err(|_| KeyError::UnreadableDocument(name.to_owned()))
}

pub(super) fn signing_keys(name: &str, text: &str) -> Result<Vec<SigningKey>, KeyError> {
    let found: Result<SigningKeysDocument, _> = serde_json::from_str(text);
    found.map(|document| document.keys).map_err(|_| KeyError::UnreadableDocument(name.to_owned()))
}

mod base64_text {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        STANDARD.encode(bytes).serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        // The cause would name a character of the secret.
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(|_| serde::de::Error::custom("not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: KeyId = KeyId(0x0190_0000_0000_7000_8000_0000_0000_0001);

    #[test]
    fn an_api_key_is_read_as_it_was_written() {
        let key = ApiKey {
            id: ID,
            tenant: TenantId::new("acme"),
            name: "ci".into(),
            scope: KeyScope::Read,
            secret_hash: [7; 32],
            created_at: Timestamp(5),
            revoked_at: Some(Timestamp(9)),
        };
        let (name, text) = (api_key_name(ID), api_key_text(&key).unwrap());
        assert_eq!(api_key(&name, &text).unwrap(), key);
        assert_eq!(api_key_id("key/api/other"), None);
        let short = text.replace("BwcH", "");
        let error = api_key(&name, &short).unwrap_err().to_string();
        assert_eq!(error, format!("the document {name} cannot be read"));
    }

    #[test]
    fn signing_keys_are_read_as_they_were_written_under_the_name_of_their_owner() {
        let key = |secret: u8, retired_at| SigningKey {
            id: ID,
            secret: vec![secret; 40],
            created_at: Timestamp(5),
            retired_at,
        };
        let keys = vec![key(1, Some(Timestamp(9))), key(2, None)];
        for (tenant, kind, expected) in [
            ("acme", SigningKind::Vapid, "key/signing/acme/vapid"),
            ("a/b", SigningKind::Webhook, "key/signing/a/b/webhook"),
            ("", SigningKind::Hash, "key/signing/-/hash"),
        ] {
            let tenant = TenantId::new(tenant);
            let name = signing_keys_name(&tenant, kind);
            assert_eq!(name, expected);
            assert_eq!(signing_keys_owner(&name), Some((tenant, kind)));
            let text = signing_keys_text(&name, &keys).unwrap();
            assert_eq!(signing_keys(&name, &text).unwrap(), keys);
            assert!(!format!("{keys:?}").contains("AQEB"));
        }
        assert_eq!(signing_keys_owner("key/signing/acme/rsa"), None);
    }
}
