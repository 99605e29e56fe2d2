//! What SMTP alone promises: its conversation, and the mail that it carries.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::ChannelTarget;
use postrider_channels::email::EmailTarget;
use postrider_core::{Attempt, Outcome};
use serde_json::json;

use crate::accounts::{ADA, TestAccounts};
use crate::relay::{Act, Relay};
use crate::smtp::{BACKOFF, told};

#[tokio::test]
async fn a_mail_goes_out_as_smtp_wants_it() {
    let relay = Relay::start().await;
    let report = TestAccounts::email(&[relay.account()]).mail_to(ADA).await;
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
    let fixture = TestAccounts::email(&[relay.account()]);
    fixture.mail_to(ADA).await;
    fixture.clock.advance(Duration::from_secs(900));
    fixture.mail_to(ADA).await;
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
        ("RCPT", "552 5.2.2 full", hour(8)),
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
async fn a_connection_is_used_for_many_mails_and_reset_in_between() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["connections"] = json!(1);
    account["mails_per_connection"] = json!(10);
    let fixture = TestAccounts::email(&[account]);
    for _ in 0..25 {
        assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    }
    assert_eq!(relay.connected(), 3);
    let resets = relay.said().iter().filter(|line| *line == "RSET").count();
    assert_eq!(resets, 22);
}

#[tokio::test]
async fn a_server_without_pipelining_hears_one_command_at_a_time() {
    let relay = Relay::with("8BITMIME").await;
    relay.then("RCPT", Act::Say("550 5.1.1 unknown"));
    let fixture = TestAccounts::email(&[relay.account()]);
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Gone);
    assert_eq!(relay.said()[1..], ["MAIL FROM:<news@shop.example>", "RCPT TO:<ada@example.org>"]);
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
}

#[tokio::test]
async fn what_the_server_can_never_take_is_not_sent() {
    let relay = Relay::with("PIPELINING SIZE=100 SMTPUTF8 8BITMIME").await;
    let report = TestAccounts::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::DropMessage, Some("too_large")));
    let relay = Relay::with("PIPELINING").await;
    let report = TestAccounts::email(&[relay.account()]).mail_to("ö@example.org").await;
    assert_eq!(
        (report.outcome, report.code.as_deref()),
        (Outcome::DropMessage, Some("no_smtputf8"))
    );
    let relay = Relay::with("SMTPUTF8 8BITMIME").await;
    let report = TestAccounts::email(&[relay.account()]).mail_to("ö@example.org").await;
    assert_eq!(report.outcome, Outcome::Accepted);
    assert!(relay.mails()[0].contains("To: ö@example.org\r\n"));
}

#[tokio::test]
async fn when_one_relay_refuses_us_the_next_takes_over() {
    let (refusing, willing) = (Relay::start().await, Relay::start().await);
    refusing.then("", Act::Say("554 5.7.1 go away"));
    let fixture = TestAccounts::email(&[refusing.account(), willing.account()]);
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::SwitchAccount);
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
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
        let report = TestAccounts::email(&[account]).mail_to(ADA).await;
        assert_eq!(report.outcome, Outcome::Config, "{report:?}");
    }
    assert!(!relay.said().iter().any(|line| line.starts_with("AUTH")));
}

#[tokio::test]
async fn a_mail_without_its_dkim_key_waits_for_a_person() {
    let relay = Relay::start().await;
    let mut account = relay.account();
    account["dkim"] = json!([{"selector": "s1", "key": "file:/surely/not/there.pem"}]);
    let report = TestAccounts::email(&[account]).mail_to(ADA).await;
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
    let fixture = TestAccounts::email(&[account]);
    let attempt =
        fixture.attempt(EmailTarget { email: ADA.into(), name: Some("Ada".into()) }.to_target());
    let mut message = (*attempt.message).clone();
    message.content = r#"{"title":"no","email":{"subject":"Hello","html":"<p>Hi</p>"}}"#.into();
    fixture.one(Attempt { message: Arc::new(message), ..attempt }).await;
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

/// An access token lives for an hour: its end must not cost the account.
#[tokio::test]
async fn a_token_that_has_run_out_is_replaced_within_the_same_conversation() {
    let relay = Relay::with("PIPELINING AUTH=XOAUTH2").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first").unwrap();
    let mut account = relay.account();
    (account["user"], account["oauth"]) = (json!("shop"), json!(true));
    account["credential"] = json!(format!("file:{}", file.path().display()));
    account["mails_per_connection"] = json!(1);
    let fixture = TestAccounts::email(&[account]);
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    std::fs::write(file.path(), "second").unwrap();
    // A refusal is explained in a challenge, which wants an empty answer.
    relay.then("AUTH", Act::Say("334 eyJzdGF0dXMiOiI0MDEifQ=="));
    relay.then("\r", Act::Say("535 5.7.8 expired"));
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    let logins: Vec<_> = relay.said().into_iter().filter(|l| l.starts_with("AUTH")).collect();
    let token = |token: &str| {
        use base64::Engine as _;
        let text = format!("user=shop\x01auth=Bearer {token}\x01\x01");
        format!("AUTH XOAUTH2 {}", base64::engine::general_purpose::STANDARD.encode(text))
    };
    assert_eq!(logins, [token("first"), token("first"), token("second")]);
    assert_eq!(relay.connected(), 2);
}

#[tokio::test]
async fn a_server_that_knows_no_extensions_is_greeted_as_of_old() {
    let relay = Relay::start().await;
    relay.then("EHLO", Act::Say("502 5.5.2 not implemented"));
    let report = TestAccounts::email(&[relay.account()]).mail_to(ADA).await;
    assert_eq!(report.outcome, Outcome::Accepted);
    let said = relay.said();
    assert_eq!(said[1..3], ["HELO [127.0.0.1]", "MAIL FROM:<news@shop.example>"]);
}

#[tokio::test]
async fn who_hangs_up_behind_a_refusal_has_still_said_why() {
    let relay = Relay::start().await;
    relay.then("MAIL", Act::Say("550 5.7.1 not from you"));
    relay.then("RCPT", Act::HangUp);
    let fixture = TestAccounts::email(&[relay.account()]);
    let report = fixture.mail_to(ADA).await;
    assert_eq!((report.outcome, report.code.as_deref()), (Outcome::DropMessage, Some("5.7.1")));
    assert_eq!(fixture.mail_to(ADA).await.outcome, Outcome::Accepted);
    assert_eq!(relay.connected(), 2);
}

#[tokio::test]
async fn an_address_outside_of_ascii_in_a_header_needs_a_server_that_can_do_it() {
    for (abilities, outcome) in
        [("PIPELINING", Outcome::DropMessage), ("SMTPUTF8 8BITMIME", Outcome::Accepted)]
    {
        let relay = Relay::with(abilities).await;
        let mut account = relay.account();
        account["reply_to"] = json!("ö@shop.example");
        assert_eq!(TestAccounts::email(&[account]).mail_to(ADA).await.outcome, outcome);
    }
}

#[tokio::test]
async fn a_receiving_domain_that_refuses_our_reputation_is_left_alone_and_only_it() {
    let relay = Relay::start().await;
    let fixture = TestAccounts::email(&[relay.account()]);
    for nth in 0..20 {
        relay.then(".", Act::Say("554 5.7.1 spam"));
        let report = fixture.mail_to(&format!("user{nth}@Picky.example")).await;
        assert_eq!(report.outcome, Outcome::DropMessage, "{nth}");
    }
    let held = fixture.mail_to("another@picky.example").await;
    assert!(matches!(held.outcome, Outcome::Hold { .. }), "{held:?}");
    assert_eq!(held.code.as_deref(), Some("reputation"));
    assert!(held.detail.unwrap().contains("picky.example refused too many"));
    assert_eq!(
        fixture.mail_to(ADA).await.outcome,
        Outcome::Accepted,
        "other domains do not notice"
    );
    fixture.clock.advance(Duration::from_secs(900));
    assert_eq!(fixture.mail_to("another@picky.example").await.outcome, Outcome::Accepted);
}

#[tokio::test]
async fn a_few_refusals_among_many_mails_hold_nothing_up() {
    let relay = Relay::start().await;
    let fixture = TestAccounts::email(&[relay.account()]);
    for nth in 0..60 {
        if nth % 8 == 7 {
            relay.then(".", Act::Say("550 5.7.26 unauthenticated"));
        }
        let report = fixture.mail_to(ADA).await;
        assert!(!matches!(report.outcome, Outcome::Hold { .. }), "{nth}: {report:?}");
    }
}
