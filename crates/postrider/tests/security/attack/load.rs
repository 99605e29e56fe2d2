//! Steady traffic with its latencies, a receiver that notes when each message came, and the bound on what an attack may
//! cost that traffic.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{Attacker, PATIENCE};

/// Connections of the steady traffic.
const LINES: usize = 16;

/// Accepts everything under `/ok/`. Says that what is under `/gone/` is gone, answers 404 under `/struck/`, and 400 to
/// everything else.
pub(super) struct Receiver {
    pub(super) at: SocketAddr,
    arrivals: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let arrivals = Arc::new(Mutex::new(HashMap::new()));
        let noted = arrivals.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, noted.clone()));
            }
        });
        Self { at, arrivals }
    }

    fn arrival(&self, path: &str) -> Option<Instant> {
        self.arrivals.lock().unwrap().get(path).copied()
    }
}

async fn serve(mut stream: TcpStream, arrivals: Arc<Mutex<HashMap<String, Instant>>>) {
    let mut bytes = Vec::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        let end = loop {
            if let Some(end) = whole_message(&bytes) {
                break end;
            }
            match stream.read(&mut part).await {
                Ok(read) if read > 0 => bytes.extend_from_slice(&part[..read]),
                _ => return,
            }
        };
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = match path.split('/').nth(1) {
            Some("ok") => "204 No Content",
            Some("gone") => "410 Gone",
            Some("struck") => "404 Not Found",
            _ => "400 Bad Request",
        };
        if path.starts_with("/ok/") {
            arrivals.lock().unwrap().entry(path).or_insert_with(Instant::now);
        }
        bytes.drain(..end);
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Where the first message in these bytes ends.
fn whole_message(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |value| value.trim().parse().unwrap());
    (bytes.len() >= head + length).then_some(head + length)
}

/// A connection that is used again and again.
pub(super) struct Line {
    caller: Attacker,
    stream: TcpStream,
}

impl Line {
    pub(super) async fn open(caller: &Attacker) -> Self {
        Self { caller: caller.clone(), stream: caller.connect().await }
    }

    /// The status of a call; `None` if the connection ended.
    pub(super) async fn call(&mut self, method: &str, path: &str, body: &str) -> Option<u16> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.caller.key,
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await.ok()?;
        self.stream.write_all(body.as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while whole_message(&bytes).is_none() {
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut part)).await;
            let read = read.ok()?.ok().filter(|read| *read > 0)?;
            bytes.extend_from_slice(&part[..read]);
        }
        String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
    }
}

/// The latencies of some traffic.
#[derive(Debug)]
pub(super) struct SteadyFigures {
    pub(super) accept_p99: Duration,
    /// From the call to the arrival at the receiver.
    pub(super) delivery_p99: Duration,
    /// The p99 of accepts in each tenth of the time: shows whether an attack costs for a moment or for ever.
    pub(super) accept_tenths: Vec<Duration>,
    pub(super) sent: usize,
}

/// Sends so many messages per second for so long, and waits until all of them arrived.
pub(super) async fn steady(
    caller: &Attacker,
    receiver: &Receiver,
    name: &str,
    (per_s, seconds): (f64, f64),
) -> SteadyFigures {
    let count = (per_s * seconds) as usize;
    let begin = Instant::now() + Duration::from_millis(200);
    let mut lines = Vec::new();
    for line in 0..LINES {
        let (mut connection, name) = (Line::open(caller).await, name.to_owned());
        let at = receiver.at;
        lines.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for number in (line..count).step_by(LINES) {
                let due = begin + Duration::from_secs_f64(number as f64 / per_s);
                tokio::time::sleep_until(due.into()).await;
                let path = format!("/ok/{name}/{number}");
                let message = json!({
                    "to": {"address": {"channel": "webhook", "url": format!("http://{at}{path}")}},
                    "content": {"title": "Hello"},
                });
                let status = connection.call("POST", "/v1/messages", &message.to_string()).await;
                assert_eq!(status, Some(202), "{path}");
                times.push((path, due, Instant::now()));
            }
            times
        }));
    }
    let mut all = Vec::new();
    for line in lines {
        all.extend(line.await.unwrap());
    }
    let mut deliveries = Vec::new();
    let deadline = Instant::now() + 3 * PATIENCE;
    for (path, due, _) in &all {
        let arrived = loop {
            match receiver.arrival(path) {
                Some(at) => break at,
                None => assert!(Instant::now() < deadline, "{path} did not arrive"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        deliveries.push(arrived.saturating_duration_since(*due));
    }
    all.sort_unstable_by_key(|(_, due, _)| *due);
    let accepts = all.iter().map(|(_, due, answered)| answered.saturating_duration_since(*due));
    let accepts: Vec<Duration> = accepts.collect();
    let tenths = accepts.chunks(accepts.len().div_ceil(10).max(1));
    SteadyFigures {
        accept_tenths: tenths.map(|part| p99(part.to_vec())).collect(),
        accept_p99: p99(accepts),
        delivery_p99: p99(deliveries),
        sent: all.len(),
    }
}

/// How much longer the calls of others may take under an attack.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayBound {
    pub(super) times: f64,
    /// Shorter times count as this one, because they say more about the machine than about the server. The full proof
    /// has none.
    pub(super) floor: Duration,
}

impl DelayBound {
    /// Prints each p99 with its ratio. Fails if one is beyond the bound.
    pub(super) fn check(self, before: &SteadyFigures, during: &SteadyFigures) {
        let figures = [
            ("accept", before.accept_p99, during.accept_p99),
            ("delivery", before.delivery_p99, during.delivery_p99),
        ];
        let mut is_kept = true;
        for (what, before, during) in figures {
            let ratio = during.as_secs_f64() / before.as_secs_f64();
            let is_within = during <= before.max(self.floor).mul_f64(self.times);
            println!(
                "{what} p99 of others: {before:.1?} undisturbed, {during:.1?} under attack, {ratio:.2} x; allowed {} x{}: {}",
                self.times,
                if self.floor.is_zero() {
                    String::new()
                } else {
                    format!(" of at least {:?}", self.floor)
                },
                if is_within { "kept" } else { "NOT KEPT" }
            );
            is_kept &= is_within;
        }
        println!("accept p99 of each tenth: {:.1?}", during.accept_tenths);
        println!("undisturbed:              {:.1?}", before.accept_tenths);
        assert!(is_kept, "others notice the attack");
    }
}

/// Runs the callers of an attack with the lowest priority. They stand for other machines: the processor that they need
/// is not the server's, and those who are measured should not wait for it either.
pub(super) fn run_attack(
    attack: impl Future<Output = ()> + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| {
        rustix::process::nice(19).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(attack);
    })
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
}
