//! Credentials of the operator: who may use them, and that nobody reads them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{Attacker, PATIENCE, server};

const SECRET: &str = "s3cr3t/9";

/// A receiver that refuses every request and repeats it and the secret: as it came, across the place where a
/// detail is cut off, and in a header.
async fn start_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut head, mut part) = (String::new(), [0; 4096]);
                while !head.contains("\r\n\r\n") {
                    let read = stream.read(&mut part).await.unwrap_or(0);
                    if read == 0 {
                        return;
                    }
                    head += &String::from_utf8_lossy(&part[..read]);
                }
                let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let wanted = wanted.map_or(0, |length| length.trim().parse().unwrap_or(0));
                while head.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() < wanted) {
                    let read = stream.read(&mut part).await.unwrap_or(0);
                    head += &String::from_utf8_lossy(&part[..read]);
                }
                let filler = "x".repeat(1010_usize.saturating_sub(head.len()));
                let body = format!("{head}{filler}{SECRET}{SECRET}{SECRET}");
                let answer = format!(
                    "HTTP/1.1 400 Bad Request\r\nx-request-id: id-{SECRET}\r\nretry-after: {SECRET}\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// Accounts of the tenant `acme` at the receiver, one for each way to log in to a gateway.
fn gateways(receiver: SocketAddr, secret: &str) -> String {
    let ways = [("basic", "to"), ("bearer", "to"), ("header:x-gateway-key", "to"), ("none", "key")];
    let account = |(nth, (auth, field)): (usize, &(&str, &str))| {
        let value = if *field == "key" { "{secret}" } else { "{to}" };
        format!(
            "[accounts.gateway{nth}]\nchannel = \"sms\"\nprovider = \"http\"\ntenant = \"acme{nth}\"\n\
             url = \"http://{receiver}/send\"\nfields = {{ to = \"{{to}}\", text = \"{{text}}\", {field}_ = \"{value}\" }}\n\
             user = \"shop\"\nauth = \"{auth}\"\ncredential = \"file:{secret}\"\n"
        )
    };
    ways.iter().enumerate().map(account).collect()
}

/// A server with one credential, for the tenant `acme` at the receiver, and a bot whose token is not there.
fn with_credential(receiver: SocketAddr) -> (ProcessFixture, String) {
    let mut server = ProcessFixture::new(env!("CARGO_BIN_EXE_postrider"), "").unwrap();
    let file = server.path("billing.secret");
    std::fs::write(&file, SECRET).unwrap();
    let reference = format!("file:{}", file.display());
    let config = format!(
        "{LOCAL_TARGETS}[http]\ncredentials = [\"{reference} http://{receiver} acme\"]\n\
         [accounts.bot]\nchannel = \"telegram\"\ntenant = \"acme\"\ncredential = \"file:{}\"\n",
        server.path("operators-place/bot.token").display()
    );
    server.write_config(&config).unwrap();
    server.start().unwrap();
    (server, reference)
}

fn request(receiver: SocketAddr, reference: &str) -> Value {
    let url = format!("http://{receiver}/charge");
    json!({
        "to": {"address": {"channel": "http", "url": url, "credential": reference}},
        "content": {"title": "x"},
        "retry": {"retries": 0},
    })
}

/// Everything that a tenant can read about a delivery, when it has an attempt.
async fn attempted(caller: &Attacker, sent: &Value) -> String {
    let id = sent["deliveries"][0]["id"].as_str().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let delivery = caller.get(&format!("/v1/deliveries/{id}")).await;
        if delivery.json()["log"].as_array().is_some_and(|all| !all.is_empty()) {
            let explained = caller.get(&format!("/v1/deliveries/{id}/explain")).await;
            let dead = caller.get("/v1/dead-letters").await;
            return format!("{}{}{}", delivery.body, explained.body, dead.body);
        }
        assert!(Instant::now() < deadline, "never attempted: {}", delivery.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_tenant_cannot_use_the_credential_of_another() {
    let receiver = start_echo().await;
    let (server, reference) = with_credential(receiver);
    let admin = Attacker::admin(&server);
    let thief = admin.scoped("tenant", "thief").await;
    let refused = thief.post("/v1/messages", &request(receiver, &reference)).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("http.credentials"), "{}", refused.body);
    let address = &request(receiver, &reference)["to"]["address"];
    let refused = thief.post("/v1/addresses", address).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    let acme = admin.scoped("tenant", "acme").await;
    assert_eq!(acme.post("/v1/messages", &request(receiver, &reference)).await.status, 202);
    let elsewhere: SocketAddr = ([127, 0, 0, 1], 9).into();
    let refused = acme.post("/v1/messages", &request(elsewhere, &reference)).await;
    assert_eq!(refused.status, 422, "only for its origin: {}", refused.body);
}

#[tokio::test]
async fn an_echoed_credential_is_not_shown() {
    let receiver = start_echo().await;
    let (server, reference) = with_credential(receiver);
    let acme = Attacker::admin(&server).scoped("tenant", "acme").await;
    let sent = acme.post("/v1/messages", &request(receiver, &reference)).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let shown = attempted(&acme, &sent.json()).await;
    assert!(shown.contains("[hidden]"), "the receiver repeated it: {shown}");
    for part in ["s3cr", "3t/9", "cr3t"] {
        assert!(!shown.contains(part), "{part}: {shown}");
        assert!(!server.server_log().unwrap().contains(part), "in the log");
    }
}

#[tokio::test]
async fn an_echoed_credential_of_an_account_is_not_shown() {
    let receiver = start_echo().await;
    let mut server = ProcessFixture::new(env!("CARGO_BIN_EXE_postrider"), "").unwrap();
    let file = server.path("gateway.secret");
    std::fs::write(&file, SECRET).unwrap();
    let accounts = gateways(receiver, &file.display().to_string());
    server.write_config(&format!("{LOCAL_TARGETS}{accounts}")).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    for nth in 0..4 {
        let tenant = admin.scoped("tenant", &format!("acme{nth}")).await;
        let message = json!({
            "to": {"address": {"channel": "sms", "phone": "+4915112345678"}},
            "content": {"title": "x"},
            "retry": {"retries": 0},
        });
        let sent = tenant.post("/v1/messages", &message).await;
        assert_eq!(sent.status, 202, "{}", sent.body);
        let shown = attempted(&tenant, &sent.json()).await;
        assert!(shown.contains("[hidden]"), "gateway {nth} repeated it: {shown}");
        // As it is, and as Basic and a form have it.
        for part in ["s3cr", "3t/9", "cr3t", "c2hvcDpzM2NyM3QvO", "3t%2F9", "15112345678"] {
            assert!(!shown.contains(part), "gateway {nth}: {part}: {shown}");
            assert!(!server.server_log().unwrap().contains(part), "{part} in the log");
        }
    }
}

#[tokio::test]
async fn a_tenant_cannot_send_through_the_account_of_another() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = ProcessFixture::new(env!("CARGO_BIN_EXE_postrider"), "").unwrap();
    let file = server.path("gateway.secret");
    std::fs::write(&file, SECRET).unwrap();
    let accounts = gateways(receiver.local_addr().unwrap(), &file.display().to_string());
    server.write_config(&format!("{LOCAL_TARGETS}{accounts}")).unwrap();
    server.start().unwrap();
    let admin = Attacker::admin(&server);
    let thief = admin.scoped("tenant", "thief").await;
    let address = json!({"channel": "sms", "phone": "+4915112345678"});
    for (path, body) in [
        ("/v1/messages", json!({"to": {"address": address}, "content": {"title": "x"}})),
        ("/v1/addresses", address.clone()),
    ] {
        let refused = thief.post(path, &body).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.body);
        assert!(!refused.body.contains("gateway"), "{}", refused.body);
    }
    // Nor by speaking for the tenant that has it.
    let posing = thief.with_header("postrider-tenant", "acme0");
    let message = json!({"to": {"address": address}, "content": {"title": "x"}});
    let refused = posing.post("/v1/messages", &message).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    for path in ["/v1/accounts", "/v1/lanes", "/v1/problems", "/v1/stats"] {
        let shown = thief.get(path).await.body;
        assert!(!shown.contains("gateway") && !shown.contains("acme"), "{path}: {shown}");
    }
    let called = tokio::time::timeout(Duration::from_millis(300), receiver.accept()).await;
    assert!(called.is_err(), "the gateway of another tenant was called");
}

#[tokio::test]
async fn a_tenant_does_not_learn_where_the_operator_keeps_secrets() {
    let receiver = start_echo().await;
    let (server, _) = with_credential(receiver);
    let tenant = Attacker::admin(&server).scoped("tenant", "acme").await;
    let message = json!({
        "to": {"address": {"channel": "telegram", "chat_id": "5"}},
        "content": {"title": "x"},
    });
    let sent = tenant.post("/v1/messages", &message).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let shown = attempted(&tenant, &sent.json()).await;
    assert!(shown.contains("the server's log says why"), "{shown}");
    for part in ["operators-place", "bot.token", "file:"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
    assert!(server.server_log().unwrap().contains("operators-place"), "the operator is told");
}

#[tokio::test]
async fn a_problem_does_not_tell_a_tenant_where_the_operator_keeps_secrets() {
    let (server, _) = with_credential(start_echo().await);
    let admin = Attacker::admin(&server);
    let tenant = admin.scoped("tenant", "acme").await;
    let deadline = Instant::now() + PATIENCE;
    let shown = loop {
        let shown = tenant.get("/v1/problems").await.body;
        if shown.contains("credential_failing") {
            break shown;
        }
        assert!(Instant::now() < deadline, "no problem: {shown}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for part in ["operators-place", "bot.token", "file:"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
    let told = admin.get("/v1/problems").await.body;
    assert!(told.contains("operators-place"), "the operator is told: {told}");
}

#[tokio::test]
async fn what_looks_like_a_secret_is_not_stored() {
    let server = server(
        "[http]\nsecret_names = [\"x-internal-*\"]\npublic_names = [\"x-sort-key\", \"sig\"]\n",
    );
    let caller = Attacker::admin(&server).scoped("tenant", "default").await;
    let send = async |url: &str, headers: Value| {
        let address = json!({"channel": "http", "url": url, "headers": headers});
        caller.post("/v1/messages", &json!({"to": {"address": address}})).await
    };
    let plain = "https://example.com/";
    for name in [
        "Authorization",
        "X-Gitlab-Token",
        "Ocp-Apim-Subscription-Key",
        "X-Client-Secret",
        "Cookie",
        "X-Hub-Signature",
        "X-Internal-Pass",
    ] {
        let refused = send(plain, json!({ name: "hunter2" })).await;
        assert_eq!(refused.status, 422, "{name}: {}", refused.body);
        assert!(!refused.body.contains("hunter2"), "{}", refused.body);
        assert!(refused.body.contains("name it by credential"), "{}", refused.body);
    }
    for query in [
        "access_token=hunter2",
        "a=1&api_key=hunter2",
        "X-Amz-Signature=hunter2",
        "%74oken=hunter2",
        "password=hunter2",
    ] {
        let refused = send(&format!("{plain}?{query}"), json!({})).await;
        assert_eq!(refused.status, 422, "{query}: {}", refused.body);
        assert!(!refused.body.contains("hunter2"), "{}", refused.body);
    }
    let headers = json!({"X-Sort-Key": "a", "Idempotency-Key": "b", "X-Request-Id": "c"});
    let accepted = send("https://example.com/?page_token=1&sig=2", headers).await;
    assert_eq!(accepted.status, 202, "{}", accepted.body);
}
