//! DKIM signatures (RFC 6376, RFC 8463) of mails that [`super::mime`] built: relaxed/relaxed, RSA or Ed25519 over
//! SHA-256, no `l=`.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use super::mime::Mail;
use crate::Error;

/// The fields that are signed if the mail has them. Providers ignore unsubscribe fields that are not signed.
const SIGNED: [&str; 13] = [
    "From",
    "To",
    "Cc",
    "Subject",
    "Date",
    "Message-ID",
    "Reply-To",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
    "Feedback-ID",
];
/// These are named once more than the mail has them, so that nobody can add another one.
const OVERSIGNED: [&str; 5] = ["From", "To", "Subject", "Date", "Reply-To"];
/// A signature is valid for so long (`x=`): retries of a relay end before, and a mail that somebody keeps cannot be
/// sent to others with our name for ever.
const VALID_S: i64 = 7 * 86_400;
const RSA_BITS_MIN: usize = 2048;

/// A private key. The selector of its public key is stored elsewhere.
#[derive(Debug)]
pub enum DkimKey {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

impl DkimKey {
    /// A PEM file of an RSA (2048 bits or more; PKCS#1 or PKCS#8) or Ed25519 (PKCS#8) private key.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| Error::DkimKey("no PRIVATE KEY block"))?;
        let key = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok().map(rsa),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let ed25519 = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok();
                let ed25519 = ed25519.map(|key| Ok(Self::Ed25519(key)));
                ed25519.or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(rsa))
            }
            _ => None,
        };
        key.ok_or(Error::DkimKey("neither an RSA nor an Ed25519 private key"))?
    }

    /// The TXT record for DNS at `selector._domainkey.domain`.
    pub fn record(&self) -> Result<String, Error> {
        let (kind, key) = match self {
            Self::Rsa(key) => {
                let info: PublicKeyX509Der<'_> =
                    key.public_key().as_der().map_err(|_| Error::Crypto)?;
                ("rsa", STANDARD.encode(info.as_ref()))
            }
            Self::Ed25519(key) => ("ed25519", STANDARD.encode(key.public_key())),
        };
        Ok(format!("v=DKIM1; k={kind}; p={key}"))
    }

    /// The whole field, `DKIM-Signature: …` with its line break.
    pub fn sign(
        &self,
        domain: &str,
        selector: &str,
        mail: &Mail,
        at: Timestamp,
    ) -> Result<String, Error> {
        let body_hash = STANDARD.encode(digest(&SHA256, relaxed_body(&mail.body).as_bytes()));
        let (names, mut signed) = relaxed_fields(mail);
        let algorithm = match self {
            Self::Rsa(_) => "rsa-sha256",
            Self::Ed25519(_) => "ed25519-sha256",
        };
        let at = at.as_secs();
        let until = at + VALID_S;
        let mut field = format!(
            "v=1; a={algorithm}; c=relaxed/relaxed; d={domain};\r\n s={selector}; t={at}; x={until};\r\n \
             h={names};\r\n bh={body_hash};\r\n b="
        );
        push_relaxed(&mut signed, "DKIM-Signature", &field);
        let signature = STANDARD.encode(self.signature(signed.as_bytes())?);
        for (nth, part) in signature.as_bytes().chunks(72).enumerate() {
            if nth > 0 {
                field.push_str("\r\n ");
            }
            field.push_str(std::str::from_utf8(part).unwrap_or_default());
        }
        Ok(format!("DKIM-Signature: {field}\r\n"))
    }

    fn signature(&self, signed: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed, &mut signature)
                    .map_err(|_| Error::Crypto)?;
                Ok(signature)
            }
            // RFC 8463: the key signs the hash, not the text.
            Self::Ed25519(key) => Ok(key.sign(digest(&SHA256, signed).as_ref()).as_ref().to_vec()),
        }
    }
}

fn rsa(key: RsaKeyPair) -> Result<DkimKey, Error> {
    if key.public_modulus_len() * 8 < RSA_BITS_MIN {
        return Err(Error::DkimKey("an RSA key of less than 2048 bits"));
    }
    Ok(DkimKey::Rsa(Box::new(key)))
}

/// The names for `h=`, and the fields in the same order as they are hashed.
fn relaxed_fields(mail: &Mail) -> (String, String) {
    let (mut names, mut signed) = (String::new(), String::new());
    for name in SIGNED {
        let Some(value) = mail.field(name) else { continue };
        let _ = write!(names, "{}{}", if names.is_empty() { "" } else { ":" }, fold(&names, name));
        push_relaxed(&mut signed, name, value);
        signed.push_str("\r\n");
    }
    for name in OVERSIGNED {
        let _ = write!(names, ":{}", fold(&names, name));
    }
    (names, signed)
}

/// The name, with a line break before it if the line would become too long.
fn fold(names: &str, name: &str) -> String {
    let line = names.rsplit('\n').next().map_or(0, str::len);
    if line + name.len() > 70 { format!("\r\n  {name}") } else { name.to_owned() }
}

/// `name:value`, unfolded, runs of blanks as one, none at the ends; without the line break.
fn push_relaxed(out: &mut String, name: &str, value: &str) {
    out.extend(name.chars().map(|c| c.to_ascii_lowercase()));
    out.push(':');
    let words = value.split([' ', '\t', '\r', '\n']).filter(|word| !word.is_empty());
    for (nth, word) in words.enumerate() {
        if nth > 0 {
            out.push(' ');
        }
        out.push_str(word);
    }
}

/// Runs of blanks as one, none at the ends of lines, no empty lines at the end.
fn relaxed_body(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    for line in body.split("\r\n") {
        for c in line.trim_end_matches([' ', '\t']).chars() {
            let c = if c == '\t' { ' ' } else { c };
            if c != ' ' || !out.ends_with(' ') {
                out.push(c);
            }
        }
        out.push_str("\r\n");
    }
    let content = out.trim_end_matches("\r\n").len();
    out.truncate(content);
    if content > 0 {
        out.push_str("\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms_are_those_of_the_rfc() {
        // RFC 6376, 3.4.5
        let mut out = String::new();
        push_relaxed(&mut out, "A", " X\r\n");
        out.push('\n');
        push_relaxed(&mut out, "B ".trim(), " Y\t\r\n\tZ  \r\n");
        assert_eq!(out, "a:X\nb:Y Z");
        assert_eq!(relaxed_body(" C \r\nD \t E\r\n\r\n\r\n"), " C\r\nD E\r\n");
        assert_eq!(relaxed_body("\r\n\r\n"), "");
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_by_cause() {
        let wrong = DkimKey::from_pem("hello").unwrap_err().to_string();
        assert!(wrong.contains("PRIVATE KEY"), "{wrong}");
    }
}
