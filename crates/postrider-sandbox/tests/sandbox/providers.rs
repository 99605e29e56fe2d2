//! Mail, SMS and chat providers refuse what the real ones refuse, with their status, headers and words.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{Method, Request};
use http_body_util::Full;
use postrider_channels::email::{SigV4Signer, SignedRequest};
use postrider_core::Timestamp;
use postrider_sandbox::Sandbox;
use serde_json::{Value, json};

use crate::client::{Connection, now_s, request};
use crate::{over_h2, sandbox};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

type Call = Request<Full<bytes::Bytes>>;

fn post(url: &str, kind: &str, authorization: Option<&str>, body: &str) -> Call {
    let mut call = request(Method::POST, url, body.to_owned());
    call.headers_mut().insert("content-type", kind.parse().expect("a value"));
    if let Some(value) = authorization {
        call.headers_mut().insert("authorization", value.parse().expect("a value"));
    }
    call
}

/// What it answers to each of these: status, kind of error, words.
async fn told(connection: &mut Connection, calls: Vec<(&str, Call)>) -> String {
    let mut lines = Vec::new();
    for (name, call) in calls {
        let reply = connection.send(call).await.expect("an answer");
        let kind = reply.header("x-amzn-errortype").unwrap_or_default().to_owned();
        lines.push(format!("{name}: {} {kind} {}", reply.status.as_u16(), reply.text()));
    }
    lines.join("\n")
}

fn sms(sandbox: &Sandbox, kind: &str, user: &str, form: &[(&str, &str)]) -> Call {
    let url = format!("{}/2010-04-01/Accounts/AC1/Messages.json", sandbox.https_origin());
    let basic = format!("Basic {}", BASE64_STANDARD.encode(user));
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    post(&url, kind, Some(&basic), &body)
}

#[tokio::test]
async fn a_gateway_refuses_numbers_senders_and_texts_by_their_codes() {
    let sandbox = sandbox().await;
    let (good, long) = ("AC1:secret", "x".repeat(1601));
    let with = |to, from, body, validity| {
        let form = [("To", to), ("From", from), ("Body", body), ("ValidityPeriod", validity)];
        sms(&sandbox, FORM, good, &form)
    };
    let calls = vec![
        ("another account", sms(&sandbox, FORM, "AC2:secret", &[])),
        ("a wrong secret", sms(&sandbox, FORM, "AC1:wrong", &[])),
        ("no form", sms(&sandbox, JSON, good, &[])),
        ("nobody", with("", "+15550100", "x", "60")),
        ("a local number", with("0151", "+15550100", "x", "60")),
        ("a zero in front", with("+01512345678", "+15550100", "x", "60")),
        ("no sender", with("+15005550006", "", "x", "60")),
        ("a long name", with("+15005550006", "A long name of a shop", "x", "60")),
        ("no text", with("+15005550006", "+15550100", "", "60")),
        ("a long text", with("+15005550006", "+15550100", &long, "60")),
        ("valid for ever", with("+15005550006", "+15550100", "x", "36001")),
        ("never valid", with("+15005550006", "+15550100", "x", "0")),
    ];
    let told = told(&mut over_h2(&sandbox).await, calls).await;
    insta::assert_snapshot!(told);
    assert_eq!(sandbox.received()["accepted"], 0);
}

fn chat(sandbox: &Sandbox, place: &str, message: &Value) -> Call {
    post(&format!("{}/{place}", sandbox.https_origin()), JSON, None, &message.to_string())
}

#[tokio::test]
async fn chats_refuse_what_they_cannot_show() {
    let sandbox = sandbox().await;
    let x = |len| "x".repeat(len);
    let calls = vec![
        ("slack, a list", chat(&sandbox, "slack/a", &json!([1]))),
        ("slack, nothing", chat(&sandbox, "slack/a", &json!({"text": ""}))),
        ("slack, 51 blocks", chat(&sandbox, "slack/a", &json!({"blocks": vec![json!({}); 51]}))),
        (
            "slack, 101 attachments",
            chat(&sandbox, "slack/a", &json!({"attachments": vec![json!({}); 101]})),
        ),
        ("slack, a novel", chat(&sandbox, "slack/a", &json!({"text": x(40_001)}))),
        ("discord, no object", chat(&sandbox, "discord/a", &json!("x"))),
        ("discord, nothing", chat(&sandbox, "discord/a", &json!({"embeds": []}))),
        ("discord, 2001 characters", chat(&sandbox, "discord/a", &json!({"content": x(2001)}))),
        (
            "discord, a long field",
            chat(&sandbox, "discord/a", &json!({"embeds": [{"fields": [{"value": x(1025)}]}]})),
        ),
        (
            "discord, 6001 in all",
            chat(
                &sandbox,
                "discord/a",
                &json!({"embeds": [{"description": x(4096)}, {"description": x(1905)}]}),
            ),
        ),
        (
            "discord, no link",
            chat(&sandbox, "discord/a", &json!({"embeds": [{"title": "x", "url": "orders/91"}]})),
        ),
        ("teams, nothing", chat(&sandbox, "teams/a", &json!({"summary": "x"}))),
        ("teams, 28 KiB and more", chat(&sandbox, "teams/a", &json!({"text": x(28_672)}))),
        (
            "a connector, 28 KiB and more",
            chat(&sandbox, "teams/connector", &json!({"text": x(28_672)})),
        ),
    ];
    let told = told(&mut over_h2(&sandbox).await, calls).await;
    insta::assert_snapshot!(told);
    assert_eq!(sandbox.received()["accepted"], 0);
}

const MAIL: &str = "From: a@b.example\r\nDate: Sun, 15 Nov 2026 12:00:00 +0000\r\nMessage-ID: <m@b.example>\r\n\r\nhi\r\n";

/// A call to SES, signed at this time with this key.
fn ses(sandbox: &Sandbox, key_id: &str, secret: &str, at_s: i64, body: &Value) -> Call {
    let path = "/v2/email/outbound-emails";
    let (url, body) = (format!("{}{path}", sandbox.https_origin()), body.to_string());
    let host = sandbox.https_origin().trim_start_matches("https://");
    let signer = SigV4Signer { key_id, secret, region: "eu-central-1", service: "ses" };
    let headers = [("content-type", JSON)];
    let signed =
        SignedRequest { method: "POST", host, path, headers: &headers, body: body.as_bytes() };
    let (date, authorization) = signer.sign(&signed, Timestamp::from_secs(at_s));
    let mut call = post(&url, JSON, Some(&authorization), &body);
    call.headers_mut().insert("x-amz-date", date.parse().expect("a value"));
    call
}

#[tokio::test]
async fn amazon_checks_the_signature_its_time_and_the_mail() {
    let sandbox = sandbox().await;
    let mail = |mail: &str, from: &str| {
        json!({"FromEmailAddress": from, "Destination": {"ToAddresses": ["c@d.example"]},
            "Content": {"Raw": {"Data": BASE64_STANDARD.encode(mail)}}})
    };
    let good = mail(MAIL, "a@b.example");
    let (id, secret, now) = ("AKIDSANDBOX", "sandbox-secret", now_s());
    let mut tampered = ses(&sandbox, id, secret, now, &good);
    *tampered.body_mut() = mail(MAIL, "e@f.example").to_string().into();
    let calls = vec![
        (
            "unsigned",
            post(&format!("{}/v2/email/outbound-emails", sandbox.https_origin()), JSON, None, "{}"),
        ),
        ("an unknown key", ses(&sandbox, "AKIDOTHER", secret, now, &good)),
        ("a wrong secret", ses(&sandbox, id, "other", now, &good)),
        ("another body", tampered),
        ("an old signature", ses(&sandbox, id, secret, now - 301, &good)),
        ("one from the future", ses(&sandbox, id, secret, now + 310, &good)),
        ("no sender", ses(&sandbox, id, secret, now, &mail(MAIL, ""))),
        (
            "no Date",
            ses(&sandbox, id, secret, now, &mail(&MAIL.replace("Date", "Data"), "a@b.example")),
        ),
    ];
    let mut connection = over_h2(&sandbox).await;
    insta::assert_snapshot!(told(&mut connection, calls).await);
    let taken = connection.send(ses(&sandbox, id, secret, now_s(), &good)).await;
    assert_eq!(taken.expect("an answer").status.as_u16(), 200);
}
