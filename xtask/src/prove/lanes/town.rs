//! A real server and real sandboxes as processes of their own, in a folder of their own; all gone when
//! the proof ends.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::http::{Connection, KEY};
use crate::shell;

const LINES: usize = 1_000;
const SENDERS: usize = 4;

pub(super) struct Town {
    folder: PathBuf,
    processes: Vec<Process>,
    pub(super) server: SocketAddr,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        self.processes.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Town {
    /// An empty server; `config` is its `postrider.toml`.
    pub(super) fn new(name: &str, config: &str) -> Result<Self> {
        let folder = target().join("proofs").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let server = free_port()?;
        let mut town = Self { folder, processes: Vec::new(), server };
        let file = town.folder.join("postrider.toml");
        std::fs::write(&file, format!("{NETWORK}{config}"))?;
        let data = town.folder.join("data").display().to_string();
        let (listen, file) = (server.to_string(), file.display().to_string());
        let line = ["serve", "--listen", &listen, "--data", &data, "--config", &file];
        town.start(&line, "server")?;
        await_ok(server, "/readyz")?;
        Ok(town)
    }

    /// A sandbox; answers where its plain socket is.
    pub(super) fn sandbox(&mut self, options: &[&str], faults: Option<&str>) -> Result<SocketAddr> {
        let (https, http) = (free_port()?.to_string(), free_port()?);
        let plain = http.to_string();
        let (smtp, smtps) = (free_port()?.to_string(), free_port()?.to_string());
        let mut line = vec!["sandbox", "--listen", &https, "--listen-http", &plain];
        line.extend(["--listen-smtp", &smtp, "--listen-smtps", &smtps]);
        line.extend(options);
        let file = self.folder.join(format!("faults-{}.toml", http.port()));
        let file_name = file.display().to_string();
        if let Some(faults) = faults {
            std::fs::write(&file, faults)?;
            line.extend(["--faults", &file_name]);
        }
        self.start(&line, &format!("sandbox-{}", http.port()))?;
        await_ok(http, "/sandbox/received")?;
        Ok(http)
    }

    fn start(&mut self, line: &[&str], name: &str) -> Result<()> {
        let log = std::fs::File::create(self.folder.join(format!("{name}.log")))?;
        let child = Command::new(target().join("release/postrider"))
            .args(line)
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .env("POSTRIDER_LOG__LEVEL", "warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start target/release/postrider")?;
        self.processes.push(Process(child));
        Ok(())
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
            let mut connection = Connection::open(self.server)?;
            loop {
                let from = next.fetch_add(LINES, Ordering::Relaxed);
                if from >= count {
                    return Ok(());
                }
                let lines: Vec<_> =
                    (from..(from + LINES).min(count)).map(|n| message(class, to, n)).collect();
                let body = lines.join("\n");
                let answer =
                    connection.call("POST", "/v1/messages/batch", tenant, body.as_bytes())?;
                let taken = String::from_utf8_lossy(&answer).matches(r#""status":202"#).count();
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
        connection: &mut Connection,
        tenant: &str,
        class: &str,
        to: SocketAddr,
    ) -> Result<(String, u64)> {
        let body = message(class, to, 0);
        let answer = connection.call("POST", "/v1/messages", tenant, body.as_bytes())?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let id = answer["deliveries"][0]["id"].as_str().context("a delivery in the answer")?;
        Ok((id.to_owned(), now_ms()))
    }

    pub(super) fn dead_letters(&self) -> Result<usize> {
        let page = Connection::open(self.server)?.get("/v1/dead-letters?limit=10")?;
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
    let counts = Connection::open(sandbox)?.get("/sandbox/received")?;
    let number = |name: &str| counts[name].as_u64().unwrap_or(0);
    let refused = counts["refused"].as_object();
    let refused = refused.map_or(0, |by| by.values().filter_map(Value::as_u64).sum());
    let (total, accepted) = (number("total"), number("accepted"));
    Ok(Received { at_ms: now_ms(), total, accepted, distinct: number("distinct"), refused })
}

/// When the sandbox first accepted a delivery.
pub(super) fn accepted_at(sandbox: &mut Connection, id: &str) -> Result<Option<u64>> {
    let Ok(seen) = sandbox.get(&format!("/sandbox/received/{id}")) else { return Ok(None) };
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

fn await_ok(at: SocketAddr, path: &str) -> Result<()> {
    let ready = || Ok(Connection::open(at).and_then(|mut c| c.call("GET", path, "*", b"")).is_ok());
    until(&format!("{path} on {at}"), Duration::from_secs(30), ready).map(|_| ())
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| shell::root().join(Path::new("target")))
}

const NETWORK: &str = "[network]\nallow_private_targets = true\nallow_plain_http = true\n";
