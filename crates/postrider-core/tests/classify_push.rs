//! One line per line of FCM's and Apple's tables: what each answer means.

use std::time::Duration;

use postrider_core::classify::{Answer, Table, classify};
use postrider_core::{Outcome, Scope, Timestamp};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn after(secs: u64, scope: Scope) -> Outcome {
    Outcome::RetryAfter { after: Duration::from_secs(secs), scope }
}

fn slowly(secs: u64) -> Outcome {
    Outcome::RetryBackoff { at_least: Duration::from_secs(secs) }
}

#[track_caller]
fn table(service: &str, lines: &[(u16, &str, Outcome)]) {
    let table = Table::built_in();
    for (status, code, expected) in lines {
        let code = (!code.is_empty()).then_some(*code);
        let answer = Answer { service, status: *status, code, ..Answer::default() };
        assert_eq!(classify(&table, &answer, NOW), *expected, "{service} {status} {code:?}");
    }
}

const BAD_TOKEN: &str =
    "INVALID_ARGUMENT: The registration token is not a valid FCM registration token";

#[test]
fn fcm() {
    use Outcome::*;
    table(
        "fcm",
        &[
            (200, "", Accepted),
            (307, "", slowly(0)),
            (400, BAD_TOKEN, Gone),
            (400, "INVALID_ARGUMENT: Invalid value at 'message.android.ttl'", DropMessage),
            (400, "INVALID_ARGUMENT", DropMessage),
            (400, "", DropMessage),
            (401, "THIRD_PARTY_AUTH_ERROR", Config),
            (401, "APNS_AUTH_ERROR", Config),
            (401, "UNAUTHENTICATED", ResignOnce),
            (401, "", ResignOnce),
            (403, "SENDER_ID_MISMATCH", Gone),
            (403, "PERMISSION_DENIED", Config),
            (403, "SERVICE_DISABLED", Config),
            (403, "", Config),
            (404, "UNREGISTERED", Gone),
            (404, "NOT_FOUND", Config),
            (404, "", Config),
            (409, "", DropMessage),
            (429, "QUOTA_EXCEEDED", after(60, Scope::Credential)),
            (429, "RESOURCE_EXHAUSTED", after(60, Scope::Credential)),
            (429, "QUOTA_EXCEEDED.device", after(60, Scope::Target)),
            (429, "QUOTA_EXCEEDED.topic", after(60, Scope::Target)),
            (429, "", after(60, Scope::Credential)),
            (500, "INTERNAL", slowly(10)),
            (503, "UNAVAILABLE", slowly(10)),
            (502, "", slowly(10)),
        ],
    );
}

#[test]
fn fcm_s_retry_after_is_obeyed_but_never_for_less_than_ten_seconds_where_it_fails() {
    let told = |status, code| {
        let retry_after = Some("3");
        let answer = Answer { service: "fcm", status, code, retry_after, ..Answer::default() };
        classify(&Table::built_in(), &answer, NOW)
    };
    assert_eq!(told(429, Some("QUOTA_EXCEEDED")), after(3, Scope::Credential));
    assert_eq!(told(503, Some("UNAVAILABLE")), after(10, Scope::Target));
}

#[test]
fn apns() {
    use Outcome::*;
    let mut lines = vec![
        (200, "", Accepted),
        (400, "BadDeviceToken", DropMessage),
        (400, "BadDeviceToken.proven", Gone),
        (400, "DeviceTokenNotForTopic", DropMessage),
        (400, "IdleTimeout", Reconnect),
        (403, "UnrelatedKeyIdInToken", Reconnect),
        (403, "Forbidden", Config),
        (403, "", Config),
        (404, "BadPath", DropMessage),
        (405, "MethodNotAllowed", DropMessage),
        (410, "Unregistered", Gone),
        (410, "Unregistered.earlier", slowly(60)),
        (410, "ExpiredToken", Gone),
        (413, "PayloadTooLarge", DropMessage),
        (429, "TooManyProviderTokenUpdates", after(1_200, Scope::Credential)),
        (429, "TooManyRequests", slowly(60)),
        (500, "InternalServerError", slowly(0)),
        (500, "InternalServerError.again", slowly(900)),
        (500, "500.again", slowly(900)),
        (503, "ServiceUnavailable", slowly(0)),
        (503, "ServiceUnavailable.again", slowly(900)),
        (503, "Shutdown", Reconnect),
        (400, "SomethingNew", DropMessage),
        (503, "SomethingNew", slowly(0)),
    ];
    for ours in [
        "BadCollapseId",
        "BadExpirationDate",
        "BadMessageId",
        "BadPriority",
        "InvalidPushType",
        "DuplicateHeaders",
        "PayloadEmpty",
        "MissingDeviceToken",
    ] {
        lines.push((400, ours, DropMessage));
    }
    for topic in ["BadTopic", "MissingTopic", "TopicDisallowed"] {
        lines.push((400, topic, Config));
    }
    for identity in [
        "InvalidProviderToken",
        "MissingProviderToken",
        "BadCertificate",
        "BadCertificateEnvironment",
        "BadEnvironmentKeyIdInToken",
    ] {
        lines.push((403, identity, Config));
    }
    table("apns", &lines);
}

#[test]
fn an_expired_provider_token_is_replaced_only_if_it_can_be() {
    let told = |token_age| {
        let code = Some("ExpiredProviderToken");
        let answer = Answer { service: "apns", status: 403, code, token_age, ..Answer::default() };
        classify(&Table::built_in(), &answer, NOW)
    };
    assert_eq!(told(Some(Duration::from_secs(1_300))), Outcome::ResignOnce);
    assert_eq!(told(None), Outcome::Config);
}
