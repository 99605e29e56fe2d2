//! Mails per second, to postfix's `smtp-sink` or, without it, to the sandbox's mail server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use super::load::{self, BenchAddresses};
use super::process::{self, BenchProcess, poll};
use super::{Benchmark, per_message_us};

const AIM_PER_S: f64 = 5_000.0;

impl Benchmark<'_> {
    /// Queues everything first, then starts a server on that folder and measures it alone.
    pub(super) async fn email(&mut self) -> Result<()> {
        let n = self.args.messages;
        let dir = self.dir.join("email");
        let sink = match smtp_sink(self.args.smtp_sink.as_deref())? {
            Some(program) => Some(start_sink(&program, self.dir).await?),
            None => None,
        };
        let (to, whose, about) = match &sink {
            Some((_, address)) => {
                (*address, "smtp-sink", "mails/s to smtp-sink, both ends sharing this machine")
            }
            None => (
                self.sandbox.smtp,
                "the sandbox (there is no smtp-sink; docs/benchmarks.md says how to get it)",
                "mails/s to the sandbox, both ends sharing this machine",
            ),
        };
        self.say(&format!("email: {n} messages queued, then delivered to {whose}"));
        process::configure(&dir, &account(to))?;
        let mailboxes: BenchAddresses =
            Arc::new(|n| format!(r#""channel":"email","email":"user{n}@example.org""#));
        self.queue(&dir, &mailboxes).await?;
        let (server, address) = process::server(&dir, "all", &self.sandbox).await?;
        let per_s = sent_per_s(address, n).await?;
        self.report.add_with_aim("email.delivered", per_s, about, AIM_PER_S);
        let cpu = per_message_us(server.cpu()?, n);
        self.report.add("email.cpu", cpu, "µs of server CPU per mail, all in");
        let memory = server.peak_memory()? as f64 / 1e6;
        self.report.add("email.memory", memory, "MB at the most");
        server.stop()
    }
}

fn account(to: SocketAddr) -> String {
    format!(
        "[accounts.bench]\nchannel = \"email\"\ntenant = \"*\"\nfrom = \"news@shop.example\"\nhost = \"{}\"\n\
         port = {}\ntls = \"none\"\n",
        to.ip(),
        to.port()
    )
}

/// From the first mail that was sent to the last.
async fn sent_per_s(server: SocketAddr, n: usize) -> Result<f64> {
    let mut first = None;
    poll(300, 20, async || {
        let (sent, now) = (load::sent(server).await?, Instant::now());
        if sent > 0 {
            first.get_or_insert((now, sent));
        }
        if sent < n as u64 {
            return Ok(Err(format!("only {sent} of {n} mails were sent within five minutes")));
        }
        let (at, before) = first.unwrap_or((now, sent));
        let took = (now - at).max(Duration::from_millis(1));
        Ok(Ok((sent - before).max(1) as f64 / took.as_secs_f64()))
    })
    .await
}

/// The file that the command line names, or where Debian's package installs it.
fn smtp_sink(named: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(file) = named {
        let found = file.is_file().then(|| file.to_owned());
        return found.map(Some).with_context(|| format!("--smtp-sink: no file {}", file.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    Ok(folders.map(|folder| folder.join("smtp-sink")).find(|program| program.is_file()))
}

/// The libraries of a package that was unpacked but not installed.
fn libraries(program: &Path) -> Option<PathBuf> {
    let unpacked = program.parent()?.parent()?.join("lib/postfix");
    unpacked.is_dir().then_some(unpacked)
}

async fn start_sink(program: &Path, dir: &Path) -> Result<(BenchProcess, SocketAddr)> {
    let address = process::free_port()?;
    let mut command = Command::new(program);
    if let Some(libraries) = libraries(program) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    // It does not run as root.
    let uid = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    if uid.is_ok_and(|uid| uid == 0) {
        command.args(["-u", "nobody"]);
    }
    command.arg(address.to_string()).arg("1000");
    let sink = BenchProcess::start(&mut command, &dir.join("smtp-sink.log"))?;
    poll(10, 10, async || {
        let connected = TcpStream::connect(address).await;
        Ok(connected.map_err(|error| format!("smtp-sink does not listen: {error}")))
    })
    .await?;
    Ok((sink, address))
}
