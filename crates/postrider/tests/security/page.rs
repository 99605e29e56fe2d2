//! The dashboard: sessions in cookies, forms that only its own pages can send, and no more than the key may.

use serde_json::json;

use crate::fixture::{AttackAnswer, Attacker, server};

#[tokio::test]
async fn a_link_to_the_page_opens_it_once() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let reader = admin.scoped("read", "acme").await;
    let made = reader.call("POST", "/v1/sign-in-codes", "").await;
    assert_eq!(made.status, 201, "{}", made.body);
    let code = json!({"code": made.json()["code"]});
    let nobody = reader.with_key("none");
    let session = nobody.post("/v1/sign-in", &code).await;
    assert_eq!(session.status, 200, "{}", session.body);
    let session = reader.with_key(session.json()["key"].as_str().unwrap());
    assert_eq!(nobody.post("/v1/sign-in", &code).await.status, 401, "it was used");
    // The session has the rights of its key, makes no more codes, and ends with its key.
    assert_eq!(session.get("/v1/stats").await.status, 200);
    assert_eq!(session.post("/v1/messages", &json!({})).await.status, 403);
    assert_eq!(session.call("POST", "/v1/sign-in-codes", "").await.status, 403);
    let path = format!("/v1/keys/{}", reader.key_id());
    assert_eq!(admin.call("DELETE", &path, "").await.status, 204);
    assert_eq!(session.get("/v1/stats").await.status, 401);
}

#[tokio::test]
async fn guessing_codes_is_slowed_down() {
    let server = server("");
    let attacker = Attacker::admin(&server).from([127, 0, 0, 7]).with_key("none");
    let mut statuses = Vec::new();
    for n in 0..40 {
        let guess = json!({"code": format!("code_{n}")});
        statuses.push(attacker.post("/v1/sign-in", &guess).await.status);
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[39], 429, "{statuses:?}");
}

/// A form as a browser sends it.
async fn submitted(attacker: &Attacker, path: &str, cookie: &str, form: &str) -> AttackAnswer {
    let sender = attacker.with_key("none").with_header("cookie", cookie);
    sender.with_header("sec-fetch-site", "same-origin").call("POST", path, form).await
}

/// The cookie of a person who signed in with this key.
async fn signed_in(attacker: &Attacker) -> String {
    let form = format!("key={}", attacker.key);
    let answer = submitted(attacker, "/sign-in", "a=b", &form).await;
    assert_eq!(answer.status, 303, "{}{}", answer.head, answer.body);
    let line = answer.head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
    for needed in ["httponly", "samesite=strict", "path=/"] {
        assert!(line.contains(needed), "{line}");
    }
    // The head was made lower case; a session has capitals. So it is made anew, by the same calls.
    let made = attacker.call("POST", "/v1/sign-in-codes", "").await;
    let code = json!({"code": made.json()["code"]});
    let session = attacker.with_key("none").post("/v1/sign-in", &code).await;
    format!("postrider_session={}", session.json()["key"].as_str().unwrap())
}

/// The token that forms of this page repeat.
fn token(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_form_needs_the_token_of_its_session_and_a_page_of_ours() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let cookie = signed_in(&admin).await;
    let person = admin.with_key("none").with_header("cookie", &cookie);
    let page = person.get("/settings?part=tenants").await;
    assert_eq!(page.status, 200, "{}", page.body);
    let form = format!("do=pause-tenant&name=default&token={}", token(&page.body));
    // Without the token, with that of another session, from another site.
    let other = signed_in(&admin.scoped("read", "acme").await).await;
    let foreign = person.with_header("sec-fetch-site", "cross-site");
    for refused in [
        submitted(&admin, "/settings", &cookie, "do=pause-tenant&name=default").await,
        submitted(&admin, "/settings", &other, &form).await,
        foreign.call("POST", "/settings", &form).await,
    ] {
        assert_eq!(refused.status, 403, "{}", refused.body);
    }
    let tenants = admin.get("/v1/tenants").await;
    assert!(!tenants.body.contains("\"paused\""), "{}", tenants.body);
    let done = submitted(&admin, "/settings", &cookie, &form).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(admin.get("/v1/tenants").await.body.contains("\"paused\""));
}

#[tokio::test]
async fn a_session_in_a_cookie_opens_pages_only_and_a_key_in_one_opens_nothing() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let cookie = signed_in(&admin).await;
    let person = admin.with_key("none").with_header("cookie", &cookie);
    assert_eq!(person.get("/").await.status, 200);
    assert_eq!(person.get("/v1/stats").await.status, 401, "the API takes no cookies");
    let key = format!("postrider_session={}", admin.key);
    let with_key = admin.with_key("none").with_header("cookie", &key);
    assert_eq!(with_key.get("/").await.status, 303);
    let nobody = admin.with_key("none").get("/deliveries?state=failed").await;
    assert_eq!(nobody.status, 303);
    assert!(nobody.head.contains("location: /sign-in?next="), "{}", nobody.head);
    let policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'";
    assert!(nobody.head.contains(policy), "{}", nobody.head);
}

#[tokio::test]
async fn pages_show_a_tenant_nothing_of_another() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let sender = admin.scoped("send", "acme").await;
    let sent = sender.post("/v1/messages", &crate::fixture::message()).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let id = sent.json()["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let other = signed_in(&admin.scoped("admin", "globex").await).await;
    let other = admin.with_key("none").with_header("cookie", &other);
    for (path, status) in [
        (format!("/deliveries/{id}"), 404),
        (format!("/deliveries/{id}?tenant=acme"), 403),
        ("/?tenant=acme".to_owned(), 403),
        ("/deliveries?tenant=*".to_owned(), 403),
        ("/settings?part=tenants".to_owned(), 403),
    ] {
        let page = other.get(&path).await;
        assert_eq!(page.status, status, "{path}: {}", page.body);
        assert!(!page.body.contains("example.com"), "{path}: {}", page.body);
    }
    for path in ["/deliveries", "/lanes", "/dead", "/providers", "/audit", "/settings?part=keys"] {
        let page = other.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(!page.body.contains("acme") && !page.body.contains(&id), "{path}: {}", page.body);
    }
}

#[tokio::test]
async fn a_portal_link_opens_one_tenant_until_its_end_or_that_of_its_key() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let maker = admin.new_key(json!({"name": "portal", "scope": "admin", "tenant": "*"})).await;
    let made = maker.post("/v1/portal-links", &json!({"tenant": "acme", "scopes": ["read"]})).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    assert_eq!(made["link"], format!("/sign-in#portal={}", made["key"].as_str().unwrap()));
    let customer = admin.with_key(made["key"].as_str().unwrap());
    assert_eq!(customer.get("/v1/deliveries").await.status, 200);
    let elsewhere = customer.with_header("postrider-tenant", "globex");
    assert_eq!(elsewhere.get("/v1/deliveries").await.status, 403);
    assert_eq!(customer.get("/v1/accounts").await.status, 403, "it is for one tenant");
    assert_eq!(customer.post("/v1/messages", &json!({})).await.status, 403, "it only reads");
    assert_eq!(customer.call("POST", "/v1/sign-in-codes", "").await.status, 403);
    let cookie = format!("postrider_session={}", customer.key);
    let page = admin.with_key("none").with_header("cookie", &cookie).get("/").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("acme") && page.body.contains("read-only"), "{}", page.body);
    // Nobody gives more than they have, and nobody makes a link for another tenant.
    let own = admin.scoped("admin", "acme").await;
    assert_eq!(own.post("/v1/portal-links", &json!({"tenant": "globex"})).await.status, 403);
    assert_eq!(own.post("/v1/portal-links", &json!({"scopes": ["admin"]})).await.status, 422);
    assert_eq!(maker.post("/v1/portal-links", &json!({"expires_in_s": 0})).await.status, 422);
    let path = format!("/v1/keys/{}", maker.key_id());
    assert_eq!(admin.call("DELETE", &path, "").await.status, 204);
    assert_eq!(customer.get("/v1/deliveries").await.status, 401, "it ended with its key");
}
