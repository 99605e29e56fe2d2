//! A real server and real sandboxes as processes, in their own folder. All end with the proof.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use postrider_testkit::http::TestConnection;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

use crate::shell;

const LINES: usize = 1_000;
const SENDERS: usize = 4;

pub(super) struct LanesFixture {
    processes: ProcessFixture,
    pub(super) server: SocketAddr,
}

impl LanesFixture {
    /// An empty server with this configuration.
    pub(super) fn new(name: &str, config: &str) -> Result<Self> {
        let proofs = target().join("proofs");
        std::fs::create_dir_all(&proofs)?;
        let folder = tempfile::Builder::new().prefix(name).tempdir_in(proofs)?;
        let config = format!("{LOCAL_TARGETS}[log]\nlevel = \"warn\"\n{config}");
        let binary = target().join("release/postrider");
        let mut processes = ProcessFixture::in_folder(binary, folder, &config)?;
        processes.start()?;
        Ok(Self { server: processes.server_at, processes })
    }

    /// A sandbox; answers where its plain socket is.
    pub(super) fn sandbox(&mut self, options: &[&str], faults: Option<&str>) -> Result<SocketAddr> {
        let Some(faults) = faults else { return self.processes.start_sandbox(options) };
        let file = self.processes.path("faults.toml");
        std::fs::write(&file, faults)?;
        let file = file.display().to_string();
        self.processes.start_sandbox(&[options, &["--faults", &file]].concat())
    }

    /// Hands in `count` webhooks, in batches over a few connections.
    pub(super) fn burst(
        &self,
        tenant: &str,
        class: &str,
        to: SocketAddr,
        count: usize,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let send = || -> Result<()> {
            let mut connection = TestConnection::open(self.server)?;
            loop {
                let from = next.fetch_add(LINES, Ordering::Relaxed);
                if from >= count {
                    return Ok(());
                }
                let lines: Vec<_> =
                    (from..(from + LINES).min(count)).map(|n| message(class, to, n)).collect();
                let body = lines.join("\n");
                let path = "/v1/messages/batch";
                let answer = connection.call_ok("POST", path, Some(tenant), &body)?;
                let taken = answer.matches(r#""status":202"#).count();
                ensure!(taken == lines.len(), "{taken} of {} lines were accepted", lines.len());
            }
        };
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send)).collect();
            senders.into_iter().try_for_each(|sender| match sender.join() {
                Ok(done) => done,
                Err(_) => bail!("a sender gave up"),
            })
        })
    }

    /// Hands in one and says which delivery it is and when it was accepted.
    pub(super) fn one(
        &self,
        connection: &mut TestConnection,
        tenant: &str,
        class: &str,
        to: SocketAddr,
    ) -> Result<(String, u64)> {
        let body = message(class, to, 0);
        let answer = connection.call_ok("POST", "/v1/messages", Some(tenant), &body)?;
        let answer: Value = serde_json::from_str(&answer)?;
        let id = answer["deliveries"][0]["id"].as_str().context("a delivery in the answer")?;
        Ok((id.to_owned(), now_ms()))
    }

    pub(super) fn dead_letters(&self) -> Result<usize> {
        let page = TestConnection::open(self.server)?.get_json("/v1/dead-letters?limit=10")?;
        let items = page.as_array().or_else(|| page["items"].as_array());
        Ok(items.context("a list of dead letters")?.len())
    }
}

fn message(class: &str, to: SocketAddr, n: usize) -> String {
    let hook = n % 500;
    format!(
        r#"{{"to":{{"address":{{"channel":"webhook","url":"http://{to}/hook/{class}-{hook}"}}}},"class":"{class}","content":{{"title":"No {n}","body":"A message of ordinary length, as a shop would send it."}},"ttl_s":86400}}"#
    )
}

/// What a sandbox counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) at_ms: u64,
    pub(super) total: u64,
    pub(super) accepted: u64,
    pub(super) distinct: u64,
    pub(super) refused: u64,
}

pub(super) fn received(sandbox: SocketAddr) -> Result<Received> {
    let counts = TestConnection::open(sandbox)?.get_json("/sandbox/received")?;
    let number = |name: &str| counts[name].as_u64().unwrap_or(0);
    let refused = counts["refused"].as_object();
    let refused = refused.map_or(0, |by| by.values().filter_map(Value::as_u64).sum());
    let (total, accepted) = (number("total"), number("accepted"));
    Ok(Received { at_ms: now_ms(), total, accepted, distinct: number("distinct"), refused })
}

/// When the sandbox first accepted a delivery.
pub(super) fn accepted_at(sandbox: &mut TestConnection, id: &str) -> Result<Option<u64>> {
    let Ok(seen) = sandbox.get_json(&format!("/sandbox/received/{id}")) else { return Ok(None) };
    let attempts = seen["records"][0]["history"].as_array().context("attempts of an id")?;
    let taken = |status: &Value| status.as_u64().is_some_and(|s| (200..300).contains(&s));
    let accepted = attempts.iter().find(|attempt| taken(&attempt["result"]));
    Ok(accepted.and_then(|attempt| attempt["at"].as_u64()))
}

/// Waits until `done` says so.
pub(super) fn until(
    what: &str,
    at_most: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let began = Instant::now();
    while !done()? {
        ensure!(began.elapsed() < at_most, "{what} took longer than {}", shell::in_words(at_most));
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(began.elapsed())
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| shell::root().join(Path::new("target")))
}
