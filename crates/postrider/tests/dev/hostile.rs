//! Hostile content in the inbox: nothing of it runs, and nothing is fetched. Foreign pages learn nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::json;

use super::fixture::DevFixture;

#[test]
fn a_hostile_mail_runs_no_script_and_fetches_nothing() {
    let dev = DevFixture::new();
    let spy = TcpListener::bind("127.0.0.1:0").unwrap();
    spy.set_nonblocking(true).unwrap();
    let at = format!("http://{}", spy.local_addr().unwrap());
    let mark = "document.title='taken'; top.document.title='taken'";
    let html = format!(
        "<html><head><meta http-equiv=refresh content='0;url={at}/refresh'><base href='{at}/'>\
         <link rel=stylesheet href='{at}/style.css'><link rel=preconnect href='{at}'>\
         <style>@import url({at}/import.css); body {{ background: url({at}/background.png) }}</style>\
         <script>{mark}; fetch('{at}/fetch')</script><script src='{at}/script.js'></script></head>\
         <body onload=\"{mark}\"><h1>Hello</h1><img src='{at}/pixel.png' onerror=\"{mark}\">\
         <iframe src='{at}/frame'></iframe><object data='{at}/object'></object>\
         <video src='{at}/video' poster='{at}/poster' autoplay></video>\
         <form action='{at}/form'><button>x</button></form><svg onload=\"{mark}\"></svg>\
         <a href='javascript:{mark}'>x</a><a href='https://shop.example/\"><b>'>y</a></body></html>"
    );
    let script =
        "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";
    let mut message = dev.sample("email");
    message["content"] =
        json!({"title": script, "body": script, "email": {"subject": script, "html": html}});
    assert_eq!(dev.ended(&dev.send(&message))["state"], "sent");
    for channel in ["webhook", "sms", "chat", "telegram", "apns", "webpush", "http"] {
        let mut message = dev.sample(channel);
        message["content"] = json!({"title": script, "body": script});
        assert_eq!(dev.ended(&dev.send(&message))["state"], "sent", "{channel}");
    }
    let mut browser = dev.browser();
    browser.wait_for("document.querySelectorAll('.message').length === 8").unwrap();
    for channel in ["webhook", "sms", "chat", "telegram", "apns", "webpush", "http", "email"] {
        browser.click(&format!("[data-channel={channel}]")).unwrap();
        let shown = format!("document.querySelector('#detail dd').innerText === '{channel}'");
        browser.wait_for(&shown).unwrap();
    }
    browser.wait_for("document.querySelector('#detail iframe')").unwrap();
    // Another page load, with the frame: when it is complete, everything that it would fetch was asked for.
    let address = browser.evaluate("location.href").unwrap();
    browser.open(address.as_str().unwrap()).unwrap();
    browser.wait_for("document.querySelector('#detail iframe')").unwrap();
    let loaded = "new Promise((done) => { const frame = document.querySelector('#detail iframe'); \
                  frame.addEventListener('load', () => done(true)); frame.src = frame.src; })";
    assert_eq!(browser.evaluate(loaded).unwrap(), true);
    assert_eq!(browser.evaluate("document.title").unwrap(), "Postrider inbox");
    let images = "document.querySelectorAll('img, .message script, #detail script').length";
    assert_eq!(browser.evaluate(images).unwrap(), 0, "texts stay texts");
    let called = spy.accept();
    assert!(
        called.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
        "{called:?}"
    );
    assert_eq!(browser.breaches().unwrap(), Vec::<String>::new(), "of our own page");
}

/// The status and the head of a request to the sandbox with these header lines.
fn ask(dev: &DevFixture, request: &str, headers: &str) -> (u16, String) {
    let at: SocketAddr = dev.text("http").strip_prefix("http://").unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    let text =
        format!("{request} HTTP/1.1\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let head = answer.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    (answer.get(9..12).unwrap_or_default().parse().unwrap_or(0), head)
}

#[test]
fn foreign_pages_and_foreign_names_do_not_reach_the_inbox() {
    let dev = DevFixture::new();
    dev.ended(&dev.send(&dev.sample("email")));
    let own = dev.text("http").strip_prefix("http://").unwrap();
    let rebound = "host: rebound.example\r\n";
    for (request, headers, status) in [
        ("GET /sandbox/inbox", format!("host: {own}\r\n"), 200),
        ("GET /sandbox/inbox", format!("host: {own}\r\norigin: http://{own}\r\n"), 200),
        ("GET /sandbox/inbox", "host: rebound.example\r\n".to_owned(), 403),
        ("GET /sandbox/inbox", format!("host: {own}\r\norigin: https://evil.example\r\n"), 403),
        ("GET /sandbox/inbox", format!("host: {own}\r\norigin: null\r\n"), 403),
        (
            "GET /sandbox/inbox/1/html",
            format!("host: {own}\r\nsec-fetch-site: cross-site\r\n"),
            403,
        ),
        ("DELETE /sandbox/inbox", format!("host: {own}\r\norigin: https://evil.example\r\n"), 403),
        ("PUT /sandbox/next/hook", "host: rebound.example\r\n".to_owned(), 403),
        ("OPTIONS /sandbox/inbox", format!("host: {own}\r\norigin: https://evil.example\r\n"), 403),
        // A program may use any name that leads here. A page of such a name is foreign.
        ("GET /sandbox/received", "host: sandbox\r\n".to_owned(), 200),
        ("GET /sandbox/received/ids", format!("{rebound}sec-fetch-site: same-origin\r\n"), 403),
        ("GET /sandbox/last/hook/a", format!("{rebound}sec-fetch-site: same-origin\r\n"), 403),
        ("PUT /sandbox/faults", format!("{rebound}origin: http://rebound.example\r\n"), 403),
        ("DELETE /sandbox/received", format!("{rebound}origin: http://rebound.example\r\n"), 403),
        ("DELETE /sandbox/received", format!("host: {own}\r\norigin: null\r\n"), 403),
    ] {
        let (found, head) = ask(&dev, request, &headers);
        assert_eq!(found, status, "{request} {headers}{head}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let (_, head) = ask(&dev, "GET /inbox", &format!("host: {own}\r\n"));
    assert!(head.contains("default-src 'none'") && !head.contains("unsafe"), "{head}");
    let (_, head) = ask(&dev, "GET /sandbox/inbox/1/html", &format!("host: {own}\r\n"));
    assert!(head.contains("content-security-policy: sandbox; default-src 'none'"), "{head}");
    assert!(!head.contains("allow-scripts"), "{head}");
}
