//! What the e-mail channel promises when it speaks to SES and SendGrid.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Outcome, Report, Scope};
use serde_json::{Value, json};

use crate::accounts::{ADA, TestAccounts, account};
use crate::fixture::{START, Subject};
use crate::provider::{Answer, Line, Provider};

const BACKOFF: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };

fn ses(provider: &Provider) -> Value {
    account(Subject::Ses, &provider.url(""), "command:echo s3cret")
}

fn sendgrid(provider: &Provider) -> Value {
    account(Subject::SendGrid, &provider.url(""), "command:echo SG.key")
}

async fn answered(account: fn(&Provider) -> Value, answer: Answer) -> Report {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([answer]);
    TestAccounts::email(&[account(&provider)]).mail_to(ADA).await
}

#[tokio::test]
async fn ses_gets_the_mail_as_we_wrote_it_signed() {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([Answer::status(200).body(r#"{"MessageId":"0102-1"}"#)]);
    let report = TestAccounts::email(&[ses(&provider)]).mail_to(ADA).await;
    assert_eq!(
        (report.outcome, report.provider_id.as_deref()),
        (Outcome::Accepted, Some("0102-1"))
    );
    let received = provider.received().remove(0);
    assert_eq!(received.uri.path(), "/v2/email/outbound-emails");
    let signed = received.headers["authorization"].to_str().unwrap();
    assert!(signed.contains("/eu-central-1/ses/aws4_request"), "{signed}");
    assert!(signed.contains("SignedHeaders=content-type;host;x-amz-date"), "{signed}");
    assert_eq!(received.headers["x-amz-date"], "20270115T080000Z");
    let call: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(call["Destination"]["ToAddresses"], json!([ADA]));
    assert_eq!(call["ConfigurationSetName"], "cs");
    let mail = STANDARD.decode(call["Content"]["Raw"]["Data"].as_str().unwrap()).unwrap();
    let mail = String::from_utf8(mail).unwrap();
    assert!(mail.contains("Message-ID: <dlv_00000000000000000000000009@shop.example>"), "{mail}");
}

#[tokio::test]
async fn ses_answers_mean_what_its_types_say() {
    let error = |status: u16, kind: &'static str, text: &str| {
        Answer::status(status)
            .header("x-amzn-errortype", kind)
            .body(json!({ "message": text }).to_string())
    };
    let account = Scope::Credential;
    let after = |s| Outcome::RetryAfter { after: Duration::from_secs(s), scope: account };
    for (answer, outcome) in [
        (error(429, "TooManyRequestsException", "slow"), after(2)),
        (error(400, "LimitExceededException", "Daily message quota exceeded."), after(14_400)),
        (error(400, "MessageRejected", "ada@example.org is not verified"), Outcome::DropMessage),
        (error(404, "NotFoundException", "no configuration set"), Outcome::DropMessage),
        (error(400, "AccountSuspendedException", "x"), Outcome::Config),
        (error(403, "SignatureDoesNotMatch", "x"), Outcome::Config),
        (error(500, "InternalServiceErrorException", "x"), BACKOFF),
    ] {
        let report = answered(ses, answer).await;
        assert_eq!(report.outcome, outcome, "{report:?}");
        let told = format!("{:?}{:?}", report.code, report.detail);
        assert!(!told.contains(ADA), "{told}");
    }
}

#[tokio::test]
async fn sendgrid_gets_the_parts_and_our_headers() {
    let provider = Provider::start(Line::Http2).await;
    provider.answers([Answer::status(202).header("x-message-id", "sg1")]);
    let report = TestAccounts::email(&[sendgrid(&provider)]).mail_to(ADA).await;
    assert_eq!((report.outcome, report.provider_id.as_deref()), (Outcome::Accepted, Some("sg1")));
    let received = provider.received().remove(0);
    assert_eq!(received.uri.path(), "/v3/mail/send");
    assert_eq!(received.headers["authorization"], "Bearer SG.key");
    let call: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(call["from"], json!({"email": "news@shop.example", "name": "Shop"}));
    assert_eq!(call["personalizations"], json!([{"to": [{"email": ADA}]}]));
    assert_eq!(call["subject"], "Shipped");
    let kinds: Vec<_> = call["content"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(kinds, ["text/plain", "text/html"]);
    let headers = &call["headers"];
    assert_eq!(headers["Message-ID"], "<dlv_00000000000000000000000009@shop.example>");
    assert_eq!(headers["List-Unsubscribe"], "<https://shop.example/u>");
    assert_eq!(headers["List-Unsubscribe-Post"], "List-Unsubscribe=One-Click");
    assert_eq!(call["custom_args"]["delivery"], "dlv_00000000000000000000000009");
}

#[tokio::test]
async fn sendgrid_s_limits_are_kept_to_the_second_it_names() {
    let reset = START.as_secs() + 17;
    let limited = Answer::status(429).header("x-ratelimit-reset", reset.to_string());
    let report = answered(sendgrid, limited).await;
    let scope = Scope::Credential;
    assert_eq!(report.outcome, Outcome::RetryAfter { after: Duration::from_secs(17), scope });
    let spent = json!({"errors": [{"message": "Maximum credits exceeded", "field": null}]});
    let report = answered(sendgrid, Answer::status(401).body(spent.to_string())).await;
    assert!(matches!(report.outcome, Outcome::RetryAfter { scope: Scope::Credential, .. }));
    assert_eq!(answered(sendgrid, Answer::status(401)).await.outcome, Outcome::Config);
    let field = json!({"errors": [{"message": "Invalid.", "field": "content.0.value"}]});
    let report = answered(sendgrid, Answer::status(400).body(field.to_string())).await;
    assert_eq!(report.outcome, Outcome::DropMessage);
    assert_eq!(report.code.as_deref(), Some("Invalid. (content.0.value)"));
}
