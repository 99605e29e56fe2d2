//! Quotas: a tenant fills what stays, and others notice nothing.

use std::time::{Duration, Instant};

use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture, free_port};
use postrider_testkit::server::STRIKE_RULES;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{AttackAnswer, Attacker, PATIENCE, message, read_until, server};

fn webhook(url: &str) -> Value {
    json!({"channel": "webhook", "url": url})
}

/// Checks that an answer names a quota, what was found and what is allowed.
fn assert_names(answer: &AttackAnswer, quota: &str, allowed: u64) {
    assert_eq!(answer.status, 403, "{}", answer.body);
    let problem = answer.json();
    assert_eq!(problem["type"], "urn:postrider:problem:quota_exceeded", "{problem}");
    assert_eq!(problem["errors"][0]["field"], quota, "{problem}");
    assert_eq!(problem["errors"][0]["allowed"], format!("at most {allowed}"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("raise the limit"), "{problem}");
}

/// Sends until a message is refused because of a quota.
async fn send_until_refused(tenant: &Attacker, message: impl Fn(usize) -> Value) -> AttackAnswer {
    let started = Instant::now();
    for number in 0.. {
        let answer = tenant.post("/v1/messages", &message(number)).await;
        if answer.status != 202 {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{number} messages were accepted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("the loop has no end")
}

#[tokio::test]
async fn a_tenant_cannot_register_addresses_without_end() {
    let server = server("[limits]\naddresses_max = 5\n[tenants.big]\naddresses_max = 6\n");
    let admin = Attacker::admin(&server);
    for (name, allowed) in [("acme", 5), ("big", 6)] {
        let tenant = admin.scoped("tenant", name).await;
        let put = |n: u64| webhook(&format!("https://example.com/{n}"));
        for n in 0..allowed {
            assert_eq!(tenant.post("/v1/addresses", &put(n)).await.status, 201);
        }
        let refused = tenant.post("/v1/addresses", &put(99)).await;
        assert_names(&refused, "limits.addresses_max", allowed);
        // What is known can be registered again, and deleting makes room.
        let known = tenant.post("/v1/addresses", &put(0)).await;
        assert_eq!(known.status, 200, "{}", known.body);
        let id = known.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(tenant.call("DELETE", &format!("/v1/addresses/{id}"), "").await.status, 204);
        assert_eq!(tenant.post("/v1/addresses", &put(99)).await.status, 201);
    }
    let shown = admin.get("/v1/tenants/acme").await.json();
    let quota = shown["quotas"].as_array().unwrap().iter().find(|q| q["quota"] == "addresses_max");
    assert_eq!(quota.unwrap()["allowed"], 5, "{shown}");
}

#[tokio::test]
async fn dead_letters_of_one_tenant_end_its_own_messages_only() {
    let nobody = free_port().unwrap();
    let server = server(&format!("{LOCAL_TARGETS}[limits]\ndead_letters_max = 3\n"));
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("tenant", "greedy").await, admin.scoped("tenant", "other").await);
    let failing = |_| {
        json!({
            "to": {"address": webhook(&format!("http://{nobody}/"))},
            "content": {"title": "x"}, "retry": {"retries": 0},
        })
    };
    let refused = send_until_refused(&greedy, failing).await;
    assert_names(&refused, "limits.dead_letters_max", 3);
    assert_eq!(other.post("/v1/messages", &message()).await.status, 202);
    let metrics = admin.get("/metrics").await.body;
    assert!(metrics.contains("postrider_tenants_over_quota 1"), "{metrics}");
    // Discarding makes room.
    let started = Instant::now();
    while greedy.post("/v1/messages", &message()).await.status != 202 {
        // What was accepted before goes on failing.
        let discarded = greedy.post("/v1/dead-letters/discard", &json!({"filter": {}})).await;
        assert_eq!(discarded.status, 200, "{}", discarded.body);
        assert!(started.elapsed() < PATIENCE, "there is still no room");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn of_a_tenant_over_a_quota_few_bodies_are_read_at_once() {
    let nobody = free_port().unwrap();
    let server = server(&format!("{LOCAL_TARGETS}[limits]\ndead_letters_max = 1\n"));
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("tenant", "greedy").await, admin.scoped("tenant", "other").await);
    let failing = |_| {
        json!({
            "to": {"address": webhook(&format!("http://{nobody}/"))},
            "content": {"title": "x"}, "retry": {"retries": 0},
        })
    };
    send_until_refused(&greedy, failing).await;
    // Each of them holds a megabyte, if it is read.
    let mut calls = Vec::new();
    for _ in 0..9 {
        calls.push(greedy.open("POST", "/v1/messages", Some(900_000), "").await);
    }
    let answers = calls.iter_mut().map(|call| Box::pin(read_until(call, "\r\n\r\n")));
    let (answer, _, unread) = futures_util::future::select_all(answers).await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("retry-after: 1"), "{answer}");
    assert_eq!(unread.len(), 8, "their bodies are awaited");
    assert_eq!(other.post("/v1/messages", &message()).await.status, 202);
}

#[tokio::test]
async fn of_a_tenant_with_all_its_addresses_few_bodies_are_read_at_once() {
    let server = server("[limits]\naddresses_max = 1\n");
    let greedy = Attacker::admin(&server).scoped("tenant", "greedy").await;
    assert_eq!(greedy.post("/v1/addresses", &webhook("https://example.com/1")).await.status, 201);
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(greedy.open("POST", "/v1/addresses", Some(900_000), "").await);
    }
    let answers = calls.iter_mut().map(|call| Box::pin(read_until(call, "\r\n\r\n")));
    let (answer, _, unread) = futures_util::future::select_all(answers).await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("retry-after: 1"), "{answer}");
    assert_eq!(unread.len(), 2, "their bodies are awaited");
}

/// A tenant that may send nothing more because of its dead letters.
async fn over_quota(server: &ProcessFixture) -> Attacker {
    let greedy = Attacker::admin(server).scoped("tenant", "greedy").await;
    let nobody = free_port().unwrap();
    let failing = |_| {
        json!({
            "to": {"address": webhook(&format!("http://{nobody}/"))},
            "content": {"title": "x"}, "retry": {"retries": 0},
        })
    };
    send_until_refused(&greedy, failing).await;
    greedy
}

#[tokio::test]
async fn a_refused_call_is_answered_the_later_the_more_it_made_the_server_read() {
    let server = server(&format!("{LOCAL_TARGETS}[limits]\ndead_letters_max = 1\n"));
    let greedy = over_quota(&server).await;
    let time_of = async |bytes: usize| {
        let mut large = message();
        large["content"]["title"] = "x".repeat(bytes).into();
        let began = Instant::now();
        assert_eq!(greedy.post("/v1/messages", &large).await.status, 403);
        began.elapsed()
    };
    assert!(time_of(10).await < Duration::from_secs(1));
    assert!(time_of(600 << 10).await >= Duration::from_millis(1_200));
}

#[tokio::test]
async fn a_batch_of_a_tenant_over_a_quota_is_read_group_by_group() {
    let server = server(&format!("{LOCAL_TARGETS}[limits]\ndead_letters_max = 1\n"));
    let greedy = over_quota(&server).await;
    // They hold the turns of the tenant, so each group waits a second and is refused unread.
    let _reading = [
        greedy.open("POST", "/v1/messages", Some(100), "").await,
        greedy.open("POST", "/v1/messages", Some(100), "").await,
    ];
    let lines = format!("{}\n", message()).repeat(1_500);
    let began = Instant::now();
    let answer = greedy.call("POST", "/v1/messages/batch", &lines).await;
    assert_eq!((answer.status, answer.body.lines().count()), (200, 1_500));
    assert!(began.elapsed() >= Duration::from_millis(2_900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn dead_letters_are_bounded_by_their_bytes() {
    let nobody = free_port().unwrap();
    let config = format!("{LOCAL_TARGETS}[limits]\ndead_letter_bytes_max = 300000\n");
    let server = server(&config);
    let greedy = Attacker::admin(&server).scoped("tenant", "greedy").await;
    let failing = |_| {
        json!({
            "to": {"address": webhook(&format!("http://{nobody}/"))},
            "content": {"title": "x".repeat(100_000)}, "retry": {"retries": 0},
        })
    };
    let refused = send_until_refused(&greedy, failing).await;
    assert_names(&refused, "limits.dead_letter_bytes_max", 300_000);
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_lanes() {
    let server = server("[limits]\nlanes_max = 3\n");
    let greedy = Attacker::admin(&server).scoped("tenant", "greedy").await;
    let to_host = |number: usize| {
        let mut message = message();
        message["to"]["address"] = webhook(&format!("https://host-{number}.example.com/"));
        message
    };
    let refused = send_until_refused(&greedy, to_host).await;
    assert_names(&refused, "limits.lanes_max", 3);
    let known = greedy.post("/v1/messages", &to_host(0)).await;
    assert_eq!(known.status, 202, "a lane that is there takes more: {}", known.body);
}

#[tokio::test]
async fn keys_templates_and_rotations_are_bounded() {
    let config = "[limits]\nkeys_max = 3\ntemplates_max = 2\nrotations_per_minute = 2\n";
    let server = server(config);
    let admin = Attacker::admin(&server);
    let owner = admin.scoped("admin", "acme").await;
    let mut made = Vec::new();
    for _ in 0..2 {
        made.push(owner.scoped("send", "acme").await);
    }
    let body = json!({"name": "more", "scope": "send"});
    assert_names(&owner.post("/v1/keys", &body).await, "limits.keys_max", 3);
    // A revoked key makes room.
    let path = format!("/v1/keys/{}", made[0].key_id());
    assert_eq!(owner.call("DELETE", &path, "").await.status, 204);
    assert_eq!(owner.post("/v1/keys", &body).await.status, 201);
    assert_eq!(admin.scoped("send", "other").await.get("/v1/vapid").await.status, 200);
    let template = json!({"locales": {"en": {"title": "Hello"}}}).to_string();
    for n in 0..2 {
        let set = owner.call("PUT", &format!("/v1/templates/t{n}"), &template).await;
        assert_eq!(set.status, 200, "{}", set.body);
    }
    let asked = Instant::now();
    let more = owner.call("PUT", "/v1/templates/t9", &template).await;
    assert_names(&more, "limits.templates_max", 2);
    assert!(asked.elapsed() >= Duration::from_millis(100), "trying again at once costs others");
    for path in ["/v1/vapid/rotate", "/v1/webhook-secrets/rotate"] {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(owner.call("POST", path, "").await.status);
        }
        assert_eq!(statuses[0], 200);
        assert_eq!(statuses[3], 429, "{statuses:?}");
    }
}

/// A receiver that refuses everything with this status.
async fn start_refusing(status: u16) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut part = [0; 16_384];
                let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
                while stream.read(&mut part).await.is_ok_and(|read| read > 0) {
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn strikes_and_marks_of_gone_addresses_are_bounded() {
    for (status, quota) in [(404, "strikes_max"), (410, "gone_marks_max")] {
        let receiver = start_refusing(status).await;
        let config = format!("{LOCAL_TARGETS}[limits]\n{quota} = 3\n{STRIKE_RULES}");
        let server = server(&config);
        let admin = Attacker::admin(&server);
        let (greedy, other) =
            (admin.scoped("tenant", "greedy").await, admin.scoped("tenant", "other").await);
        let to_another = |number: usize| {
            json!({
                "to": {"address": webhook(&format!("http://{receiver}/{number}"))},
                "content": {"title": "x"}, "retry": {"retries": 0},
            })
        };
        let refused = send_until_refused(&greedy, to_another).await;
        assert_names(&refused, &format!("limits.{quota}"), 3);
        assert_eq!(other.post("/v1/messages", &message()).await.status, 202);
    }
}

#[tokio::test]
async fn a_tenant_cannot_keep_recipients_without_end() {
    let server = server("[limits]\naudience_max = 3\n");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("tenant", "greedy").await, admin.scoped("tenant", "other").await);
    let put = async |caller: &Attacker, number: u32| {
        caller.call("PUT", &format!("/v1/recipients/person-{number}"), "{}").await
    };
    let started = Instant::now();
    let refused = 'refused: loop {
        for number in 0..50 {
            let answer = put(&greedy, number).await;
            if answer.status == 403 {
                break 'refused answer;
            }
            assert!(answer.status < 300, "{}", answer.body);
        }
        assert!(started.elapsed() < PATIENCE, "fifty recipients are kept");
    };
    assert_names(&refused, "limits.audience_max", 3);
    assert!(put(&other, 1).await.status < 300);
    // Deleting makes room.
    for number in 0..50 {
        greedy.call("DELETE", &format!("/v1/recipients/person-{number}"), "").await;
    }
    let again = put(&greedy, 99).await;
    assert!(again.status < 300, "{}", again.body);
}

#[tokio::test]
async fn webhook_secrets_are_bounded() {
    let server = server("[limits]\nwebhook_secrets_max = 3\nrotations_per_minute = 100\n");
    let owner = Attacker::admin(&server).scoped("manage", "acme").await;
    let mut last = owner.call("POST", "/v1/webhook-secrets/rotate", "").await;
    for _ in 0..5 {
        if last.status != 200 {
            break;
        }
        last = owner.call("POST", "/v1/webhook-secrets/rotate", "").await;
    }
    assert_names(&last, "limits.webhook_secrets_max", 3);
    let secrets = owner.get("/v1/webhook-secrets").await.json();
    assert_eq!(secrets["secrets"].as_array().unwrap().len(), 3, "those that sign go on signing");
}

#[tokio::test]
async fn vapid_keys_are_bounded() {
    let server = server("[limits]\nvapid_keys_max = 2\n");
    let owner = Attacker::admin(&server).scoped("manage", "acme").await;
    assert_eq!(owner.call("POST", "/v1/vapid/rotate", "").await.status, 200);
    let refused = owner.call("POST", "/v1/vapid/rotate", "").await;
    assert_names(&refused, "limits.vapid_keys_max", 2);
}

#[tokio::test]
async fn sign_in_codes_of_a_key_and_of_a_tenant_leave_room_for_others() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("read", "greedy").await, admin.scoped("read", "other").await);
    let make = async |caller: &Attacker| caller.post("/v1/sign-in-codes", &json!({})).await;
    let mut made = 0;
    let refused = loop {
        let answer = make(&greedy).await;
        if answer.status != 201 {
            break answer;
        }
        made += 1;
    };
    assert_eq!((refused.status, made), (429, 20), "{}", refused.body);
    assert!(refused.body.contains("of this key"), "{}", refused.body);
    // More keys of the tenant do not help without end.
    for _ in 0..9 {
        let more = admin.scoped("read", "greedy").await;
        for _ in 0..20 {
            assert_eq!(make(&more).await.status, 201);
        }
    }
    let refused = make(&admin.scoped("read", "greedy").await).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("of the keys of this tenant"), "{}", refused.body);
    assert_eq!(make(&other).await.status, 201);
    assert_eq!(make(&admin).await.status, 201);
}

/// Sends to a new host, pauses its lane and cancels the message. Answers the number of the lane, too.
async fn pause_new_lane(tenant: &Attacker, number: usize) -> (u64, AttackAnswer) {
    let mut message = message();
    let host = format!("host-{number}.example.com");
    message["to"]["address"] = webhook(&format!("https://{host}/"));
    let sent = tenant.post("/v1/messages", &message).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let lanes = tenant.get("/v1/lanes").await.json();
    let mut lanes = lanes["lanes"].as_array().unwrap().iter();
    let is_its = |lane: &&Value| lane["provider"].as_str().unwrap().contains(&host);
    let id = lanes.find(is_its).unwrap()["id"].as_u64().unwrap();
    let paused = tenant.post(&format!("/v1/lanes/{id}/pause"), &json!({})).await;
    let cancel = format!("/v1/messages/{}/cancel", sent.json()["id"].as_str().unwrap());
    assert_eq!(tenant.post(&cancel, &json!({})).await.status, 200);
    (id, paused)
}

#[tokio::test]
async fn pauses_of_lanes_are_bounded() {
    let server = server("[limits]\npauses_max = 2\n");
    let admin = Attacker::admin(&server);
    let greedy = admin.scoped("send,read,manage", "greedy").await;
    let mut ids = Vec::new();
    for number in 0..2 {
        let (id, paused) = pause_new_lane(&greedy, number).await;
        assert_eq!(paused.status, 200, "{}", paused.body);
        ids.push(id);
    }
    let (_, refused) = pause_new_lane(&greedy, 2).await;
    assert_names(&refused, "limits.pauses_max", 2);
    let shown = admin.get("/v1/tenants/greedy").await.json();
    let quota = shown["quotas"].as_array().unwrap().iter().find(|q| q["quota"] == "pauses_max");
    assert_eq!(quota.unwrap()["used"], 2, "{shown}");
    let other = admin.scoped("send,read,manage", "other").await;
    assert_eq!(pause_new_lane(&other, 2).await.1.status, 200);
    // A lane that is resumed makes room.
    let resumed = greedy.post(&format!("/v1/lanes/{}/resume", ids[0]), &json!({})).await;
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    assert_eq!(pause_new_lane(&greedy, 3).await.1.status, 200);
}

#[tokio::test]
async fn event_subscriptions_are_bounded() {
    let server = server("[limits]\nevent_subscriptions_max = 2\n");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("manage", "greedy").await, admin.scoped("manage", "other").await);
    let subscribe =
        async |caller: &Attacker| caller.post("/v1/event-subscriptions", &json!({})).await;
    let first = subscribe(&greedy).await;
    assert_eq!((first.status, subscribe(&greedy).await.status), (201, 201));
    assert_names(&subscribe(&greedy).await, "limits.event_subscriptions_max", 2);
    assert_eq!(subscribe(&other).await.status, 201);
    // Deleting makes room.
    let id = first.json()["id"].as_str().unwrap().to_owned();
    let deleted = greedy.call("DELETE", &format!("/v1/event-subscriptions/{id}"), "").await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    assert_eq!(subscribe(&greedy).await.status, 201);
}

#[tokio::test]
async fn templates_are_bounded_by_their_bytes() {
    let server = server("[limits]\ntemplate_bytes_max = 3000\n");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("manage", "greedy").await, admin.scoped("manage", "other").await);
    let set = async |caller: &Attacker, name: &str, bytes: usize| {
        let template = json!({"locales": {"en": {"title": "x".repeat(bytes)}}}).to_string();
        caller.call("PUT", &format!("/v1/templates/{name}"), &template).await
    };
    assert_eq!(set(&greedy, "first", 2_000).await.status, 200);
    assert_names(&set(&greedy, "second", 2_000).await, "limits.template_bytes_max", 3_000);
    assert_names(&set(&greedy, "first", 4_000).await, "limits.template_bytes_max", 3_000);
    assert_eq!(set(&other, "second", 2_000).await.status, 200);
    // A smaller one makes room.
    assert_eq!(set(&greedy, "first", 500).await.status, 200);
    assert_eq!(set(&greedy, "second", 2_000).await.status, 200);
}
