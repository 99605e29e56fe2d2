//! The promises of every channel, said in SMTP. Where HTTP/2 has a GOAWAY, a mail server has 421.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Attempt, DeliveryId, Outcome, Report, Scope, Timestamp};
use serde_json::json;
use tokio::sync::Notify;

use crate::accounts::{ADA, TestAccounts};
use crate::relay::{Act, Relay};

pub(crate) const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };
const CLOSING: &str = "421 4.3.2 closing";

/// One mail to a relay that does this at that command.
async fn met(command: &'static str, act: Act) -> Report {
    let relay = Relay::start().await;
    relay.then(command, act);
    TestAccounts::email(&[relay.account()]).mail_to(ADA).await
}

/// One mail to a relay that says this to that command.
pub(crate) async fn told(command: &'static str, reply: &'static str) -> Report {
    met(command, Act::Say(reply)).await
}

pub(crate) async fn a_success_is_accepted() {
    for reply in ["250 Ok", "250 2.0.0 Ok: queued as 4F0C74E3", "251 4.0.0 odd but positive"] {
        let report = told(".", reply).await;
        assert_eq!((report.outcome, report.retry_after), (Outcome::Accepted, None));
        assert_eq!(report.status, reply[..3].parse().ok());
    }
}

pub(crate) async fn throttling_without_a_time_waits_as_the_table_says() {
    let report = told("MAIL", "454 4.7.0 Throttling failure: Maximum sending rate exceeded.").await;
    let after = Duration::from_secs(5);
    assert_eq!(report.outcome, Outcome::RetryAfter { after, scope: Scope::Credential });
}

pub(crate) async fn a_gone_answer_marks_the_address_as_gone() {
    assert_eq!(told("RCPT", "550 5.1.1 unknown").await.outcome, Outcome::Gone);
}

pub(crate) async fn a_refusal_drops_the_message_and_says_why_without_the_address() {
    let report = told("RCPT", "554 5.7.1 <Ada@Example.org>: no mail for ada@example.org").await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    assert_eq!(report.detail.as_deref(), Some("<[hidden]>: no mail for [hidden]"));
    assert_eq!(report.code.as_deref(), Some("5.7.1"));
}

pub(crate) async fn a_refused_credential_is_renewed_and_then_accepted() {
    let relay = Relay::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let mut account = relay.account();
    account["user"] = json!("shop");
    account["credential"] = json!(format!("file:{}", file.path().display()));
    relay.then("AUTH", Act::Say("535 5.7.8 wrong"));
    let fixture = TestAccounts::email(&[account]);
    let report = fixture.mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("5.7.8")));
    std::fs::write(file.path(), "new").unwrap();
    fixture.clock.advance(Duration::from_secs(600));
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    let said = relay.said();
    let logins: Vec<_> = said.iter().filter(|line| line.starts_with("AUTH")).collect();
    assert_eq!(logins, ["AUTH PLAIN AHNob3AAb2xk", "AUTH PLAIN AHNob3AAbmV3"]);
}

/// The password alone, in base64, and as PLAIN sends it.
pub(crate) async fn an_echoed_credential_is_not_shown() {
    for (command, reply) in [
        ("AUTH", "535 5.7.8 s3cret, czNjcmV0, AHNob3AAczNjcmV0"),
        ("MAIL", "554 5.7.1 s3cret, czNjcmV0, AHNob3AAczNjcmV0"),
        (".", "554 5.7.1 s3cret, czNjcmV0, AHNob3AAczNjcmV0"),
        (".", "250 2.0.0 Ok: queued as s3cret"),
    ] {
        let relay = Relay::start().await;
        relay.then(command, Act::Say(reply));
        let mut account = relay.account();
        account["user"] = json!("shop");
        account["credential"] = json!("command:echo s3cret");
        let report = TestAccounts::email(&[account]).mail_to(ADA).await;
        let told = format!("{:?} {:?} {:?}", report.detail, report.code, report.provider_id);
        assert!(told.contains("[hidden]"), "{command}: {told}");
        for secret in ["s3cret", "czNjcmV0", "AHNob3AAczNjcmV0"] {
            assert!(!told.contains(secret), "{command}: {told}");
        }
    }
}

#[tokio::test]
async fn a_tenant_does_not_learn_where_the_password_of_a_relay_is() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["user"] = json!("shop");
    account["credential"] = json!("file:/operators-place/smtp.password");
    let report = TestAccounts::email(&[account]).mail_to(ADA).await;
    assert_eq!(report.code.as_deref(), Some("credential_missing"));
    assert!(!report.detail.unwrap().contains("operators-place"));
}

pub(crate) async fn a_temporary_failure_is_tried_again() {
    for command in ["", "EHLO", "MAIL", "RCPT", "DATA", "."] {
        assert_eq!(told(command, "451 4.3.0 try later").await.outcome, BACKOFF, "{command}");
    }
}

pub(crate) async fn a_slow_answer_is_waited_for() {
    let relay = Relay::start().await;
    let go = Arc::new(Notify::new());
    relay.then(".", Act::Held(go.clone()));
    let fixture = TestAccounts::email(&[relay.account()]);
    let heard = async {
        relay.heard_a_mail().await;
        go.notify_one();
    };
    let (report, ()) = tokio::join!(fixture.mail_to(ADA), heard);
    assert_eq!(report.outcome, Outcome::Accepted);
    assert_eq!((relay.mails().len(), relay.connected()), (1, 1));
}

/// Behind the final dot the mail may have been taken; before it, it was not.
pub(crate) async fn silence_is_ambiguous() {
    for (command, outcome) in [(".", Outcome::Ambiguous), ("DATA", BACKOFF), ("MAIL", BACKOFF)] {
        let relay = Relay::start().await;
        relay.then(command, Act::Silence);
        let fixture = match command {
            "." => TestAccounts::hurried(relay.port(), Duration::from_secs(1)),
            _ => TestAccounts::email_within(&[relay.account()], Duration::from_secs(1)),
        };
        let report = fixture.mail_to(ADA).await;
        assert_eq!((report.outcome, report.code.as_deref()), (outcome, Some("timeout")));
        // A connection on which nothing came back is not used again.
        assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
        assert_eq!(relay.connected(), 2);
    }
}

pub(crate) async fn a_failed_connection_is_tried_again() {
    let report = met("", Act::HangUp).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("reset")));
    let report = TestAccounts::email(&[nobody().await]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("connect")));
}

/// A relay that was there until a moment ago.
async fn nobody() -> serde_json::Value {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    json!({"from": "a@b.example", "host": "127.0.0.1", "port": port, "tls": "none"})
}

pub(crate) async fn a_connection_reset_before_the_request_was_read_is_tried_again() {
    for command in ["EHLO", "MAIL", "RCPT", "DATA"] {
        let report = met(command, Act::HangUp).await;
        assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("reset")), "{command}");
    }
}

pub(crate) async fn a_connection_lost_after_the_request_is_ambiguous() {
    let report = met(".", Act::HangUp).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Ambiguous, Some("reset")));
}

pub(crate) async fn a_name_that_does_not_resolve_is_tried_again() {
    let account = json!({"from": "a@b.example", "host": "no-such-host.localdomain.test"});
    let report = TestAccounts::email(&[account]).mail_to(ADA).await;
    assert_eq!(report.outcome, BACKOFF);
    // Which of them depends on the resolver of the machine.
    assert!(matches!(report.code.as_deref(), Some("dns" | "no_such_host")), "{report:?}");
}

/// Another try would show the same certificate, and the mail may not go out in the clear.
pub(crate) async fn an_untrusted_certificate_is_refused() {
    let relay = Relay::encrypted().await;
    let mut account = relay.account();
    (account["tls"], account["host"]) = (json!("implicit"), json!("localhost"));
    assert_eq!(
        TestAccounts::email(&[account.clone()]).mail_to(ADA).await.outcome,
        Outcome::Accepted
    );
    let report = TestAccounts::distrustful(&[account]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("tls")));
    assert_eq!(report.detail.as_deref(), Some("the certificate's issuer is not trusted"));
    assert_eq!(relay.mails().len(), 1);
}

/// 421 in a conversation that was used before is about that conversation, and so is its end.
pub(crate) async fn a_goaway_costs_nothing_and_leads_to_a_new_connection() {
    for farewell in [Act::Say(CLOSING), Act::HangUp] {
        let relay = Relay::start().await;
        let fixture = TestAccounts::email(&[relay.account()]);
        assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
        relay.then("RSET", farewell);
        let report = fixture.mail_to(ADA).await;
        let replayed = (Outcome::Reconnect, Some("stale_connection"));
        assert_eq!((report.outcome, report.code.as_deref()), replayed);
        assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
        assert_eq!((relay.connected(), relay.mails().len()), (2, 2));
    }
}

pub(crate) async fn a_goaway_with_an_error_is_not_retried_at_once() {
    for command in ["", "EHLO", "MAIL", "RCPT", "DATA", "."] {
        let report = told(command, CLOSING).await;
        assert_eq!((report.outcome, report.status), (BACKOFF, Some(421)), "{command}");
    }
}

pub(crate) async fn a_huge_answer_is_cut_short() {
    let huge: &'static str = Box::leak(format!("550-{}", "x".repeat(40_000)).into_boxed_str());
    let long: &'static str = Box::leak(format!("554 5.7.1 {}", "x".repeat(9_000)).into_boxed_str());
    for reply in [huge, "HTTP/1.1 400 Bad Request"] {
        let report = told("MAIL", reply).await;
        assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("protocol")));
    }
    assert!(told("RCPT", long).await.detail.unwrap().len() <= 1024);
}

/// `551` names where else the person may be found.
pub(crate) async fn a_redirect_is_not_followed() {
    let relay = Relay::start().await;
    relay.then("RCPT", Act::Say("551 5.1.6 User not local; please try <ada@elsewhere.example>"));
    let report = TestAccounts::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!(report.outcome, Outcome::Gone);
    let asked = relay.said().iter().filter(|line| line.starts_with("RCPT")).count();
    assert_eq!((asked, relay.connected()), (1, 1));
}

pub(crate) async fn a_connection_that_the_peer_closes_is_not_used_again() {
    let relay = Relay::start().await;
    relay.then(".", Act::Say(CLOSING));
    let fixture = TestAccounts::email(&[relay.account()]);
    assert_eq!(fixture.mail_to(ADA).await.outcome, BACKOFF);
    for _ in 0..2 {
        assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    }
    assert_eq!(relay.connected(), 2);
}

pub(crate) async fn nothing_is_sent_without_tls_unless_allowed() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["tls"] = json!("starttls");
    let report = TestAccounts::email(&[account]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("no_starttls")));
    assert!(!relay.said().iter().any(|line| line.starts_with("MAIL")));
    assert_eq!(
        TestAccounts::email(&[relay.account()]).mail_to(ADA).await.outcome,
        Outcome::Accepted
    );
}

pub(crate) async fn nothing_is_sent_at_or_after_its_expiry() {
    let relay = Relay::start().await;
    let fixture = TestAccounts::email(&[relay.account()]);
    let attempt = fixture.to(ADA);
    fixture.clock.advance(Duration::from_secs(3600));
    assert_eq!(fixture.one(attempt.clone()).await.outcome, Outcome::Expired);
    assert!(!relay.said().iter().any(|line| line.starts_with("MAIL")));
    let later = Attempt { expires_at: Timestamp(attempt.expires_at.0 + 1), ..attempt };
    assert_eq!(fixture.one(later).await.outcome, Outcome::Accepted);
}

pub(crate) async fn every_attempt_of_a_large_batch_ends_exactly_once_over_few_connections() {
    let relay = Relay::start().await;
    let fixture = TestAccounts::email(&[relay.account()]);
    let attempt = |nth: u128| Attempt {
        delivery: DeliveryId(nth),
        ..fixture.to(&format!("user{nth}@example.org"))
    };
    for report in fixture.deliver((0..400).map(attempt).collect()).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    let mut mails = relay.mails();
    mails.sort();
    mails.dedup();
    assert_eq!((mails.len(), relay.mails().len()), (400, 400));
    assert!(relay.connected() <= 10, "{} connections", relay.connected());
}

/// A mail server limits conversations, and the account says how many it allows.
pub(crate) async fn the_peer_s_limit_of_concurrent_calls_is_respected() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["connections"] = json!(3);
    let fixture = TestAccounts::email(&[account]);
    for report in fixture.deliver(vec![fixture.to(ADA); 60]).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert!(relay.at_once_most() <= 3, "{} at once", relay.at_once_most());
}

/// Once on each of the connections that the account may have, which all begin at the same moment.
pub(crate) async fn many_attempts_connect_once_to_an_unreachable_peer() {
    let relay = Relay::start().await;
    for _ in 0..100 {
        relay.then("", Act::HangUp);
    }
    let mut account = relay.account();
    account["connections"] = json!(1);
    let fixture = TestAccounts::email(&[account]);
    for report in fixture.deliver(vec![fixture.to(ADA); 30]).await {
        let held = matches!(report.outcome, Outcome::Hold { .. });
        assert!(held || report.outcome == BACKOFF, "{report:?}");
    }
    assert_eq!(relay.connected(), 1);
}

/// Also where a server waits for a mail although it has refused its recipient.
pub(crate) async fn one_bad_attempt_does_not_harm_the_others() {
    let relay = Relay::start().await;
    relay.then("RCPT TO:<BAD@", Act::Say("550 5.1.1 unknown"));
    let mut account = relay.account();
    account["connections"] = json!(1);
    let fixture = TestAccounts::email(&[account]);
    let batch =
        ["a@example.org", "bad@example.org", "b@example.org"].map(|email| fixture.to(email));
    let outcomes: Vec<_> =
        fixture.deliver(batch.into()).await.into_iter().map(|end| end.outcome).collect();
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Gone, Outcome::Accepted]);
    let to_whom = |mail: &String| mail.contains("To: a@") || mail.contains("To: b@");
    let mails = relay.mails();
    // The relay took 354 for granted; what it got for the bad one is empty.
    assert_eq!(mails.iter().filter(|mail| to_whom(mail)).count(), 2);
    assert!(mails.iter().all(|mail| mail.is_empty() || to_whom(mail)), "{mails:?}");
    assert_eq!(relay.connected(), 1);
}
