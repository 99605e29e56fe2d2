//! Kills the server with SIGKILL while it works, again and again. Compares the client's log of 202s with what the
//! sandbox, a separate process, received. Nothing may be lost; repeats are bounded and have the same delivery id.
//!
//! Small here; `cargo xtask prove kill` runs it with 100 000 messages and ten kills.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use postrider_testkit::http::{call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};

use super::BINARY;

const LINES: usize = 200;
/// The server's defaults, set explicitly so that the bound is known.
const CONCURRENCY: usize = 4_096;
const SETTLE_BATCH: usize = 512;

pub(super) fn from_environment(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn killed_again_and_again_it_loses_nothing_and_repeats_little() -> Result<()> {
    let messages = from_environment("POSTRIDER_KILL_MESSAGES", 6_000);
    let kills = from_environment("POSTRIDER_KILLS", 3);
    let mut fixture = ProcessFixture::new(BINARY, &config())?;
    let sandbox_at = fixture.start_sandbox(&[])?;
    fixture.start()?;
    let client = MessageSender::start(fixture.server_at, sandbox_at, messages);
    for kill in 1..=kills {
        // Spread over the whole run: the next kill when another share of the messages is accepted.
        client.await_accepted(kill * messages / (kills + 2))?;
        fixture.kill();
        println!("kill {kill:>2}: {:>6} accepted so far", client.accepted());
        fixture.start()?;
    }
    let log = client.finish()?;
    ensure!(log.len() == messages, "the client has {} answers for {messages} messages", log.len());
    await_drained(fixture.server_at)?;
    verdict(&log, sandbox_at, kills)
}

fn verdict(log: &HashSet<String>, sandbox_at: SocketAddr, kills: usize) -> Result<()> {
    let received = accepted_by_sandbox(sandbox_at)?;
    let lost = log.iter().filter(|id| !received.contains_key(*id)).count();
    let duplicates: usize = received.values().map(|n| n.saturating_sub(1)).sum();
    let bound = kills * (CONCURRENCY + SETTLE_BATCH);
    println!("202s in the client's log:        {}", log.len());
    println!("distinct delivery ids received:  {}", received.len());
    println!("lost:                            {lost}");
    println!("received twice, under one id:    {duplicates}");
    println!(
        "bound:                           {bound} = {kills} kills × ({CONCURRENCY} in flight + {SETTLE_BATCH} in a settle batch)"
    );
    ensure!(lost == 0, "{lost} accepted messages were lost");
    ensure!(duplicates <= bound, "{duplicates} duplicates are more than {bound}");
    ensure!(received.len() == log.len(), "the sandbox knows deliveries that no 202 named");
    Ok(())
}

/// Correlation id → how often the sandbox accepted it.
fn accepted_by_sandbox(at: SocketAddr) -> Result<HashMap<String, usize>> {
    let answer = get(at, "/sandbox/received/ids")?;
    let mut received = HashMap::new();
    for line in answer.body.lines() {
        let id = text_field(line, "id").context("an entry without id")?;
        let accepted = number_field(line, "accepted").context("an entry without count")?;
        received.insert(id, accepted);
    }
    Ok(received)
}

/// Hands messages in as a product would: what got no answer is handed in again under its own key.
struct MessageSender {
    accepted: Arc<AtomicUsize>,
    failed: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Result<Vec<String>>>>,
}

impl MessageSender {
    fn start(server: SocketAddr, sandbox: SocketAddr, messages: usize) -> Self {
        let accepted = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicUsize::new(0));
        let threads = (0..2).map(|_| {
            let (accepted, failed, next) = (accepted.clone(), failed.clone(), next.clone());
            std::thread::spawn(move || {
                let log = hand_in(server, sandbox, messages, &next, &accepted);
                failed.fetch_or(log.is_err(), Ordering::Relaxed);
                log
            })
        });
        Self { threads: threads.collect(), accepted, failed }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn await_accepted(&self, share: usize) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.accepted() < share {
            ensure!(!self.failed.load(Ordering::Relaxed), "the client gave up");
            ensure!(
                Instant::now() < deadline,
                "only {} accepted within two minutes",
                self.accepted()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn finish(self) -> Result<HashSet<String>> {
        let mut log = HashSet::new();
        for thread in self.threads {
            let Ok(ids) = thread.join() else { bail!("the client panicked") };
            log.extend(ids?);
        }
        Ok(log)
    }
}

fn hand_in(
    server: SocketAddr,
    sandbox: SocketAddr,
    messages: usize,
    next: &AtomicUsize,
    accepted: &AtomicUsize,
) -> Result<Vec<String>> {
    let mut log = Vec::new();
    loop {
        let from = next.fetch_add(LINES, Ordering::Relaxed);
        if from >= messages {
            return Ok(log);
        }
        let line = |n| {
            format!(
                r#"{{"to":{{"address":{{"channel":"webhook","url":"http://{sandbox}/hook/kill"}}}},"content":{{"data":{{"n":{n}}}}},"idempotency_key":"kill-{n}"}}"#
            )
        };
        let body: Vec<_> = (from..(from + LINES).min(messages)).map(line).collect();
        let ids = insist(server, &body.join("\n"))?;
        accepted.fetch_add(ids.len(), Ordering::Relaxed);
        log.extend(ids);
    }
}

pub(super) fn insist(server: SocketAddr, body: &str) -> Result<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call(server, "POST", "/v1/messages/batch", body) {
            Ok(answer)
                if answer.status == 200 && answer.body.lines().count() == body.lines().count() =>
            {
                return answer.body.lines().map(delivery_of).collect();
            }
            Ok(answer) if answer.status < 500 && answer.status != 200 => {
                bail!("{}: {}", answer.status, answer.body)
            }
            _ => {}
        }
        ensure!(Instant::now() < deadline, "the server did not come back within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn delivery_of(line: &str) -> Result<String> {
    ensure!(number_field(line, "status") == Some(202), "a line was refused: {line}");
    let at = line.find("dlv_").with_context(|| format!("no delivery in {line}"))?;
    Ok(line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

fn await_drained(server: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let stats = get(server, "/v1/stats")?;
        let open: usize = ["queued", "sending", "retrying", "parked"]
            .iter()
            .filter_map(|s| number_field(&stats.body, s))
            .sum();
        if stats.status == 200 && open == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not drained within five minutes: {}", stats.body);
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn config() -> String {
    format!(
        "{LOCAL_TARGETS}[dispatch]\nconcurrency = {CONCURRENCY}\nsettle_batch = {SETTLE_BATCH}\n\
         [log]\nlevel = \"warn\"\n"
    )
}

/// A field of flat JSON; proofs read only what the product writes on one line.
fn text_field(json: &str, name: &str) -> Option<String> {
    let rest = json.split(&format!("\"{name}\":\"")).nth(1)?;
    Some(rest.split('"').next()?.to_owned())
}

fn number_field(json: &str, name: &str) -> Option<usize> {
    let rest = json.split(&format!("\"{name}\":")).nth(1)?;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}
