//! Sign-in of the status page. A one-time code, made with a key, is exchanged for a session: a text that stands for
//! that key until a time. So no link has a key, and a session ends with its key. Codes are in the store, so that any
//! node can exchange them; sessions are signed and stored nowhere.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::ports::store::{DocumentVersion, PutResult, Store};
use postrider_core::{KeyId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::scopes::ScopeSet;
use super::{KeyError, text};

const CODES: &str = "sign-in/";
const CODE_PREFIX: &str = "code_";
pub(crate) const SESSION_PREFIX: &str = "prs_";
/// A session for one tenant, which a link has.
pub(crate) const PORTAL_PREFIX: &str = "prl_";
/// Codes that wait to be used: of one key, of the keys of one tenant, and of those of all tenants. Keys for all tenants
/// are the operator's; only the first of these bounds is theirs.
const KEY_CODES_MAX: usize = 20;
const TENANT_CODES_MAX: usize = 200;
const CODES_MAX: usize = 10_000;
const MAC_BYTES: usize = 32;

/// What a code stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignIn {
    /// The key that made the code; absent for the configured admin key.
    pub(crate) key: Option<u128>,
    /// The tenant of the key; absent for a key for all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<TenantId>,
}

/// Makes codes, one at a time, so that they are counted right.
#[derive(Debug, Default)]
pub(crate) struct SignInCodes(tokio::sync::Mutex<()>);

impl SignInCodes {
    /// Makes a code that works once.
    pub(crate) async fn make(
        &self,
        store: &dyn Store,
        sign_in: &SignIn,
        valid: Duration,
    ) -> Result<String, KeyError> {
        let _one = self.0.lock().await;
        check_room(store, sign_in, valid).await?;
        let code = format!("{CODE_PREFIX}{}", text::new_secret()?);
        let name = document_name(&code);
        let json = serde_json::to_string(sign_in)
            .map_err(|_| KeyError::UnreadableDocument(name.clone()))?;
        let new = Some(DocumentVersion::NONE);
        store.put_document(&name, Some(&json), new, Some(valid)).await?;
        Ok(code)
    }
}

async fn check_room(store: &dyn Store, new: &SignIn, wait: Duration) -> Result<(), KeyError> {
    let documents = store.documents(CODES).await?;
    let codes = documents.into_iter().filter_map(|document| document.json);
    let codes: Vec<SignIn> = codes.filter_map(|json| serde_json::from_str(&json).ok()).collect();
    let count =
        |is_counted: &dyn Fn(&SignIn) -> bool| codes.iter().filter(|code| is_counted(code)).count();
    let check = |found: usize, max: usize, of: &'static str| match found < max {
        true => Ok(()),
        false => Err(KeyError::TooManyCodes { of, wait }),
    };
    check(count(&|code| code.key == new.key), KEY_CODES_MAX, "this key")?;
    if new.tenant.is_some() {
        let of_tenant = count(&|code| code.tenant == new.tenant);
        check(of_tenant, TENANT_CODES_MAX, "the keys of this tenant")?;
        check(count(&|code| code.tenant.is_some()), CODES_MAX, "all tenants")?;
    }
    Ok(())
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

/// What a session may at most, with the rights of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionReach {
    pub(crate) tenant: TenantId,
    pub(crate) scopes: ScopeSet,
}

/// What a session says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionClaim {
    /// Absent for the configured admin key.
    pub(crate) key: Option<KeyId>,
    pub(crate) until: Timestamp,
    /// Absent if it has all rights of its key.
    pub(crate) reach: Option<SessionReach>,
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
    pub(crate) fn session(&self, claim: &SessionClaim) -> String {
        let mut bytes = claim.key.map_or(0, |key| key.0).to_be_bytes().to_vec();
        bytes.extend_from_slice(&claim.until.0.to_be_bytes());
        let prefix = match &claim.reach {
            None => SESSION_PREFIX,
            Some(reach) => {
                bytes.push(reach.scopes.bits());
                bytes.extend_from_slice(reach.tenant.as_str().as_bytes());
                PORTAL_PREFIX
            }
        };
        let mac = self.mac(prefix, &bytes);
        bytes.extend_from_slice(mac.as_ref());
        format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    fn mac(&self, prefix: &str, claim: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        // Sessions of older versions have no prefix in what is signed.
        if prefix != SESSION_PREFIX {
            context.update(prefix.as_bytes());
        }
        context.update(claim);
        context.sign()
    }

    /// What a session says; `None` if the text is no session of ours.
    pub(crate) fn read(&self, text: &str) -> Option<SessionClaim> {
        let prefix = [SESSION_PREFIX, PORTAL_PREFIX].into_iter().find(|p| text.starts_with(p))?;
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(prefix)?).ok()?;
        let (claim, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        let expected = self.mac(prefix, claim);
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), mac).ok()?;
        let (key, rest) = claim.split_at_checked(16)?;
        let (until, rest) = rest.split_at_checked(8)?;
        let reach = match (prefix == PORTAL_PREFIX, rest.split_first()) {
            (false, None) => None,
            (true, Some((scopes, tenant))) => Some(SessionReach {
                tenant: TenantId::new(std::str::from_utf8(tenant).ok()?),
                scopes: ScopeSet::from_bits(*scopes)?,
            }),
            _ => return None,
        };
        let key = u128::from_be_bytes(key.try_into().ok()?);
        let until = Timestamp(i64::from_be_bytes(until.try_into().ok()?));
        Some(SessionClaim { key: (key != 0).then_some(KeyId(key)), until, reach })
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
        let (codes, by) = (SignInCodes::default(), SignIn { key: Some(7), tenant: None });
        let make = async || codes.make(&store, &by, Duration::from_secs(60)).await;
        let code = make().await.unwrap();
        assert_eq!(take_code(&store, "code_other").await.unwrap(), None);
        assert_eq!(take_code(&store, &code).await.unwrap(), Some(by.clone()));
        assert_eq!(take_code(&store, &code).await.unwrap(), None, "it was used");
        let late = make().await.unwrap();
        clock.advance(Duration::from_secs(61));
        assert_eq!(take_code(&store, &late).await.unwrap(), None, "its time is over");
    }

    #[test]
    fn only_a_session_of_ours_is_read() {
        let signer = SessionSigner::new(b"secret");
        let all = SessionClaim { key: Some(KeyId(7)), until: Timestamp(99), reach: None };
        let scopes = ScopeSet::parse(["read"]).unwrap();
        let reach = Some(SessionReach { tenant: TenantId::new("acme"), scopes });
        let of_tenant = SessionClaim { reach, ..all.clone() };
        for claim in [all, of_tenant] {
            let session = signer.session(&claim);
            assert_eq!(signer.read(&session), Some(claim));
            assert_eq!(SessionSigner::new(b"other").read(&session), None);
            let mut forged = session.clone().into_bytes();
            forged[8] ^= 1;
            assert_eq!(signer.read(&String::from_utf8(forged).unwrap()), None);
            // One kind is not read as the other.
            let swapped = match session.strip_prefix(SESSION_PREFIX) {
                Some(rest) => format!("{PORTAL_PREFIX}{rest}"),
                None => session.replacen(PORTAL_PREFIX, SESSION_PREFIX, 1),
            };
            assert_eq!(signer.read(&swapped), None);
        }
        for text in ["prs_", "prs_AAAA", "prl_", "prk_x", ""] {
            assert_eq!(signer.read(text), None, "{text}");
        }
    }
}
