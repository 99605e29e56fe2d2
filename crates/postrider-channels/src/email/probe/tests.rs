//! What an answer, or the lack of one, says about an account.

use serde_json::json;

use super::*;
use crate::accounts::health::Verdict;

fn refused(stage: SmtpStage, code: u16) -> SmtpOutcome {
    let reply = super::super::smtp::SmtpReply { code, lines: vec!["no".into()], enhanced: None };
    SmtpOutcome::Refused(stage, reply)
}

#[test]
fn a_relay_that_cannot_be_used_is_told_with_what_helps() {
    let not_sent = |code, detail: &str| SmtpOutcome::NotSent { code, detail: detail.into() };
    let config = |code, detail: &str| SmtpOutcome::Config { code, detail: detail.into() };
    for (end, remedy) in [
        (not_sent("dns", "the name could not be resolved"), "`host`"),
        (not_sent("connect", "connection refused"), "firewall"),
        (not_sent("timeout", "the server did not answer in time"), "465"),
        (config("tls", "the certificate has expired"), "clock"),
        (config("tls", "the certificate is for another name"), "extra_ca_file"),
        (config("no_starttls", "no STARTTLS"), "implicit"),
        (config("auth_not_offered", "no AUTH PLAIN"), "oauth"),
        (refused(SmtpStage::Auth, 535), "password"),
        (refused(SmtpStage::Greeting, 554), "address"),
        (refused(SmtpStage::Ehlo, 550), "ehlo"),
    ] {
        let finding = judge_end("mx:587", "user", &end);
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.found.starts_with("mx:587: "), "{finding:?}");
        assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
    }
}

#[test]
fn a_visit_in_the_clear_is_a_warning_where_tls_was_to_be_had() {
    let check =
        |until, offers_tls| RelayCheck { certificate_until: until, logged_in: false, offers_tls };
    let at = Some(postrider_core::Timestamp(0));
    let judge = |tls, check| judge_visit("mx:25", tls, &check).verdict;
    assert_eq!(judge(SmtpTls::StartTls, check(at, false)), Verdict::Ok);
    assert_eq!(judge(SmtpTls::Opportunistic, check(None, false)), Verdict::Warn);
    assert_eq!(judge(SmtpTls::None, check(None, true)), Verdict::Warn);
    assert_eq!(judge(SmtpTls::None, check(None, false)), Verdict::Ok);
}

#[test]
fn a_signature_counts_only_for_the_sender_s_own_family() {
    let judge = |domain, from| judge_alignment("dkim", domain, from).map(|f| f.verdict);
    assert_eq!(judge("example.org", "Example.org"), None);
    assert_eq!(judge("example.org", "mail.example.org"), None);
    assert_eq!(judge("mail.example.org", "example.org"), None);
    assert_eq!(judge("example.org", "badexample.org"), Some(Verdict::Warn));
}

#[test]
fn the_published_key_is_held_against_ours() {
    let own = "v=DKIM1; k=ed25519; p=abc/def=";
    let judge = |records: &[&str]| {
        let records: Vec<String> = records.iter().map(|&record| record.to_owned()).collect();
        judge_record("dkim.s1.record", "s1._domainkey.a.example", own, Ok(&records))
    };
    assert_eq!(judge(&["v=DKIM1;k=ed25519;p=abc /def="]).verdict, Verdict::Ok);
    assert_eq!(judge(&["v=spf1 -all", own]).verdict, Verdict::Ok);
    for (records, words) in [
        (&[][..], "no key"),
        (&["v=DKIM1; p="][..], "revoked"),
        (&["v=DKIM1; p=xyz"][..], "another key"),
    ] {
        let finding = judge(records);
        assert!(finding.verdict == Verdict::Fail && finding.found.contains(words), "{finding:?}");
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains(own)));
    }
    let unasked = judge_record("dkim.s1.record", "s1._domainkey.a.example", own, Err("--offline"));
    assert!(unasked.verdict == Verdict::Skipped && unasked.found.contains(own), "{unasked:?}");
}

#[test]
fn amazon_s_answers_tell_a_wrong_key_from_a_wrong_clock_and_from_modesty() {
    let none = Value::Null;
    let on = json!({"SendingEnabled": true, "ProductionAccessEnabled": true});
    for (status, code, body, verdict, words) in [
        (200, "", &on, Verdict::Ok, "sending is on"),
        (200, "", &json!({"SendingEnabled": false}), Verdict::Fail, "turned off"),
        (200, "", &json!({"ProductionAccessEnabled": false}), Verdict::Warn, "sandbox"),
        (403, "SignatureDoesNotMatch: Signature expired", &none, Verdict::Fail, "clock is wrong"),
        (403, "SignatureDoesNotMatch: calculated", &none, Verdict::Fail, "refuses the key"),
        (403, "AccessDeniedException: not authorized", &none, Verdict::Warn, "may not read"),
        (500, "InternalFailure", &none, Verdict::Warn, "no clear answer"),
    ] {
        let finding = judge_ses(status, code, body);
        assert!(finding.verdict == verdict && finding.found.contains(words), "{finding:?}");
    }
}

#[test]
fn a_key_that_may_not_send_is_no_key() {
    let scopes = |name: &str| json!({"scopes": [name]});
    assert_eq!(judge_sendgrid(200, "", &scopes("mail.send")).verdict, Verdict::Ok);
    assert_eq!(judge_sendgrid(200, "", &scopes("alerts.read")).verdict, Verdict::Fail);
    assert_eq!(judge_sendgrid(401, "invalid", &Value::Null).verdict, Verdict::Fail);
    assert_eq!(judge_sendgrid(503, "", &Value::Null).verdict, Verdict::Warn);
}
