//! One run: starts server and provider, hands in the messages, and reads from both what became of each. Judges
//! nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_testkit::harm_bounds::percentile;
use postrider_testkit::http::TestConnection;
use serde::Deserialize;
use serde_json::Value;

use super::fixture::{HarmFixture, ProviderPorts};
use super::options::HarmProofOptions;
use super::traffic::{DueMessage, send_all};

/// A wait that did not end within the run.
pub(super) const NEVER: i64 = i64::MAX / 4;
const PAGE: &str = "/v1/deliveries?limit=1000";
const DEAD_STATES: [&str; 4] = ["gone", "expired", "failed", "suppressed"];
/// Answers become final in the store so soon.
const SETTLE: Duration = Duration::from_secs(1);
/// Runs at the same time start one after the other, so that no two choose the same port.
static STARTING: Mutex<()> = Mutex::new(());

/// How a run is set up.
pub(super) struct RunSetup<'a> {
    pub(super) options: &'a HarmProofOptions,
    /// The provider's faults, as TOML.
    pub(super) faults: String,
    /// The URL of the store that the servers share.
    pub(super) store: Option<String>,
    /// More of the server's configuration.
    pub(super) config: fn(ProviderPorts) -> String,
    /// How long the run goes on after the last message, unless all healthy ones arrived before.
    pub(super) tail_s: u64,
    /// Whether the attempts that the server counted are read as well.
    pub(super) reads_attempts: bool,
}

/// What became of one message. Times are in milliseconds from the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MessageFate {
    /// When its first call reached the provider.
    pub(super) arrived_ms: Option<i64>,
    /// When the call that the provider accepted reached it.
    pub(super) accepted_ms: Option<i64>,
    /// Calls that reached the provider.
    pub(super) calls: u32,
    /// Attempts that the server counted.
    pub(super) counted: u32,
    pub(super) dead: bool,
}

/// The fates of all messages of a run, in their order.
pub(super) struct FinishedRun {
    pub(super) fates: Vec<MessageFate>,
    pub(super) late_p99_ms: i64,
    /// The server's metrics at the end.
    pub(super) metrics: String,
}

impl<'a> RunSetup<'a> {
    pub(super) fn new(options: &'a HarmProofOptions, faults: String) -> Self {
        let (config, tail_s) = (|_| String::new(), 15);
        Self { options, faults, store: None, config, tail_s, reads_attempts: false }
    }

    pub(super) fn run(&self, messages: &[DueMessage]) -> Result<FinishedRun> {
        let fixture = {
            let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
            HarmFixture::start_on(self.options, self.store.as_deref(), &self.faults, self.config)?
        };
        let sent = send_all(&fixture, messages)?;
        let numbers: HashMap<&str, usize> =
            sent.ids.iter().enumerate().map(|(n, id)| (id.as_str(), n)).collect();
        ensure!(numbers.len() == messages.len(), "two messages got the same delivery");
        let mut fates = vec![MessageFate::default(); messages.len()];
        let ended = Instant::now();
        loop {
            std::thread::sleep(SETTLE);
            read_provider(&fixture, &numbers, &mut fates)?;
            let mut healthy = messages.iter().zip(&fates).filter(|(message, _)| message.healthy);
            let is_done = healthy.all(|(_, fate)| fate.accepted_ms.is_some());
            if is_done || ended.elapsed() > Duration::from_secs(self.tail_s) {
                break;
            }
            std::thread::sleep(SETTLE * 2);
        }
        let mut server = TestConnection::open(fixture.server())?;
        if self.reads_attempts {
            std::thread::sleep(SETTLE);
            read_server(&mut server, &numbers, &mut fates)?;
        }
        let metrics = server.call_ok("GET", "/metrics", None, "")?;
        Ok(FinishedRun { fates, late_p99_ms: percentile(sent.late_ms, 0.99), metrics })
    }
}

/// A line of the provider's list of ids.
#[derive(Deserialize)]
struct ProviderLine {
    id: String,
    history: Vec<ProviderCall>,
}

#[derive(Deserialize)]
struct ProviderCall {
    at: i64,
    result: Value,
}

fn read_provider(
    fixture: &HarmFixture,
    numbers: &HashMap<&str, usize>,
    fates: &mut [MessageFate],
) -> Result<()> {
    let mut connection = TestConnection::open(fixture.provider())?;
    let text = connection.call_ok("GET", "/sandbox/received/ids", None, "")?;
    for line in text.lines() {
        let line: ProviderLine = serde_json::from_str(line)?;
        let Some(number) = numbers.get(line.id.as_str()) else { continue };
        let at = |call: &ProviderCall| call.at - fixture.begin_ms as i64;
        let is_accepted =
            |call: &&ProviderCall| call.result.as_u64().is_some_and(|s| (200..300).contains(&s));
        fates[*number] = MessageFate {
            arrived_ms: line.history.iter().map(at).min(),
            accepted_ms: line.history.iter().find(is_accepted).map(at),
            calls: line.history.len() as u32,
            ..fates[*number]
        };
    }
    Ok(())
}

/// A page of the server's list of deliveries.
#[derive(Deserialize)]
struct ServerPage {
    items: Vec<ServerItem>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct ServerItem {
    id: String,
    state: String,
    attempts: u32,
}

fn read_server(
    connection: &mut TestConnection,
    numbers: &HashMap<&str, usize>,
    fates: &mut [MessageFate],
) -> Result<()> {
    let mut path = PAGE.to_owned();
    loop {
        let page = connection.call_ok("GET", &path, Some("*"), "")?;
        let page: ServerPage = serde_json::from_str(&page)?;
        for item in page.items {
            let Some(number) = numbers.get(item.id.as_str()) else { continue };
            fates[*number].counted = item.attempts;
            fates[*number].dead = DEAD_STATES.contains(&item.state.as_str());
        }
        let Some(next) = page.next else { return Ok(()) };
        path = format!("{PAGE}&cursor={next}");
    }
}

impl MessageFate {
    /// From due to arrival at the provider.
    pub(super) fn wait_ms(&self, message: &DueMessage) -> i64 {
        self.arrived_ms.map_or(NEVER, |at| at - message.due_ms as i64)
    }
}

/// A wait in words.
pub(super) fn shown_wait(ms: i64) -> String {
    if ms >= NEVER / 2 { "never".to_owned() } else { format!("{ms} ms") }
}
