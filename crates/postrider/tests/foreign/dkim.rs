//! Our DKIM signatures, verified by `dkimpy` with the records that we would publish.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, RsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postrider_channels::email::{DkimKey, MailDraft, Mailbox, Unsubscribe};
use postrider_core::{DeliveryId, Timestamp};
use serde_json::{Value, json};

use crate::tools;

const VERIFIER: &str = r#"
import base64, dkim, json, sys
given = json.load(sys.stdin)
records = {k.encode(): v.encode() for k, v in given["records"].items()}
lookup = lambda name, timeout=5: records.get(name)
told = []
def verifies(mail, i):
    try:
        return dkim.DKIM(mail).verify(idx=i, dnsfunc=lookup)
    except dkim.DKIMException:
        return False
for mail in given["mails"]:
    mail = base64.b64decode(mail)
    count = mail.lower().count(b"dkim-signature:")
    told.append([verifies(mail, i) for i in range(count)])
print(json.dumps(told))
"#;

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|c| std::str::from_utf8(c).unwrap()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

fn keys() -> [(&'static str, DkimKey); 2] {
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let ed25519 = Ed25519KeyPair::generate().unwrap();
    let rsa = pem(rsa.as_der().unwrap().as_ref());
    let ed25519 = pem(ed25519.to_pkcs8v1().unwrap().as_ref());
    [("rsa", DkimKey::from_pem(&rsa).unwrap()), ("ed", DkimKey::from_pem(&ed25519).unwrap())]
}

fn verify(records: &Value, mails: &[Vec<u8>]) -> Value {
    let mails: Vec<_> = mails.iter().map(|mail| BASE64_STANDARD.encode(mail)).collect();
    tools::ask(VERIFIER, &json!({"records": records, "mails": mails}))
}

#[test]
fn dkimpy_verifies_both_algorithms_and_sees_every_change() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let draft = MailDraft {
        delivery: DeliveryId(9),
        // A signature ends after some days.
        date: Timestamp(now.as_millis() as i64),
        from: Mailbox { name: Some("Zoë's shop"), address: "news@shop.example" },
        to: Mailbox { name: None, address: "ada@example.org" },
        reply_to: Some(Mailbox { name: None, address: "help@shop.example" }),
        subject: "Grüße  with   blanks and a subject that is long enough to be folded over two lines",
        text: "Hello,\n\n  indented \t text \n\n\n",
        html: Some("<p>Grüße</p>\n\n"),
        unsubscribe: Unsubscribe {
            url: Some("https://shop.example/u/1"),
            mailto: Some("leave@shop.example"),
        },
        feedback_id: Some("1:2:3:shop"),
    };
    let mail = draft.build();
    let keys = keys();
    let records: serde_json::Map<_, _> = keys
        .iter()
        .map(|(name, key)| {
            (format!("{name}._domainkey.shop.example."), key.record().unwrap().into())
        })
        .collect();
    let signatures: Vec<String> = keys
        .iter()
        .map(|(name, key)| key.sign("shop.example", name, &mail, draft.date).unwrap())
        .collect();
    let whole = String::from_utf8(mail.write(&signatures)).unwrap();
    let single = MailDraft { html: None, text: "", ..draft.clone() }.build();
    let empty = single.write(&[keys[1].1.sign("shop.example", "ed", &single, draft.date).unwrap()]);
    let changed = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1).into_bytes()
    };
    let told = verify(
        &records.into(),
        &[
            whole.clone().into_bytes(),
            empty,
            changed("indented", "changed"),
            changed("List-Unsubscribe: <https://shop", "List-Unsubscribe: <https://evil"),
            changed("List-Unsubscribe-Post: ", "List-Unsubscribe-Post: x"),
            // A second From in front of ours: it is signed once more than it occurs.
            changed("Date: ", "From: boss@shop.example\r\nDate: "),
            changed("Date: ", "To: eve@evil.example\r\nDate: "),
            changed("Date: ", "Subject: Pay here\r\nDate: "),
            changed("Date: ", "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\nDate: "),
            changed("Date: ", "Reply-To: eve@evil.example\r\nDate: "),
            // Behind the others, where readers take the last one.
            changed("\r\n\r\n", "\r\nSubject: Pay here\r\n\r\n"),
        ],
    );
    let (good, bad) = (json!([true, true]), json!([false, false]));
    assert_eq!(told, json!([good, [true], bad, bad, bad, bad, bad, bad, bad, bad, bad]));
}

#[test]
fn a_signature_ends_after_some_days_and_covers_a_reply_to_that_is_not_there() {
    let day_ms = 86_400_000;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_ms = i64::try_from(now.as_millis()).unwrap();
    let keys = keys();
    let records: serde_json::Map<_, _> = keys
        .iter()
        .map(|(name, key)| {
            (format!("{name}._domainkey.shop.example."), key.record().unwrap().into())
        })
        .collect();
    let signed = |days: i64| {
        let draft = MailDraft {
            delivery: DeliveryId(9),
            date: Timestamp(now_ms - days * day_ms),
            from: Mailbox { name: None, address: "news@shop.example" },
            to: Mailbox { name: None, address: "ada@example.org" },
            reply_to: None,
            subject: "Shipped",
            text: "Hello",
            html: None,
            unsubscribe: Unsubscribe::default(),
            feedback_id: None,
        };
        let mail = draft.build();
        let sign = |(name, key): &(&str, DkimKey)| {
            key.sign("shop.example", name, &mail, draft.date).unwrap()
        };
        mail.write(&keys.iter().map(sign).collect::<Vec<_>>())
    };
    let yesterday = String::from_utf8(signed(1)).unwrap();
    let answered = yesterday.replacen("Date: ", "Reply-To: eve@evil.example\r\nDate: ", 1);
    let told =
        verify(&records.into(), &[yesterday.into_bytes(), answered.into_bytes(), signed(60)]);
    assert_eq!(told, json!([[true, true], [false, false], [false, false]]));
}
