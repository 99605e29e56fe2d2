//! An extra certificate authority that is trusted for some hosts only.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Whether a host is one of these: a name, or `*.example.com` for all names below.
pub(super) fn is_among(hosts: &[String], host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    hosts.iter().any(|pattern| match pattern.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => *pattern == host,
    })
}

/// Chooses the trusted authorities by the host.
#[derive(Debug)]
pub(super) struct ScopedVerifier {
    /// In lower case.
    pub(super) hosts: Vec<String>,
    /// For those hosts.
    pub(super) extended: Arc<WebPkiServerVerifier>,
    /// For all others.
    pub(super) usual: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for ScopedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = match is_among(&self.hosts, &server_name.to_str()) {
            true => &self.extended,
            false => &self.usual,
        };
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_host_or_all_below_a_domain() {
        let hosts = ["hooks.corp.example".to_owned(), "*.internal.example".to_owned()];
        for host in [
            "hooks.corp.example",
            "HOOKS.corp.example.",
            "a.internal.example",
            "a.b.internal.example",
        ] {
            assert!(is_among(&hosts, host), "{host}");
        }
        for host in
            ["corp.example", "internal.example", "evilinternal.example", "hooks.corp.example.evil"]
        {
            assert!(!is_among(&hosts, host), "{host}");
        }
    }
}
