//! The rows that are held against an address beside what they mean. What comes of several strikes is
//! [`crate::policy::strikes`]' to say.

use super::built_in::{ANY, is, starts};
use super::row::{Code, Row, Statuses, Verdict};
use crate::policy::strikes::StrikeKind;

const HOUR_S: u64 = 3600;

pub(super) fn rows() -> impl Iterator<Item = Row> {
    google().into_iter().chain(apple()).chain(mailbox()).chain(twilio()).chain(key())
}

fn row(
    service: &'static str,
    (first, last): (u16, u16),
    code: Code,
    verdict: Verdict,
    strike: StrikeKind,
) -> Row {
    let status = Statuses::new(first, last);
    Row { service: service.into(), status, code, verdict, strike: Some(strike) }
}

/// Said for a day by a service that is not well, and for ever of a subscription that was cancelled.
fn google() -> [Row; 2] {
    let invalid = |status, text| {
        let code = starts(text);
        row("webpush.fcm", (status, status), code, Verdict::DropMessage, StrikeKind::Endpoint)
    };
    [invalid(403, "invalid push subscription endpoint"), invalid(400, "InvalidTokenFormat")]
}

/// The subscription was made with another key than ours, which works for others.
fn key() -> [Row; 1] {
    let code = is("key_mismatch.resubscribe");
    [row("webpush", (400, 403), code, Verdict::DropMessage, StrikeKind::Key)]
}

fn apple() -> [Row; 1] {
    let code = is("BadDeviceToken");
    [row("apns", (400, 400), code, Verdict::DropMessage, StrikeKind::Device)]
}

/// A mailbox that is refused without an enhanced code may be missing, or its server may be in a mood.
fn mailbox() -> [Row; 1] {
    [row("email.smtp.rcpt", (550, 550), ANY, Verdict::DropMessage, StrikeKind::Mailbox)]
}

fn twilio() -> [Row; 3] {
    let code = |code, verdict, strike| row("sms.twilio", (200, 599), is(code), verdict, strike);
    [
        code("30003", Verdict::not_before(2 * HOUR_S).at_most(2), StrikeKind::Unreachable),
        code("30004", Verdict::DropMessage, StrikeKind::Blocked),
        code("30005", Verdict::DropMessage, StrikeKind::Number),
    ]
}
