//! How a row of a table of answers is written, and which errors a wrong one gets. The rows of the channels are tested
//! in `postrider-channels`.

use postrider_core::policy::classify::AnswerRow;

fn row(json: &str) -> Result<AnswerRow, serde_json::Error> {
    serde_json::from_str(json)
}

#[test]
fn a_bad_row_says_what_is_allowed() {
    let error = |json: &str| serde_json::from_str::<AnswerRow>(json).unwrap_err().to_string();
    assert_eq!(
        error(r#"{"service": "webhook", "status": 700, "outcome": "gone"}"#),
        "status: found 700, allowed is a number 100…599 or a range such as \"500-599\""
    );
    let backwards = error(r#"{"service": "webhook", "status": "599-500", "outcome": "gone"}"#);
    assert!(backwards.starts_with("status: found \"599-500\""), "{backwards}");
    let unknown = error(r#"{"service": "webhook", "status": 500, "outcome": "shrug"}"#);
    assert!(unknown.starts_with("outcome: found \"shrug\", allowed is accepted"), "{unknown}");
    let extra = error(r#"{"service": "webhook", "status": 500, "outcome": "gone", "why": 1}"#);
    assert!(extra.contains("unknown field `why`"), "{extra}");
}

#[test]
fn a_row_that_bounds_what_is_not_retried_or_strikes_with_a_word_unknown_is_refused() {
    let error = |json: &str| row(json).unwrap_err().to_string();
    assert_eq!(
        error(r#"{"service": "http", "status": 409, "outcome": "gone", "retries": 2}"#),
        "retries: found 2 beside gone, allowed with retry_backoff and retry_after"
    );
    assert_eq!(
        error(r#"{"service": "http", "status": 409, "outcome": "gone", "strike": "mood"}"#),
        "strike: found \"mood\", allowed is endpoint, mailbox, number, unreachable, blocked, \
         device, key, host, failing"
    );
}
