//! Signed tokens (RFC 7515) from a header and claims that are already JSON. Knows no key and checks no
//! claim.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Error;

/// `header.claims.signature`, each in base64url without padding.
pub(crate) fn signed<S: AsRef<[u8]>>(
    header: &str,
    claims: &str,
    sign: impl FnOnce(&[u8]) -> Result<S, Error>,
) -> Result<String, Error> {
    let mut jwt = URL_SAFE_NO_PAD.encode(header);
    jwt.push('.');
    URL_SAFE_NO_PAD.encode_string(claims, &mut jwt);
    let signature = sign(jwt.as_bytes())?;
    jwt.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut jwt);
    Ok(jwt)
}
