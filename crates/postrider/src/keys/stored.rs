//! Keys as documents of the store: their names and their JSON. Shows no secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{KeyId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::KeyError;
use super::scopes::ScopeSet;
use crate::ip_network::IpNetwork;

/// An API key is `key/api/ID`.
pub(super) const API_KEYS: &str = "key/api/";
/// When an API key was last used is `key/used/ID`.
pub(super) const KEY_USES: &str = "key/used/";
/// The keys of one tenant and kind are `key/signing/TENANT/KIND`.
pub(super) const SIGNING_KEYS: &str = "key/signing/";
/// Stands for no tenant in a name.
const NO_TENANT: &str = "-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    /// Its tenant. A key for all tenants acts for this one where a call names none.
    pub tenant: TenantId,
    pub all_tenants: bool,
    pub name: Box<str>,
    pub scopes: ScopeSet,
    /// It works only from here; from everywhere if there is none.
    pub networks: Vec<IpNetwork>,
    /// SHA-256 of the secret. The secret itself is shown once and not stored.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct ApiKeyDocument {
    tenant: TenantId,
    name: Box<str>,
    /// Older versions wrote only this: `admin` (for all tenants), `tenant`, `read` or `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<ScopeSet>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all_tenants: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<IpNetwork>,
    /// Base64.
    secret_hash: String,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl ApiKeyDocument {
    fn rights(&self) -> Option<(ScopeSet, bool)> {
        match (self.scopes, self.scope.as_deref()) {
            (Some(scopes), _) => Some((scopes, self.all_tenants)),
            (None, Some(old)) => {
                let scopes = ScopeSet::parse([old]).ok()?;
                Some((scopes, scopes == ScopeSet::ADMIN))
            }
            (None, None) => None,
        }
    }
}

pub(super) fn api_key_name(id: KeyId) -> String {
    format!("{API_KEYS}{id}")
}

pub(super) fn api_key_text(key: &ApiKey) -> Result<String, KeyError> {
    let document = ApiKeyDocument {
        tenant: key.tenant.clone(),
        name: key.name.clone(),
        scope: None,
        scopes: Some(key.scopes),
        all_tenants: key.all_tenants,
        networks: key.networks.clone(),
        secret_hash: STANDARD.encode(key.secret_hash),
        created_at: key.created_at,
        expires_at: key.expires_at,
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
        let (scopes, all_tenants) = found.rights()?;
        Some(ApiKey {
            id: api_key_id(name)?,
            tenant: found.tenant,
            all_tenants,
            name: found.name,
            scopes,
            networks: found.networks,
            secret_hash: STANDARD.decode(found.secret_hash).ok()?.try_into().ok()?,
            created_at: found.created_at,
            expires_at: found.expires_at,
            revoked_at: found.revoked_at,
        })
    };
    read().ok_or_else(|| KeyError::UnreadableDocument(name.to_owned()))
}

/// When a key was last used.
#[derive(Serialize, Deserialize)]
struct KeyUseDocument {
    at: Timestamp,
}

pub(super) fn key_use_name(id: KeyId) -> String {
    format!("{KEY_USES}{id}")
}

pub(super) fn key_use_text(at: Timestamp) -> String {
    serde_json::to_string(&KeyUseDocument { at }).unwrap_or_default()
}

/// The key and the time of a document; `None` if it is not readable: the time is only shown.
pub(super) fn key_use(name: &str, text: &str) -> Option<(KeyId, Timestamp)> {
    let found: KeyUseDocument = serde_json::from_str(text).ok()?;
    Some((name.strip_prefix(KEY_USES)?.parse().ok()?, found.at))
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
            all_tenants: true,
            name: "ci".into(),
            scopes: ScopeSet::parse(["send", "read"]).unwrap(),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            secret_hash: [7; 32],
            created_at: Timestamp(5),
            expires_at: Some(Timestamp(8)),
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
    fn a_key_of_an_older_version_keeps_its_rights() {
        for (scope, scopes, all_tenants) in [
            ("admin", "admin", true),
            ("tenant", "send read replay manage", false),
            ("read", "read", false),
            ("content", "content", false),
        ] {
            let hash = STANDARD.encode([7; 32]);
            let text = format!(
                r#"{{"created_at":5,"name":"ci","revoked_at":null,"scope":"{scope}","secret_hash":"{hash}","tenant":"a"}}"#
            );
            let key = api_key(&api_key_name(ID), &text).unwrap();
            assert_eq!(
                (key.scopes.names().join(" "), key.all_tenants),
                (scopes.into(), all_tenants)
            );
            assert_eq!((key.expires_at, key.networks.len()), (None, 0));
        }
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
