//! What the parts of one delivery cost on this machine: encrypting a push, a POST of 400 bytes over
//! TLS and HTTP/2 on loopback, and whole channels from attempt to report.
//!
//! ```text
//! cargo run --release -p postrider-channels --example channel_bench
//! ```

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on had better stop")]

#[path = "../tests/conformance/accounts.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod accounts;
#[path = "../tests/conformance/column.rs"]
#[expect(dead_code, reason = "part of the fixture that is shared with the suite")]
mod column;
#[path = "../tests/conformance/fixture.rs"]
#[expect(dead_code, reason = "what only tests look at")]
mod fixture;
#[path = "../tests/conformance/hosted.rs"]
mod hosted;
#[path = "../tests/conformance/provider.rs"]
#[expect(dead_code, reason = "a benchmark needs only the provider's good manners")]
mod provider;
#[path = "../tests/conformance/push.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod push;

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fixture::Subject;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Method};
use postrider_channels::pool::Request;
use postrider_channels::webpush::{PlainPayload, encrypt_batch};
use postrider_channels::{Padding, Pool, PoolConfig};
use postrider_core::Outcome;
use provider::{Line, Provider, authority};

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const REQUESTS: usize = 50_000;

fn main() {
    encryption();
    for in_flight in [1, 100, 200] {
        requests(in_flight);
    }
    for subject in [Subject::Webpush, Subject::Webhook, Subject::Http, Subject::Fcm, Subject::Apns]
    {
        deliveries(subject);
    }
}

fn encryption() {
    let ua_public = URL_SAFE_NO_PAD.decode(P256DH).unwrap().try_into().unwrap();
    let batch = vec![PlainPayload { ua_public, auth: [7; 16], plaintext: vec![b'x'; 300] }; 64];
    let (rounds, start) = (50, thread_cpu());
    for _ in 0..rounds {
        assert!(encrypt_batch(&batch, Padding::Blocks).iter().all(Result::is_ok));
    }
    let each = (thread_cpu() - start) / (rounds * batch.len() as u32);
    println!("encrypt_batch, 300 bytes each: {:.1} µs CPU per message", micros(each));
}

/// The provider has a thread of its own, so that the sender's CPU time can be told apart.
fn requests(in_flight: usize) {
    let (url, provider) = spawn_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = Pool::new(PoolConfig {
            allow_private_targets: true,
            extra_ca_file: Some(authority().file().to_owned()),
            ..PoolConfig::default()
        })
        .unwrap();
        let count = if in_flight == 1 { REQUESTS / 10 } else { REQUESTS };
        let (cpu, start) = (thread_cpu(), Instant::now());
        let answers = futures_util::stream::iter(0..count)
            .map(|_| post(&pool, &url))
            .buffer_unordered(in_flight);
        assert_eq!(answers.filter(|ok| std::future::ready(*ok)).count().await, count);
        let (cpu, wall) = (thread_cpu() - cpu, start.elapsed());
        println!(
            "POST 400 bytes over TLS and HTTP/2, {in_flight} in flight: {:.1} µs CPU of the sender, {:.1} µs wall, {} connections",
            micros(cpu) / count as f64,
            micros(wall) / count as f64,
            pool.stats().connections,
        );
    });
    drop(provider);
}

/// Batches of 100, one after the other: what the dispatcher would see.
fn deliveries(subject: Subject) {
    let (url, provider) = spawn_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = fixture::SubjectFixture::new(subject);
        let batch = vec![fixture.attempt(&url); 100];
        fixture.deliver(batch.clone()).await;
        let (rounds, cpu) = (50, thread_cpu());
        for _ in 0..rounds {
            let ends = fixture.deliver(batch.clone()).await;
            assert!(ends.iter().all(|end| end.outcome == Outcome::Accepted));
        }
        let each = (thread_cpu() - cpu) / (rounds * batch.len() as u32);
        println!("{subject:?}, attempt to report: {:.1} µs CPU of the sender", micros(each));
    });
    drop(provider);
}

async fn post(pool: &Pool, url: &str) -> bool {
    let mut headers = HeaderMap::with_capacity(12);
    let fields = [
        ("ttl", "3600"),
        ("urgency", "normal"),
        ("content-type", "application/octet-stream"),
        ("content-encoding", "aes128gcm"),
        ("user-agent", "Postrider"),
        ("topic", "0123456789abcdef0123456789abcdef"),
        (
            "authorization",
            "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL2V4YW1wbGUuY29tIn0.c2lnbmF0dXJl, k=BCVxsr7N_eNgVRqvHtD0zTZsEc6",
        ),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let body = Bytes::from_static(&[b'x'; 400]);
    let request = Request { method: Method::POST, headers, body };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    pool.send(url, request, deadline).await.is_ok()
}

fn spawn_provider() -> (String, tokio::runtime::Runtime) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let provider =
        runtime.block_on(async { tokio::spawn(Provider::start(Line::Http2)).await.unwrap() });
    (provider.url("/push/0123456789abcdef0123456789abcdef"), runtime)
}

/// CPU time of this thread so far; the wall clock where the system does not tell.
fn thread_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok());
    nanos.map_or_else(|| Duration::from_nanos(0), Duration::from_nanos)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
