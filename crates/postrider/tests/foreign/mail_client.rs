//! Python's `smtplib` against the sandbox's mail server.

use postrider_sandbox::{ReceiverRequest, SandboxConfig};
use serde_json::json;

use crate::tools;

const CLIENT: &str = r#"
import json, smtplib, ssl, sys
given = json.load(sys.stdin)
context = ssl.create_default_context(cadata=given["ca"])
told = {}
with smtplib.SMTP("localhost", given["smtp"]) as client:
    client.ehlo()
    told["before"] = sorted(client.esmtp_features)
    client.starttls(context=context)
    client.ehlo()
    told["after"] = sorted(client.esmtp_features)
    try:
        client.login("shop", "wrong")
    except smtplib.SMTPAuthenticationError as error:
        told["wrong"] = error.smtp_code
    client.login("shop", "right")
    mail = "From: a@shop.example\r\nDate: x\r\nMessage-ID: <one@x>\r\nSubject: hi\r\n\r\n.dot\r\n..\r\nend\r\n"
    told["refused"] = {k: v[0] for k, v in client.sendmail("a@shop.example", ["ada@example.org", "bad"], mail, ["BY=600;R"]).items()}
    try:
        client.sendmail("a@shop.example", ["ada@example.org"], mail, ["BY=5;R"])
    except smtplib.SMTPSenderRefused as error:
        told["hasty"] = error.smtp_code
    try:
        client.sendmail("a@shop.example", ["spam@example.org"], mail.replace("one", "two"))
    except smtplib.SMTPDataError as error:
        told["spam"] = error.smtp_code
    try:
        client.sendmail("a@shop.example", ["ada@example.org"], "no header at all")
    except smtplib.SMTPDataError as error:
        told["headless"] = error.smtp_code
with smtplib.SMTP_SSL("localhost", given["smtps"], context=context) as client:
    told["noop"] = client.noop()[0]
print(json.dumps(told))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtplib_finds_a_mail_server_in_the_sandbox() {
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    let wish =
        ReceiverRequest { script: vec!["554".parse().unwrap()], ..ReceiverRequest::default() };
    sandbox.set_up("email", "spam@example.org", &wish).unwrap();
    let given =
        json!({"ca": sandbox.ca_pem, "smtp": sandbox.smtp.port(), "smtps": sandbox.smtps.port()});
    let told = tokio::task::spawn_blocking(move || tools::ask(CLIENT, &given)).await.unwrap();
    assert_eq!(
        told["before"],
        json!([
            "8bitmime",
            "auth",
            "deliverby",
            "dsn",
            "enhancedstatuscodes",
            "pipelining",
            "size",
            "smtputf8",
            "starttls"
        ])
    );
    assert!(!told["after"].as_array().unwrap().contains(&json!("starttls")));
    assert_eq!(told["refused"], json!({"bad": 501}));
    assert_eq!(
        (&told["wrong"], &told["spam"], &told["headless"]),
        (&json!(535), &json!(554), &json!(554))
    );
    assert_eq!((&told["noop"], &told["hasty"]), (&json!(250), &json!(501)));
    let client = postrider::client::Client::new(sandbox.http_origin(), None).unwrap();
    let last = client.get("/sandbox/last/email/ada@example.org").await.unwrap();
    assert_eq!(last["headers"]["deliver-by"], "600;R");
    assert!(last["body"].as_str().unwrap().ends_with("\r\n\r\n.dot\r\n..\r\nend\r\n"), "{last}");
    let received = sandbox.received();
    assert_eq!((&received["accepted"], &received["bad_request"]), (&json!(1), &json!(1)));
}
