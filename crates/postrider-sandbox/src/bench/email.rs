//! Mails per second: to postfix's `smtp-sink` where there is one, else to the sandbox's mail server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load::{self, BenchAddressee};
use super::{Benchmark, per_message_us, process};

const AIM_PER_S: f64 = 5_000.0;
const PATIENCE: Duration = Duration::from_secs(300);

/// A running `smtp-sink`. Dropping it kills the process.
struct SmtpSink {
    child: Child,
    address: SocketAddr,
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Benchmark<'_> {
    /// Queues everything first, then starts a server on that folder and measures it alone.
    pub(super) async fn email(&mut self) -> Result<()> {
        let n = self.args.messages;
        let dir = self.dir.join("email");
        std::fs::create_dir_all(&dir)?;
        let program = smtp_sink(self.args.smtp_sink.as_deref())?;
        let sink = program.map(|program| SmtpSink::start(&program)).transpose()?;
        let (to, whose) = match &sink {
            Some(sink) => (sink.address, "smtp-sink"),
            None => (
                self.sandbox.smtp,
                "the sandbox (there is no smtp-sink; docs/benchmarks.md says how to get it)",
            ),
        };
        self.say(&format!("email: {n} messages queued, then delivered to {whose}"));
        std::fs::write(dir.join("postrider.toml"), account(to))?;
        self.queue(&dir, &BenchAddressee::Email).await?;
        let (server, address) = process::server(&dir, "all", &self.sandbox).await?;
        let per_s = sent_per_s(address, n).await?;
        let about = match sink {
            Some(_) => "mails/s to smtp-sink, both ends sharing this machine",
            None => "mails/s to the sandbox, both ends sharing this machine",
        };
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
        "[accounts.bench]\nchannel = \"email\"\nfrom = \"news@shop.example\"\nhost = \"{}\"\n\
         port = {}\ntls = \"none\"\n",
        to.ip(),
        to.port()
    )
}

/// From the first mail that was sent to the last.
async fn sent_per_s(server: SocketAddr, n: usize) -> Result<f64> {
    let (begun, mut first) = (Instant::now(), None);
    loop {
        let stats = load::client(server).get("/v1/stats").await?;
        let sent = stats["states"]["sent"].as_u64().unwrap_or(0);
        let now = Instant::now();
        if sent > 0 {
            let (at, before) = *first.get_or_insert((now, sent));
            if sent >= n as u64 {
                let took = (now - at).max(Duration::from_millis(1));
                return Ok((sent - before).max(1) as f64 / took.as_secs_f64());
            }
        }
        if begun.elapsed() > PATIENCE {
            bail!("only {sent} of {n} mails were sent within five minutes: {stats}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The file that the command line names, or where Debian's package installs it.
fn smtp_sink(said: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(said) = said {
        let found = said.is_file().then(|| said.to_owned());
        return found.map(Some).with_context(|| format!("--smtp-sink: no file {}", said.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    Ok(folders.map(|folder| folder.join("smtp-sink")).find(|program| program.is_file()))
}

/// The libraries of a package that was unpacked and not installed.
fn libraries(program: &Path) -> Option<PathBuf> {
    let unpacked = program.parent()?.parent()?.join("lib/postfix");
    unpacked.is_dir().then_some(unpacked)
}

impl SmtpSink {
    fn start(program: &Path) -> Result<Self> {
        let address = process::free_port()?;
        let mut command = Command::new(program);
        if let Some(libraries) = libraries(program) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // It does not run as root.
        let uid =
            std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
        if uid.is_ok_and(|uid| uid == 0) {
            command.args(["-u", "nobody"]);
        }
        let child = command
            .arg(address.to_string())
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start smtp-sink")?;
        let sink = Self { child, address };
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                bail!("smtp-sink does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(sink)
    }
}
