//! Server and sandbox as separate processes, as in production.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::load;

pub(super) const KEY: &str = "bench-admin-key-0123456789-Zk3vQ8xLw0pYt5RuB7nHc2Ma0";

/// A process. Dropping it kills it.
pub(super) struct BenchProcess(Child);

impl BenchProcess {
    /// Starts a command. Its output goes to a log file.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let shown = command.get_program().display().to_string();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {shown}"))?))
    }

    /// Processor time used so far, user and system.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.0.id().to_string())
    }

    /// The most memory it ever held, in bytes.
    pub(super) fn peak_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
    }

    /// Asks it to end, and waits.
    pub(super) fn stop(mut self) -> Result<()> {
        Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status()?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "postrider did not end within 30 s of SIGTERM");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Processor time of this process.
pub(super) fn own_cpu() -> Result<Duration> {
    cpu_of("self")
}

fn cpu_of(pid: &str) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the fields that follow do not.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // USER_HZ is 100 on every Linux that Rust runs on.
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct SandboxProcess {
    pub(super) process: BenchProcess,
    pub(super) https: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) smtp: SocketAddr,
    pub(super) ca_file: PathBuf,
}

/// With a fault profile from this file, or without faults.
pub(super) async fn sandbox(dir: &Path, profile: Option<&Path>) -> Result<SandboxProcess> {
    let (https, http, smtp) = (free_port()?, free_port()?, free_port()?);
    let (ca_file, log) = (dir.join("sandbox-ca.pem"), dir.join("sandbox.log"));
    let mut command = Command::new(own_binary()?);
    command
        .args(["sandbox", "--inbox", "0", "--listen-smtps", "127.0.0.1:0"])
        .arg("--ca-out")
        .arg(&ca_file);
    for (option, address) in [("--listen", https), ("--listen-http", http), ("--listen-smtp", smtp)]
    {
        command.arg(option).arg(address.to_string());
    }
    if let Some(profile) = profile {
        command.arg("--faults").arg(profile);
    }
    let process = BenchProcess::start(&mut command, &log)?;
    await_ok(http, "/sandbox/received", &log).await?;
    Ok(SandboxProcess { process, https, http, smtp, ca_file })
}

pub(super) async fn server(
    dir: &Path,
    role: &str,
    sandbox: &SandboxProcess,
) -> Result<(BenchProcess, SocketAddr)> {
    std::fs::create_dir_all(dir)?;
    let (listen, config, log) = (free_port()?, dir.join("postrider.toml"), dir.join("server.log"));
    let mut command = Command::new(own_binary()?);
    command
        .args(["serve", "--role", role, "--listen", &listen.to_string(), "--data"])
        .arg(dir.join("data"))
        .env("POSTRIDER_ADMIN_KEY", KEY)
        .env("POSTRIDER_NETWORK__ALLOW_PRIVATE_TARGETS", "true")
        .env("POSTRIDER_NETWORK__ALLOW_PLAIN_HTTP", "true")
        .env("POSTRIDER_NETWORK__EXTRA_CA_FILE", &sandbox.ca_file)
        .env("POSTRIDER_LOG__LEVEL", "warn");
    if config.exists() {
        command.arg("--config").arg(&config);
    }
    let process = BenchProcess::start(&mut command, &log)?;
    await_ok(listen, "/readyz", &log).await?;
    Ok((process, listen))
}

/// Writes the configuration of the server that will run in this folder.
pub(super) fn configure(dir: &Path, config: &str) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    Ok(std::fs::write(dir.join("postrider.toml"), config)?)
}

fn own_binary() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find our own binary")
}

/// Repeats a check until it has a result. Until then the check says what is missing: after the time, that is the
/// error.
pub(super) async fn poll<T>(
    within_s: u64,
    every_ms: u64,
    mut check: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(within_s);
    loop {
        match check().await? {
            Ok(result) => return Ok(result),
            Err(missing) => ensure!(Instant::now() < deadline, missing),
        }
        tokio::time::sleep(Duration::from_millis(every_ms)).await;
    }
}

async fn await_ok(address: SocketAddr, path: &str, log: &Path) -> Result<()> {
    let client = load::client(address);
    let answer = poll(20, 5, async || {
        let answer = client.text("GET", path, "application/json", b"").await;
        Ok(answer.map_err(|_| {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            format!("{path} on {address} did not answer within 20 s; its log:\n{log}")
        }))
    });
    answer.await.map(|_| ())
}

pub(super) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
