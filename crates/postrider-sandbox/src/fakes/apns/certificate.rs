//! Certificates for accounts of the fake APNs (`GET /sandbox/apns/certificate`). They are checked for issuer, app and
//! environment.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::correlation::hash;

const ISSUED_MAX: usize = 1024;

/// Where a certificate is valid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateEnvironment {
    Production,
    Sandbox,
    #[default]
    Both,
}

/// Which certificate to issue, from the query.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateRequest {
    /// The app's bundle id.
    pub topic: String,
    pub environment: CertificateEnvironment,
}

impl Default for CertificateRequest {
    fn default() -> Self {
        Self { topic: "com.example.app".to_owned(), environment: CertificateEnvironment::Both }
    }
}

impl CertificateRequest {
    pub(super) fn from_query(query: &str) -> anyhow::Result<Self> {
        let fields = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        let fields = fields.map(|(name, value)| (name, Value::String(value))).collect();
        Ok(serde_json::from_value(Value::Object(fields))?)
    }
}

#[derive(Default)]
pub(super) struct FakeApnsCertificates {
    issuer: OnceLock<Option<CertifiedIssuer<'static, KeyPair>>>,
    /// By digest.
    issued: Mutex<HashMap<u64, CertificateRequest>>,
}

impl FakeApnsCertificates {
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
    pub(super) fn issue(&self, request: &CertificateRequest) -> anyhow::Result<Value> {
        let issuer = self.issuer().context("no authority could be made")?;
        let mut params = CertificateParams::default();
        let name = format!("Apple Push Services: {}", request.topic);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() >= ISSUED_MAX {
            issued.clear();
        }
        issued.insert(hash(0, certificate.der()), request.clone());
        let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
        Ok(json!({ "topic": request.topic, "pem": pem }))
    }

    /// `sandbox` says which environment the request was sent to.
    pub(super) fn check(
        &self,
        certificate: &[u8],
        sandbox: bool,
        topic: Option<&str>,
    ) -> Result<(), (u16, &'static str)> {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let known = issued.get(&hash(0, certificate)).ok_or((403, "BadCertificate"))?;
        let (production, development) =
            (CertificateEnvironment::Production, CertificateEnvironment::Sandbox);
        if known.environment == if sandbox { production } else { development } {
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
