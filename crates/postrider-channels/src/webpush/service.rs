//! Which push service is behind an endpoint, and where its answers carry their machine-readable
//! code. What a code means is in `answers/`.

use std::borrow::Cow;

use postrider_core::{Report, StrikeKind};
use serde::Deserialize;

use crate::pool::{NO_SUCH_HOST, Response};
use crate::scrub;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Fcm,
    Mozilla,
    Apple,
    Wns,
    Other,
}

/// How much of the text is kept if a service has no codes.
const PROSE_MAX: usize = 160;

const FCM: &str = "fcm.googleapis.com";
const MOZILLA: &str = "push.services.mozilla.com";
const APPLE: &str = "push.apple.com";
const WINDOWS: &str = "notify.windows.com";

/// The services of the large browsers. All workers send to them.
pub(super) const LARGE: [&str; 4] = [FCM, MOZILLA, APPLE, WINDOWS];

impl Service {
    pub(super) fn of(host: &str) -> Self {
        let under = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if host == FCM {
            Self::Fcm
        } else if under(MOZILLA) {
            Self::Mozilla
        } else if under(APPLE) {
            Self::Apple
        } else if under(WINDOWS) {
            Self::Wns
        } else {
            Self::Other
        }
    }

    /// Its name in the table of answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fcm => "webpush.fcm",
            Self::Mozilla => "webpush.mozilla",
            Self::Apple => "webpush.apple",
            Self::Wns => "webpush.wns",
            Self::Other => "webpush",
        }
    }

    /// The header with the service's id of the message.
    pub(super) fn id_header(self) -> &'static str {
        match self {
            Self::Apple => "apns-id",
            Self::Wns => "x-wns-msg-id",
            _ => "location",
        }
    }

    /// A host that does not exist is a strike against the endpoint. The hosts of well-known services always exist: for
    /// them, our own resolver fails.
    pub(super) fn unanswered(self, mut report: Report) -> Report {
        if self == Self::Other && report.code.as_deref() == Some(NO_SUCH_HOST) {
            report.terms.strike = Some(StrikeKind::Host);
        }
        report
    }

    /// The code of a refusal; none for an acceptance.
    pub(super) fn code(self, response: &Response) -> Option<String> {
        if response.status.is_success() {
            return None;
        }
        match self {
            Self::Wns => wns_code(response).or_else(|| prose(&response.body)),
            Self::Fcm => prose(&response.body),
            _ => json_code(&response.body).or_else(|| prose(&response.body)),
        }
    }
}

/// The status if the channel is throttled, or else the description.
fn wns_code(response: &Response) -> Option<String> {
    let status = scrub::header(&response.headers, "x-wns-status");
    match status {
        Some(status) if status.ends_with("throttled") => Some(status),
        status => scrub::header(&response.headers, "x-wns-error-description").or(status),
    }
}

fn json_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct PushServiceError<'a> {
        errno: Option<u32>,
        #[serde(borrow)]
        reason: Option<Cow<'a, str>>,
    }
    let error: PushServiceError<'_> = serde_json::from_slice(body).ok()?;
    let errno = error.errno.map(|n| n.to_string());
    errno.or_else(|| error.reason.map(|reason| scrub::shorten(&reason, PROSE_MAX)))
}

fn prose(body: &[u8]) -> Option<String> {
    let start = &body[..body.len().min(4 * PROSE_MAX)];
    let text = scrub::shorten(String::from_utf8_lossy(start).trim(), PROSE_MAX);
    (!text.is_empty()).then_some(text)
}

/// Whether a refusal says that the subscription was made with another key than the one that signed.
pub(super) fn is_key_mismatch(code: &str) -> bool {
    const WORDS: [&str; 2] = [
        "the VAPID credentials in the authorization header do not correspond",
        "the key in the authorization header does not correspond",
    ];
    code == "VapidPkHashMismatch" || WORDS.iter().any(|words| code.contains(words))
}

/// Whether the endpoint is one that browsers or closed services leave behind. Nothing answers there.
pub(super) fn is_dead(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#', ':']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = host.to_ascii_lowercase();
    host == "invalid"
        || host.ends_with(".invalid")
        || (host == "android.googleapis.com" && path.starts_with("/gcm/send"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::{HeaderMap, HeaderValue, StatusCode};

    fn answer(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &'static str,
    ) -> Response {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            credentials: Default::default(),
        }
    }

    #[test]
    fn services_are_known_by_their_hosts() {
        for (host, service) in [
            ("fcm.googleapis.com", Service::Fcm),
            ("updates.push.services.mozilla.com", Service::Mozilla),
            ("web.push.apple.com", Service::Apple),
            ("wns2-par02p.notify.windows.com", Service::Wns),
            ("evilnotify.windows.com.example", Service::Other),
            ("fakepush.apple.com", Service::Other),
            ("ntfy.example", Service::Other),
        ] {
            assert_eq!(Service::of(host), service, "{host}");
        }
    }

    #[test]
    fn each_service_carries_its_code_elsewhere() {
        let cases = [
            (Service::Fcm, answer(403, &[], "token has expired\n"), Some("token has expired")),
            (
                Service::Mozilla,
                answer(401, &[], r#"{"code":401,"errno":109,"error":"x"}"#),
                Some("109"),
            ),
            (Service::Mozilla, answer(502, &[], "<html>"), Some("<html>")),
            (Service::Apple, answer(403, &[], r#"{"reason":"BadJwtToken"}"#), Some("BadJwtToken")),
            (
                Service::Wns,
                answer(
                    406,
                    &[("x-wns-status", "channelthrottled"), ("x-wns-error-description", "slow")],
                    "",
                ),
                Some("channelthrottled"),
            ),
            (
                Service::Wns,
                answer(
                    400,
                    &[("x-wns-status", "dropped"), ("x-wns-error-description", "Ttl value")],
                    "",
                ),
                Some("Ttl value"),
            ),
            (Service::Other, answer(410, &[], ""), None),
            (Service::Fcm, answer(201, &[], "ok"), None),
        ];
        for (service, response, code) in cases {
            assert_eq!(service.code(&response).as_deref(), code, "{service:?}");
        }
    }

    #[test]
    fn sentinels_of_dead_subscriptions_are_known() {
        for dead in [
            "https://permanently-removed.invalid/fcm/send/x",
            "https://x.INVALID/",
            "https://android.googleapis.com/gcm/send/abc",
        ] {
            assert!(is_dead(dead), "{dead}");
        }
        assert!(!is_dead("https://invalid.example/x.invalid"));
        assert!(!is_dead("https://fcm.googleapis.com/gcm/send/abc"));
    }

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"code":404,"errno":102,"error":"Not Found","message":"x"}"#,
            r#"<html>410</html>"#,
        ];
        crate::fuzzed_answers::fuzz_answers("webpush_answer", &seeds, |answer| {
            for host in [
                "fcm.googleapis.com",
                "updates.push.services.mozilla.com",
                "web.push.apple.com",
                "x.notify.windows.com",
                "push.example",
            ] {
                drop(Service::of(host).code(&answer));
            }
        });
    }
}
