//! Messages that are handed in at a steady rate, as a product would: what got no answer is handed in again under its
//! own key. And what the provider received of them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use postrider_testkit::http::{TestConnection, call};
use serde_json::Value;

const LINES: usize = 50;
const SENDERS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(120);

/// Hands messages in, some per second.
pub(super) struct PacedSender {
    shared: Arc<SenderState>,
    threads: Vec<JoinHandle<Result<Vec<String>>>>,
}

struct SenderState {
    server: SocketAddr,
    hooks: Vec<String>,
    messages: usize,
    rate: usize,
    began: Instant,
    next: AtomicUsize,
    accepted: AtomicUsize,
}

impl PacedSender {
    /// To these receivers in turn.
    pub(super) fn start(
        server: SocketAddr,
        hooks: Vec<String>,
        messages: usize,
        rate: usize,
    ) -> Self {
        let shared = Arc::new(SenderState {
            server,
            hooks,
            messages,
            rate,
            began: Instant::now(),
            next: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        });
        let threads = (0..SENDERS).map(|_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.hand_in())
        });
        Self { threads: threads.collect(), shared }
    }

    pub(super) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// The deliveries that were acknowledged.
    pub(super) fn finish(self) -> Result<HashSet<String>> {
        let mut log = HashSet::new();
        for thread in self.threads {
            let Ok(ids) = thread.join() else { bail!("a sender panicked") };
            log.extend(ids?);
        }
        Ok(log)
    }
}

impl SenderState {
    fn hand_in(&self) -> Result<Vec<String>> {
        let mut log = Vec::new();
        loop {
            let from = self.next.fetch_add(LINES, Ordering::Relaxed);
            if from >= self.messages {
                return Ok(log);
            }
            let due = self.began + Duration::from_secs_f64(from as f64 / self.rate as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let lines: Vec<_> =
                (from..(from + LINES).min(self.messages)).map(|n| self.line(n)).collect();
            let ids = insist(self.server, &lines.join("\n"))?;
            self.accepted.fetch_add(ids.len(), Ordering::Relaxed);
            log.extend(ids);
        }
    }

    fn line(&self, n: usize) -> String {
        let url = &self.hooks[n % self.hooks.len()];
        format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"content":{{"title":"No {n}","body":"A message of ordinary length, as a shop would send it."}},"idempotency_key":"nodes-{n}"}}"#
        )
    }
}

fn insist(server: SocketAddr, body: &str) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = call(server, "POST", "/v1/messages/batch", body);
        if let Ok(answer) = &answer
            && answer.status == 200
            && answer.body.matches("\"status\":202").count() == body.lines().count()
        {
            return answer.body.lines().map(delivery_of).collect();
        }
        let said = answer.map_or_else(|error| error.to_string(), |answer| answer.body);
        let said = said.lines().next().unwrap_or_default();
        ensure!(Instant::now() < deadline, "nothing was accepted for two minutes: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn delivery_of(line: &str) -> Result<String> {
    let at = line.find("dlv_").with_context(|| format!("no delivery in {line}"))?;
    Ok(line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

/// How many calls with each delivery id a provider accepted.
pub(super) fn accepted_by_id(provider: SocketAddr) -> Result<HashMap<String, usize>> {
    let text = TestConnection::open(provider)?.call_ok("GET", "/sandbox/received/ids", None, "")?;
    let entry = |line: &str| -> Result<(String, usize)> {
        let entry: Value = serde_json::from_str(line)?;
        let id = entry["id"].as_str().context("an entry without id")?.to_owned();
        Ok((id, entry["accepted"].as_u64().context("an entry without count")? as usize))
    };
    text.lines().map(entry).collect()
}

/// Distinct deliveries at a provider over time.
pub(super) struct RateSeries {
    samples: Arc<Mutex<Vec<(Instant, u64)>>>,
    stopped: Arc<AtomicBool>,
}

impl RateSeries {
    pub(super) fn watch(provider: SocketAddr) -> Self {
        let (samples, stopped) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let series = Self { samples, stopped };
        let (samples, stopped) = (series.samples.clone(), series.stopped.clone());
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let counted = TestConnection::open(provider)
                    .and_then(|mut connection| connection.get_json("/sandbox/received"));
                if let Some(count) = counted.ok().and_then(|counts| counts["distinct"].as_u64()) {
                    let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                    samples.push((Instant::now(), count));
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        series
    }

    fn count_at(&self, at: Instant) -> Option<(Instant, u64)> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().find(|(taken, _)| *taken >= at).or(samples.last()).copied()
    }

    /// Deliveries per second between two times.
    pub(super) fn rate(&self, from: Instant, to: Instant) -> f64 {
        let (Some(first), Some(last)) = (self.count_at(from), self.count_at(to)) else {
            return 0.0;
        };
        let seconds = last.0.saturating_duration_since(first.0).as_secs_f64();
        if seconds == 0.0 { 0.0 } else { (last.1 - first.1) as f64 / seconds }
    }

    /// How long after a time the rate of two seconds was at least this.
    pub(super) fn recovered(&self, after: Instant, rate: f64) -> Option<Duration> {
        let window = Duration::from_secs(2);
        let starts: Vec<_> = {
            let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.iter().map(|(taken, _)| *taken).filter(|taken| *taken >= after).collect()
        };
        let last = *starts.last()?;
        let found = starts
            .into_iter()
            .find(|from| *from + window <= last && self.rate(*from, *from + window) >= rate)?;
        Some(found.saturating_duration_since(after))
    }
}

impl Drop for RateSeries {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}
