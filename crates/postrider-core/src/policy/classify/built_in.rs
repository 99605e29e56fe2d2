//! The rows that hold without any configuration, one block per provider. Order does not matter:
//! the more precise row wins.

use std::borrow::Cow;

use super::row::{Code, Row, Statuses, Verdict};
use super::{chat, mail, phone, push, struck};
use crate::model::outcome::Scope;

/// "No code, or whatever code" in a row below.
pub(super) const ANY: Code = Code::Any;
pub(super) const RETRY: Verdict = Verdict::retry();

/// First status, last status, code, verdict.
pub(super) type Line = (u16, u16, Code, Verdict);
/// One service's rows.
pub(super) type Block = (&'static str, Vec<Line>);

pub(super) fn rows() -> impl Iterator<Item = Row> {
    [webpush(), fcm(), mozilla(), apple(), wns(), callee("webhook"), callee("http")]
        .into_iter()
        .chain([push::fcm(), push::apns()])
        .chain(mail::blocks())
        .chain(phone::blocks())
        .chain(chat::blocks())
        .flat_map(|(service, rows)| {
            rows.into_iter().map(move |(first, last, code, verdict)| Row {
                service: Cow::Borrowed(service),
                status: Statuses::new(first, last),
                code,
                verdict,
                strike: None,
            })
        })
        .chain(struck::rows())
}

pub(super) fn is(code: &'static str) -> Code {
    Code::Exact(code.into())
}

pub(super) fn starts(text: &'static str) -> Code {
    Code::Prefix(text.into())
}

pub(super) fn says(text: &'static str) -> Code {
    Code::Contains(text.into())
}

/// Any push service; the others fall back to these rows.
///
/// A 429 or 503 is taken as a word about one address: a single one of them says little about a
/// service that answers thousands, and many of them are what lane limits and breakers see.
fn webpush() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        // Never followed: the endpoint was given by a stranger.
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (400, 400, ANY, DropMessage),
        (401, 401, ANY, ResignIfStale),
        (403, 403, ANY, ResignIfStale),
        (401, 401, says("expired"), ResignOnce),
        (403, 403, says("expired"), ResignOnce),
        // The channel has seen that the key works, and that it is the one that the subscription named.
        (400, 403, is("key_mismatch.proven"), Gone),
        (404, 404, ANY, Gone),
        (406, 406, ANY, DropMessage),
        (408, 408, ANY, RETRY),
        (410, 410, ANY, Gone),
        (413, 413, ANY, DropMessage),
        (425, 425, ANY, RETRY),
        (429, 429, ANY, Verdict::wait(Scope::Target, 60)),
        (500, 599, ANY, RETRY),
    ];
    ("webpush", rows)
}

/// Google answers in prose.
fn fcm() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (400, 400, starts("UnauthorizedRegistration"), Config),
        (404, 404, starts("A valid push subscription endpoint should be specified"), Gone),
        (410, 410, starts("push subscription has unsubscribed or expired"), Gone),
    ];
    for status in [400, 401, 403] {
        rows.push((status, status, starts("token has expired"), ResignOnce));
        let ours = [
            "exp claim MUST NOT be more than 24 hours",
            "exp claim is missing",
            "invalid aud claim",
            "aud claim in the token MUST include the origin",
            "invalid JWT provided",
            "public key must be 65 bytes long",
            "must be in uncompressed form",
            "must be on the P-256 curve",
            "make sure the public key is base64url-encoded",
            "authorization header had no",
            "authorization header had empty",
            "authorization header had invalid",
            "sender is not authenticated",
            // The subscription was made with another key. Whether the address is at fault or the key
            // cannot be seen in one answer; where more is known, the channel says `key_mismatch`.
            "the VAPID credentials in the authorization header do not correspond",
            "the key in the authorization header does not correspond",
        ];
        rows.extend(ours.map(|text| (status, status, says(text), Config)));
    }
    ("webpush.fcm", rows)
}

/// The code is autopush's `errno`.
fn mozilla() -> Block {
    use Verdict::*;
    let rows = vec![
        (201, 201, ANY, Accepted),
        (400, 400, is("101"), DropMessage),
        (400, 400, is("108"), Gone),
        (400, 400, is("110"), DropMessage),
        (400, 400, is("111"), DropMessage),
        (400, 400, is("112"), DropMessage),
        (400, 400, is("113"), DropMessage),
        (400, 400, is("114"), DropMessage),
        (400, 400, ANY, DropMessage),
        (401, 401, is("109"), ResignOnce),
        (404, 404, is("102"), Gone),
        (410, 410, is("103"), Gone),
        (410, 410, is("105"), Gone),
        (410, 410, is("106"), Gone),
        (413, 413, is("104"), DropMessage),
        (500, 500, is("999"), RETRY),
        (500, 500, ANY, RETRY),
        (502, 502, is("900"), RETRY),
        (502, 502, is("901"), RETRY),
        (502, 502, is("902"), RETRY),
        (502, 502, is("903"), RETRY),
        (502, 502, ANY, RETRY),
        (503, 503, is("201"), Verdict::wait(Scope::Target, 120)),
        (503, 503, ANY, Verdict::wait(Scope::Target, 120)),
        (503, 503, is("202"), RETRY),
    ];
    ("webpush.mozilla", rows)
}

/// The code is the body's `reason`.
fn apple() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (201, 201, ANY, Accepted),
        (400, 400, is("BadTtl"), DropMessage),
        (400, 400, is("BadUrgency"), DropMessage),
        (400, 400, is("BadWebPushRequest"), DropMessage),
        (400, 400, is("BadWebPushTopic"), DropMessage),
        (400, 400, is("VapidPkHashMismatch"), Config),
        (403, 403, is("VapidPkHashMismatch"), Config),
        (404, 404, is("BadPath"), Gone),
        (410, 410, ANY, Gone),
        (413, 413, is("PayloadTooLarge"), DropMessage),
        (429, 429, is("TooManyRequests"), Verdict::wait(Scope::Target, 60)),
    ];
    for status in [400, 403] {
        rows.push((status, status, is("BadAuthorizationHeader"), ResignIfStale));
        rows.push((status, status, is("BadJwtToken"), ResignIfStale));
        rows.push((status, status, is("BadVapidPublicKey"), ResignIfStale));
    }
    for status in [500, 503] {
        rows.push((status, status, is("InternalServerError"), RETRY));
        rows.push((status, status, is("ServiceUnavailable"), RETRY));
        rows.push((status, status, is("Shutdown"), RETRY));
    }
    ("webpush.apple", rows)
}

/// The code is `X-WNS-Status`, or `X-WNS-Error-Description` where there is one. It throttles with
/// 406, and is said to be moving to 429.
fn wns() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (200, 201, ANY, Accepted),
        (400, 400, starts("Ttl value conflicts with X-WNS-Cache-Policy"), DropMessage),
        (401, 401, ANY, Config),
        (403, 403, ANY, Config),
        (404, 404, ANY, Gone),
        (406, 406, ANY, Verdict::wait(Scope::Credential, 900)),
        (410, 410, ANY, Gone),
        (413, 413, ANY, DropMessage),
        (500, 599, ANY, RETRY),
    ];
    for status in [406, 429] {
        rows.push((status, status, is("appthrottled"), Verdict::wait(Scope::Credential, 900)));
        rows.push((status, status, is("channelthrottled"), Verdict::wait(Scope::Target, 900)));
    }
    ("webpush.wns", rows)
}

/// A webhook's receiver, or whoever a plain HTTP request goes to.
///
/// A webhook's 429 is about its endpoint: many customers' endpoints may share a host. A plain
/// request's is about the server, which counts its caller's requests and not their paths.
fn callee(service: &'static str) -> Block {
    use Verdict::*;
    let limited = if service == "http" { Scope::Host } else { Scope::Target };
    let mut rows = vec![
        (200, 299, ANY, Accepted),
        // Never followed: who moves must be told to say so.
        (300, 399, ANY, RETRY),
        (410, 410, ANY, Gone),
        (429, 429, ANY, Verdict::wait(limited, 60)),
        (502, 502, ANY, RETRY),
        (503, 503, ANY, RETRY),
        (504, 504, ANY, RETRY),
        (400, 599, ANY, RETRY),
    ];
    rows.extend([400, 401, 403, 404, 413, 422].map(|status| (status, status, ANY, DropMessage)));
    (service, rows)
}
