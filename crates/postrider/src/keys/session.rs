//! Sign-in of the status page. A one-time code, made with a key, is exchanged for a session: a text that stands for
//! that key until a time. So no link has a key, and a session ends with its key. Codes are in the store, so that any
//! node can exchange them; sessions are signed and stored nowhere.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::ports::store::{DocumentVersion, PutResult, Store};
use postrider_core::{KeyId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyError, text};

const CODES: &str = "sign-in/";
const CODE_PREFIX: &str = "code_";
const SESSION_PREFIX: &str = "prs_";
/// Codes that wait to be used, of all callers.
const CODES_MAX: usize = 1_000;
/// What a session says: the key and the end.
const CLAIM_BYTES: usize = 16 + 8;
const MAC_BYTES: usize = 32;

/// What a code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIn {
    /// The key that made the code; absent for the configured admin key.
    pub(crate) key: Option<u128>,
}

/// Makes a code that works once. `None` if too many wait to be used.
pub(crate) async fn make_code(
    store: &dyn Store,
    key: Option<KeyId>,
    valid: Duration,
) -> Result<Option<String>, KeyError> {
    if store.documents(CODES).await?.len() >= CODES_MAX {
        return Ok(None);
    }
    let code = format!("{CODE_PREFIX}{}", text::new_secret()?);
    let name = document_name(&code);
    let json = serde_json::to_string(&SignIn { key: key.map(|key| key.0) })
        .map_err(|_| KeyError::UnreadableDocument(name.clone()))?;
    let new = Some(DocumentVersion::NONE);
    store.put_document(&name, Some(&json), new, Some(valid)).await?;
    Ok(Some(code))
}

/// Uses a code up; `None` if it is wrong, too old or used before.
pub(crate) async fn take_code(store: &dyn Store, code: &str) -> Result<Option<SignIn>, KeyError> {
    if !code.starts_with(CODE_PREFIX) {
        return Ok(None);
    }
    let name = document_name(code);
    let found = store.documents(&name).await?.into_iter().find(|document| document.name == name);
    let Some(document) = found else { return Ok(None) };
    let Some(sign_in) = document.json.and_then(|json| serde_json::from_str(&json).ok()) else {
        return Ok(None);
    };
    // Of two who use it at the same time, one deletes it.
    let deleted = store.put_document(&name, None, Some(document.version), None).await?;
    Ok(matches!(deleted, PutResult::Written(_)).then_some(sign_in))
}

/// The store does not have the code itself.
fn document_name(code: &str) -> String {
    let hash = text::hash(code);
    format!("{CODES}{}", URL_SAFE_NO_PAD.encode(hash))
}

/// Signs sessions, the same on all nodes of a store.
#[derive(Debug)]
pub(crate) struct SessionSigner(hmac::Key);

impl SessionSigner {
    pub(crate) fn new(secret: &[u8]) -> Self {
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"sessions");
        Self(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    /// A session of a key; without one, of the configured admin key.
    pub(crate) fn session(&self, key: Option<KeyId>, until: Timestamp) -> String {
        let mut bytes = key.map_or(0, |key| key.0).to_be_bytes().to_vec();
        bytes.extend_from_slice(&until.0.to_be_bytes());
        let mac = hmac::sign(&self.0, &bytes);
        bytes.extend_from_slice(mac.as_ref());
        format!("{SESSION_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The key and the end of a session; `None` if the text is no session of ours.
    pub(crate) fn read(&self, text: &str) -> Option<(Option<KeyId>, Timestamp)> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(SESSION_PREFIX)?).ok()?;
        let (claim, mac) = bytes.split_at_checked(CLAIM_BYTES)?;
        if mac.len() != MAC_BYTES || hmac::verify(&self.0, claim, mac).is_err() {
            return None;
        }
        let (key, until) = claim.split_at(16);
        let key = u128::from_be_bytes(key.try_into().ok()?);
        let until = Timestamp(i64::from_be_bytes(until.try_into().ok()?));
        Some(((key != 0).then_some(KeyId(key)), until))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_store::{ManualClock, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn a_code_works_once_and_for_its_time() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let store = MemoryStore::new(clock.clone());
        let make = async || make_code(&store, Some(KeyId(7)), Duration::from_secs(60)).await;
        let code = make().await.unwrap().unwrap();
        assert_eq!(take_code(&store, "code_other").await.unwrap(), None);
        assert_eq!(take_code(&store, &code).await.unwrap(), Some(SignIn { key: Some(7) }));
        assert_eq!(take_code(&store, &code).await.unwrap(), None, "it was used");
        let late = make().await.unwrap().unwrap();
        clock.advance(Duration::from_secs(61));
        assert_eq!(take_code(&store, &late).await.unwrap(), None, "its time is over");
    }

    #[test]
    fn only_a_session_of_ours_is_read() {
        let signer = SessionSigner::new(b"secret");
        let session = signer.session(Some(KeyId(7)), Timestamp(99));
        assert_eq!(signer.read(&session), Some((Some(KeyId(7)), Timestamp(99))));
        assert_eq!(SessionSigner::new(b"other").read(&session), None);
        let mut forged = session.into_bytes();
        forged[8] ^= 1;
        assert_eq!(signer.read(&String::from_utf8(forged).unwrap()), None);
        for text in ["prs_", "prs_AAAA", "prk_x", ""] {
            assert_eq!(signer.read(text), None, "{text}");
        }
    }
}
