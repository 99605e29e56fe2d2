//! Every page, in the eyes of a checker of accessibility and of a strict policy. With `POSTRIDER_SCREENSHOTS=FOLDER`,
//! pictures of each are written there.

use postrider_testkit::browser::Browser;

use super::fixture::{DashboardFixture, assert_clean, blocking, serious, shoot};

/// Path, and the name of its pictures.
const PAGES: [(&str, &str); 14] = [
    ("/", "now"),
    ("/deliveries", "deliveries"),
    ("/deliveries?q=nobody&state=failed&range=1h", "deliveries-empty"),
    ("/dead", "dead"),
    ("/jobs", "jobs"),
    ("/jobs/plan?kind=export&state=failed", "plan"),
    ("/jobs/plan?kind=cancel&of=acme", "plan-cancel"),
    ("/lanes", "lanes"),
    ("/providers", "providers"),
    ("/settings", "settings"),
    ("/settings?part=keys", "settings-keys"),
    ("/settings?part=limits", "settings-limits"),
    ("/audit", "audit"),
    ("/settings?part=vapid&tenant=acme", "settings-vapid"),
];

/// Opens a page, and checks it in light and in dark.
fn check(fixture: &DashboardFixture, browser: &mut Browser, path: &str, name: &str) {
    browser.open(&fixture.url(path)).unwrap();
    browser.wait_for("document.querySelector('#live.on')").unwrap();
    assert_clean(fixture, browser, path);
    for dark in [false, true] {
        browser.emulate(1280, 860, dark).unwrap();
        assert_eq!(serious(browser), Vec::<String>::new(), "{path}, dark: {dark}");
    }
    let width = "document.documentElement.scrollWidth";
    browser.emulate(390, 844, false).unwrap();
    let wide = browser.evaluate(width).unwrap().as_u64().unwrap();
    assert!(wide <= 390, "{path} is {wide} wide on a phone");
    browser.emulate(1280, 860, false).unwrap();
    shoot(browser, name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_page_is_accessible_and_keeps_to_the_policy() {
    let fixture = DashboardFixture::new().await;
    fixture.populate().await;
    let failed = fixture.sent_until("acme", &fixture.refusing, "/orders/last", "failed").await;
    let mut browser = fixture.signed_in("admin", "*").await;
    blocking(|| {
        for (path, name) in PAGES {
            check(&fixture, &mut browser, path, name);
        }
        check(&fixture, &mut browser, &format!("/deliveries/{failed}"), "delivery");
        browser.open(&fixture.url("/lanes")).unwrap();
        browser.click("main tbody a").unwrap();
        browser.wait_for("document.querySelector('h1').innerText.startsWith('Lane ')").unwrap();
        let lane = browser.evaluate("location.pathname").unwrap();
        check(&fixture, &mut browser, lane.as_str().unwrap(), "lane");
        browser.open(&fixture.url("/dead")).unwrap();
        browser.click("main td.does a").unwrap();
        browser.wait_for("document.querySelector('#count')").unwrap();
        let plan = browser.evaluate("location.pathname + location.search").unwrap();
        assert_clean(&fixture, &mut browser, plan.as_str().unwrap());
    });
}

/// A page without scripts has the same answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn reading_needs_no_script() {
    let fixture = DashboardFixture::new().await;
    fixture.populate().await;
    let mut browser = fixture.signed_in("read", "*").await;
    blocking(|| {
        for (path, expected) in [
            ("/", "Latest dead letters"),
            ("/deliveries?state=retrying", "503"),
            ("/dead", "no such order"),
            ("/lanes", "lets calls through"),
        ] {
            let fetched = format!("fetch('{path}').then((answer) => answer.text())");
            let html = browser.evaluate(&fetched).unwrap();
            assert!(html.as_str().unwrap().contains(expected), "{path} lacks {expected}: {html}");
        }
    });
}
