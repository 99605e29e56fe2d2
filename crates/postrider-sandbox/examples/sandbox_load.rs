//! Load for a sandbox in another process, to measure the sandbox's own cost per request.
//!
//! Requests are made before the clock starts, so that the sender's encryption is not measured. With `--pid`, the CPU
//! time of the sandbox is read from `/proc`.

#[path = "../tests/sandbox/client.rs"]
mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clap::Parser;
use client::{Connection, Sender, now_s, plain, push_with, request, tls, webhook};
use http::{Method, Request};
use http_body_util::Full;
use postrider_sandbox::SandboxSubscription;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Parser)]
struct Cli {
    #[arg(long, default_value = "127.0.0.1:9443")]
    https: SocketAddr,
    #[arg(long, default_value = "127.0.0.1:9080")]
    http: SocketAddr,
    /// push (subscriptions are asked for) or hook (start the sandbox with the well-known secret)
    #[arg(long, default_value = "push")]
    kind: String,
    #[arg(long, default_value_t = 50_000)]
    count: usize,
    #[arg(long, default_value_t = 2)]
    connections: usize,
    /// Requests at once on each connection
    #[arg(long, default_value_t = 100)]
    in_flight: usize,
    #[arg(long)]
    pid: Option<u32>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let base = format!("http://{}", cli.http);
    let ca = get(&cli, Method::GET, &format!("{base}/sandbox/ca.pem")).await?;
    let requests = match cli.kind.as_str() {
        "push" => pushes(&cli, &base).await?,
        _ => webhooks(&cli),
    };
    let requests: Arc<Vec<_>> = Arc::new(requests);
    let next = Arc::new(AtomicUsize::new(0));
    let cpu_before = cli.pid.map(cpu_ms).transpose()?;
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..cli.connections {
        let Connection::H2(sender) = tls(std::str::from_utf8(&ca)?, cli.https, "h2").await else {
            anyhow::bail!("HTTP/2 was asked for");
        };
        for _ in 0..cli.in_flight {
            let connection = Connection::H2(sender.clone());
            workers.spawn(work(connection, Arc::clone(&requests), Arc::clone(&next)));
        }
    }
    let refused: usize = workers.join_all().await.into_iter().sum();
    let (elapsed, count) = (started.elapsed(), requests.len());
    println!(
        "{count} in {elapsed:.2?}: {:.0}/s, {refused} refused",
        count as f64 / elapsed.as_secs_f64()
    );
    if let (Some(pid), Some(before)) = (cli.pid, cpu_before) {
        let spent_ms = cpu_ms(pid)? - before;
        println!("sandbox CPU: {:.1} µs per request", spent_ms as f64 * 1000.0 / count as f64);
    }
    Ok(())
}

async fn work(
    mut connection: Connection,
    requests: Arc<Vec<Request<Full<Bytes>>>>,
    next: Arc<AtomicUsize>,
) -> usize {
    let mut refused = 0;
    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        match connection.send(request.clone()).await {
            Ok(reply) if reply.status.is_success() => {}
            _ => refused += 1,
        }
    }
    refused
}

async fn pushes(cli: &Cli, base: &str) -> anyhow::Result<Vec<Request<Full<Bytes>>>> {
    let made = get(cli, Method::POST, &format!("{base}/sandbox/subscriptions?count=1000")).await?;
    let targets: Vec<SandboxSubscription> = serde_json::from_slice(&made)?;
    let authorization = Sender::new().good_authorization(&format!("https://{}", cli.https));
    let filler = "x".repeat(240);
    Ok((0..cli.count)
        .map(|n| {
            let plain = format!(r#"{{"id":"load-{}-{n}","body":"{filler}"}}"#, std::process::id());
            push_with(&authorization, &targets[n % targets.len()], plain.as_bytes())
        })
        .collect())
}

fn webhooks(cli: &Cli) -> Vec<Request<Full<Bytes>>> {
    let body = format!(r#"{{"type":"message","content":"{}"}}"#, "x".repeat(300));
    let id = |n| format!("load-{}-{n}", std::process::id());
    let url = |n| format!("https://{}/hook/load{}", cli.https, n % 10);
    (0..cli.count).map(|n| webhook(&url(n), SECRET, &id(n), now_s(), &body)).collect()
}

async fn get(cli: &Cli, method: Method, url: &str) -> anyhow::Result<Bytes> {
    Ok(plain(cli.http).await.send(request(method, url, "")).await?.body)
}

/// User and system time of a process; the kernel counts in hundredths of a second.
fn cpu_ms(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or_default();
    Ok((ticks(11) + ticks(12)) * 10)
}
