//! Limits of the API: one caller cannot take what others need.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{
    Attacker, PATIENCE, message, read_end, read_until, server, with_slow_master_key,
};

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let server = server("[server]\nconnections_max = 60\nconnections_per_address = 40\n");
    let admin = Attacker::admin(&server);
    let attacker = admin.from([127, 0, 0, 9]);
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(attacker.connect().await);
    }
    // Others are served at once, also while the attacker's connections are open.
    for _ in 0..10 {
        let started = Instant::now();
        assert_eq!(admin.post("/v1/messages", &message()).await.status, 202);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
    let mut closed = 0;
    for stream in &mut held {
        let read = tokio::time::timeout(Duration::from_millis(5), stream.read(&mut [0; 1])).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(closed >= 160, "{closed} of 200 were closed");
    let metrics = admin.get("/metrics").await.body;
    assert!(metrics.contains("postrider_api_connections_refused_total 160"), "{metrics}");
}

#[tokio::test]
async fn a_key_has_a_bounded_number_of_event_streams() {
    let server = server("[server]\nkey_event_streams_max = 2\n");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("read", "default").await, admin.scoped("read", "default").await);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = greedy.open("GET", "/v1/events", Some(0), "").await;
        read_until(&mut stream, "text/event-stream").await;
        open.push(stream);
    }
    let refused = greedy.get("/v1/events").await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.head.contains("retry-after:"), "{}", refused.head);
    let mut stream = other.open("GET", "/v1/events", Some(0), "").await;
    read_until(&mut stream, "text/event-stream").await;
    // A stream that ends gives its place back.
    open.clear();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = greedy.open("GET", "/v1/events", Some(0), "").await;
        if read_until(&mut stream, "\r\n\r\n").await.contains("text/event-stream") {
            break;
        }
        assert!(Instant::now() < deadline, "the place was not given back");
    }
}

#[tokio::test]
async fn a_key_and_an_address_have_a_rate() {
    let limits = "[server]\nkey_requests_per_s = 1\nkey_requests_burst = 5\n";
    let server = server(limits);
    let admin = Attacker::admin(&server);
    let key = admin.scoped("read", "default").await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(key.get("/v1/classes").await.status);
    }
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!((8..=15).contains(&refused), "{statuses:?}");
    let address = "[server]\naddress_requests_per_s = 1\naddress_requests_burst = 5\n";
    let mut server = server;
    server.kill();
    server.write_config(address).unwrap();
    server.start().unwrap();
    let attacker = admin.from([127, 0, 0, 9]);
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(attacker.get("/v1/classes").await.status == 429);
    }
    assert!((8..=15).contains(&refused), "{refused}");
    assert_eq!(admin.get("/v1/classes").await.status, 200, "another address is served");
}

#[tokio::test]
async fn guessing_keys_is_slowed_down_and_costs_others_nothing() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let guesser = admin.from([127, 0, 0, 9]).with_key("prk_01m7g4zn8ce00977fbbj2gbmbg_guess");
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(guesser.get("/v1/stats").await.status);
    }
    assert_eq!(statuses[0], 401);
    let slowed = statuses.iter().filter(|status| **status == 429).count();
    assert!(slowed >= 15, "{statuses:?}");
    // Neither others nor a right key of the same address.
    assert_eq!(admin.get("/v1/stats").await.status, 200);
    assert_eq!(admin.from([127, 0, 0, 9]).get("/v1/stats").await.status, 200);
}

#[tokio::test]
async fn calls_without_a_key_are_slowed_down_too() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let nobody = admin.from([127, 0, 0, 9]);
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let mut stream = nobody.connect().await;
        let head = "GET /v1/stats HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_end(&mut stream, PATIENCE).await;
        statuses.push(answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap());
    }
    assert_eq!(statuses[0], 401);
    let slowed = statuses.iter().filter(|status| **status == 429).count();
    assert!(slowed >= 15, "{statuses:?}");
    assert_eq!(nobody.get("/v1/stats").await.status, 200, "a right key of the same address");
}

#[tokio::test]
async fn pages_without_a_key_have_the_rate_of_an_address_and_health_checks_have_none() {
    let server = server("[server]\naddress_requests_per_s = 0.1\naddress_requests_burst = 5\n");
    let admin = Attacker::admin(&server);
    for (last, path) in [(9, "/docs"), (10, "/openapi.json"), (11, "/metrics")] {
        let attacker = admin.from([127, 0, 0, last]);
        let mut refused = 0;
        for _ in 0..15 {
            let answer = attacker.get(path).await;
            refused += usize::from(answer.status == 429);
        }
        assert!((9..=10).contains(&refused), "{path}: {refused} of 15");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(attacker.get(path).await.status, 200, "{path}");
        }
    }
    assert_eq!(admin.get("/docs").await.status, 200, "another address is served");
}

#[tokio::test]
async fn a_key_has_a_bounded_number_of_calls_at_once() {
    let server = server("[server]\nkey_calls_max = 3\n");
    let admin = Attacker::admin(&server);
    let (greedy, other) =
        (admin.scoped("tenant", "greedy").await, admin.scoped("tenant", "other").await);
    // Their bodies never come, so three stay open, and the others are refused.
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(greedy.open("POST", "/v1/messages", Some(1_000), "").await);
    }
    let deadline = Instant::now() + PATIENCE;
    while open.len() > 3 {
        let answers = open.iter_mut().map(|call| Box::pin(read_until(call, "\r\n\r\n")));
        let (answer, nth, _) = futures_util::future::select_all(answers).await;
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        drop(open.remove(nth));
    }
    assert_eq!(greedy.get("/v1/deliveries").await.status, 429);
    let metrics = admin.get("/metrics").await.body;
    assert!(metrics.contains("postrider_api_calls_limited_total{outcome=\"key\"}"), "{metrics}");
    assert_eq!(other.get("/v1/deliveries").await.status, 200);
    // A call that ends gives its place back.
    drop(open);
    while greedy.get("/v1/deliveries").await.status != 200 {
        assert!(Instant::now() < deadline, "the place was not given back");
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_answered_at_its_deadline() {
    let server = with_slow_master_key("[server]\nrequest_timeout_s = 1\n", 9);
    let admin = Attacker::admin(&server);
    assert_eq!(admin.post("/v1/encryption/rotate", &json!({})).await.status, 200);
    std::fs::write(server.path("slow"), "").unwrap();
    let started = Instant::now();
    let late = admin.post("/v1/encryption/rotate", &json!({})).await;
    assert_eq!(late.status, 503, "{}", late.body);
    assert!(late.body.contains("server.request_timeout_s"), "{}", late.body);
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(admin.get("/v1/stats").await.status, 200, "others are served meanwhile");
}

#[tokio::test]
async fn a_connection_has_an_age_however_busy_it_is() {
    let server = server("[server]\nconnection_age_s = 1\n");
    let mut stream = Attacker::admin(&server).connect().await;
    let started = Instant::now();
    let busy = async {
        loop {
            if stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await.is_err() {
                return;
            }
            let mut part = [0; 1024];
            if matches!(stream.read(&mut part).await, Ok(0) | Err(_)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), busy).await.expect("the connection is closed");
    assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_caller_that_does_not_read_is_cut_off() {
    let server = server("[server]\nwrite_timeout_s = 1\n");
    let admin = Attacker::admin(&server);
    // Requests without end, and nobody reads the answers.
    let mut stream = admin.connect().await;
    let head = format!(
        "GET /openapi.json HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\r\n",
        admin.key
    );
    let writing = async {
        let many = head.repeat(100);
        while stream.write_all(many.as_bytes()).await.is_ok() {}
    };
    tokio::time::timeout(PATIENCE, writing).await.expect("the server closes the connection");
}

#[tokio::test]
async fn an_idle_connection_is_closed_also_with_http_2() {
    let server = server("[server]\nidle_timeout_s = 1\n");
    let admin = Attacker::admin(&server);
    // HTTP/1.1 with one request before.
    let mut stream = admin.open("GET", "/healthz", Some(0), "").await;
    read_until(&mut stream, "ok").await;
    read_end(&mut stream, Duration::from_secs(5)).await;
    // HTTP/2: the preface, empty settings, an acknowledgement; then one request: HEADERS with END_STREAM for /healthz.
    let mut stream = admin.connect().await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let acknowledged = [0, 0, 0, 4, 1, 0, 0, 0, 0];
    let block = [&[0x82, 0x86, 0x04, 8][..], b"/healthz", &[0x41, 4], b"test"].concat();
    let headers = [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1][..], &block].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let bytes = [preface, &settings, &acknowledged, &headers].concat();
    stream.write_all(&bytes).await.unwrap();
    let answer = read_end(&mut stream, Duration::from_secs(5)).await;
    assert!(answer.contains("ok\n"), "{answer:?}");
}

#[tokio::test]
async fn answers_of_the_api_stay_out_of_caches() {
    let server = server("");
    let admin = Attacker::admin(&server);
    for answer in [
        admin.get("/v1/stats").await,
        admin.with_key("wrong").get("/v1/stats").await,
        admin.post("/v1/keys", &json!({})).await,
    ] {
        assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{}", answer.head);
    }
}
