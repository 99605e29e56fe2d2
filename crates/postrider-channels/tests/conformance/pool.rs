//! What the connection pool promises when more origins are called than it may have connections.

use std::time::Duration;

use futures_util::future::join_all;
use postrider_channels::pool::TransportError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::many_origins::{ManyOrigins, get, origin, pool, until};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_origins_than_connections_are_all_served_within_the_limit() {
    const CALLS: usize = 1_500;
    let server = ManyOrigins::start_held().await;
    let pool = &pool(64);
    let urls: Vec<_> = (0..300).map(|nth| server.url(nth)).collect();
    let calls = join_all((0..CALLS).map(|nth| get(pool, &urls[nth % urls.len()], LONG)));
    let answering = async {
        for answered in (0..CALLS).step_by(100) {
            // All that can be in flight is, so that the number of sockets stands still.
            until(|| server.requests().len() == (answered + 64).min(CALLS)).await;
            let open = server.client_sockets();
            assert!(open <= 64, "{open} connections are open after {answered} answers");
            server.answer(100);
        }
    };
    let (answers, ()) = tokio::join!(calls, answering);
    let failed: Vec<_> = answers.iter().filter(|answer| **answer != Ok(200)).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
}

#[tokio::test]
async fn a_full_pool_is_nobodys_fault() {
    let server = ManyOrigins::start_held().await;
    let pool = pool(4);
    let held = join_all((0..4).map(|nth| {
        let url = server.url(nth);
        let pool = &pool;
        async move { get(pool, &url, LONG).await }
    }));
    tokio::pin!(held);
    let late = async {
        until(|| server.requests().len() == 4).await;
        let (urls, pool) = ((10..30).map(|nth| server.url(nth)), &pool);
        let within = Duration::from_millis(50);
        let burst = urls.map(|url| async move { get(pool, &url, within).await });
        for end in join_all(burst).await {
            assert!(
                matches!(end, Err(TransportError::Local { code: "connections", .. })),
                "{end:?}"
            );
        }
        assert_eq!(server.client_sockets(), 4);
        server.answer(1 << 20);
        assert_eq!(get(pool, &server.url(30), LONG).await, Ok(200), "there is room again");
    };
    let (answers, ()) = tokio::join!(held, late);
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
}

#[tokio::test]
async fn callers_of_a_full_pool_are_served_in_the_order_of_their_arrival() {
    let server = ManyOrigins::start_held().await;
    let pool = &pool(1);
    let urls: Vec<_> = (0..5).map(|nth| server.url(nth)).collect();
    let calls = urls.iter().enumerate().map(|(nth, url)| async move {
        tokio::time::sleep(Duration::from_millis(20) * nth as u32).await;
        get(pool, url, LONG).await
    });
    let answering = async {
        until(|| server.requests().len() == 1).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.answer(10);
    };
    let (answers, ()) = tokio::join!(join_all(calls), answering);
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
    assert_eq!(server.requests(), (0..5).map(origin).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_connection_that_was_unused_for_the_longest_time_makes_room() {
    let server = ManyOrigins::start().await;
    let pool = pool(3);
    for nth in [0, 1, 2, 0] {
        assert_eq!(get(&pool, &server.url(nth), LONG).await, Ok(200));
    }
    assert_eq!(get(&pool, &server.url(3), LONG).await, Ok(200));
    until(|| server.open(1) == 0).await;
    assert_eq!([0, 2, 3].map(|nth| server.open(nth)), [1, 1, 1], "only one was closed");
    assert_eq!(get(&pool, &server.url(4), LONG).await, Ok(200));
    until(|| server.open(2) == 0).await;
    assert_eq!([0, 3, 4].map(|nth| server.open(nth)), [1, 1, 1]);
}

#[tokio::test]
async fn a_busy_origin_does_not_keep_all_connections_to_itself() {
    let server = ManyOrigins::start().await;
    let pool = &pool(2);
    let (busy, other) = (&server.url(0), server.url(1));
    let other_is_served = &std::sync::atomic::AtomicBool::new(false);
    let calls = (0..20).map(|_| async move {
        while !other_is_served.load(std::sync::atomic::Ordering::SeqCst) {
            assert_eq!(get(pool, busy, LONG).await, Ok(200));
        }
    });
    let asking = async {
        until(|| server.requests().len() > 100).await;
        let answer = get(pool, &other, Duration::from_secs(5)).await;
        other_is_served.store(true, std::sync::atomic::Ordering::SeqCst);
        answer
    };
    let (_, answer) = tokio::join!(join_all(calls), asking);
    assert_eq!(answer, Ok(200));
}

#[tokio::test]
async fn many_origins_that_refuse_are_blamed_themselves() {
    let pool = pool(64);
    for nth in 0..30 {
        let port = 9;
        let end = get(&pool, &format!("http://{}:{port}/", origin(nth)), LONG).await;
        let refused = matches!(end, Err(TransportError::Unopened { code: "connect", .. }));
        assert!(refused, "{end:?}");
    }
}

#[tokio::test]
async fn an_answer_counts_although_its_body_never_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 4096]).await;
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
        while tcp.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let start = Instant::now();
    assert_eq!(get(&pool(1), &url, LONG).await, Ok(200));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}
