//! Seals and opens texts with a tenant's data key: AES-256-GCM. Every start of a process derives a key of its own and
//! counts its nonces, so that no nonce repeats, however much is sealed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::TenantId;
use postrider_core::ports::store::StoreResult;

use super::master_key::failed;

pub(super) const KEY_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 12;
const SALT_BYTES: usize = 12;
const COUNTER_BYTES: usize = 8;
/// How sealed texts begin. No JSON does.
const MARK: &str = "~1:";
/// Derived keys of earlier starts and other servers that are remembered.
const DERIVED_MAX: usize = 1_024;

/// What a text is. A text that was sealed as one thing is not opened as another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Content,
    Target,
    Recipient,
    Document,
    Entry,
}

impl FieldKind {
    fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Target => "target",
            Self::Recipient => "recipient",
            Self::Document => "document",
            Self::Entry => "entry",
        }
    }
}

/// Why a text cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenError {
    KeyDestroyed,
    Damaged,
}

pub(super) fn is_sealed(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The readable part of a sealed text, and the rest.
pub(super) struct SealedName<'a> {
    pub(super) owner: &'a str,
    pub(super) generation: u32,
    sealed: &'a str,
}

impl<'a> SealedName<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (rest, sealed) = text.strip_prefix(MARK)?.rsplit_once(':')?;
        let (owner, generation) = rest.rsplit_once(':')?;
        Some(Self { owner, generation: generation.parse().ok()?, sealed })
    }
}

/// The data key of one tenant.
pub(super) struct TenantDataKey {
    pub(super) generation: u32,
    secret: hkdf::Prk,
    /// Of this process, for sealing.
    salt: [u8; SALT_BYTES],
    sealing: LessSafeKey,
    sealed: AtomicU64,
    searchable: LessSafeKey,
    search_nonces: hmac::Key,
    derived: RwLock<HashMap<[u8; SALT_BYTES], Arc<LessSafeKey>>>,
}

impl TenantDataKey {
    pub(super) fn new(generation: u32, secret: &[u8; KEY_BYTES]) -> StoreResult<Self> {
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret);
        let salt = random::<SALT_BYTES>()?;
        let nonces = derived_bytes(&secret, &[b"recipient nonces"])?;
        Ok(Self {
            generation,
            salt,
            sealing: derived_key(&secret, &[b"texts", &salt])?,
            sealed: AtomicU64::new(0),
            searchable: derived_key(&secret, &[b"recipients"])?,
            search_nonces: hmac::Key::new(hmac::HMAC_SHA256, &nonces),
            secret,
            derived: RwLock::default(),
        })
    }

    pub(super) fn seal(
        &self,
        owner: &TenantId,
        kind: FieldKind,
        text: &str,
    ) -> StoreResult<String> {
        let number = self.sealed.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = Vec::with_capacity(SALT_BYTES + COUNTER_BYTES + text.len() + 16);
        bytes.extend_from_slice(text.as_bytes());
        let about = about(owner, kind);
        self.sealing
            .seal_in_place_append_tag(
                counted_nonce(number),
                Aad::from(about.as_bytes()),
                &mut bytes,
            )
            .map_err(|_| failed("a text cannot be encrypted"))?;
        Ok(self.named(owner, &[&self.salt, &number, &bytes]))
    }

    /// The same for the same text: its nonce is a keyed hash of it.
    pub(super) fn seal_searchable(&self, owner: &TenantId, text: &str) -> StoreResult<String> {
        let hash = hmac::sign(&self.search_nonces, text.as_bytes());
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&hash.as_ref()[..NONCE_BYTES]);
        let mut bytes = text.as_bytes().to_vec();
        let about = about(owner, FieldKind::Recipient);
        let unique = Nonce::assume_unique_for_key(nonce);
        self.searchable
            .seal_in_place_append_tag(unique, Aad::from(about.as_bytes()), &mut bytes)
            .map_err(|_| failed("a recipient cannot be encrypted"))?;
        Ok(self.named(owner, &[&nonce, &bytes]))
    }

    pub(super) fn open(
        &self,
        owner: &TenantId,
        kind: FieldKind,
        text: &SealedName<'_>,
    ) -> Result<String, OpenError> {
        let bytes = URL_SAFE_NO_PAD.decode(text.sealed).map_err(|_| OpenError::Damaged)?;
        self.opened(owner, kind, bytes).ok_or(OpenError::Damaged)
    }

    fn opened(&self, owner: &TenantId, kind: FieldKind, mut bytes: Vec<u8>) -> Option<String> {
        let about = about(owner, kind);
        let about = Aad::from(about.as_bytes());
        let (start, end) = if kind == FieldKind::Recipient {
            let nonce = Nonce::assume_unique_for_key(*bytes.first_chunk()?);
            let plain = self.searchable.open_in_place(nonce, about, bytes.get_mut(NONCE_BYTES..)?);
            (NONCE_BYTES, NONCE_BYTES + plain.ok()?.len())
        } else {
            let head = SALT_BYTES + COUNTER_BYTES;
            let (salt, rest) = bytes.split_first_chunk::<SALT_BYTES>()?;
            let nonce = counted_nonce(*rest.first_chunk()?);
            let key = self.opening_key(*salt)?;
            let plain = match &key {
                Some(key) => key.open_in_place(nonce, about, bytes.get_mut(head..)?),
                None => self.sealing.open_in_place(nonce, about, bytes.get_mut(head..)?),
            };
            (head, head + plain.ok()?.len())
        };
        bytes.truncate(end);
        bytes.drain(..start);
        String::from_utf8(bytes).ok()
    }

    /// The key of another start; `Some(None)` for this one's.
    #[expect(clippy::option_option, reason = "no key, this process's key, or another one")]
    fn opening_key(&self, salt: [u8; SALT_BYTES]) -> Option<Option<Arc<LessSafeKey>>> {
        if salt == self.salt {
            return Some(None);
        }
        let known = self.derived.read().unwrap_or_else(PoisonError::into_inner).get(&salt).cloned();
        if known.is_some() {
            return Some(known);
        }
        let key = Arc::new(derived_key(&self.secret, &[b"texts", &salt]).ok()?);
        let mut derived = self.derived.write().unwrap_or_else(PoisonError::into_inner);
        if derived.len() >= DERIVED_MAX {
            derived.clear();
        }
        derived.insert(salt, key.clone());
        Some(Some(key))
    }

    fn named(&self, owner: &TenantId, parts: &[&[u8]]) -> String {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut bytes = Vec::with_capacity(length);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let mut text =
            String::with_capacity(MARK.len() + owner.as_str().len() + 12 + length * 4 / 3);
        text.push_str(MARK);
        text.push_str(owner.as_str());
        text.push(':');
        text.push_str(&self.generation.to_string());
        text.push(':');
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        text
    }
}

fn counted_nonce(number: [u8; COUNTER_BYTES]) -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    nonce[NONCE_BYTES - COUNTER_BYTES..].copy_from_slice(&number);
    Nonce::assume_unique_for_key(nonce)
}

/// Binds a sealed text to its tenant and its kind.
fn about(owner: &TenantId, kind: FieldKind) -> String {
    let mut text = String::with_capacity(owner.as_str().len() + 12);
    text.push_str(kind.name());
    text.push(' ');
    text.push_str(owner.as_str());
    text
}

struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

fn derived_bytes(secret: &hkdf::Prk, info: &[&[u8]]) -> StoreResult<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    let expanded = secret.expand(info, KeyLength).and_then(|expanded| expanded.fill(&mut bytes));
    expanded.map_err(|_| failed("a key cannot be derived"))?;
    Ok(bytes)
}

fn derived_key(secret: &hkdf::Prk, info: &[&[u8]]) -> StoreResult<LessSafeKey> {
    let bytes = derived_bytes(secret, info)?;
    let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| failed("a key cannot be made"))?;
    Ok(LessSafeKey::new(key))
}

pub(super) fn random<const N: usize>() -> StoreResult<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| failed("the system gives no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> TenantId {
        TenantId::new("acme")
    }

    fn open(
        key: &TenantDataKey,
        owner: &TenantId,
        kind: FieldKind,
        text: &str,
    ) -> Result<String, OpenError> {
        key.open(owner, kind, &SealedName::parse(text).ok_or(OpenError::Damaged)?)
    }

    #[test]
    fn what_is_sealed_is_opened_also_after_a_restart_and_never_looks_the_same() {
        let [first, second] = [(); 2].map(|()| TenantDataKey::new(3, &[7; 32]).unwrap());
        let sealed = first.seal(&acme(), FieldKind::Content, r#"{"title":"Hello"}"#).unwrap();
        let again = first.seal(&acme(), FieldKind::Content, r#"{"title":"Hello"}"#).unwrap();
        assert!(sealed != again && sealed.starts_with("~1:acme:3:") && !sealed.contains("Hello"));
        for key in [&first, &second, &second] {
            let opened = open(key, &acme(), FieldKind::Content, &sealed);
            assert_eq!(opened.as_deref(), Ok(r#"{"title":"Hello"}"#));
        }
        assert!(is_sealed(&sealed) && !is_sealed("{}"));
    }

    #[test]
    fn a_recipient_can_be_searched_for() {
        let [first, second] = [(); 2].map(|()| TenantDataKey::new(1, &[7; 32]).unwrap());
        let sealed = first.seal_searchable(&acme(), "ada@example.com").unwrap();
        assert_eq!(second.seal_searchable(&acme(), "ada@example.com").unwrap(), sealed);
        assert_ne!(second.seal_searchable(&acme(), "bob@example.com").unwrap(), sealed);
        let opened = open(&second, &acme(), FieldKind::Recipient, &sealed);
        assert_eq!(opened.as_deref(), Ok("ada@example.com"));
    }

    #[test]
    fn a_text_of_another_tenant_kind_or_key_is_not_opened() {
        let key = TenantDataKey::new(1, &[7; 32]).unwrap();
        let sealed = key.seal(&acme(), FieldKind::Content, "text").unwrap();
        let other = TenantDataKey::new(1, &[8; 32]).unwrap();
        assert_eq!(open(&other, &acme(), FieldKind::Content, &sealed), Err(OpenError::Damaged));
        assert_eq!(open(&key, &acme(), FieldKind::Target, &sealed), Err(OpenError::Damaged));
        let shop = TenantId::new("shop");
        assert_eq!(open(&key, &shop, FieldKind::Content, &sealed), Err(OpenError::Damaged));
        for wrong in
            ["~1:", "~1:acme:1:", "~1:acme:1:!!", &sealed[..sealed.len() - 4], "~1:acme:x:AA"]
        {
            assert_eq!(
                open(&key, &acme(), FieldKind::Content, wrong),
                Err(OpenError::Damaged),
                "{wrong}"
            );
        }
    }
}
