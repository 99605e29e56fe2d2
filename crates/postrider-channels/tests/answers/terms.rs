//! What the built-in rows say besides the outcome: how often a refusal is retried, which strike it is against the
//! address, and what waits for the next day.

use std::time::Duration;

use postrider_channels::answers;
use postrider_core::model::outcome::AnswerTerms;
use postrider_core::policy::classify::{AnswerRow, ProviderAnswer, classify, judge};
use postrider_core::{Outcome, Scope, StrikeKind, Timestamp};

use super::TABLE;

const NOW: Timestamp = Timestamp(1_800_000_000_000); // 2027-01-15T08:00:00Z

fn answer<'a>(service: &'a str, status: u16, code: &'a str) -> ProviderAnswer<'a> {
    ProviderAnswer { service, status, code: Some(code), ..ProviderAnswer::default() }
}

fn terms(service: &str, status: u16, code: &str) -> AnswerTerms {
    judge(&TABLE, &answer(service, status, code), NOW).1
}

#[track_caller]
fn strikes(service: &str, status: u16, code: &str, kind: StrikeKind) {
    assert_eq!(terms(service, status, code).strike, Some(kind), "{service} {status} {code}");
}

#[test]
fn an_endpoint_that_google_calls_invalid_strikes_and_drops_only_the_message() {
    for (status, code) in
        [(403, "invalid push subscription endpoint."), (400, "InvalidTokenFormat: x")]
    {
        strikes("webpush.fcm", status, code, StrikeKind::Endpoint);
        let found = classify(&TABLE, &answer("webpush.fcm", status, code), NOW);
        assert_eq!(found, Outcome::DropMessage);
    }
    assert_eq!(terms("webpush.fcm", 400, "UnauthorizedRegistration"), AnswerTerms::default());
}

#[test]
fn a_mailbox_refused_at_rcpt_strikes_only_without_an_enhanced_code() {
    strikes("email.smtp.rcpt", 550, "no such user here", StrikeKind::Mailbox);
    strikes("email.smtp.rcpt", 550, "", StrikeKind::Mailbox);
    for code in ["5.1.1 unknown", "5.7.1 policy", "5.4.1 no route", "5.9.9 who knows"] {
        assert_eq!(terms("email.smtp.rcpt", 550, code).strike, None, "{code}");
    }
    assert_eq!(terms("email.smtp.dot", 550, "rejected").strike, None, "about the mail");
    let found = |code| classify(&TABLE, &answer("email.smtp.rcpt", 550, code), NOW);
    assert_eq!(found("5.1.10 null MX"), Outcome::Gone, "an enhanced code decides alone");
    assert_eq!(found("5.7.1 policy"), Outcome::DropMessage);
}

#[test]
fn numbers_that_are_unreachable_blocked_or_unknown_strike() {
    for (code, kind) in [
        ("30003", StrikeKind::Unreachable),
        ("30004", StrikeKind::Blocked),
        ("30005", StrikeKind::Number),
    ] {
        strikes("sms.twilio", 400, code, kind);
    }
    assert_eq!(terms("sms.twilio", 400, "30006").strike, None, "gone at once");
}

#[test]
fn a_device_that_apple_does_not_know_strikes_until_it_is_proven() {
    strikes("apns", 400, "BadDeviceToken", StrikeKind::Device);
    assert_eq!(terms("apns", 400, "BadDeviceToken.proven"), AnswerTerms::default());
}

#[test]
fn a_subscription_of_another_key_is_asked_to_resubscribe_and_gone_only_where_proven() {
    for service in ["webpush.fcm", "webpush.apple", "webpush"] {
        for status in [400, 403] {
            strikes(service, status, "key_mismatch.resubscribe", StrikeKind::Key);
            let found = |code| classify(&TABLE, &answer(service, status, code), NOW);
            assert_eq!(found("key_mismatch.resubscribe"), Outcome::DropMessage);
            assert_eq!(found("key_mismatch.proven"), Outcome::Gone);
        }
    }
}

#[test]
fn refusals_that_are_final_in_themselves_are_retried_a_bounded_number_of_times() {
    for (service, status, code, most) in [
        ("sms.twilio", 400, "30003", 2),
        ("sms.twilio", 400, "30008", 1),
        ("sms.smpp", 500, "0x45", 1),
        ("sms.smpp", 500, "0xfe", 1),
        ("sms.smpp", 500, "0x61", 1),
        ("email.smtp.rcpt", 552, "5.2.2 full", 3),
        ("email.smtp.rcpt", 552, "", 3),
        ("email.smtp.dot", 550, "5.2.2 full", 3),
    ] {
        assert_eq!(terms(service, status, code).retries_max, Some(most), "{service} {code}");
    }
    assert_eq!(terms("sms.smpp", 500, "0x08").retries_max, None);
    assert_eq!(terms("webpush", 503, "").retries_max, None);
}

#[test]
fn a_quota_of_a_day_waits_for_the_next_midnight_and_at_least_an_hour() {
    let wait = |at_h: u64, code| {
        let now = NOW + Duration::from_secs(3600 * at_h);
        classify(&TABLE, &answer("sms.twilio", 429, code), now)
    };
    let hours = |h: u64| Outcome::RetryAfter {
        after: Duration::from_secs(3600 * h),
        scope: Scope::Credential,
    };
    for code in ["63038", "30023"] {
        assert_eq!(wait(0, code), hours(16), "08:00 to 24:00");
        assert_eq!(wait(15, code), hours(1));
        assert_eq!(wait(16, code), hours(24), "midnight itself is the new day");
    }
    let late = NOW + Duration::from_secs(15 * 3600 + 1800);
    let found = classify(&TABLE, &answer("sms.twilio", 429, "63038"), late);
    assert_eq!(found, hours(1), "half an hour before midnight");
}

fn row(json: &str) -> Result<AnswerRow, serde_json::Error> {
    serde_json::from_str(json)
}

#[test]
fn a_users_row_bounds_retries_and_strikes() {
    let own = row(r#"{"service": "http", "status": 409, "outcome": "retry_backoff", "retries": 1,
                      "strike": "endpoint"}"#);
    let table = answers::with_user_rows(vec![own.unwrap()]);
    let (outcome, terms) = judge(&table, &answer("http", 409, ""), NOW);
    assert_eq!(outcome, Outcome::RetryBackoff { at_least: Duration::ZERO });
    let expected = AnswerTerms { retries_max: Some(1), strike: Some(StrikeKind::Endpoint) };
    assert_eq!(terms, expected);
    let silent = row(r#"{"service": "sms.twilio", "status": 400, "code": "30005",
                         "outcome": "drop_message"}"#);
    let table = answers::with_user_rows(vec![silent.unwrap()]);
    let (_, terms) = judge(&table, &answer("sms.twilio", 400, "30005"), NOW);
    assert_eq!(terms, AnswerTerms::default(), "a row without a strike takes it away");
}
