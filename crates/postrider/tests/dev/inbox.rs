//! The inbox in a real browser: one message per channel is seen, and an ordered 503 is retried to success.
//! With `POSTRIDER_SCREENSHOTS=FOLDER`, pictures of it are written there.

use std::path::PathBuf;

use postrider_testkit::browser::Browser;
use serde_json::{Value, json};

use super::fixture::DevFixture;

/// The frame of a mail is loaded anew, so that its end can be waited for.
const FRAME_LOADED: &str = "new Promise((done) => { const frame = document.querySelector('#detail iframe'); \
    if (!frame) return done(); frame.addEventListener('load', () => done()); frame.src = frame.src; })";

fn shoot(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("POSTRIDER_SCREENSHOTS").map(PathBuf::from) else { return };
    browser.evaluate(FRAME_LOADED).unwrap();
    for (form, width, height, dark) in
        [("light", 1280, 860, false), ("dark", 1280, 860, true), ("phone", 390, 844, false)]
    {
        browser.emulate(width, height, dark).unwrap();
        browser.screenshot(&folder.join(format!("{name}-{form}.png"))).unwrap();
    }
    browser.emulate(1280, 860, false).unwrap();
}

fn row(channel: &str) -> String {
    format!("[data-channel=\"{channel}\"]")
}

/// The text of the message that is open.
fn detail(browser: &mut Browser) -> String {
    let text = browser.evaluate("document.getElementById('detail').innerText").unwrap();
    text.as_str().unwrap().to_owned()
}

#[test]
fn one_message_per_channel_is_seen_as_its_receiver_would_see_it() {
    let dev = DevFixture::new();
    let mut browser = dev.browser();
    let count = dev.samples().len();
    assert_eq!(count, 10, "{:#}", dev.printed);
    browser
        .wait_for(&format!("document.querySelectorAll('#empty pre').length === {count}"))
        .unwrap();
    shoot(&mut browser, "inbox-empty");
    for sample in dev.samples() {
        let channel = sample["channel"].as_str().unwrap();
        let delivery = dev.ended(&dev.send(&sample["message"]));
        assert_eq!(delivery["state"], "sent", "{channel}: {delivery:#}");
        // Without a reload: the page learns of it.
        let accepted = format!("{}[data-state=\"accepted\"]", row(channel));
        browser.wait_for(&format!("document.querySelector({})", json!(accepted))).unwrap();
    }
    for (channel, selector, text) in [
        ("webpush", "#detail .notification", "Order 91 is on its way"),
        ("webhook", "#detail [data-verdict=pass]", "Signature: the signature is valid"),
        ("http", "#detail .with-copy pre", "curl -X POST"),
        (
            "email",
            "#detail [data-verdict=pass]",
            "DKIM: ed25519-sha256 by sandbox._domainkey.shop.example",
        ),
        ("sms", "#detail .bubble", "It arrives tomorrow"),
        ("chat", "#detail .card", "It arrives tomorrow"),
        ("telegram", "#detail .card", "It arrives tomorrow"),
        ("ntfy", "#detail .notification", "Order 91 is on its way"),
        ("fcm", "#detail .notification", "Order 91 is on its way"),
        ("apns", "#detail .notification", "Order 91 is on its way"),
    ] {
        browser.click(&row(channel)).unwrap();
        let (selector, text) = (json!(selector), json!(text));
        let expected = format!(
            "document.querySelector('#detail dd').innerText === {} && \
             document.querySelector({selector}).innerText.includes({text})",
            json!(channel)
        );
        browser.wait_for(&expected).unwrap();
        shoot(&mut browser, &format!("inbox-{channel}"));
    }
    let own = dev.text("http");
    let requests = browser.requests().unwrap().to_vec();
    let foreign: Vec<_> =
        requests.iter().filter(|url| !url.starts_with(own) && !url.starts_with("data:")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert_eq!(browser.breaches().unwrap(), Vec::<String>::new());
}

#[test]
fn an_ordered_503_is_retried_to_success_before_the_eyes_of_the_user() {
    let dev = DevFixture::new();
    let mut browser = dev.browser();
    browser.click("[data-kind=hook]").unwrap();
    browser.click("[data-answer='503']").unwrap();
    browser.wait_for("document.querySelector('[data-answer=\"503\"][aria-pressed=true]')").unwrap();
    let id = dev.send(&dev.sample("webhook"));
    browser.click(&row("webhook")).unwrap();
    browser.wait_for("document.querySelector('#detail .try.refused')").unwrap();
    browser.wait_for("document.querySelector('#detail .try.accepted')").unwrap();
    let tries = "[...document.querySelectorAll('#detail .try')].map((e) => e.innerText)";
    let tries = browser.evaluate(tries).unwrap();
    assert_eq!(tries, json!(["503 refused (ordered)", "200 accepted"]));
    shoot(&mut browser, "inbox-retry");
    let delivery = dev.ended(&id);
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("sent"), &json!(2)));
    browser.wait_for("!document.querySelector('[data-answer][aria-pressed=true]')").unwrap();
    assert!(detail(&mut browser).contains(&id), "the delivery is named");
    assert_eq!(browser.breaches().unwrap(), Vec::<String>::new());
}

#[test]
fn an_ordered_answer_of_every_button_reaches_the_sender() {
    let dev = DevFixture::new();
    for (answer, state, attempts) in
        [("429:1", "sent", 2), ("410", "gone", 1), ("503", "sent", 2), ("reset", "sent", 2)]
    {
        let body = json!({"script": [answer]});
        let (status, said) = dev.sandbox("PUT", "/sandbox/next/hook", &body);
        assert_eq!(status, 200, "{said}");
        let mut message = dev.sample("webhook");
        let url = message["to"]["address"]["url"].as_str().unwrap().to_owned();
        message["to"]["address"]["url"] = format!("{url}-{}", &answer[..3]).into();
        let delivery = dev.ended(&dev.send(&message));
        assert_eq!(delivery["state"], state, "{answer}: {delivery:#}");
        assert_eq!(delivery["attempts"], attempts, "{answer}: {delivery:#}");
    }
    for (path, body, error) in [
        ("/sandbox/next/fax", json!({"script": []}), "unknown kind \\\"fax\\\""),
        ("/sandbox/next/hook", json!({"script": ["explode"]}), "unknown fault"),
        ("/sandbox/next/hook", json!({"fault": "503"}), "unknown field `fault`"),
    ] {
        let (status, said) = dev.sandbox("PUT", path, &body);
        assert!(status == 400 && said.contains(error), "{status} {said}");
    }
}

#[test]
fn a_search_finds_what_a_person_remembers_of_a_message() {
    let dev = DevFixture::new();
    let mut browser = dev.browser();
    for channel in ["email", "sms", "webhook"] {
        dev.ended(&dev.send(&dev.sample(channel)));
    }
    let shown = |browser: &mut Browser, words: &str| -> Value {
        browser.fill("#search", words).unwrap();
        let asked = format!("new URLSearchParams(location.search).get('q') === {}", json!(words));
        browser.wait_for(&asked).unwrap();
        browser.wait_for("document.querySelectorAll('.message').length < 3").unwrap();
        let rows = "[...document.querySelectorAll('.message')].map((e) => e.dataset.channel)";
        browser.evaluate(rows).unwrap()
    };
    browser.wait_for("document.querySelectorAll('.message').length === 3").unwrap();
    assert_eq!(shown(&mut browser, "ORDERS@customer.example way"), json!(["email"]));
    let found = dev.inbox("q=orders/91&kind=email");
    assert_eq!(found["messages"].as_array().unwrap().len(), 1, "in its HTML: {found:#}");
    assert_eq!(dev.inbox("q=nobody")["messages"], json!([]));
    let (status, said) = dev.sandbox("GET", "/sandbox/inbox?limit=0", &json!(null));
    assert!(status == 400 && said.contains("limit is \\\"0\\\": use 1 to 500"), "{said}");
    let (status, said) = dev.sandbox("GET", "/sandbox/inbox?channel=sms", &json!(null));
    assert!(status == 400 && said.contains("use kind, q, limit or before"), "{said}");
    let (status, said) = dev.sandbox("GET", "/sandbox/inbox/999", &json!(null));
    assert!(status == 404 && said.contains("999"), "{said}");
    browser.click("#clear").unwrap();
    browser.click("#clear").unwrap();
    browser.fill("#search", "").unwrap();
    browser.wait_for("document.querySelectorAll('#empty pre').length > 0").unwrap();
}
