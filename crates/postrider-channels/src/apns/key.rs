//! What identifies us to Apple: a team's signing key (`.p8`) or a certificate with its key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Error;
use crate::pool::ClientCertificate;

pub(super) enum ApnsCredential {
    Key(ApnsSigningKey),
    Certificate(ClientCertificate),
}

pub(super) struct ApnsSigningKey(EcdsaKeyPair);

impl ApnsCredential {
    /// Reads PEM. The error does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pem = text.as_bytes();
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
        if !chain.is_empty() {
            let key = PrivateKeyDer::from_pem_slice(pem)
                .map_err(|_| "there is a certificate, but no private key beside it")?;
            return Ok(Self::Certificate(ClientCertificate { chain, key }));
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(
            |_| "neither a signing key (.p8, PKCS#8 in PEM) nor a certificate with its key",
        )?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der())
                .map_err(|_| "the signing key is not one on P-256")?;
        Ok(Self::Key(ApnsSigningKey(key)))
    }
}

impl ApnsSigningKey {
    /// The public key, which differs between keys.
    pub(super) fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// ES256: r and s, 64 bytes.
    pub(super) fn sign(&self, text: &[u8]) -> Result<impl AsRef<[u8]> + use<>, Error> {
        self.0.sign(&SystemRandom::new(), text).map_err(|_| Error::Crypto)
    }
}
