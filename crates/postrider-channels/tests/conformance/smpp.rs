//! The promises of every channel, said in SMPP, and what a message centre alone is promised. Where HTTP/2 has
//! a GOAWAY, a message centre has `unbind`.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Attempt, Outcome, Report, Scope, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::accounts::{TestAccounts, WITHIN};
use crate::fake_smsc::{Act, BIND, ENQUIRE, FakeSmsc, RECEIPT_ANSWERED, SUBMIT, UNBIND};
use crate::provider::authority;

const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };

fn pause(seconds: u64) -> Outcome {
    Outcome::RetryAfter { after: Duration::from_secs(seconds), scope: Scope::Credential }
}

fn texting(smsc: &FakeSmsc) -> TestAccounts {
    TestAccounts::sms(&[smsc.account()], WITHIN)
}

/// One message to a centre that answers binds and messages so.
async fn met(binds: &[Act], submits: &[Act]) -> Report {
    let smsc = FakeSmsc::with(binds.to_vec(), submits.to_vec()).await;
    texting(&smsc).text().await
}

/// One message that is answered with this status.
async fn told(status: u32) -> Report {
    met(&[], &[Act::Status(status)]).await
}

pub(crate) async fn a_success_is_accepted() {
    let report = met(&[], &[]).await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("m-1")));
}

pub(crate) async fn throttling_without_a_time_waits_as_the_table_says() {
    assert_eq!(told(0x58).await.outcome, pause(1));
    assert_eq!(told(0x14).await.outcome, pause(1));
}

pub(crate) async fn a_gone_answer_marks_the_address_as_gone() {
    assert_eq!(told(0x0b).await.outcome, Outcome::Gone);
}

/// A message centre says why in a number, and so cannot repeat another.
pub(crate) async fn a_refusal_drops_the_message_and_says_why_without_the_address() {
    let report = told(0x01).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::DropMessage, Some("0x01")));
    assert_eq!(report.detail, None);
}

pub(crate) async fn a_refused_credential_is_renewed_and_then_accepted() {
    let smsc = FakeSmsc::with([Act::Status(0x0e)], []).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let mut account = smsc.account();
    account["credential"] = json!(format!("file:{}", file.path().display()));
    let fixture = TestAccounts::sms(&[account], WITHIN);
    let report = fixture.text().await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("0x0e")));
    std::fs::write(file.path(), "new").unwrap();
    fixture.clock.advance(Duration::from_secs(600));
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    let binds = smsc.heard(BIND);
    assert!(binds[0].starts_with(b"shop\0old\0") && binds[1].starts_with(b"shop\0new\0"));
}

/// The id of a message is the only text in an answer.
pub(crate) async fn an_echoed_credential_is_not_shown() {
    let report = met(&[], &[Act::Named(b"id-s3cret\0")]).await;
    assert_eq!((report.outcome, report.provider_id), (Outcome::Accepted, None));
}

#[tokio::test]
async fn a_tenant_does_not_learn_where_the_password_of_a_message_centre_is() {
    let mut account = FakeSmsc::start().await.account();
    account["credential"] = json!("file:/operators-place/smpp.password");
    let report = TestAccounts::sms(&[account], WITHIN).text().await;
    assert_eq!(report.outcome, Outcome::Config);
    assert_eq!(report.code.as_deref(), Some("credential_missing"));
    assert!(!report.detail.unwrap().contains("operators-place"));
}

pub(crate) async fn a_temporary_failure_is_tried_again() {
    assert_eq!(told(0x08).await.outcome, BACKOFF);
    assert_eq!(told(0x64).await.outcome, BACKOFF);
}

pub(crate) async fn a_slow_answer_is_waited_for() {
    let go = Arc::new(Notify::new());
    let smsc = FakeSmsc::with([], [Act::Held(go.clone())]).await;
    let fixture = texting(&smsc);
    let heard = async {
        smsc.await_heard(SUBMIT, 1).await;
        go.notify_one();
    };
    let (report, ()) = tokio::join!(fixture.text(), heard);
    assert_eq!(report.outcome, Outcome::Accepted);
    assert_eq!((smsc.heard(SUBMIT).len(), smsc.connected()), (1, 1));
}

/// A centre that does not answer is taken for dead.
pub(crate) async fn silence_is_ambiguous() {
    let smsc = FakeSmsc::with([], [Act::Silence]).await;
    let fixture = TestAccounts::sms(&[smsc.account()], Duration::from_secs(1));
    let report = fixture.text().await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Ambiguous, Some("timeout")));
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    assert_eq!(smsc.heard(BIND).len(), 2);
}

pub(crate) async fn a_failed_connection_is_tried_again() {
    let report = TestAccounts::sms(&[nobody().await], WITHIN).text().await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("connect")));
}

/// A centre that was there until a moment ago.
async fn nobody() -> Value {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut account = FakeSmsc::start().await.account();
    account["port"] = json!(closed.local_addr().unwrap().port());
    account
}

pub(crate) async fn a_connection_reset_before_the_request_was_read_is_tried_again() {
    let report = met(&[Act::HangUp], &[]).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("connect")));
}

pub(crate) async fn a_connection_lost_after_the_request_is_ambiguous() {
    let report = met(&[], &[Act::HangUp]).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Ambiguous, Some("reset")));
}

pub(crate) async fn a_name_that_does_not_resolve_is_tried_again() {
    let mut account = nobody().await;
    account["host"] = json!("no-such-host.localdomain.test");
    let report = TestAccounts::sms(&[account], WITHIN).text().await;
    assert_eq!(report.outcome, BACKOFF);
    // Which of them depends on the resolver of the machine.
    assert!(matches!(report.code.as_deref(), Some("dns" | "no_such_host")), "{report:?}");
}

pub(crate) async fn a_goaway_costs_nothing_and_leads_to_a_new_connection() {
    let smsc = FakeSmsc::with([], [Act::Farewell]).await;
    let fixture = texting(&smsc);
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    smsc.await_heard(UNBIND | 0x8000_0000, 1).await;
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    assert_eq!((smsc.heard(BIND).len(), smsc.heard(SUBMIT).len()), (2, 2));
}

/// Still bound from before, or in no state for it.
pub(crate) async fn a_goaway_with_an_error_is_not_retried_at_once() {
    assert_eq!(met(&[Act::Status(0x05)], &[]).await.outcome, pause(30));
}

pub(crate) async fn a_huge_answer_is_cut_short() {
    for len in [1 << 20, 4] {
        let smsc = FakeSmsc::with([], [Act::Huge(len)]).await;
        let fixture = texting(&smsc);
        let report = fixture.text().await;
        assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Ambiguous, Some("reset")));
        assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
        assert_eq!(smsc.connected(), 2);
    }
}

pub(crate) async fn a_connection_that_the_peer_closes_is_not_used_again() {
    let smsc = FakeSmsc::with([], [Act::HangUp]).await;
    let fixture = texting(&smsc);
    assert_eq!(fixture.text().await.outcome, Outcome::Ambiguous);
    for _ in 0..2 {
        assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    }
    assert_eq!(smsc.connected(), 2);
}

pub(crate) async fn nothing_is_sent_at_or_after_its_expiry() {
    let smsc = FakeSmsc::start().await;
    let fixture = texting(&smsc);
    let attempt = fixture.to_phone();
    fixture.clock.advance(Duration::from_secs(3600));
    assert_eq!(fixture.one(attempt.clone()).await.outcome, Outcome::Expired);
    assert!(smsc.heard(SUBMIT).is_empty());
    let later = Attempt { expires_at: Timestamp(attempt.expires_at.0 + 1), ..attempt };
    assert_eq!(fixture.one(later).await.outcome, Outcome::Accepted);
}

pub(crate) async fn every_attempt_of_a_large_batch_ends_exactly_once_over_few_connections() {
    let smsc = FakeSmsc::start().await;
    let fixture = texting(&smsc);
    for report in fixture.deliver(vec![fixture.to_phone(); 400]).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert_eq!((smsc.heard(SUBMIT).len(), smsc.connected()), (400, 1));
}

/// The window: as many messages as may wait for their answer.
pub(crate) async fn the_peer_s_limit_of_concurrent_calls_is_respected() {
    let smsc = FakeSmsc::start().await;
    let mut account = smsc.account();
    account["window"] = json!(3);
    let fixture = TestAccounts::sms(&[account], WITHIN);
    for report in fixture.deliver(vec![fixture.to_phone(); 60]).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert!(smsc.at_once_most() <= 3, "{} at once", smsc.at_once_most());
}

pub(crate) async fn many_attempts_connect_once_to_an_unreachable_peer() {
    let smsc = FakeSmsc::with(vec![Act::HangUp; 100], []).await;
    let fixture = texting(&smsc);
    for report in fixture.deliver(vec![fixture.to_phone(); 30]).await {
        let held = matches!(report.outcome, Outcome::Hold { .. });
        assert!(held || report.outcome == BACKOFF, "{report:?}");
    }
    assert_eq!(smsc.connected(), 1);
}

pub(crate) async fn one_bad_attempt_does_not_harm_the_others() {
    let smsc = FakeSmsc::with([], [Act::Status(0x0b)]).await;
    let fixture = texting(&smsc);
    let ends = fixture.deliver(vec![fixture.to_phone(); 3]).await;
    let named = |name: &str| ends.iter().filter(|end| end.outcome.name() == name).count();
    assert_eq!((named("gone"), named("accepted")), (1, 2));
}

#[tokio::test]
async fn a_message_is_bound_submitted_and_its_receipt_answered() {
    let smsc = FakeSmsc::start().await;
    let fixture = texting(&smsc);
    let attempt = fixture.to_phone();
    fixture.clock.advance(Duration::from_secs(600));
    for report in fixture.deliver(vec![attempt; 30]).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert_eq!(smsc.heard(BIND), [b"shop\0s3cret\0\0\x34\0\0\0".to_vec()]);
    let sent = smsc.heard(SUBMIT);
    assert_eq!(sent.len(), 30);
    let text = String::from_utf8_lossy(&sent[0]).into_owned();
    assert!(text.contains("4915112345678\0") && text.contains("000000005000000R\0"), "{text:?}");
    smsc.await_heard(RECEIPT_ANSWERED, 30).await;
}

#[tokio::test]
async fn statuses_mean_what_the_table_says() {
    let backoff = |s| Outcome::RetryBackoff { at_least: Duration::from_secs(s) };
    for (status, outcome) in [
        (0x08, backoff(0)),
        (0x58, pause(1)),
        (0x45, backoff(60)),
        (0x0b, Outcome::Gone),
        (0x0a, Outcome::Config),
        (0x01, Outcome::DropMessage),
    ] {
        let report = told(status).await;
        assert_eq!(report.outcome, outcome, "{status:#x}");
        assert_eq!(report.code, Some(format!("0x{status:02x}")));
    }
}

/// A centre that still holds the old session would refuse a second bind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_given_up_ends_at_once() {
    let smsc = FakeSmsc::with([], [Act::Silence]).await;
    let fixture = TestAccounts::sms(&[smsc.account()], Duration::from_secs(1));
    assert_eq!(fixture.text().await.outcome, Outcome::Ambiguous);
    smsc.await_ended(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_centre_that_forgot_us_is_bound_to_anew() {
    let smsc = FakeSmsc::with([], [Act::Status(0x04)]).await;
    let fixture = texting(&smsc);
    assert_eq!(fixture.text().await.outcome, pause(30));
    fixture.clock.advance(Duration::from_secs(30));
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    assert_eq!(smsc.heard(BIND).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_needs_the_centre_no_more_says_good_bye() {
    let smsc = FakeSmsc::start().await;
    let fixture = texting(&smsc);
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    drop(fixture);
    smsc.await_heard(UNBIND, 1).await;
}

/// Thirty seconds of quiet: the line is asked, and stays.
#[tokio::test]
async fn a_quiet_line_is_asked_whether_anybody_is_there() {
    let smsc = FakeSmsc::start().await;
    let fixture = texting(&smsc);
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    tokio::time::pause();
    smsc.await_heard(ENQUIRE, 5).await;
    tokio::time::resume();
    assert_eq!(fixture.text().await.outcome, Outcome::Accepted);
    assert_eq!(smsc.heard(BIND).len(), 1);
}

/// A way to a message centre that speaks TLS; its port.
async fn tls_to(port: u16) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = listener.local_addr().unwrap().port();
    let tls = tokio_rustls::TlsAcceptor::from(authority().server_config(b"", false));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = tls.accept(tcp).await else { return };
                let centre = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut centre.unwrap()).await;
            });
        }
    });
    front
}

#[tokio::test]
async fn a_message_centre_is_reached_by_tls_and_never_without_it_if_it_is_asked_for() {
    let smsc = FakeSmsc::start().await;
    let mut account = smsc.account();
    account["tls"] = true.into();
    let plain = TestAccounts::sms(&[account.clone()], WITHIN).text().await;
    assert_ne!(plain.outcome, Outcome::Accepted, "the password is not sent in the clear");
    assert!(smsc.heard(BIND).is_empty());
    let port = account["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap();
    account["port"] = tls_to(port).await.into();
    let report = TestAccounts::sms(&[account], WITHIN).text().await;
    assert_eq!(report.outcome, Outcome::Accepted, "{report:?}");
    assert_eq!(smsc.heard(SUBMIT).len(), 1);
}
