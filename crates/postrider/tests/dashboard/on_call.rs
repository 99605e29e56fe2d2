//! What a person on call does at night.

use super::fixture::{DashboardFixture, assert_clean, blocking, text};

/// Clicks until the cause of one failed delivery is seen, counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn why_one_delivery_failed_is_three_clicks_away() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.refusing, "/orders/1", "failed").await;
    let mut browser = fixture.signed_in("read", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/")).unwrap();
        // One: the delivery. There is no second.
        browser.click("#region-dead tbody a").unwrap();
        browser.wait_for("document.querySelector('#why')").unwrap();
        let why = text(&mut browser, "main");
        assert!(why.contains("400") && why.contains("no such order"), "{why}");
        assert!(text(&mut browser, "#why").len() > 20, "{why}");
        assert_clean(&fixture, &mut browser, "the delivery");
    });
}

/// The way over the problem: Now, the problem, the delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_problem_leads_to_the_deliveries_that_it_is_about() {
    let fixture = DashboardFixture::new().await;
    for n in 0..30 {
        fixture.send("acme", &fixture.failing, &format!("/orders/{n}")).await;
    }
    let mut browser = fixture.signed_in("read,manage", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/")).unwrap();
        // Without a reload: the page learns of it.
        browser.click("#region-problems .problem h3 a").unwrap();
        browser.wait_for("location.pathname.startsWith('/problems/')").unwrap();
        super::fixture::shoot(&mut browser, "problem");
        assert_eq!(super::fixture::serious(&mut browser), Vec::<String>::new());
        browser.click("form[action*='/acknowledge'] button").unwrap();
        browser.wait_for("document.querySelector('.notice')").unwrap();
        assert!(text(&mut browser, ".notice").contains("Undo"));
        browser.click("main td a[href^='/deliveries/']").unwrap();
        browser.wait_for("document.querySelector('#why')").unwrap();
        assert!(text(&mut browser, "main").contains("503"));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_group_of_dead_letters_is_replayed_after_a_look_and_arrives() {
    let fixture = DashboardFixture::new().await;
    for n in 0..6 {
        fixture.sent_until("acme", &fixture.refusing, &format!("/orders/{n}"), "failed").await;
    }
    fixture.sent_until("globex", &fixture.refusing, "/hooks", "failed").await;
    let mut browser = fixture.signed_in("tenant", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/dead")).unwrap();
        browser
            .wait_for("document.querySelectorAll('#region-dead tbody tr').length === 2")
            .unwrap();
        browser.click("#region-dead td.does a").unwrap();
        browser.wait_for("document.querySelector('#count')").unwrap();
        let count = text(&mut browser, "#count");
        assert!(
            count.starts_with("6 dead letters match. Nothing has been changed yet."),
            "{count}"
        );
        assert_eq!(fixture.refusing.taken(), 0, "a look changes nothing");
        fixture.refusing.answer(200);
        browser.click("form[action*='/jobs/plan'] button.main").unwrap();
        browser.wait_for("document.querySelector('.notice')").unwrap();
        browser.open(&fixture.url("/deliveries?tenant=acme&state=sent")).unwrap();
        browser
            .wait_for("document.querySelectorAll('#region-deliveries tbody tr').length === 6")
            .unwrap();
    });
    assert_eq!(fixture.refusing.taken(), 6, "those of the other tenant stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_paused_lane_names_its_reason_and_goes_on_by_itself() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.failing, "/orders/1", "retrying").await;
    let mut browser = fixture.signed_in("read,manage", "*").await;
    let lane = blocking(|| {
        browser.open(&fixture.url("/lanes")).unwrap();
        browser.click("main tbody a").unwrap();
        browser.wait_for("document.querySelector('#reason')").unwrap();
        // The shortest time of the form is too long for a test.
        let shorten = "document.querySelector('#for_s').append(new Option('2', '2', true, true))";
        browser.evaluate(shorten).unwrap();
        browser.fill("#reason", "their maintenance").unwrap();
        browser.click("form[action*='/pause'] button").unwrap();
        browser.wait_for("document.querySelector('.notice')").unwrap();
        let shown = text(&mut browser, "main");
        assert!(shown.contains("their maintenance") && shown.contains("until"), "{shown}");
        assert!(text(&mut browser, ".notice").contains("Undo"));
        // Without a reload: it ends, and the page learns of it.
        browser
            .wait_for("!document.querySelector('#region-lanes').innerText.includes('maintenance')")
            .unwrap();
        browser.evaluate("location.pathname").unwrap()
    });
    let lane = lane.as_str().unwrap().to_owned();
    let acme = fixture.server.client(&fixture.server.key("read", "acme").await);
    let lane = acme.get(&format!("/v1{lane}")).await.unwrap();
    assert_ne!(lane["held_by"], "lane not paused", "{lane}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reader_sees_each_tenant_and_is_refused_every_action() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.refusing, "/orders/1", "failed").await;
    let other = fixture.sent_until("globex", &fixture.refusing, "/hooks/1", "failed").await;
    let mut browser = fixture.signed_in("read", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/deliveries")).unwrap();
        browser
            .wait_for("document.querySelectorAll('#region-deliveries tbody tr').length === 2")
            .unwrap();
        let choose = "{ const choice = document.querySelector('#tenant'); choice.value = 'globex'; \
            choice.dispatchEvent(new Event('change', {bubbles: true})); }";
        browser.evaluate(choose).unwrap();
        browser.wait_for("location.search.includes('tenant=globex') && document.querySelectorAll('#region-deliveries tbody tr').length === 1").unwrap();
        browser.click("#region-deliveries tbody a").unwrap();
        browser.wait_for("document.querySelector('#why')").unwrap();
        assert_eq!(text(&mut browser, ".role"), "read-only");
        let locked = browser
            .evaluate("document.querySelector('form[action*=replay] button').disabled")
            .unwrap();
        assert_eq!(locked, true, "the button says that it does nothing");
        // Whoever enables the button is refused by the server. Enabled and clicked in one step, because a fragment
        // that arrives in between locks the button again; and once more after a while, because the browser may drop
        // a form that is sent while the page changes.
        let force = "document.querySelector('.notice.bad') || (Date.now() - (window.forced || 0) > 5000 && (() => { \
            const button = document.querySelector('form[action*=replay] button'); \
            window.forced = Date.now(); button.disabled = false; button.click(); return false; })())";
        browser.wait_for(force).unwrap();
        let refused = text(&mut browser, ".notice");
        assert!(refused.contains("Not done.") && refused.contains("replay"), "{refused}");
    });
    let found = fixture
        .server
        .client(&fixture.server.key("read", "globex").await)
        .get(&format!("/v1/deliveries/{other}"))
        .await
        .unwrap();
    assert_eq!(found["state"], "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn keys_go_everywhere_and_change_nothing() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.refusing, "/orders/1", "failed").await;
    let mut browser = fixture.signed_in("admin", "*").await;
    blocking(|| {
        let press = |key: &str| {
            format!(
                "document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
            )
        };
        browser.open(&fixture.url("/")).unwrap();
        browser.evaluate(&press("?")).unwrap();
        browser.wait_for("document.querySelector('#help').open").unwrap();
        browser.evaluate("document.querySelector('#help').close()").unwrap();
        for key in ["g", "d"] {
            browser.evaluate(&press(key)).unwrap();
        }
        browser.wait_for("location.pathname === '/deliveries' && document.querySelector('tr[data-row]') && document.querySelector('#live.on')").unwrap();
        for key in ["j", "x", "Enter"] {
            browser.evaluate(&press(key)).unwrap();
        }
        browser.wait_for("location.pathname.startsWith('/deliveries/dlv_') && document.querySelector('#live.on')").unwrap();
        browser.evaluate(&press("/")).unwrap();
        browser.wait_for("document.activeElement.id === 'find'").unwrap();
        assert!(text(&mut browser, "main").contains("failed"), "nothing was changed");
    });
}
