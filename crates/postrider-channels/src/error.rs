//! What can be wrong with the material that channels are built from. Nothing here happens during a
//! delivery: there, failure is an outcome.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the certificates in {path}: {source}")]
    CaFile { path: PathBuf, source: std::io::Error },
    #[error(
        "no certificate found in {path}: a PEM file with at least one CERTIFICATE block is needed"
    )]
    CaFileEmpty { path: PathBuf },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("not a P-256 private key: {0}")]
    VapidKey(&'static str),
    #[error(
        "VAPID subject {found:?} is not usable: give a mailto: address or an https: URL of a real host, e.g. mailto:ops@example.com"
    )]
    VapidSubject { found: String },
    #[error(
        "not a webhook secret: whsec_ followed by base64 of 24 to 64 bytes is needed, found {0}"
    )]
    WebhookSecret(&'static str),
    #[error(
        "not a DKIM key: a PEM file with an RSA (2048 bits or more) or Ed25519 private key is needed, found {0}"
    )]
    DkimKey(&'static str),
    #[error("not an endpoint: {allowed} is needed")]
    Endpoint { allowed: &'static str },
    #[error("accounts.{name}: {source}")]
    Account { name: String, source: serde_json::Error },
    #[error("the cryptographic library failed")]
    Crypto,
}
