//! A Google service account: its key file, and the assertion that it signs to be given a token.

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use postrider_core::Timestamp;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;

use crate::{Error, jwt};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// Google takes no assertion that is valid for longer.
const VALID_FOR: Duration = Duration::from_secs(3600);

pub(super) struct ServiceAccount {
    pub(super) project: Box<str>,
    pub(super) token_uri: Box<str>,
    email: Box<str>,
    key_id: Box<str>,
    key: RsaKeyPair,
}

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    project_id: String,
    private_key_id: String,
    private_key: String,
    client_email: String,
    token_uri: String,
}

impl ServiceAccount {
    /// Reads the JSON key file. The error never repeats any of it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file: KeyFile = serde_json::from_str(text).map_err(|_| {
            "not a service account's key file: JSON with type, project_id, private_key_id, \
             private_key, client_email and token_uri is needed"
        })?;
        if file.kind != "service_account" {
            return Err("its type is not service_account".to_owned());
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes())
            .map_err(|_| "its private_key is not PKCS#8 in PEM")?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
            .map_err(|_| "its private_key is not an RSA key")?;
        Ok(Self {
            project: file.project_id.into(),
            token_uri: file.token_uri.into(),
            email: file.client_email.into(),
            key_id: file.private_key_id.into(),
            key,
        })
    }

    /// What is traded for a token at `token_uri`.
    pub(super) fn assertion(&self, now: Timestamp) -> Result<String, Error> {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id}).to_string();
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now.as_secs(),
            "exp": (now + VALID_FOR).as_secs(),
        });
        jwt::signed(&header, &claims.to_string(), |text| {
            let mut signature = vec![0; self.key.public_modulus_len()];
            self.key
                .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature)
                .map_err(|_| Error::Crypto)?;
            Ok(signature)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_file_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"type":"service_account","project_id":"p","private_key_id":"k","private_key":"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n","client_email":"a@b.example","token_uri":"https://oauth2.example/token"}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("fcm_service_account", &seeds, |answer| {
            if let Ok(text) = std::str::from_utf8(&answer.body) {
                let _ = ServiceAccount::parse(text).is_ok();
            }
        });
    }
}
