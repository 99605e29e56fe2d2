//! Reads JSON Web Tokens, and writes private keys as PEM.

use aws_lc_rs::signature::{UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD_INDIFFERENT as B64;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

pub(super) struct FakeJwt<'a> {
    pub(super) head: Value,
    pub(super) claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> FakeJwt<'a> {
    pub(super) fn read(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let json = |part: &str| serde_json::from_slice(&B64.decode(part).ok()?).ok();
        let signature = B64.decode(signature).ok()?;
        let claims = json(claims).filter(Value::is_object)?;
        Some(Self { head: json(head)?, claims, signed, signature })
    }

    pub(super) fn is_signed_by(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        key: &[u8],
    ) -> bool {
        let key = UnparsedPublicKey::new(algorithm, key);
        key.verify(self.signed.as_bytes(), &self.signature).is_ok()
    }
}

pub(super) fn private_key_pem(der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n")
}
