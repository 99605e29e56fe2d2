//! People: e-mail, text messages, chat.

use serde_json::json;

use super::{Table, check};

fn x(len: usize) -> String {
    "x".repeat(len)
}

#[tokio::test]
async fn what_no_mail_server_would_take_is_refused_at_the_gate() {
    let address = json!({"channel": "email", "email": "grace@example.net", "name": "Ada"});
    let own = |name: &str| format!("content.email.{name}");
    let table = Table::new(address, json!({"title": "Hi", "body": "there"}))
        .each(
            "to.address.email",
            &[
                "",
                "ada",
                "@example.org",
                "ada@",
                "ada@@example.org",
                "ada@home@example.org",
                ".grace@example.net",
                "ada.@example.org",
                "a..b@example.org",
                "ada lovelace@example.org",
                "\"ada lovelace\"@example.org",
                "\"ada\"@example.org",
                "Ada <grace@example.net>",
                "grace@example.net,bob@example.org",
                "grace@example.net\r\nBcc: bob@example.org",
                "ada\u{0}@example.org",
                "ada@localhost",
                "ada@[127.0.0.1]",
                "ada@127.0.0.1",
                "ada@exa_mple.org",
                "ada@-example.org",
                "ada@example..org",
                "grace@example.net.",
                "ada@example%2eorg",
                "ada(comment)@example.org",
                "a\u{202e}da@example.org",
                "a\u{200b}da@example.org",
                "ada@xn--\u{fc}.example",
                "ada\u{ff20}example.org",
            ],
        )
        .each("to.address.email", &[json!(17), json!(null), json!(["grace@example.net"])])
        .set("65 bytes before the @", "to.address.email", format!("{}@example.org", x(65)))
        .set(
            "255 bytes in all",
            "to.address.email",
            format!("ada@{}.org", [x(60), x(60), x(60), x(64)].join(".")),
        )
        .set("a label of 64", "to.address.email", format!("ada@{}.org", x(64)))
        .set(
            "254 bytes in letters of two bytes",
            "to.address.email",
            format!("{}@example.org", "ü".repeat(33)),
        )
        .without("to.address.email")
        .each(
            "to.address.name",
            &["Ada\r\nBcc: bob@example.org", "Ada\nX", "Ada\u{0}", "Ada\u{7f}"],
        )
        .set("a name too long", "to.address.name", x(201))
        .set("a name that is no text", "to.address.name", 1)
        .set("unknown field of the address", "to.address.cc", "bob@example.org")
        .each(
            &own("subject"),
            &["Hi\r\nBcc: bob@example.org", "Hi\nthere", "Hi\u{0}", "Hi\u{1b}[2J"],
        )
        .set("a subject too long", &own("subject"), x(901))
        .set("a title as subject with a break", "content.title", "Hi\r\nBcc: bob@example.org")
        .each(
            &own("reply_to"),
            &[
                "ada",
                "Ada <grace@example.net>",
                "grace@example.net\r\nX: y",
                "",
                "grace@büro.example",
            ],
        )
        .each(
            &own("unsubscribe_url"),
            &[
                "http://shop.example/u",
                "shop.example/u",
                "https://shop.example/u>,<mailto:x@y.example",
                "https://shop.example/u\r\nBcc: bob@example.org",
                "https://user:pass@shop.example/u",
                "javascript:alert(1)",
                "",
            ],
        )
        .set(
            "an unsubscribe link too long",
            &own("unsubscribe_url"),
            format!("https://shop.example/{}", x(900)),
        )
        .each(
            &own("unsubscribe_mailto"),
            &["mailto:x@shop.example", "x", "x@shop.example>\r\nX: y"],
        )
        .each(
            "content",
            &[json!({}), json!({"data": {}}), json!({"title": " ", "email": {"text": "\n"}})],
        )
        .each("content", &[json!({"url": "https://shop.example"}), json!({"email": {}})])
        .set("NUL in the text", &own("text"), "a\u{0}b")
        .set("NUL in the HTML", &own("html"), "<p>\u{0}</p>")
        .set("text that is no text", &own("text"), json!(["x"]))
        .set("the mail as a list", "content.email", json!(["x"]))
        .set("unknown field of the mail", &own("bcc"), "bob@example.org");
    check("email", table).await;
}

#[tokio::test]
async fn what_no_gateway_would_take_is_refused_at_the_gate() {
    let address = json!({"channel": "sms", "phone": "+15005550006"});
    let table = Table::new(address, json!({"body": "Your code is 123456"}))
        .each(
            "to.address.phone",
            &[
                "",
                "015112345678",
                "004915112345678",
                "15005550006",
                "+49",
                "+0015112345678",
                "+1234567890123456",
                "+49151CALLNOW",
                "+49151\r\n12345678",
                "+49151123456\u{0}78",
                "+٤٩١٥١١٢٣٤٥٦",
                "INFO",
                "12345",
                "tel:+15005550006",
                "+15005550006,+15005550007",
                "whatsapp:+15005550006",
            ],
        )
        .each("to.address.phone", &[json!(15_005_550_006_u64), json!(null), json!({})])
        .without("to.address.phone")
        .set("a sender in the address", "to.address.from", "BANK")
        .each(
            "content",
            &[json!({}), json!({"body": ""}), json!({"body": " \n"}), json!({"data": 1})],
        )
        .each("content.sms.text", &["", " ", "a\u{0}b", "a\u{7}b", "a\u{1b}b"])
        .set("1601 characters", "content.body", x(1601))
        .set("1601 characters of its own", "content.sms.text", "😀".repeat(1601))
        .set("text that is no text", "content.sms.text", 123_456)
        .set("unknown field of the text message", "content.sms.from", "BANK");
    check("sms", table).await;
}

#[tokio::test]
async fn what_no_chat_would_show_is_refused_at_the_gate() {
    let payload = "content.chat.payload";
    let slack = json!({"channel": "chat", "url": "https://hooks.slack.com/services/T0/B0/secret"});
    let table = Table::new(slack, json!({"body": "Deploy done"}))
        .each(
            "to.address.url",
            &[
                "",
                "hooks.slack.com/services/T0/B0/x",
                "http://hooks.slack.com/services/T0/B0/x",
                "ftp://hooks.slack.com/services/T0/B0/x",
                "https://10.0.0.1/services/T0/B0/x",
                "https://localhost/services/T0/B0/x",
                "https://a:b@hooks.slack.com/services/T0/B0/x",
                "https://hooks.slack.com/services/T0 B0/x",
            ],
        )
        .set("a URL that is no text", "to.address.url", json!(["x"]))
        .without("to.address.url")
        .set("unknown field of the address", "to.address.channel_id", "#ops")
        .each("content", &[json!({}), json!({"body": " "}), json!({"title": "", "url": ""})])
        .each(payload, &[json!(""), json!("no JSON"), json!("[1]"), json!([1]), json!(5)])
        .each(
            payload,
            &[json!({}), json!({"text": ""}), json!({"txt": "x"}), json!({"blocks": []})],
        )
        .set("more text than Slack takes", payload, json!({"text": x(40_001)}))
        .set("more blocks than Slack takes", payload, json!({"blocks": vec![json!({}); 51]}))
        .set("more than anybody takes", payload, json!({"text": x(262_145)}))
        .set("unknown field beside the payload", "content.chat.text", "x");
    check("slack", table).await;
    let discord = json!({"channel": "chat", "url": "https://discord.com/api/webhooks/1/secret"});
    let table = Table::new(discord, json!({"body": "Deploy done"}))
        .each(payload, &[json!({}), json!({"text": "x"}), json!({"content": "", "embeds": []})])
        .set("2001 characters", payload, json!({"content": x(2001)}))
        .set("11 embeds", payload, json!({"embeds": vec![json!({"title": "x"}); 11]}))
        .set("a long title", payload, json!({"embeds": [{"title": x(257)}]}))
        .set(
            "a long field",
            payload,
            json!({"embeds": [{"fields": [{"name": "a", "value": x(1025)}]}]}),
        )
        .set(
            "more than 6000 in all",
            payload,
            json!({"embeds": vec![json!({"description": x(3001)}); 2]}),
        );
    check("discord", table).await;
    let teams =
        json!({"channel": "chat", "url": "https://acme.webhook.office.com/webhookb2/secret"});
    let table = Table::new(teams, json!({"body": "Deploy done"}))
        .each(payload, &[json!({}), json!({"summary": "x"})])
        .set("more than 28 KiB", payload, json!({"text": x(28_672)}));
    check("teams", table).await;
}
