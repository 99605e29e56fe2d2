//! The traffic: messages as a product would send them, and the connections that carry them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::process::KEY;
use crate::http_client::{ApiClient, RawConnection, count, request, request_for};

/// What the messages of a run are addressed to.
#[derive(Clone)]
pub(super) enum BenchAddressee {
    Webhook {
        url: String,
    },
    /// Mailboxes, one after the other.
    Email,
    /// `"endpoint":…,"keys":…` of each subscription, without the braces.
    Webpush {
        subscriptions: Arc<Vec<String>>,
    },
    /// So many devices of Apple's.
    Apns {
        devices: usize,
    },
}

impl BenchAddressee {
    /// One message of about 400 bytes of JSON; `keyed` ones carry an idempotency key.
    pub(super) fn message(&self, n: usize, keyed: Option<&str>) -> String {
        let address = match self {
            Self::Email => format!(r#""channel":"email","email":"user{n}@example.org""#),
            Self::Webhook { url } => format!(r#""channel":"webhook","url":"{url}""#),
            Self::Webpush { subscriptions } => {
                format!(r#""channel":"webpush",{}"#, subscriptions[n % subscriptions.len()])
            }
            Self::Apns { devices } => {
                let device = n % devices;
                format!(
                    r#""channel":"apns","token":"a{device:063x}","topic":"com.example.shop","environment":"production""#
                )
            }
        };
        let key = keyed.map(|run| format!(r#","idempotency_key":"{run}-{n}""#)).unwrap_or_default();
        format!(
            r#"{{"to":{{"address":{{{address}}}}},"content":{{"title":"Order {n} shipped","body":"Your order {n} left our warehouse this morning and should be with you the day after tomorrow.","url":"https://shop.example/orders/{n}","data":{{"order":{n},"carrier":"postrider","items":[{{"sku":"A-1","n":2}},{{"sku":"B-7","n":1}}]}}}},"ttl_s":3600{key}}}"#
        )
    }
}

pub(super) struct AcceptFigures {
    pub(super) per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// Single POSTs over many connections, each waiting for its 202.
pub(super) async fn singles(
    server: SocketAddr,
    addressee: &BenchAddressee,
    connections: usize,
    messages: usize,
    run: &str,
) -> Result<AcceptFigures> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for _ in 0..connections {
        let (next, addressee, run) = (next.clone(), addressee.clone(), run.to_owned());
        tasks.spawn(async move {
            let mut connection = RawConnection::open(&server.to_string()).await?;
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= messages {
                    return anyhow::Ok(latencies);
                }
                let body = addressee.message(n, Some(&run));
                let bytes =
                    request("POST", "/v1/messages", KEY, "application/json", body.as_bytes());
                let sent = Instant::now();
                let answer = connection.exchange(&bytes).await?;
                ensure!(
                    answer.status == 202,
                    "POST /v1/messages answered {}: {}",
                    answer.status,
                    String::from_utf8_lossy(&answer.body)
                );
                latencies.push(sent.elapsed());
            }
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
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
    addressee: &BenchAddressee,
    connections: usize,
    messages: usize,
    run: Option<&str>,
) -> Result<f64> {
    let mut requests: Vec<(usize, Vec<u8>)> = Vec::new();
    for from in (0..messages).step_by(LINES_PER_REQUEST) {
        let to = (from + LINES_PER_REQUEST).min(messages);
        let lines: Vec<_> = (from..to).map(|n| addressee.message(n, run)).collect();
        let body = lines.join("\n");
        requests.push((
            to - from,
            request("POST", "/v1/messages/batch", KEY, "application/x-ndjson", body.as_bytes()),
        ));
    }
    let start = Instant::now();
    post_all(server, connections, requests).await?;
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// The same number of messages for each pair of tenant and class, as far as they go round.
pub(super) async fn spread(
    server: SocketAddr,
    addressee: &BenchAddressee,
    tenants: usize,
    classes: usize,
    messages: usize,
) -> Result<()> {
    let mut requests = Vec::new();
    for tenant in 0..tenants {
        let own: Vec<_> = (tenant..messages).step_by(tenants).collect();
        for part in own.chunks(LINES_PER_REQUEST) {
            let line = |n: &usize| {
                let message = addressee.message(*n, None);
                let whole = message.strip_suffix('}').unwrap_or(&message);
                format!(r#"{whole},"class":"c{}"}}"#, n / tenants % classes)
            };
            let body = part.iter().map(line).collect::<Vec<_>>().join("\n");
            let (name, path) = (format!("t{tenant}"), "/v1/messages/batch");
            let kind = "application/x-ndjson";
            let request = request_for(&name, "POST", path, KEY, kind, body.as_bytes());
            requests.push((part.len(), request));
        }
    }
    post_all(server, 8, requests).await
}

async fn post_all(
    server: SocketAddr,
    connections: usize,
    requests: Vec<(usize, Vec<u8>)>,
) -> Result<()> {
    let requests = Arc::new(requests);
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (next, requests) = (next.clone(), requests.clone());
        tasks.spawn(async move {
            let mut connection = RawConnection::open(&server.to_string()).await?;
            while let Some((lines, bytes)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answer = connection.exchange(bytes).await?;
                let accepted = count(&answer.body, br#""status":202"#);
                ensure!(
                    accepted == *lines,
                    "{accepted} of {lines} lines were accepted ({}): {}",
                    answer.status,
                    String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)])
                );
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A steady stream at a given rate, for latency.
pub(super) async fn steady(
    server: SocketAddr,
    addressee: &BenchAddressee,
    per_s: f64,
    lasting: Duration,
) -> Result<usize> {
    let connections = 16;
    let total = (per_s * lasting.as_secs_f64()) as usize;
    let start = tokio::time::Instant::now();
    let mut tasks = JoinSet::new();
    for lane in 0..connections {
        let addressee = addressee.clone();
        tasks.spawn(async move {
            let mut connection = RawConnection::open(&server.to_string()).await?;
            for n in (lane..total).step_by(connections) {
                tokio::time::sleep_until(start + Duration::from_secs_f64(n as f64 / per_s)).await;
                let body = addressee.message(n, None);
                let answer = connection
                    .exchange(&request(
                        "POST",
                        "/v1/messages",
                        KEY,
                        "application/json",
                        body.as_bytes(),
                    ))
                    .await?;
                ensure!(answer.status == 202, "POST /v1/messages answered {}", answer.status);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(total)
}

/// A client for the server or the sandbox that acts for all tenants.
pub(super) fn client(address: SocketAddr) -> ApiClient {
    ApiClient { address, key: KEY.to_owned(), tenant: "*" }
}

pub(super) fn quantile(sorted: &[Duration], q: f64) -> f64 {
    let at = ((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}
