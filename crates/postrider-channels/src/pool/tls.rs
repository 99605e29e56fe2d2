//! The TLS settings that all connections share, so that sessions are resumed across them.

use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::PoolConfig;
use super::scoped_roots::ScopedVerifier;
use crate::Error;

const SESSIONS_KEPT: usize = 1024;
/// The protocols that we offer, best first.
const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// A client certificate with its private key.
pub struct ClientCertificate {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

pub(super) fn client_config(
    config: &PoolConfig,
    identity: Option<&ClientCertificate>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let tls = match (&config.extra_ca_file, config.extra_ca_hosts.is_empty()) {
        (Some(_), false) => {
            tls.dangerous().with_custom_certificate_verifier(Arc::new(scoped(config, &provider)?))
        }
        _ => tls.with_root_certificates(roots(config, true)?),
    };
    let mut tls = match identity {
        None => tls.with_no_client_auth(),
        Some(own) => tls.with_client_auth_cert(own.chain.clone(), own.key.clone_key())?,
    };
    tls.alpn_protocols = ALPN.iter().map(|name| name.as_bytes().to_vec()).collect();
    tls.resumption = Resumption::in_memory_sessions(SESSIONS_KEPT);
    Ok(tls)
}

/// The extra authorities count only for some hosts.
fn scoped(config: &PoolConfig, provider: &Arc<CryptoProvider>) -> Result<ScopedVerifier, Error> {
    let verifier = |with_extra| -> Result<_, Error> {
        let roots = Arc::new(roots(config, with_extra)?);
        WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))
    };
    let hosts = config.extra_ca_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    Ok(ScopedVerifier { hosts, extended: verifier(true)?, usual: verifier(false)? })
}

fn roots(config: &PoolConfig, with_extra: bool) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = config.extra_ca_file.as_ref().filter(|_| with_extra) {
        let text =
            std::fs::read(path).map_err(|source| Error::CaFile { path: path.clone(), source })?;
        let certs: Vec<_> = CertificateDer::pem_slice_iter(&text).flatten().collect();
        let (added, _) = roots.add_parsable_certificates(certs);
        if added == 0 {
            return Err(Error::CaFileEmpty { path: path.clone() });
        }
    }
    if roots.is_empty() {
        tracing::warn!("no trusted root certificates found: every HTTPS target will be refused");
    }
    Ok(roots)
}

/// Describes the error without naming the host.
pub(super) fn describe(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let text = match inner {
        Some(rustls::Error::InvalidCertificate(error)) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet"
            }
            CertificateError::UnknownIssuer => "the certificate's issuer is not trusted",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another name"
            }
            CertificateError::Revoked => "the certificate was revoked",
            _ => "the certificate is not valid",
        },
        Some(rustls::Error::AlertReceived(alert)) => return format!("the peer said {alert:?}"),
        Some(_) => "the TLS handshake failed",
        None => return error.kind().to_string(),
    };
    text.to_owned()
}
