//! The few fields of an X.509 certificate that tell a person how long it is good for and whose it is.
//! Verifies nothing: that is rustls's business.

use postrider_core::Timestamp;
use postrider_core::model::time::days_from_civil;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 0.9.2342.19200300.100.1.1; Apple writes the topic there.
const USER_ID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) common_name: Option<String>,
    pub(crate) user_id: Option<String>,
}

impl Certificate {
    /// Reads DER; `None` if it is no certificate.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (whole, _) = element(der, SEQUENCE)?;
        let (body, _) = element(whole, SEQUENCE)?;
        let body = element(body, VERSION).map_or(body, |(_, rest)| rest);
        // Serial number, algorithm, issuer.
        let body = (0..3).try_fold(body, |body, _| any(body).map(|(_, _, rest)| rest))?;
        let (validity, body) = element(body, SEQUENCE)?;
        let (subject, _) = element(body, SEQUENCE)?;
        let (not_before, validity) = time(validity)?;
        let (not_after, _) = time(validity)?;
        Some(Self {
            not_before,
            not_after,
            common_name: named(subject, COMMON_NAME),
            user_id: named(subject, USER_ID),
        })
    }
}

/// Tag, content and what comes behind.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn element(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    any(der).filter(|(tag, ..)| *tag == wanted).map(|(_, content, rest)| (content, rest))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`; the short one means 1950 to 2049.
fn time(der: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (tag, content, rest) = any(der)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (year, text) = match tag {
        UTC_TIME => {
            let (year, text) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text)
        }
        GENERALIZED_TIME => {
            let (year, text) = text.split_at_checked(4)?;
            (number(year)?, text)
        }
        _ => return None,
    };
    let part = |nth: usize| number(text.get(2 * nth..2 * nth + 2)?);
    let (month, day) = (u32::try_from(part(0)?).ok()?, u32::try_from(part(1)?).ok()?);
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?;
    Some((Timestamp::from_secs(seconds), rest))
}

fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The subject's part of this name.
fn named(mut subject: &[u8], wanted: &[u8]) -> Option<String> {
    while let Some((mut set, rest)) = element(subject, SET) {
        while let Some((pair, more)) = element(set, SEQUENCE) {
            if let Some((oid, value)) = element(pair, OID)
                && oid == wanted
            {
                let (_, text, _) = any(value)?;
                return Some(String::from_utf8_lossy(text).into_owned());
            }
            set = more;
        }
        subject = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    fn certificate(from_year: i32, to_year: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from_year, 2, 28);
        params.not_after = date_time_ymd(to_year, 11, 15);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "Apple Push Services: com.example.app");
        let uid = DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 1]);
        name.push(uid, "com.example.app");
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn validity_and_subject_are_read_in_both_forms_of_time() {
        let read = Certificate::read(&certificate(2020, 2055)).unwrap();
        assert_eq!(read.not_before.to_string(), "2020-02-28T00:00:00.000Z");
        assert_eq!(read.not_after.to_string(), "2055-11-15T00:00:00.000Z");
        assert_eq!(read.user_id.as_deref(), Some("com.example.app"));
        assert_eq!(read.common_name.as_deref(), Some("Apple Push Services: com.example.app"));
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_is_refused_without_a_panic() {
        let whole = certificate(2020, 2026);
        assert!(Certificate::read(b"hello").is_none());
        for len in 0..whole.len() {
            assert!(Certificate::read(&whole[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = ["\u{0}\u{7}\u{1}\u{0}\u{0}\u{1}\u{0}\u{1}"];
        crate::fuzzed_answers::fuzz_answers("certificate", &seeds, |answer| {
            let _ = Certificate::read(&answer.body).is_some();
        });
    }
}
