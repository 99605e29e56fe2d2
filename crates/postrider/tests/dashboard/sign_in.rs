//! Signing in: no link has a key, none replaces a session, and the browser keeps no key.

use postrider_testkit::browser::Browser;
use serde_json::json;

use super::fixture::{DashboardFixture, assert_clean, blocking, text};

async fn code(fixture: &DashboardFixture) -> String {
    let made = fixture.server.admin().post("/v1/sign-in-codes", &json!({})).await.unwrap();
    made["code"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_link_with_a_code_signs_in_after_a_click_and_only_then() {
    let fixture = DashboardFixture::new().await;
    let link = fixture.url(&format!("/#code={}", code(&fixture).await));
    blocking(|| {
        let mut browser = Browser::start().unwrap();
        browser.open(&link).unwrap();
        browser
            .wait_for("document.querySelector('.sign-in #key').value.startsWith('code_')")
            .unwrap();
        assert_eq!(
            browser.evaluate("location.hash").unwrap(),
            "",
            "the code is not left in the address"
        );
        assert!(text(&mut browser, ".from-link").contains("only if you asked for it"));
        browser.click(".sign-in button").unwrap();
        browser.wait_for("document.querySelector('#live.on')").unwrap();
        // No script can read the session.
        assert_eq!(browser.evaluate("document.cookie").unwrap(), "");
        assert_clean(&fixture, &mut browser, "the sign-in");
        browser.click(".who button").unwrap();
        browser.wait_for("location.pathname === '/sign-in'").unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_foreign_link_replaces_no_session() {
    let fixture = DashboardFixture::new().await;
    let evil = code(&fixture).await;
    let mut browser = fixture.signed_in("read", "acme").await;
    blocking(|| {
        browser.open(&fixture.url(&format!("/sign-in#code={evil}"))).unwrap();
        browser.wait_for("document.querySelector('#signed-in')").unwrap();
        browser.open(&fixture.url("/")).unwrap();
        browser.wait_for("document.querySelector('#live.on')").unwrap();
        assert_eq!(text(&mut browser, ".role"), "read-only");
        assert_eq!(text(&mut browser, ".top .tenant b"), "acme");
    });
    let unused = fixture.server.admin().post("/v1/sign-in", &json!({"code": evil})).await;
    assert!(unused.is_ok(), "the code was not used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_wrong_key_is_told_why_and_a_link_to_a_page_leads_there_afterwards() {
    let fixture = DashboardFixture::new().await;
    let key = fixture.server.key("read", "acme").await;
    blocking(|| {
        let mut browser = Browser::start().unwrap();
        browser.open(&fixture.url("/lanes?state=ready")).unwrap();
        browser.fill("#key", "prk_wrong").unwrap();
        browser.click(".sign-in button").unwrap();
        browser
            .wait_for("document.querySelector('#key-error').innerText.includes('not known')")
            .unwrap();
        browser.fill("#key", &key).unwrap();
        browser.click(".sign-in button").unwrap();
        browser
            .wait_for("location.pathname === '/lanes' && location.search === '?state=ready'")
            .unwrap();
    });
}
