//! What an answer, or the lack of one, says about an account.

use serde_json::json;

use super::*;
use crate::accounts::health::Verdict;
use crate::accounts::{Material, SecretRef};

fn refused(stage: Stage, code: u16) -> End {
    let reply = super::super::smtp::Reply { code, lines: vec!["no".into()], enhanced: None };
    End::Refused(stage, reply)
}

#[test]
fn a_relay_that_cannot_be_used_is_told_with_what_helps() {
    let not_sent = |code, detail: &str| End::NotSent { code, detail: detail.into() };
    let config = |code, detail: &str| End::Config { code, detail: detail.into() };
    for (end, remedy) in [
        (not_sent("dns", "the name could not be resolved"), "`host`"),
        (not_sent("connect", "connection refused"), "firewall"),
        (not_sent("timeout", "the server did not answer in time"), "465"),
        (config("tls", "the certificate has expired"), "clock"),
        (config("tls", "the certificate is for another name"), "extra_ca_file"),
        (config("no_starttls", "no STARTTLS"), "implicit"),
        (config("auth_not_offered", "no AUTH PLAIN"), "oauth"),
        (refused(Stage::Auth, 535), "password"),
        (refused(Stage::Greeting, 554), "address"),
        (refused(Stage::Ehlo, 550), "ehlo"),
    ] {
        let finding = judge_end("mx:587", "user", &end);
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.found.starts_with("mx:587: "), "{finding:?}");
        assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
    }
}

#[test]
fn a_visit_in_the_clear_is_a_warning_where_tls_was_to_be_had() {
    let visit =
        |until, offers_tls| Visit { certificate_until: until, logged_in: false, offers_tls };
    let at = Some(postrider_core::Timestamp(0));
    let judge = |tls, visit| judge_visit("mx:25", tls, &visit).verdict;
    assert_eq!(judge(SmtpTls::StartTls, visit(at, false)), Verdict::Ok);
    assert_eq!(judge(SmtpTls::Opportunistic, visit(None, false)), Verdict::Warn);
    assert_eq!(judge(SmtpTls::None, visit(None, true)), Verdict::Warn);
    assert_eq!(judge(SmtpTls::None, visit(None, false)), Verdict::Ok);
}

#[test]
fn a_signature_counts_only_for_the_sender_s_own_family() {
    let judge = |domain, from| judge_alignment("dkim", domain, from).map(|f| f.verdict);
    assert_eq!(judge("example.org", "Example.org"), None);
    assert_eq!(judge("example.org", "mail.example.org"), None);
    assert_eq!(judge("mail.example.org", "example.org"), None);
    assert_eq!(judge("example.org", "badexample.org"), Some(Verdict::Warn));
}

#[tokio::test]
async fn a_missing_dkim_key_fails_and_a_present_one_shows_its_record() {
    let dkim = |reference: &str| DkimSettings {
        domain: "example.org".into(),
        selector: "s1".into(),
        key: Material::new(SecretRef::parse(reference).unwrap(), |pem| {
            DkimKey::from_pem(pem).map_err(|e| e.to_string())
        }),
    };
    let missing = examine_dkim(&dkim("file:/surely/not/there.pem"), "example.org").await;
    assert_eq!((missing.len(), missing[0].verdict), (1, Verdict::Fail));
    assert!(missing[0].remedy.as_ref().is_some_and(|remedy| remedy.contains("file")));
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = aws_lc_rs::signature::Ed25519KeyPair::generate().unwrap();
    let der = aws_lc_rs::encoding::AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&key);
    let body = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der.unwrap().as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    std::fs::write(file.path(), &pem).unwrap();
    let there = format!("file:{}", file.path().display());
    let found = examine_dkim(&dkim(&there), "example.org").await;
    assert!(found.iter().all(|finding| finding.verdict < Verdict::Warn), "{found:?}");
    assert!(found[1].found.contains("s1._domainkey.example.org"), "{found:?}");
    assert!(!format!("{found:?}").contains(&body), "the private key stays private");
}

#[test]
fn amazon_s_answers_tell_a_wrong_key_from_a_wrong_clock_and_from_modesty() {
    let none = Value::Null;
    let on = json!({"SendingEnabled": true, "ProductionAccessEnabled": true});
    for (status, code, body, verdict, words) in [
        (200, "", &on, Verdict::Ok, "sending is on"),
        (200, "", &json!({"SendingEnabled": false}), Verdict::Fail, "switched"),
        (200, "", &json!({"ProductionAccessEnabled": false}), Verdict::Warn, "sandbox"),
        (403, "SignatureDoesNotMatch: Signature expired", &none, Verdict::Fail, "another time"),
        (403, "SignatureDoesNotMatch: calculated", &none, Verdict::Fail, "refuses the key"),
        (403, "AccessDeniedException: not authorized", &none, Verdict::Warn, "may not look"),
        (500, "InternalFailure", &none, Verdict::Warn, "could not say"),
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
