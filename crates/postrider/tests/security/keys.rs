//! Keys: what they may do, for whom, from where and until when.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::fixture::{Attacker, PATIENCE, chunk, message, read_end, read_until, server};

/// The end of the answer is the end of the connection.
const CLOSE: &str = "connection: close\r\n";
const WITHIN_A_SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_scope_allows_its_own_calls_and_no_others() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let sent = admin.post("/v1/messages", &message()).await.json();
    let content = format!("/v1/messages/{}/content", sent["id"].as_str().unwrap());
    let cancel = format!("/v1/messages/{}/cancel", sent["id"].as_str().unwrap());
    let one = message().to_string();
    let template = r#"{"locales":{"en":{"title":"Hello"}}}"#;
    let calls: [(&str, &str, &str, &str); 11] = [
        ("POST", "/v1/messages", one.as_str(), "send"),
        ("GET", "/v1/deliveries", "", "read content"),
        ("GET", &content, "", "content"),
        ("POST", "/v1/dead-letters/discard", r#"{"filter":{}}"#, "replay"),
        ("POST", "/v1/deliveries/release", r#"{"filter":{}}"#, "replay"),
        ("PUT", "/v1/templates/hello", template, "manage"),
        ("POST", "/v1/templates/hello/preview", "{}", "send manage"),
        ("GET", "/v1/webhook-secrets", "", "manage"),
        ("POST", "/v1/vapid/rotate", "", "manage"),
        ("GET", "/v1/keys", "", ""),
        ("POST", &cancel, "", "send"),
    ];
    assert_eq!(admin.call("PUT", "/v1/templates/hello", template).await.status, 200);
    for scope in ["send", "read", "content", "replay", "manage"] {
        let caller = admin.scoped(scope, "default").await;
        for (method, path, body, allowed) in &calls {
            let answer = caller.call(method, path, body).await;
            let may = allowed.split(' ').any(|name| name == scope);
            let refused = answer.status == 403;
            assert_eq!(
                refused, !may,
                "{scope}: {method} {path}: {} {}",
                answer.status, answer.body
            );
        }
    }
}

#[tokio::test]
async fn the_admin_of_a_tenant_does_not_reach_beyond_it() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let of_a = admin.scoped("admin", "a").await;
    let of_b = admin.scoped("tenant", "b").await;
    // It rules its own tenant.
    let own = of_a.scoped("send,read", "a").await;
    assert_eq!(own.post("/v1/messages", &message()).await.status, 202);
    let listed = of_a.get("/v1/keys").await.json();
    let tenants: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|k| &k["tenant"]).collect();
    assert_eq!(tenants, ["a", "a"], "{listed:#}");
    // It makes no key for others or for all, and revokes none of theirs.
    for tenant in ["b", "*"] {
        for scope in ["read", "admin"] {
            let body = json!({"name": "more", "scope": scope, "tenant": tenant});
            let refused = of_a.post("/v1/keys", &body).await;
            assert_eq!(refused.status, 422, "{}", refused.body);
        }
    }
    let made = of_a.new_key(json!({"name": "more", "scope": "admin"})).await;
    assert_eq!(made.get("/v1/tenants").await.status, 403, "without a tenant it is for one's own");
    let path = format!("/v1/keys/{}", of_b.key_id());
    assert_eq!(of_a.call("DELETE", &path, "").await.status, 404);
    assert_eq!(of_b.get("/v1/deliveries").await.status, 200);
    // It sees and changes nothing of the server.
    let as_b = of_a.with_header("postrider-tenant", "b");
    let as_all = of_a.with_header("postrider-tenant", "*");
    for caller in [&as_b, &as_all] {
        assert_eq!(caller.get("/v1/keys").await.status, 403);
        assert_eq!(caller.get("/v1/deliveries").await.status, 403);
    }
    for (method, path, body) in [
        ("GET", "/v1/tenants", ""),
        ("GET", "/v1/limits", ""),
        ("GET", "/v1/accounts", ""),
        ("GET", "/v1/stats/history", ""),
        ("PUT", "/v1/tenants/a", r#"{"weight":100}"#),
        ("PUT", "/v1/classes/otp", r#"{"ttl_s":1}"#),
        ("PUT", "/v1/limits/capacity", r#"{"tenant_deliveries_max":1}"#),
        ("POST", "/v1/tenants/b/pause", ""),
        ("POST", "/v1/config/reload", ""),
    ] {
        let refused = of_a.call(method, path, body).await;
        assert_eq!(refused.status, 403, "{method} {path}: {}", refused.body);
        assert!(refused.body.contains("whole server"), "{}", refused.body);
    }
    assert!(of_a.get("/v1/stats").await.json().get("rates").is_none());
}

#[tokio::test]
async fn a_key_that_reads_the_whole_server_changes_nothing() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let body = json!({"name": "monitoring", "scope": "read", "tenant": "*"});
    let monitoring = admin.new_key(body).await.with_header("postrider-tenant", "*");
    for path in ["/v1/stats/history", "/v1/tenants", "/v1/deliveries", "/v1/accounts"] {
        assert_eq!(monitoring.get(path).await.status, 200, "{path}");
    }
    assert!(monitoring.get("/v1/stats").await.json().get("rates").is_some());
    for (method, path) in [
        ("POST", "/v1/keys"),
        ("POST", "/v1/tenants/a/pause"),
        ("POST", "/v1/messages"),
        ("GET", "/v1/keys"),
    ] {
        assert_eq!(monitoring.call(method, path, "{}").await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_key_ends_when_its_time_is_over_and_so_do_its_streams() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let body = json!({"name": "short", "scope": "read", "expires_in_s": 2});
    let short = admin.new_key(body).await;
    let mut events = short.open("GET", "/v1/events", Some(0), CLOSE).await;
    read_until(&mut events, "text/event-stream").await;
    read_end(&mut events, Duration::from_secs(4)).await;
    let refused = short.get("/v1/deliveries").await;
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("this key expired at 20"), "{}", refused.body);
}

#[tokio::test]
async fn a_revoked_key_ends_its_open_streams_within_a_second() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let thief = admin.scoped("send,read", "default").await;
    let mut events = thief.open("GET", "/v1/events", Some(0), CLOSE).await;
    read_until(&mut events, "text/event-stream").await;
    let mut batch = thief.open("POST", "/v1/messages/batch", None, CLOSE).await;
    let line = format!("{}\n", message());
    batch.write_all(chunk(&line).as_bytes()).await.unwrap();
    read_until(&mut batch, "\"status\":202").await;
    // A second batch whose answers nobody reads.
    let mut unread = thief.open("POST", "/v1/messages/batch", None, CLOSE).await;
    unread.write_all(chunk(&line).as_bytes()).await.unwrap();
    let path = format!("/v1/keys/{}", thief.key_id());
    assert_eq!(admin.call("DELETE", &path, "").await.status, 204);
    // A line after the revocation is not accepted.
    let _ = batch.write_all(chunk(&line).as_bytes()).await;
    let (events, rest, unread) = tokio::join!(
        read_end(&mut events, WITHIN_A_SECOND),
        read_end(&mut batch, WITHIN_A_SECOND),
        read_end(&mut unread, WITHIN_A_SECOND),
    );
    assert!(!events.contains("event:"), "{events}");
    assert!(rest.contains("\"status\":401") && rest.contains("revoked at"), "{rest}");
    assert!(!rest.contains("\"status\":202"), "accepted after the revocation: {rest}");
    assert!(unread.contains("\"status\":401"), "{unread}");
    let stats = admin.get("/v1/stats").await.json();
    assert!(stats["messages"] == 1 || stats["messages"] == 2, "{stats:#}");
}

#[tokio::test]
async fn a_revoked_key_imports_nothing_more() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let thief = admin.scoped("manage", "default").await;
    let mut import = thief.open("POST", "/v1/recipients/import", None, CLOSE).await;
    let lines: String = (0..600).map(|n| format!("{{\"id\":\"person-{n}\"}}\n")).collect();
    import.write_all(chunk(&lines).as_bytes()).await.unwrap();
    // Five hundred are written at once; the others wait for more.
    let deadline = Instant::now() + PATIENCE;
    while admin.get("/v1/recipients/person-499").await.status != 200 {
        assert!(Instant::now() < deadline, "nothing is imported");
    }
    let path = format!("/v1/keys/{}", thief.key_id());
    assert_eq!(admin.call("DELETE", &path, "").await.status, 204);
    let answer = read_end(&mut import, WITHIN_A_SECOND).await;
    assert!(answer.contains("\"created\":500") && answer.contains("revoked at"), "{answer}");
    assert_eq!(admin.get("/v1/recipients/person-599").await.status, 404);
}

#[tokio::test]
async fn a_key_works_only_from_its_networks() {
    let mut server = server("");
    let admin = Attacker::admin(&server);
    let body =
        json!({"name": "office", "scope": "read", "networks": ["127.0.0.2/32", "10.0.0.0/8"]});
    let office = admin.new_key(body).await;
    assert_eq!(office.from([127, 0, 0, 2]).get("/v1/deliveries").await.status, 200);
    let outside = office.get("/v1/deliveries").await;
    assert_eq!(outside.status, 403);
    assert!(outside.body.contains("came from 127.0.0.1"), "{}", outside.body);
    // Anybody can write the header of a proxy.
    let forged = office.with_header("x-forwarded-for", "10.1.2.3");
    assert_eq!(forged.get("/v1/deliveries").await.status, 403);
    // Behind a proxy that the operator trusts, it counts.
    server.kill();
    server.write_config("[server]\ntrusted_proxies = [\"127.0.0.1\"]\n").unwrap();
    server.start().unwrap();
    assert_eq!(forged.get("/v1/deliveries").await.status, 200);
    let outside = office.with_header("x-forwarded-for", "10.1.2.3, 192.0.2.1");
    assert_eq!(outside.get("/v1/deliveries").await.status, 403);
}

#[tokio::test]
async fn the_last_use_of_a_key_is_shown_also_after_a_restart() {
    let mut server = server("");
    let admin = Attacker::admin(&server);
    let key = admin.scoped("read", "default").await;
    let shown = async || {
        let listed = admin.get("/v1/keys").await.json();
        let mut keys = listed["keys"].as_array().unwrap().iter();
        keys.find(|shown| shown["id"] == key.key_id()).unwrap()["last_used_at"].clone()
    };
    assert!(shown().await.is_null());
    key.get("/v1/deliveries").await;
    let used = shown().await;
    assert!(used.as_str().unwrap().starts_with("20"), "{used}");
    server.signal("TERM").unwrap();
    server.await_end().unwrap();
    server.start().unwrap();
    assert_eq!(shown().await, used);
}

#[tokio::test]
async fn a_weak_admin_key_is_refused_at_the_start() {
    for key in ["letmein", "an-admin-key-of-16", "0123456789012345678901234567890123456789012345"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["config", "check"])
            .env("POSTRIDER_ADMIN_KEY", key)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(told.contains("32 random bytes") && !told.contains(key), "{told}");
    }
}
