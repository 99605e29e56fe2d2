//! What a person does to steer: force a breaker, cancel what matches, name what excludes everything, pin a note, verify
//! and pause an account, read times as the recipient does.

use postrider_testkit::server::eventually;
use serde_json::{Value, json};

use super::fixture::{DashboardFixture, assert_clean, blocking, serious, shoot, text};

/// Clicks the button of the form with this hidden value.
fn click_of(value: &str) -> String {
    let found = format!("document.querySelector('main form input[value=\"{value}\"]')");
    format!("{found}.form.querySelector('button').click()")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_problem_lists_its_lanes_and_its_breaker_is_forced_and_taken_back() {
    let fixture = DashboardFixture::new().await;
    for n in 0..30 {
        fixture.send("acme", &fixture.failing, &format!("/orders/{n}")).await;
    }
    let mut browser = fixture.signed_in("admin", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/")).unwrap();
        browser.click("#region-problems .problem h3 a").unwrap();
        browser.wait_for("document.querySelector('#region-lanes tbody tr a')").unwrap();
        let lanes = text(&mut browser, "#region-lanes");
        assert!(lanes.contains("Held by") && lanes.contains("acme"), "{lanes}");
        browser
            .evaluate("document.querySelector('#region-problems details.confirm').open = true")
            .unwrap();
        assert_eq!(serious(&mut browser), Vec::<String>::new());
        browser.evaluate(&click_of("closed")).unwrap();
        browser.wait_for("document.querySelector('.notice')").unwrap();
        assert!(text(&mut browser, ".notice").contains("Everything is sent there"));
        browser
            .wait_for("document.querySelector('#region-lanes').innerText.includes('forced closed')")
            .unwrap();
        browser.click(".notice form button").unwrap();
        browser
            .wait_for(
                "document.querySelector('.notice')?.innerText.includes('by the failures again')",
            )
            .unwrap();
        browser
            .wait_for("!document.querySelector('#region-lanes').innerText.includes('forced')")
            .unwrap();
        let replay = "document.querySelector('main a[href*=\"kind=replay\"]').href";
        let replay = browser.evaluate(replay).unwrap();
        assert!(replay.as_str().unwrap().contains("of=acme"), "{replay}");
        assert_clean(&fixture, &mut browser, "the problem");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn everything_that_matches_is_cancelled_after_a_look() {
    let fixture = DashboardFixture::new().await;
    for n in 0..3 {
        fixture.sent_until("acme", &fixture.failing, &format!("/orders/{n}"), "retrying").await;
    }
    let other = fixture.sent_until("globex", &fixture.failing, "/hooks", "retrying").await;
    let mut browser = fixture.signed_in("tenant", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/deliveries?state=retrying")).unwrap();
        browser.click("a[href*='kind=cancel']").unwrap();
        browser
            .wait_for("document.querySelector('main').innerText.includes('Of which tenant?')")
            .unwrap();
        browser.click("a.chip[href*='of=acme']").unwrap();
        browser.wait_for("document.querySelector('#count')").unwrap();
        let count = text(&mut browser, "#count");
        assert!(
            count.starts_with("3 pending deliveries match. Nothing has been changed yet."),
            "{count}"
        );
        shoot(&mut browser, "plan");
        browser.fill("#why", "a wrong price").unwrap();
        browser.click("form[action*='/jobs/plan'] button.bad").unwrap();
        browser
            .wait_for(
                "document.querySelector('.notice') && location.pathname.startsWith('/jobs/job_')",
            )
            .unwrap();
        browser.wait_for("document.querySelector('main').innerText.includes('done')").unwrap();
        assert!(text(&mut browser, "main").contains("a wrong price"));
        browser.open(&fixture.url("/deliveries?tenant=acme&state=cancelled")).unwrap();
        browser
            .wait_for("document.querySelectorAll('#region-deliveries tbody tr').length === 3")
            .unwrap();
        assert_clean(&fixture, &mut browser, "the cancellation");
    });
    let globex = fixture.server.client(&fixture.server.key("read", "globex").await);
    let found = globex.get(&format!("/v1/deliveries/{other}")).await.unwrap();
    assert_eq!(found["state"], "retrying", "those of the other tenant stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn filters_are_chips_and_the_one_that_excludes_everything_is_named() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.refusing, "/orders/1", "failed").await;
    fixture.sent_until("globex", &fixture.healthy, "/hooks", "sent").await;
    let mut browser = fixture.signed_in("read", "*").await;
    let rows = |count: usize| {
        format!("document.querySelectorAll('#region-deliveries tbody tr').length === {count}")
    };
    blocking(|| {
        browser.open(&fixture.url("/deliveries")).unwrap();
        browser.wait_for(&rows(2)).unwrap();
        // A filter that has no chip is added with the form, and becomes one.
        browser.fill("#value", "orders").unwrap();
        browser.click("form.add-filter button").unwrap();
        browser
            .wait_for(
                "location.search.includes('tag=orders') && document.querySelector('.chip.on')",
            )
            .unwrap();
        assert!(text(&mut browser, ".facets").contains("tag: orders"));
        browser.click(".facets a.chip[href*='error=']").unwrap();
        browser.wait_for(&format!("location.search.includes('error=') && {}", rows(1))).unwrap();
        browser.open(&fixture.url("/deliveries?tag=orders&state=gone")).unwrap();
        browser.wait_for("document.querySelector('.empty a.chip')").unwrap();
        let empty = text(&mut browser, ".empty");
        assert!(
            empty.contains("There would be some without:") && empty.contains("state gone"),
            "{empty}"
        );
        browser.click(".empty a.chip").unwrap();
        browser.wait_for(&rows(2)).unwrap();
        browser.open(&fixture.url("/deliveries?tenant=globex&channel=sms&state=gone")).unwrap();
        browser.wait_for("document.querySelector('.empty a.chip')").unwrap();
        let empty = text(&mut browser, ".empty");
        assert!(empty.contains("all of: state gone, channel sms"), "{empty}");
        assert_eq!(serious(&mut browser), Vec::<String>::new());
        assert_clean(&fixture, &mut browser, "the deliveries");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_note_is_on_every_page_and_a_tenant_sees_only_what_is_meant_for_it() {
    let fixture = DashboardFixture::new().await;
    let mut browser = fixture.signed_in("read,manage", "*").await;
    let mut of_tenant = fixture.signed_in("read,manage", "acme").await;
    let note = "document.querySelector('#region-notes .note')";
    blocking(|| {
        for (words, to) in [("their data centre moves until noon", ""), ("Apple is late", "*")] {
            browser.open(&fixture.url("/")).unwrap();
            browser
                .evaluate("document.querySelector('#note-text').closest('details').open = true")
                .unwrap();
            browser.fill("#note-text", words).unwrap();
            browser
                .evaluate(&format!("document.querySelector('#note-to').value = '{to}'"))
                .unwrap();
            browser.click("form[action='/notes'] button.main").unwrap();
            browser.wait_for("document.querySelector('.notice')").unwrap();
        }
        // Without a reload: the page learns of it.
        of_tenant.wait_for(note).unwrap();
        browser.open(&fixture.url("/lanes")).unwrap();
        browser.wait_for("document.querySelectorAll('#region-notes .note').length === 2").unwrap();
        let shown = text(&mut browser, "#region-notes");
        assert!(shown.contains("until noon") && shown.contains("by key_"), "{shown}");
        assert_eq!(serious(&mut browser), Vec::<String>::new());
        shoot(&mut browser, "note");
        let shown = text(&mut of_tenant, "#region-notes");
        assert!(shown.contains("Apple is late") && !shown.contains("data centre"), "{shown}");
        let button = "document.querySelector('#region-notes button:not(.link)')";
        assert_eq!(of_tenant.evaluate(button).unwrap(), json!(null), "it is not the tenant's");
        browser.click("#region-notes .note form button").unwrap();
        browser.wait_for("document.querySelectorAll('#region-notes .note').length === 1").unwrap();
        assert_clean(&fixture, &mut browser, "the notes");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_account_is_verified_and_paused_on_the_page_of_providers() {
    let broken = "[accounts.apple]\nchannel = \"apns\"\ntenant = \"*\"\n\
                  credential = \"file:/nowhere/apple.pem\"\n";
    let fixture = DashboardFixture::with(broken).await;
    fixture.sent_until("acme", &fixture.healthy, "/orders/1", "sent").await;
    let history = "/v1/stats/history?resolution=hour&kind=attempts";
    let is_counted = |found: &Value| found["points"].as_array().is_some_and(|all| !all.is_empty());
    eventually(&fixture.server.admin().for_tenant(Some("*".to_owned())), history, is_counted).await;
    let mut browser = fixture.signed_in("admin", "*").await;
    blocking(|| {
        browser.open(&fixture.url("/providers")).unwrap();
        browser.click("form[action*='/accounts/apple/verify'] button").unwrap();
        browser.wait_for("document.querySelector('#findings li')").unwrap();
        let found = text(&mut browser, "main");
        assert!(
            found.contains("A check failed.") && found.contains("/nowhere/apple.pem"),
            "{found}"
        );
        assert!(found.contains("What helps: put the file there"), "{found}");
        assert_eq!(serious(&mut browser), Vec::<String>::new());
        shoot(&mut browser, "account");
        browser.open(&fixture.url("/providers")).unwrap();
        browser.wait_for("document.querySelector('#reason-apple')").unwrap();
        browser.fill("#reason-apple", "a new contract").unwrap();
        browser.evaluate("document.querySelector('#reason-apple').form.requestSubmit()").unwrap();
        browser.wait_for("document.querySelector('.notice')").unwrap();
        let shown = text(&mut browser, "main");
        assert!(
            shown.contains("provider not paused") && shown.contains(": a new contract"),
            "{shown}"
        );
        browser.click(".notice form button").unwrap();
        browser
            .wait_for("!document.querySelector('main').innerText.includes('a new contract')")
            .unwrap();
        // A receiver of webhooks has no account, and is paused all the same.
        let pause = "{ const form = document.querySelector('form[action*=\"/providers/pause\"]'); \
            form.reason.value = 'their maintenance'; form.requestSubmit(); }";
        browser.wait_for("document.querySelector('form[action*=\"/providers/pause\"]')").unwrap();
        browser.evaluate(pause).unwrap();
        browser
            .wait_for("document.querySelector('.notice')?.innerText.includes('Nothing is sent')")
            .unwrap();
        assert!(text(&mut browser, "main").contains("Paused providers"));
        browser.click("form[action*='/providers/resume'] button").unwrap();
        browser
            .wait_for("document.querySelector('.notice')?.innerText.includes('is sent again')")
            .unwrap();
        assert_clean(&fixture, &mut browser, "the providers");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn times_are_shown_in_the_zone_of_the_recipient_and_its_other_deliveries_are_listed() {
    let fixture = DashboardFixture::new().await;
    let acme = fixture.server.client(&fixture.server.key("tenant", "acme").await);
    let zone = json!({"zone": "Asia/Tokyo"});
    acme.json(http::Method::PUT, "/v1/recipients/u-42", Some(&zone)).await.unwrap();
    let address =
        json!({"channel": "webhook", "url": fixture.healthy.url("/u-42"), "recipient": "u-42"});
    acme.post("/v1/addresses", &address).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let message = json!({"to": {"recipient": "u-42"}, "content": {"title": "Shipped"}});
        let sent = acme.post("/v1/messages", &message).await.unwrap();
        ids.push(sent["deliveries"][0]["id"].as_str().unwrap().to_owned());
    }
    let mut browser = fixture.signed_in("read", "*").await;
    blocking(|| {
        browser.open(&fixture.url(&format!("/deliveries/{}", ids[0]))).unwrap();
        browser.wait_for("document.querySelector('#zone').innerText === 'UTC'").unwrap();
        let other = format!("document.querySelector('main td a[href*=\"{}\"]')", ids[1]);
        browser.wait_for(&other).unwrap();
        let times = "[...document.querySelectorAll('dl.facts time')].at(-1)";
        let utc = browser.evaluate(&format!("{times}.innerText")).unwrap();
        browser.click("#zone").unwrap();
        browser.click("#zone").unwrap();
        browser
            .wait_for("document.querySelector('#zone').innerText === 'Asia/Tokyo (recipient)'")
            .unwrap();
        let tokyo = browser.evaluate(&format!("{times}.innerText")).unwrap();
        assert_ne!(tokyo, utc);
        let expected = "new Intl.DateTimeFormat('en-GB', {timeZone: 'Asia/Tokyo', hour: '2-digit', \
            minute: '2-digit', second: '2-digit', hourCycle: 'h23'})";
        let expected = format!("{expected}.format(new Date({times}.dateTime))");
        let expected = browser.evaluate(&expected).unwrap();
        assert!(
            tokyo.as_str().unwrap().ends_with(expected.as_str().unwrap()),
            "{tokyo} {expected}"
        );
        // Another page knows no recipient.
        browser.open(&fixture.url("/lanes")).unwrap();
        browser.wait_for("['UTC', Intl.DateTimeFormat().resolvedOptions().timeZone].includes(document.querySelector('#zone').innerText)").unwrap();
        assert_clean(&fixture, &mut browser, "the zones");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_chart_says_what_is_under_the_pointer_only_while_one_points_at_it() {
    let fixture = DashboardFixture::new().await;
    fixture.sent_until("acme", &fixture.healthy, "/orders/1", "sent").await;
    let mut browser = fixture.signed_in("read", "*").await;
    let shown = "getComputedStyle(document.querySelector('#attempts .u-legend')).visibility";
    blocking(|| {
        browser.wait_for("document.querySelector('#attempts .u-legend')").unwrap();
        assert_eq!(browser.evaluate(shown).unwrap(), json!("hidden"));
        let point = "{ const over = document.querySelector('#attempts .u-over'); \
            const at = over.getBoundingClientRect(); \
            over.dispatchEvent(new MouseEvent('mouseenter')); \
            over.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, movementX: 5, clientX: at.left + 60, clientY: at.top + 20})); }";
        browser.evaluate(point).unwrap();
        browser.wait_for(&format!("{shown} === 'visible'")).unwrap();
    });
}
