//! What the e-mail channel promises when it speaks SMTP.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Attempt, DeliveryId, Outcome, Report, Scope, Target, Timestamp};
use serde_json::json;

use crate::relay::{Act, Relay};
use crate::rig::Rig;

const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };
const ADA: &str = "ada@example.org";

/// One mail to a relay that says this to that command.
async fn told(command: &'static str, reply: &'static str) -> Report {
    let relay = Relay::start().await;
    relay.then(command, Act::Say(reply));
    Rig::email(&[relay.account()]).mail_to(ADA).await
}

#[tokio::test]
async fn an_acceptance_is_an_acceptance() {
    let relay = Relay::start().await;
    let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.status), (Outcome::Accepted, Some(250)));
    assert_eq!(report.provider_id.as_deref(), Some("4F0C74E3"));
    let mail = relay.mails().remove(0);
    assert!(
        mail.contains("Message-ID: <dlv_00000000000000000000000009@shop.example>\r\n"),
        "{mail}"
    );
    assert!(mail.contains("Order 91 is on its way\r\n"), "{mail}");
    let said = relay.said();
    assert_eq!(said[0], "EHLO [127.0.0.1]");
    assert!(said[1].starts_with("MAIL FROM:<news@shop.example> SIZE="), "{said:?}");
    assert!(said[1].ends_with(" RET=HDRS ENVID=dlv_00000000000000000000000009"), "{said:?}");
    assert_eq!(
        said[2],
        "RCPT TO:<ada@example.org> NOTIFY=FAILURE,DELAY ORCPT=rfc822;ada@example.org"
    );
    assert_eq!(said[3], "DATA");
}

#[tokio::test]
async fn every_attempt_is_the_same_mail_under_the_same_id() {
    let relay = Relay::start().await;
    let rig = Rig::email(&[relay.account()]);
    rig.mail_to(ADA).await;
    rig.clock.advance(Duration::from_secs(900));
    rig.mail_to(ADA).await;
    let mails = relay.mails();
    assert_eq!(mails[0], mails[1]);
}

#[tokio::test]
async fn each_stage_may_refuse_and_the_table_says_what_it_means() {
    let hour = |h: u64| Outcome::RetryBackoff { at_least: Duration::from_secs(h * 3600) };
    let grey = Outcome::RetryBackoff { at_least: Duration::from_secs(300) };
    for (command, reply, outcome) in [
        ("", "554 5.7.1 you are listed", Outcome::Config),
        ("", "421 too busy", BACKOFF),
        ("EHLO", "421 4.3.2 not now", BACKOFF),
        ("MAIL", "451 4.3.0 try later", BACKOFF),
        ("MAIL", "530 5.7.0 log in first", Outcome::Config),
        ("MAIL", "550 5.1.1 no such sender", Outcome::DropMessage),
        ("RCPT", "550 5.1.1 unknown", Outcome::Gone),
        ("RCPT", "550 unknown", Outcome::DropMessage),
        ("RCPT", "450 4.7.1 greylisted", grey),
        ("RCPT", "452 4.5.3 too many recipients", BACKOFF),
        ("RCPT", "552 5.2.2 full", hour(4)),
        ("DATA", "451 4.3.0 no", BACKOFF),
        (".", "554 5.7.1 spam", Outcome::DropMessage),
        (".", "452 4.3.1 disk full", BACKOFF),
        (".", "421 4.3.2 closing", BACKOFF),
        (".", "550 4.1.1 unknown after all", Outcome::Gone),
    ] {
        let report = told(command, reply).await;
        assert_eq!(report.outcome, outcome, "{command} {reply}");
        assert_eq!(report.status, reply[..3].parse().ok(), "{command} {reply}");
    }
}

#[tokio::test]
async fn a_throttled_account_waits_as_a_whole() {
    let report = told("MAIL", "454 4.7.0 Throttling failure: Maximum sending rate exceeded.").await;
    let after = Duration::from_secs(5);
    assert_eq!(report.outcome, Outcome::RetryAfter { after, scope: Scope::Credential });
}

#[tokio::test]
async fn a_refusal_says_why_without_the_recipient() {
    let report = told("RCPT", "554 5.7.1 <Ada@Example.org>: no mail for ada@example.org").await;
    assert_eq!(report.detail.as_deref(), Some("<[hidden]>: no mail for [hidden]"));
    assert_eq!(report.code.as_deref(), Some("5.7.1"));
}

#[tokio::test]
async fn a_connection_lost_before_the_final_dot_is_tried_again_and_after_it_is_ambiguous() {
    for command in ["", "EHLO", "MAIL", "RCPT", "DATA"] {
        let relay = Relay::start().await;
        relay.then(command, Act::HangUp);
        let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
        assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("reset")), "{command}");
    }
    let relay = Relay::start().await;
    relay.then(".", Act::HangUp);
    let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Ambiguous, Some("reset")));
}

#[tokio::test]
async fn silence_before_the_mail_is_tried_again_and_costs_the_connection() {
    let relay = Relay::start().await;
    relay.then("MAIL", Act::Silence);
    let rig = Rig::email_within(&[relay.account()], Duration::from_secs(1));
    let report = rig.mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("timeout")));
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
    assert_eq!(relay.connected(), 2);
}

#[tokio::test]
async fn one_bad_recipient_never_spoils_the_others() {
    let relay = Relay::start().await;
    relay.then("RCPT TO:<BAD@", Act::Say("550 5.1.1 unknown"));
    // A server that waits for a mail although it refused its recipient.
    let rig = Rig::email(&[json!({
        "from": "news@shop.example", "host": "127.0.0.1", "port": relay.account()["port"],
        "tls": "none", "connections": 1,
    })]);
    let to = |email: &str| rig.attempt(Target::Email { email: email.into(), name: None });
    let ends =
        rig.deliver(vec![to("a@example.org"), to("bad@example.org"), to("b@example.org")]).await;
    let outcomes: Vec<_> = ends.into_iter().map(|end| end.outcome).collect();
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Gone, Outcome::Accepted]);
    let to_whom = |mail: &String| mail.contains("To: a@") || mail.contains("To: b@");
    let mails = relay.mails();
    // The relay took 354 for granted; what it got for the bad one is empty.
    assert_eq!(mails.iter().filter(|mail| to_whom(mail)).count(), 2);
    assert!(mails.iter().all(|mail| mail.is_empty() || to_whom(mail)), "{mails:?}");
    assert_eq!(relay.connected(), 1);
}

#[tokio::test]
async fn a_connection_is_used_for_many_mails_and_reset_in_between() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["connections"] = json!(1);
    account["mails_per_connection"] = json!(10);
    let rig = Rig::email(&[account]);
    for _ in 0..25 {
        assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
    }
    assert_eq!(relay.connected(), 3);
    let resets = relay.said().iter().filter(|line| *line == "RSET").count();
    assert_eq!(resets, 22);
}

#[tokio::test]
async fn a_421_closes_the_connection_and_a_stale_one_costs_nothing() {
    let relay = Relay::start().await;
    let rig = Rig::email(&[relay.account()]);
    rig.mail_to(ADA).await;
    relay.then("RSET", Act::HangUp);
    let report = rig.mail_to(ADA).await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::Reconnect, Some("stale_connection"))
    );
    relay.then(".", Act::Say("421 4.3.2 closing"));
    assert_eq!(rig.mail_to(ADA).await.outcome, BACKOFF);
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
    assert_eq!(relay.connected(), 3);
}

#[tokio::test]
async fn a_server_without_pipelining_hears_one_command_at_a_time() {
    let relay = Relay::with("8BITMIME").await;
    relay.then("RCPT", Act::Say("550 5.1.1 unknown"));
    let rig = Rig::email(&[relay.account()]);
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Gone);
    assert_eq!(relay.said()[1..], ["MAIL FROM:<news@shop.example>", "RCPT TO:<ada@example.org>"]);
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
}

#[tokio::test]
async fn what_the_server_can_never_take_is_not_sent() {
    let relay = Relay::with("PIPELINING SIZE=100 SMTPUTF8 8BITMIME").await;
    let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::DropMessage, Some("too_large")));
    let relay = Relay::with("PIPELINING").await;
    let report = Rig::email(&[relay.account()]).mail_to("ö@example.org").await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::DropMessage, Some("no_smtputf8"))
    );
    let relay = Relay::with("SMTPUTF8 8BITMIME").await;
    let report = Rig::email(&[relay.account()]).mail_to("ö@example.org").await;
    assert_eq!(report.outcome, Outcome::Accepted);
    assert!(relay.mails()[0].contains("To: ö@example.org\r\n"));
}

#[tokio::test]
async fn nothing_is_sent_at_or_after_its_expiry() {
    let relay = Relay::start().await;
    let rig = Rig::email(&[relay.account()]);
    let attempt = rig.attempt(Target::Email { email: ADA.into(), name: None });
    rig.clock.advance(Duration::from_secs(3600));
    assert_eq!(rig.one(attempt.clone()).await.outcome, Outcome::Expired);
    assert!(!relay.said().iter().any(|line| line.starts_with("MAIL")));
    let later = Attempt { expires_at: Timestamp(attempt.expires_at.0 + 1), ..attempt };
    assert_eq!(rig.one(later).await.outcome, Outcome::Accepted);
}

#[tokio::test]
async fn a_refused_password_is_our_fault_and_is_read_anew() {
    let relay = Relay::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let mut account = relay.account();
    account["user"] = json!("shop");
    account["credential"] = json!(format!("file:{}", file.path().display()));
    relay.then("AUTH", Act::Say("535 5.7.8 wrong"));
    let rig = Rig::email(&[account]);
    let report = rig.mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::Config, Some("5.7.8")));
    std::fs::write(file.path(), "new").unwrap();
    rig.clock.advance(Duration::from_secs(600));
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
    let said = relay.said();
    let logins: Vec<_> = said.iter().filter(|line| line.starts_with("AUTH")).collect();
    assert_eq!(logins, ["AUTH PLAIN AHNob3AAb2xk", "AUTH PLAIN AHNob3AAbmV3"]);
}

#[tokio::test]
async fn when_one_relay_refuses_us_the_next_takes_over() {
    let (refusing, willing) = (Relay::start().await, Relay::start().await);
    refusing.then("", Act::Say("554 5.7.1 go away"));
    let rig = Rig::email(&[refusing.account(), willing.account()]);
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Reconnect);
    assert_eq!(rig.mail_to(ADA).await.outcome, Outcome::Accepted);
    assert_eq!((refusing.mails().len(), willing.mails().len()), (0, 1));
}

#[tokio::test]
async fn a_password_never_goes_out_in_the_clear() {
    let relay = Relay::start().await;
    for tls in ["opportunistic", "starttls"] {
        let mut account = relay.account();
        account["tls"] = json!(tls);
        account["user"] = json!("shop");
        account["credential"] = json!("command:echo s3cret");
        let report = Rig::email(&[account]).mail_to(ADA).await;
        assert_eq!(report.outcome, Outcome::Config, "{report:?}");
    }
    assert!(!relay.said().iter().any(|line| line.starts_with("AUTH")));
}

#[tokio::test]
async fn a_storm_of_mails_knocks_at_a_closed_door_a_few_times_only() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let account = json!({"from": "a@b.example", "host": "127.0.0.1", "port": port, "tls": "none"});
    let rig = Rig::email(&[account]);
    let attempt = rig.attempt(Target::Email { email: ADA.into(), name: None });
    for report in rig.deliver(vec![attempt; 10]).await {
        assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("connect")));
    }
}

#[tokio::test]
async fn a_large_batch_ends_exactly_once_each_over_few_connections() {
    let relay = Relay::start().await;
    let rig = Rig::email(&[relay.account()]);
    let attempt = |nth: u128| {
        let target = Target::Email { email: format!("user{nth}@example.org").into(), name: None };
        Attempt { delivery: DeliveryId(nth), ..rig.attempt(target) }
    };
    for report in rig.deliver((0..400).map(attempt).collect()).await {
        assert_eq!(report.outcome, Outcome::Accepted);
    }
    assert_eq!(relay.mails().len(), 400);
    assert!(relay.connected() <= 10, "{} connections", relay.connected());
}

#[tokio::test]
async fn a_huge_or_foolish_reply_ends_the_conversation() {
    let relay = Relay::start().await;
    relay.then("MAIL", Act::Say("HTTP/1.1 400 Bad Request"));
    let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (BACKOFF, Some("protocol")));
    let huge: &'static str = Box::leak(format!("550-{}", "x".repeat(40_000)).into_boxed_str());
    let relay = Relay::start().await;
    relay.then("MAIL", Act::Say(huge));
    let report = Rig::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!(report.code.as_deref(), Some("protocol"), "{report:?}");
}

#[tokio::test]
async fn a_mail_without_its_dkim_key_waits_for_a_person() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["dkim"] = json!([{"selector": "s1", "key": "file:/surely/not/there.pem"}]);
    let report = Rig::email(&[account]).mail_to(ADA).await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::Config, Some("dkim_key_missing"))
    );
    assert_eq!(relay.connected(), 0);
}

#[tokio::test]
async fn what_was_written_for_mails_wins_and_unsubscribing_takes_one_click() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["unsubscribe_url"] = json!("https://shop.example/u/{delivery}");
    account["return_path"] = json!("bounce+{delivery}@shop.example");
    let rig = Rig::email(&[account]);
    let attempt = rig.attempt(Target::Email { email: ADA.into(), name: Some("Ada".into()) });
    let mut message = (*attempt.message).clone();
    message.content = r#"{"title":"no","email":{"subject":"Hello","html":"<p>Hi</p>"}}"#.into();
    rig.one(Attempt { message: Arc::new(message), ..attempt }).await;
    let mail = relay.mails().remove(0);
    let id = "dlv_00000000000000000000000009";
    for wanted in [
        "Subject: Hello\r\n".to_owned(),
        "To: Ada <ada@example.org>\r\n".to_owned(),
        format!("List-Unsubscribe: <https://shop.example/u/{id}>\r\n"),
        "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n".to_owned(),
    ] {
        assert!(mail.contains(&wanted), "{wanted} in {mail}");
    }
    assert!(relay.said()[1].starts_with(&format!("MAIL FROM:<bounce+{id}@shop.example>")));
}
