//! One address holds as many connections and event streams as it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_testkit::process::LOCAL_TARGETS;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::load::{DelayBound, Receiver, run_attack, steady};
use super::{attacked, size};
use crate::fixture::{Attacker, read_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_slow_connections_and_streams_of_one_address_cost_others_nothing() {
    let (connections, per_s) = (size("CONNECTIONS", 80.0) as usize, size("PER_S", 50.0));
    let (seconds, times) = (size("SECONDS", 3.0), size("TIMES", 20.0));
    let floor = Duration::from_millis(size("FLOOR_MS", 5.0) as u64);
    let server = attacked(LOCAL_TARGETS);
    let receiver = Receiver::start().await;
    let admin = Attacker::admin(&server);
    let sender = admin.scoped("send", "shop").await;
    let before = steady(&sender, &receiver, "before", (per_s, seconds)).await;

    let attacker = admin.scoped("read", "evil").await.from([127, 0, 0, 9]);
    let mut streams = Vec::new();
    loop {
        let mut stream = attacker.open("GET", "/v1/events", Some(0), "").await;
        if !read_until(&mut stream, "\r\n\r\n").await.contains("text/event-stream") {
            break;
        }
        streams.push(stream);
    }
    let mut idle = Vec::new();
    let mut slow = Vec::new();
    for _ in 0..connections {
        idle.push(attacker.connect().await);
        slow.push(attacker.connect().await);
    }
    // A byte per second each, for ever.
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = is_over.clone();
    let slow: Vec<_> = slow.into_iter().map(|stream| stream.into_std().unwrap()).collect();
    let dripping = run_attack(async move {
        let slow = slow.into_iter().map(TcpStream::from_std);
        let mut slow: Vec<_> = slow.collect::<Result<_, _>>().unwrap();
        let head = b"POST /v1/messages HTTP/1.1\r\nhost: test\r\nx-slow: ";
        for n in 0.. {
            let byte = [head.get(n).copied().unwrap_or(b'x')];
            for stream in &mut slow {
                // The server may have closed it.
                let _ = stream.write_all(&byte).await;
            }
            if ended.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let during = steady(&sender, &receiver, "during", (per_s, seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    dripping.join().unwrap();
    println!(
        "{connections} idle and {connections} slow connections, {} event streams, {per_s} accepts/s",
        streams.len()
    );
    DelayBound { times, floor }.check(&before, &during);
    let metrics = admin.get("/metrics").await.body;
    let is_failure = |line: &&str| {
        line.starts_with("postrider_attempts_total{")
            && !line.contains("outcome=\"accepted\"")
            && !line.ends_with(" 0")
    };
    let failed: Vec<_> = metrics.lines().filter(is_failure).collect();
    assert!(failed.is_empty(), "calls failed: {failed:?}");
    assert_eq!(before.sent + during.sent, 2 * (per_s * seconds) as usize);
}
