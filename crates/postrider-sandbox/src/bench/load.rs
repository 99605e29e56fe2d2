//! The traffic: messages like those of a real product, and the connections that send them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use memchr::memmem;
use tokio::task::JoinSet;

use super::process::KEY;
use crate::http_client::{self, ApiClient, RawConnection};

/// Makes the fields of the n-th message's address, as JSON without the braces.
pub(super) type BenchAddresses = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// One message of about 400 bytes of JSON; with `run`, it has an idempotency key.
fn message(addresses: &BenchAddresses, n: usize, run: Option<&str>) -> String {
    let address = addresses(n);
    let key = run.map(|run| format!(r#","idempotency_key":"{run}-{n}""#)).unwrap_or_default();
    format!(
        r#"{{"to":{{"address":{{{address}}}}},"content":{{"title":"Order {n} shipped","body":"Your order {n} left our warehouse this morning and should be with you the day after tomorrow.","url":"https://shop.example/orders/{n}","data":{{"order":{n},"carrier":"postrider","items":[{{"sku":"A-1","n":2}},{{"sku":"B-7","n":1}}]}}}},"ttl_s":3600{key}}}"#
    )
}

pub(super) struct AcceptFigures {
    pub(super) per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

fn request(tenant: &str, path: &str, content_type: &str, body: &str) -> Vec<u8> {
    http_client::request(tenant, KEY, "POST", path, content_type, body.as_bytes())
}

/// Runs a task per connection, and collects their results.
async fn on_connections<T, F>(connections: usize, task: impl Fn(usize) -> F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let tasks: JoinSet<Result<T>> = (0..connections).map(task).collect();
    tasks.join_all().await.into_iter().collect()
}

/// Posts one message and returns how long its 202 took.
async fn post_message(connection: &mut RawConnection, body: &str) -> Result<Duration> {
    let bytes = request("default", "/v1/messages", "application/json", body);
    let sent = Instant::now();
    let answer = connection.exchange(&bytes).await?;
    let shown = || String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 202, "POST /v1/messages answered {}: {}", answer.status, shown());
    Ok(sent.elapsed())
}

/// Single POSTs over many connections, each waiting for its 202.
pub(super) async fn singles(
    server: SocketAddr,
    addresses: &BenchAddresses,
    connections: usize,
    messages: usize,
    run: &'static str,
) -> Result<AcceptFigures> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let latencies = on_connections(connections, |_| {
        let (next, addresses) = (next.clone(), addresses.clone());
        async move {
            let mut connection = RawConnection::open(server).await?;
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= messages {
                    return Ok(latencies);
                }
                let body = message(&addresses, n, Some(run));
                latencies.push(post_message(&mut connection, &body).await?);
            }
        }
    });
    let mut latencies = latencies.await?.concat();
    let took = start.elapsed();
    latencies.sort_unstable();
    Ok(AcceptFigures {
        per_s: messages as f64 / took.as_secs_f64(),
        p50_ms: quantile(&latencies, 0.5),
        p99_ms: quantile(&latencies, 0.99),
    })
}

const LINES_PER_REQUEST: usize = 2_000;

/// NDJSON batches over a few connections; the bodies are built beforehand.
pub(super) async fn batches(
    server: SocketAddr,
    addresses: &BenchAddresses,
    connections: usize,
    messages: usize,
    run: Option<&str>,
) -> Result<f64> {
    let all: Vec<_> = (0..messages).collect();
    let requests = all
        .chunks(LINES_PER_REQUEST)
        .map(|part| batch(part, "default", |n| message(addresses, n, run)));
    let requests = requests.collect();
    let start = Instant::now();
    post_all(server, connections, requests).await?;
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// Spreads the messages evenly over all pairs of tenant and class.
pub(super) async fn spread(
    server: SocketAddr,
    addresses: &BenchAddresses,
    tenants: usize,
    classes: usize,
    messages: usize,
) -> Result<()> {
    let mut requests = Vec::new();
    for tenant in 0..tenants {
        let own: Vec<_> = (tenant..messages).step_by(tenants).collect();
        for part in own.chunks(LINES_PER_REQUEST) {
            requests.push(batch(part, &format!("t{tenant}"), |n| {
                let message = message(addresses, n, None);
                let whole = message.strip_suffix('}').unwrap_or(&message);
                format!(r#"{whole},"class":"c{}"}}"#, n / tenants % classes)
            }));
        }
    }
    post_all(server, 8, requests).await
}

/// One NDJSON request of a tenant, with its number of lines.
fn batch(part: &[usize], tenant: &str, line: impl Fn(usize) -> String) -> (usize, Vec<u8>) {
    let body = part.iter().map(|n| line(*n)).collect::<Vec<_>>().join("\n");
    let (path, content_type) = ("/v1/messages/batch", "application/x-ndjson");
    (part.len(), request(tenant, path, content_type, &body))
}

async fn post_all(
    server: SocketAddr,
    connections: usize,
    requests: Vec<(usize, Vec<u8>)>,
) -> Result<()> {
    let requests = Arc::new(requests);
    let next = Arc::new(AtomicUsize::new(0));
    let all = on_connections(connections, |_| {
        let (next, requests) = (next.clone(), requests.clone());
        async move {
            let mut connection = RawConnection::open(server).await?;
            while let Some((lines, bytes)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answer = connection.exchange(bytes).await?;
                let accepted = memmem::find_iter(&answer.body, br#""status":202"#).count();
                ensure!(
                    accepted == *lines,
                    "{accepted} of {lines} lines were accepted ({}): {}",
                    answer.status,
                    String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)])
                );
            }
            Ok(())
        }
    });
    all.await.map(|_| ())
}

/// A steady stream at a given rate, for latency.
pub(super) async fn steady(
    server: SocketAddr,
    addresses: &BenchAddresses,
    per_s: f64,
    lasting: Duration,
) -> Result<usize> {
    let connections = 16;
    let total = (per_s * lasting.as_secs_f64()) as usize;
    let start = tokio::time::Instant::now();
    let all = on_connections(connections, |first| {
        let addresses = addresses.clone();
        async move {
            let mut connection = RawConnection::open(server).await?;
            for n in (first..total).step_by(connections) {
                tokio::time::sleep_until(start + Duration::from_secs_f64(n as f64 / per_s)).await;
                post_message(&mut connection, &message(&addresses, n, None)).await?;
            }
            Ok(())
        }
    });
    all.await.map(|_| total)
}

/// How many deliveries of a server are `sent`.
pub(super) async fn sent(server: SocketAddr) -> Result<u64> {
    let stats = client(server).get("/v1/stats").await?;
    Ok(stats["states"]["sent"].as_u64().unwrap_or(0))
}

/// A client for the server or the sandbox that acts for all tenants.
pub(super) fn client(address: SocketAddr) -> ApiClient {
    ApiClient { address, key: KEY.to_owned(), tenant: "*" }
}

pub(super) fn quantile(sorted: &[Duration], q: f64) -> f64 {
    let at = ((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}
