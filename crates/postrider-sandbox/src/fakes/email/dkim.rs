//! Verifies DKIM signatures (RFC 6376, RFC 8463) for the inbox, with the keys that the sandbox knows. Asks no name
//! server, and shares no code with the channel that signs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ED25519, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::mime::split_head;
use crate::inbox::view::InboxCheck;

const RECORDS_MAX: usize = 100;
const SIGNATURES_MAX: usize = 10;

/// TXT records by name, as the name server of a sender's domain has them.
#[derive(Default)]
pub(super) struct DkimRecords(Mutex<HashMap<String, String>>);

impl DkimRecords {
    /// `name` is `selector._domainkey.domain`.
    pub(super) fn put(&self, name: &str, record: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            name.contains("._domainkey."),
            "{name:?} is not the name of a DKIM record: use SELECTOR._domainkey.DOMAIN"
        );
        parse_record(record).context("record")?;
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(records.len() < RECORDS_MAX, "there are {RECORDS_MAX} records already");
        records.insert(name.to_ascii_lowercase(), record.to_owned());
        Ok(())
    }

    fn get(&self, name: &str) -> Option<String> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(&name.to_ascii_lowercase()).cloned()
    }

    /// One result per signature; one if there is none.
    pub(super) fn verify(&self, mail: &[u8], now_s: i64) -> Vec<InboxCheck> {
        let (head, body) = split_head(mail);
        let fields = raw_fields(head);
        let is_signature = |field: &&[u8]| name_of(field).eq_ignore_ascii_case("dkim-signature");
        let signatures = fields.iter().copied().filter(is_signature).take(SIGNATURES_MAX);
        let checks: Vec<_> =
            signatures.map(|field| self.verify_one(field, &fields, body, now_s)).collect();
        match checks.is_empty() {
            true => vec![InboxCheck::unknown("the mail is not signed")],
            false => checks,
        }
    }

    fn verify_one(&self, field: &[u8], fields: &[&[u8]], body: &[u8], now_s: i64) -> InboxCheck {
        let text = String::from_utf8_lossy(field);
        let (_, value) = text.split_once(':').unwrap_or_default();
        let tags = tags(value);
        let tag = |name: &str| tags.get(name).map_or("", String::as_str);
        let name = format!("{}._domainkey.{}", tag("s"), tag("d"));
        let Some(record) = self.get(&name) else {
            let detail = format!(
                "not verified: the sandbox asks no name server and does not know {name}; \
                 PUT /sandbox/dkim/{name} {{\"record\": \"v=DKIM1; …\"}} tells it"
            );
            return InboxCheck::unknown(detail);
        };
        match check(field, &tags, fields, body, &record, now_s) {
            Ok(()) => InboxCheck::pass(format!("{} by {name}", tag("a"))),
            Err(error) => InboxCheck::fail(format!("{name}: {error:#}")),
        }
    }
}

/// A new key: the private part as PEM, and the record with the public part.
pub(super) fn make_key() -> anyhow::Result<(String, String)> {
    let private = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())?;
    let public = Ed25519KeyPair::from_pkcs8(private.as_ref())?;
    let code = BASE64_STANDARD.encode(private.as_ref());
    let lines: Vec<_> = code.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let pem =
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    let public = BASE64_STANDARD.encode(public.public_key().as_ref());
    Ok((pem, format!("v=DKIM1; k=ed25519; p={public}")))
}

fn check(
    field: &[u8],
    tags: &HashMap<String, String>,
    fields: &[&[u8]],
    body: &[u8],
    record: &str,
    now_s: i64,
) -> anyhow::Result<()> {
    let tag = |name: &str| tags.get(name).map_or("", String::as_str);
    anyhow::ensure!(tag("v") == "1", "v={}: only 1 is known", tag("v"));
    let until = tag("x").parse::<i64>().ok();
    anyhow::ensure!(until.is_none_or(|until| now_s <= until), "it ended (x=)");
    anyhow::ensure!(!tags.contains_key("l"), "l= leaves a part of the body open");
    let (head_form, body_form) = tag("c").split_once('/').unwrap_or((tag("c"), "simple"));
    let hash = digest(&SHA256, &canonical_body(body, body_form == "relaxed"));
    anyhow::ensure!(BASE64_STANDARD.encode(hash) == tag("bh"), "the body was changed (bh=)");
    let signed = signed_text(field, tag("h"), fields, head_form == "relaxed");
    let signature = BASE64_STANDARD.decode(tag("b")).context("b= is not base64")?;
    let (kind, key) = parse_record(record)?;
    let verified = match (tag("a"), kind.as_str()) {
        ("ed25519-sha256", "ed25519") => UnparsedPublicKey::new(&ED25519, &key)
            .verify(digest(&SHA256, &signed).as_ref(), &signature),
        ("rsa-sha256", "rsa") => {
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &key).verify(&signed, &signature)
        }
        (algorithm, kind) => anyhow::bail!("a={algorithm} with a key of the kind {kind}"),
    };
    verified.ok().context("a signed header field was changed, or another key signed (b=)")
}

/// The kind of the key, and its bytes.
fn parse_record(record: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let tags = tags(record);
    let kind = tags.get("k").map_or("rsa", String::as_str).to_owned();
    let key = tags.get("p").context("it has no p=")?;
    let key = BASE64_STANDARD.decode(key).context("p= is not base64")?;
    anyhow::ensure!(!key.is_empty(), "p= is empty: the key was withdrawn");
    Ok((kind, key))
}

/// `a=b; c=d`; blanks in values do not count.
fn tags(text: &str) -> HashMap<String, String> {
    let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), without_blanks(value)));
    pairs.collect()
}

fn without_blanks(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_whitespace()).collect()
}

/// The fields with their line breaks, folded as they came.
fn raw_fields(head: &[u8]) -> Vec<&[u8]> {
    let mut fields = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', head).map(|at| at + 1) {
        let is_folded = head.get(end).is_some_and(|b| matches!(b, b' ' | b'\t'));
        if !is_folded {
            fields.push(&head[start..end]);
            start = end;
        }
    }
    fields
}

fn name_of(field: &[u8]) -> String {
    let end = memchr::memchr(b':', field).unwrap_or(0);
    String::from_utf8_lossy(&field[..end]).trim().to_owned()
}

/// The signed fields, from the last one of each name, then the signature itself without its value.
fn signed_text(field: &[u8], names: &str, fields: &[&[u8]], relaxed: bool) -> Vec<u8> {
    let mut used = vec![false; fields.len()];
    let mut signed = Vec::new();
    for name in names.split(':') {
        let mut candidates = (0..fields.len()).rev();
        let found = candidates
            .find(|at| !used[*at] && name_of(fields[*at]).eq_ignore_ascii_case(name.trim()));
        if let Some(at) = found {
            used[at] = true;
            signed.extend(canonical_field(fields[at], relaxed));
        }
    }
    let own = canonical_field(&without_signature(field), relaxed);
    signed.extend(own.strip_suffix(b"\r\n").unwrap_or(&own));
    signed
}

/// The field with an empty `b=`.
fn without_signature(field: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(field);
    let (name, value) = text.split_once(':').unwrap_or_default();
    let tags = value.split(';').map(|tag| match tag.split_once('=') {
        Some((key, _)) if key.trim() == "b" => format!("{key}="),
        _ => tag.to_owned(),
    });
    let tags: Vec<_> = tags.collect();
    let emptied = format!("{name}:{}", tags.join(";"));
    format!("{}\r\n", emptied.trim_end_matches(['\r', '\n'])).into_bytes()
}

fn canonical_field(field: &[u8], relaxed: bool) -> Vec<u8> {
    if !relaxed {
        return field.to_vec();
    }
    let end = memchr::memchr(b':', field).unwrap_or(0);
    let name = name_of(field).to_ascii_lowercase();
    let value = field.get(end + 1..).unwrap_or_default();
    let words = value.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    [name.as_bytes(), b":", &words.join(&b' '), b"\r\n"].concat()
}

fn canonical_body(body: &[u8], relaxed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for line in body.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if relaxed {
            let end = line.iter().rposition(|b| !b" \t".contains(b)).map_or(0, |at| at + 1);
            let mut was_blank = false;
            for byte in &line[..end] {
                let is_blank = b" \t".contains(byte);
                if !(is_blank && was_blank) {
                    out.push(if is_blank { b' ' } else { *byte });
                }
                was_blank = is_blank;
            }
        } else {
            out.extend(line);
        }
        out.extend(b"\r\n");
    }
    while out.ends_with(b"\r\n\r\n") {
        out.truncate(out.len() - 2);
    }
    if out == b"\r\n" && relaxed {
        out.clear();
    }
    if out.is_empty() && !relaxed {
        out.extend(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8463, appendix A: the mail with its Ed25519 signature.
    const MAIL: &str = "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n d=football.example.com; \
i=@football.example.com;\r\n q=dns/txt; s=brisbane; t=1528637909; h=from : to :\r\n subject : date : message-id : \
from : subject : date;\r\n bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n \
b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus\r\n Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==\r\n\
From: Joe SixPack <joe@football.example.com>\r\nTo: Suzie Q <suzie@shopping.example.net>\r\n\
Subject: Is dinner ready?\r\nDate: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n\
Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n\r\n\
Hi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n";

    fn verdict(mail: &str) -> (&'static str, String) {
        let records = DkimRecords::default();
        let record = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        records.put("brisbane._domainkey.football.example.com", record).unwrap();
        let check = records.verify(mail.as_bytes(), 1_528_637_909).remove(0);
        (check.verdict, check.detail)
    }

    #[test]
    fn the_signature_of_the_rfc_verifies_and_no_changed_mail_does() {
        assert_eq!(verdict(MAIL).0, "pass", "{:?}", verdict(MAIL));
        let changed = verdict(&MAIL.replace("hungry", "thirsty"));
        assert!(changed.0 == "fail" && changed.1.contains("body"), "{changed:?}");
        let changed = verdict(&MAIL.replace("dinner", "lunch"));
        assert!(changed.0 == "fail" && changed.1.contains("header"), "{changed:?}");
        assert_eq!(verdict(&MAIL.replace("s=brisbane", "s=other")).0, "unknown");
        assert_eq!(verdict("From: a\r\n\r\nx").0, "unknown");
    }

    #[test]
    fn canonical_bodies_are_those_of_the_rfc() {
        // RFC 6376, 3.4.5
        assert_eq!(canonical_body(b" C \r\nD \t E\r\n\r\n\r\n", true), b" C\r\nD E\r\n");
        assert_eq!(canonical_body(b" C \r\nD \t E\r\n\r\n\r\n", false), b" C \r\nD \t E\r\n");
        assert_eq!(canonical_body(b"\r\n\r\n", true), b"");
        assert_eq!(canonical_body(b"", false), b"\r\n");
    }

    #[test]
    fn a_record_without_a_key_is_refused_by_cause() {
        let records = DkimRecords::default();
        let error =
            |name: &str, record: &str| format!("{:#}", records.put(name, record).unwrap_err());
        assert!(error("a._domainkey.b", "v=DKIM1; p=").contains("withdrawn"));
        assert!(error("a.b", "v=DKIM1; p=AA==").contains("SELECTOR._domainkey.DOMAIN"));
    }
}
