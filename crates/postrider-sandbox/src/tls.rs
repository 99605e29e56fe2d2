//! A certificate authority and a leaf for this machine, made anew at every start. The keys never
//! leave memory; only the authority's certificate is handed out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;

use super::certificate::Asking;

pub(super) struct Identity {
    pub ca_pem: String,
    /// For HTTP: asks who the other side is, and takes "nobody" for an answer.
    pub server: Arc<ServerConfig>,
    /// For mail.
    pub mail: Arc<ServerConfig>,
}

/// `listen` is named in the certificate beside localhost and the loopback addresses.
pub(super) fn make_identity(listen: IpAddr, host: &str) -> anyhow::Result<Identity> {
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
        .with_client_cert_verifier(Arc::new(Asking::default()))
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Identity { ca_pem: ca.pem(), server: Arc::new(server), mail: Arc::new(mail) })
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
