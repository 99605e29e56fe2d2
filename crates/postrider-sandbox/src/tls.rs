//! A certificate authority and a certificate for this machine, made at every start. The keys stay in memory; only the
//! authority's certificate is public.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

/// So many certificates are kept.
const CERTIFICATES_MAX: usize = 1 << 16;

pub(super) struct SandboxIdentity {
    pub ca_pem: String,
    /// For HTTP.
    pub server: HttpsIdentity,
    /// For mail.
    pub mail: Arc<ServerConfig>,
}

/// Asks for a client certificate, but needs none. On a socket that listens on all addresses of this machine, each
/// address has a certificate of its own, made by its first connection: any 127.a.b.c is then an origin.
pub(super) struct HttpsIdentity {
    issuer: CertifiedIssuer<'static, KeyPair>,
    key: KeyPair,
    /// Names `listen` and the usual addresses of this machine.
    usual: Arc<ServerConfig>,
    usual_addresses: Vec<IpAddr>,
    others: Mutex<HashMap<IpAddr, Arc<ServerConfig>>>,
}

impl HttpsIdentity {
    /// For a connection that was made to this address.
    pub(super) fn acceptor(&self, address: IpAddr) -> anyhow::Result<TlsAcceptor> {
        if self.usual_addresses.contains(&address) {
            return Ok(Arc::clone(&self.usual).into());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.get(&address) {
            return Ok(Arc::clone(known).into());
        }
        if others.len() >= CERTIFICATES_MAX {
            others.clear();
        }
        let config = Arc::new(self.make(address)?);
        others.insert(address, Arc::clone(&config));
        Ok(config.into())
    }

    fn make(&self, address: IpAddr) -> anyhow::Result<ServerConfig> {
        let leaf = leaf_params(&[address], "localhost")?.signed_by(&self.key, &self.issuer)?;
        let chain = vec![leaf.der().clone(), self.issuer.der().clone()];
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let key = aws_lc_rs::sign::any_supported_type(&key)?;
        let mut config = (*self.usual).clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
        Ok(config)
    }
}

/// The certificate names `listen`, localhost and the loopback addresses.
pub(super) fn make_identity(listen: IpAddr, host: &str) -> anyhow::Result<SandboxIdentity> {
    let ca = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let addresses = usual_addresses(listen);
    let leaf = leaf_params(&addresses, host)?.signed_by(&key, &ca)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let chain = vec![leaf.der().clone(), ca.der().clone()];
    let builder = || {
        let provider = Arc::new(aws_lc_rs::default_provider());
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    };
    let mail =
        builder()?.with_no_client_auth().with_single_cert(chain.clone(), private.clone_key())?;
    let mut server = builder()?
        .with_client_cert_verifier(Arc::new(OptionalClientCertificate::default()))
        .with_single_cert(chain, private)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let ca_pem = ca.pem();
    let server = HttpsIdentity {
        issuer: ca,
        key,
        usual: Arc::new(server),
        usual_addresses: addresses,
        others: Mutex::default(),
    };
    Ok(SandboxIdentity { ca_pem, server, mail: Arc::new(mail) })
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Postrider sandbox CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The loopback addresses and, if it is one, that of the socket.
fn usual_addresses(listen: IpAddr) -> Vec<IpAddr> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let own = Some(listen).filter(|ip| !ip.is_unspecified() && !loopback.contains(ip));
    loopback.into_iter().chain(own).collect()
}

fn leaf_params(addresses: &[IpAddr], host: &str) -> anyhow::Result<CertificateParams> {
    let mut names = vec!["localhost".to_owned()];
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_err() && host != "localhost" {
        names.push(host.to_owned());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Postrider sandbox");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
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
