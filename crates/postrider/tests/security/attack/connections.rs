//! One address holds as many connections and event streams as it can.

use std::time::Duration;

use postrider_testkit::process::LOCAL_TARGETS;
use tokio::io::AsyncWriteExt as _;

use super::load::{Receiver, steady};
use super::{attacked, size};
use crate::fixture::{Attacker, read_until};

/// Below this, a p99 is noise of the machine.
const NOISE: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_slow_connections_and_streams_of_one_address_cost_others_nothing() {
    let (connections, per_s) = (size("CONNECTIONS", 80.0) as usize, size("PER_S", 50.0));
    let (seconds, times) = (size("SECONDS", 3.0), size("TIMES", 20.0));
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
    let dripping = tokio::spawn(async move {
        let head = b"POST /v1/messages HTTP/1.1\r\nhost: test\r\nx-slow: ";
        for n in 0.. {
            let byte = [head.get(n).copied().unwrap_or(b'x')];
            for stream in &mut slow {
                // The server may have closed it.
                let _ = stream.write_all(&byte).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let during = steady(&sender, &receiver, "during", (per_s, seconds)).await;
    dripping.abort();
    println!(
        "{connections} idle and {connections} slow connections, {} event streams, {per_s} accepts/s: \
         p99 {:?} undisturbed, {:?} under attack; deliveries {:?} and {:?}",
        streams.len(),
        before.accept_p99,
        during.accept_p99,
        before.delivery_p99,
        during.delivery_p99
    );
    assert!(during.accept_p99 <= before.accept_p99.max(NOISE).mul_f64(times), "{during:?}");
    assert!(during.delivery_p99 <= before.delivery_p99.max(NOISE).mul_f64(times), "{during:?}");
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
