//! Certificates of the fake Apple, for accounts that identify themselves by one: given out by `GET
//! /sandbox/apns/certificate`, asked for in the TLS handshake and judged by who made them, for which
//! app and for which environment. Whoever shows none is judged by their provider token.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use serde_json::{Value, json};

use super::correlation::hash;

const ISSUED_MAX: usize = 1024;

/// Where a certificate is good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Environment {
    Production,
    Sandbox,
    #[default]
    Both,
}

/// The wish for a certificate, as query.
#[derive(Debug, Clone)]
pub struct CertificateWish {
    /// The app's bundle id.
    pub topic: String,
    pub environment: Environment,
}

impl Default for CertificateWish {
    fn default() -> Self {
        Self { topic: "com.example.app".to_owned(), environment: Environment::Both }
    }
}

impl CertificateWish {
    pub(super) fn from_query(query: &str) -> anyhow::Result<Self> {
        let mut wish = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("topic", topic) => wish.topic = topic.to_owned(),
                ("environment", "production") => wish.environment = Environment::Production,
                ("environment", "sandbox") => wish.environment = Environment::Sandbox,
                ("environment", "both") => wish.environment = Environment::Both,
                ("environment", other) => {
                    anyhow::bail!("environment is {other:?}: production, sandbox or both")
                }
                (other, _) => anyhow::bail!("unknown field {other:?}: topic or environment"),
            }
        }
        Ok(wish)
    }
}

#[derive(Default)]
pub(super) struct Certificates {
    issuer: OnceLock<Option<CertifiedIssuer<'static, KeyPair>>>,
    /// By digest.
    issued: Mutex<HashMap<u64, CertificateWish>>,
}

impl Certificates {
    fn issuer(&self) -> Option<&CertifiedIssuer<'static, KeyPair>> {
        let make = || {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "Postrider sandbox push authority");
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
            CertifiedIssuer::self_signed(params, KeyPair::generate().ok()?).ok()
        };
        self.issuer.get_or_init(make).as_ref()
    }

    /// A certificate with its key, as one PEM file.
    pub(super) fn issue(&self, wish: &CertificateWish) -> anyhow::Result<Value> {
        let issuer = self.issuer().context("no authority could be made")?;
        let mut params = CertificateParams::default();
        let name = format!("Apple Push Services: {}", wish.topic);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() >= ISSUED_MAX {
            issued.clear();
        }
        issued.insert(hash(0, certificate.der()), wish.clone());
        let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
        Ok(json!({ "topic": wish.topic, "pem": pem }))
    }

    /// Status and reason of a refusal. `sandbox` says which environment was asked.
    pub(super) fn check(
        &self,
        certificate: &[u8],
        sandbox: bool,
        topic: Option<&str>,
    ) -> Result<(), (u16, &'static str)> {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let known = issued.get(&hash(0, certificate)).ok_or((403, "BadCertificate"))?;
        let other = if sandbox { Environment::Production } else { Environment::Sandbox };
        if known.environment == other {
            return Err((403, "BadCertificateEnvironment"));
        }
        let suits = |topic: &str| {
            topic
                .strip_prefix(&*known.topic)
                .is_some_and(|suffix| matches!(suffix, "") || suffix.starts_with('.'))
        };
        topic.is_none_or(suits).then_some(()).ok_or((400, "TopicDisallowed"))
    }
}

/// Asks for a certificate, and has the other side prove that the key is theirs; whose it is, and
/// whether it is needed, is decided by request.
#[derive(Debug)]
pub(super) struct Asking(WebPkiSupportedAlgorithms);

impl Default for Asking {
    fn default() -> Self {
        Self(aws_lc_rs::default_provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for Asking {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
