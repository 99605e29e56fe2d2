//! AWS Signature Version 4.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use postrider_core::Timestamp;
use postrider_core::model::time::civil_from_days;

/// The key, and the region and service that it signs for.
#[derive(Clone, Copy)]
pub struct SigV4Signer<'a> {
    pub key_id: &'a str,
    pub secret: &'a str,
    pub region: &'a str,
    pub service: &'a str,
}

/// The signed parts of a request.
#[derive(Clone, Copy)]
pub struct SignedRequest<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    /// In lower case, without `host` and `x-amz-date`.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

impl SigV4Signer<'_> {
    /// The values of `x-amz-date` and `authorization`.
    pub fn sign(&self, request: &SignedRequest<'_>, now: Timestamp) -> (String, String) {
        let at = basic_time(now);
        let day = &at[..8];
        let mut headers: Vec<(&str, &str)> = request.headers.to_vec();
        headers.extend([("host", request.host), ("x-amz-date", at.as_str())]);
        headers.sort_unstable();
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{}\n{}\n\n", request.method, request.path);
        for (name, value) in &headers {
            canonical.push_str(&format!("{name}:{}\n", value.trim()));
        }
        canonical.push_str(&format!("\n{names}\n{}", hex(digest(&SHA256, request.body).as_ref())));
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{at}\n{scope}\n{}",
            hex(digest(&SHA256, canonical.as_bytes()).as_ref())
        );
        let signature = hex(mac(&self.key(day), &to_sign).as_ref());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.key_id
        );
        (at, authorization)
    }

    fn key(&self, day: &str) -> Vec<u8> {
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day, self.region, self.service, "aws4_request"] {
            key = mac(&key, part).as_ref().to_vec();
        }
        key
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `20150830T123600Z`
fn basic_time(at: Timestamp) -> String {
    let s = at.as_secs().rem_euclid(86_400);
    let (year, month, day) = civil_from_days(at.as_secs().div_euclid(86_400));
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `post-vanilla` and `post-x-www-form-urlencoded` of Amazon's own test suite.
    #[test]
    fn amazon_s_own_vectors_are_met() {
        let signer = SigV4Signer {
            key_id: "AKIDEXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            service: "service",
        };
        let now = Timestamp(1_440_938_160_000);
        let request = SignedRequest {
            method: "POST",
            host: "example.amazonaws.com",
            path: "/",
            headers: &[],
            body: b"",
        };
        let (at, authorization) = signer.sign(&request, now);
        assert_eq!(at, "20150830T123600Z");
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
        let form = SignedRequest {
            headers: &[("content-type", "application/x-www-form-urlencoded")],
            body: b"Param1=value1",
            ..request
        };
        let (_, authorization) = signer.sign(&form, now);
        assert!(
            authorization.ends_with(
                "SignedHeaders=content-type;host;x-amz-date, \
                 Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
            ),
            "{authorization}"
        );
    }
}
