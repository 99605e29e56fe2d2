//! A certificate authority and a certificate for this machine, made at every start. The keys stay in memory; only the
//! authority's certificate is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

pub(super) struct SandboxIdentity {
    pub ca_pem: String,
    /// For HTTP: asks for a client certificate, but needs none.
    pub server: Arc<ServerConfig>,
    /// For mail.
    pub mail: Arc<ServerConfig>,
}

/// The certificate names `listen`, localhost and the loopback addresses.
pub(super) fn make_identity(listen: IpAddr, host: &str) -> anyhow::Result<SandboxIdentity> {
    let ca = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = leaf_params(listen, host)?.signed_by(&key, &ca)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let chain = vec![leaf.der().clone(), ca.der().clone()];
    let builder = || {
        let provider = Arc::new(aws_lc_rs::default_provider());
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    };
    let mail = builder()?.with_no_client_auth().with_single_cert(chain.clone(), key.clone_key())?;
    let mut server = builder()?
        .with_client_cert_verifier(Arc::new(OptionalClientCertificate::default()))
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(SandboxIdentity { ca_pem: ca.pem(), server: Arc::new(server), mail: Arc::new(mail) })
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Postrider sandbox CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_params(listen: IpAddr, host: &str) -> anyhow::Result<CertificateParams> {
    let mut names = vec!["localhost".to_owned()];
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() && host != "localhost" {
        names.push(host.to_owned());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Postrider sandbox");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let own = Some(listen).filter(|ip| !ip.is_unspecified() && !loopback.contains(ip));
    params.subject_alt_names.extend(loopback.into_iter().chain(own).map(SanType::IpAddress));
    Ok(params)
}

/// Asks for a certificate, accepts clients without one, and checks that the client has the key. A fake decides
/// whether the certificate is valid for a request.
#[derive(Debug)]
pub(super) struct OptionalClientCertificate(WebPkiSupportedAlgorithms);

impl Default for OptionalClientCertificate {
    fn default() -> Self {
        Self(aws_lc_rs::default_provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for OptionalClientCertificate {
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
