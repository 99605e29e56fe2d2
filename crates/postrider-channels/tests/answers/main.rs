//! How the built-in table is applied: which row wins, which waits `Retry-After` can ask for, how a user's rows change
//! it. Single rows are tested by `rows`.

mod promises;
mod terms;

use std::sync::LazyLock;
use std::time::Duration;

use postrider_channels::answers;
use postrider_core::policy::classify::{AnswerRow, AnswerTable, ProviderAnswer, classify};
use postrider_core::{Outcome, Scope, Timestamp};

const NOW: Timestamp = Timestamp(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT
static TABLE: LazyLock<AnswerTable> = LazyLock::new(answers::built_in);
const OLD: Option<Duration> = Some(Duration::from_secs(301));
const FRESH: Option<Duration> = Some(Duration::from_secs(300));
const RETRY: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };

fn after(secs: u64, scope: Scope) -> Outcome {
    Outcome::RetryAfter { after: Duration::from_secs(secs), scope }
}

fn ask(answer: ProviderAnswer<'_>) -> Outcome {
    classify(&TABLE, &answer, NOW)
}

fn answer<'a>(service: &'a str, status: u16, code: &'a str) -> ProviderAnswer<'a> {
    let code = (!code.is_empty()).then_some(code);
    ProviderAnswer { service, status, code, ..ProviderAnswer::default() }
}

#[test]
fn a_class_may_retry_what_webhooks_refuse() {
    for status in [400, 401, 403, 404, 413, 422] {
        for service in ["webhook", "http"] {
            let refused = ProviderAnswer { retry_all: true, ..answer(service, status, "") };
            assert_eq!(ask(refused), RETRY, "{service} {status}");
        }
    }
    let gone = ProviderAnswer { retry_all: true, ..answer("webhook", 410, "") };
    assert_eq!(ask(gone), Outcome::Gone);
}

#[test]
fn only_an_old_token_is_worth_a_new_one() {
    for status in [401, 403] {
        let with = |token_age| ask(ProviderAnswer { token_age, ..answer("webpush", status, "") });
        assert_eq!(with(OLD), Outcome::ResignOnce);
        assert_eq!(with(FRESH), Outcome::Config);
        assert_eq!(with(None), Outcome::Config);
    }
}

#[test]
fn retry_after_is_obeyed_within_reason() {
    let told = |service, status, text| {
        ask(ProviderAnswer { retry_after: Some(text), ..answer(service, status, "") })
    };
    use Scope::*;
    assert_eq!(told("webpush", 429, "7"), after(7, Target));
    assert_eq!(told("webpush", 503, "30"), after(30, Target));
    assert_eq!(told("webpush.mozilla", 503, "90"), after(90, Target));
    assert_eq!(told("webpush", 503, "Sun, 06 Nov 1994 08:50:37 GMT"), after(60, Target));
    assert_eq!(told("webpush", 429, "999999999999999999999"), after(3600, Target));
    assert_eq!(told("http", 429, "86400"), after(900, Host));
    assert_eq!(told("webpush.wns", 406, "3600"), after(900, Credential));
    assert_eq!(told("webhook", 502, "3"), after(3, Target));
    assert_eq!(told("webhook", 429, "0"), after(1, Target), "never at once");
    assert_eq!(told("webhook", 429, "-5"), after(1, Target));
    assert_eq!(told("webhook", 429, "later"), after(60, Target), "garbage is as good as nothing");
    assert_eq!(told("webhook", 503, "later"), RETRY);
    assert_eq!(told("webhook", 200, "7"), Outcome::Accepted);
    assert_eq!(told("webhook", 404, "7"), Outcome::DropMessage);
}

#[test]
fn what_nobody_ever_heard_of_is_tried_again() {
    for status in [0, 99, 100, 199, 600, 999, u16::MAX] {
        for service in ["webpush", "webhook", "", "carrier-pigeon", ".", "webpush..x"] {
            assert_eq!(ask(answer(service, status, "x")), RETRY, "{service} {status}");
        }
    }
}

fn rows(json: &str) -> Vec<AnswerRow> {
    serde_json::from_str(json).expect("rows")
}

#[test]
fn a_users_row_wins() {
    let table = answers::with_user_rows(rows(
        r#"[
            {"service": "webhook", "status": 404, "outcome": "retry_backoff", "at_least_s": 5},
            {"service": "webhook", "status": "500-599", "outcome": "drop_message"},
            {"service": "webhook", "status": 503, "outcome": "retry_after", "scope": "host"},
            {"service": "webpush", "status": 410, "code": "105", "outcome": "drop_message"},
            {"service": "webpush", "status": 403, "code": "quota*", "outcome": "retry_after",
             "default_s": 30, "scope": "credential"},
            {"service": "webpush.ntfy", "status": 507, "outcome": "gone"}
        ]"#,
    ));
    let found = |service, status, code| classify(&table, &answer(service, status, code), NOW);
    let at_least = Duration::from_secs(5);
    assert_eq!(found("webhook", 404, ""), Outcome::RetryBackoff { at_least });
    let told = ProviderAnswer { retry_after: Some("1"), ..answer("webhook", 404, "") };
    assert_eq!(classify(&table, &told, NOW), after(5, Scope::Target), "not before at_least");
    assert_eq!(found("http", 404, ""), Outcome::DropMessage, "another service is not touched");
    assert_eq!(found("webhook", 500, ""), Outcome::DropMessage);
    assert_eq!(found("webhook", 503, ""), after(60, Scope::Host), "the more precise one wins");
    assert_eq!(found("webpush.mozilla", 410, "105"), Outcome::DropMessage, "even over ours");
    assert_eq!(found("webpush.mozilla", 410, "106"), Outcome::Gone);
    assert_eq!(found("webpush.fcm", 403, "Quota exceeded"), after(30, Scope::Credential));
    assert_eq!(found("webpush.ntfy", 507, ""), Outcome::Gone);
    assert_eq!(
        found("webpush.ntfy", 404, ""),
        Outcome::Gone,
        "a new service has its family's rows"
    );
    assert_eq!(found("webpush", 507, ""), RETRY);
}

#[test]
fn rows_read_back_as_they_were_written() {
    let all = answers::built_in().rows().to_vec();
    assert!(all.len() > 100);
    let text = serde_json::to_string(&all).expect("json");
    assert_eq!(rows(&text), all);
}
