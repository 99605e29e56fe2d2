//! Server and sandbox as processes of their own, as they would be in production.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load;

pub(super) const KEY: &str = "bench-admin-key-0123456789";

/// A process that is killed when it is no longer needed.
pub(super) struct BenchProcess {
    child: Child,
}

impl BenchProcess {
    fn spawn(arguments: &[&str], environment: &[(&str, String)], log: &Path) -> Result<Self> {
        let exe = std::env::current_exe().context("cannot find our own binary")?;
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let child = Command::new(exe)
            .args(arguments)
            .envs(environment.iter().map(|(k, v)| (*k, v.as_str())))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a second postrider")?;
        Ok(Self { child })
    }

    /// Processor time used so far, user and system.
    pub(super) fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }

    /// The most memory it ever held, in bytes.
    pub(super) fn peak_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
    }

    /// Asks it to end, and waits.
    pub(super) fn stop(mut self) -> Result<()> {
        Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("postrider did not end within 30 s of SIGTERM")
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) struct SandboxProcess {
    pub(super) process: BenchProcess,
    pub(super) https: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) smtp: SocketAddr,
    pub(super) ca_file: PathBuf,
}

pub(super) async fn sandbox(dir: &Path) -> Result<SandboxProcess> {
    let (https, http, smtp) = (free_port()?, free_port()?, free_port()?);
    let ca_file = dir.join("sandbox-ca.pem");
    let arguments = [
        "sandbox",
        "--listen",
        &https.to_string(),
        "--listen-http",
        &http.to_string(),
        "--listen-smtp",
        &smtp.to_string(),
        "--listen-smtps",
        "127.0.0.1:0",
        "--ca-out",
        &ca_file.display().to_string(),
    ];
    let process = BenchProcess::spawn(&arguments, &[], &dir.join("sandbox.log"))?;
    await_ok(http, "/sandbox/received", &dir.join("sandbox.log")).await?;
    Ok(SandboxProcess { process, https, http, smtp, ca_file })
}

pub(super) async fn server(
    dir: &Path,
    role: &str,
    sandbox: &SandboxProcess,
) -> Result<(BenchProcess, SocketAddr)> {
    std::fs::create_dir_all(dir)?;
    let listen = free_port()?;
    let data = dir.join("data").display().to_string();
    let listen_text = listen.to_string();
    let mut arguments = vec!["serve", "--listen", &listen_text, "--data", &data, "--role", role];
    let config = dir.join("postrider.toml");
    let config_text = config.display().to_string();
    if config.exists() {
        arguments.extend(["--config", &config_text]);
    }
    let environment = [
        ("POSTRIDER_ADMIN_KEY", KEY.to_owned()),
        ("POSTRIDER_NETWORK__ALLOW_PRIVATE_TARGETS", "true".to_owned()),
        ("POSTRIDER_NETWORK__ALLOW_PLAIN_HTTP", "true".to_owned()),
        ("POSTRIDER_NETWORK__EXTRA_CA_FILE", sandbox.ca_file.display().to_string()),
        ("POSTRIDER_LOG__LEVEL", "warn".to_owned()),
    ];
    let process = BenchProcess::spawn(&arguments, &environment, &dir.join("server.log"))?;
    await_ok(listen, "/readyz", &dir.join("server.log")).await?;
    Ok((process, listen))
}

async fn await_ok(address: SocketAddr, path: &str, log: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let client = load::client(address);
    while Instant::now() < deadline {
        if client.text("GET", path, "application/json", b"").await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = std::fs::read_to_string(log).unwrap_or_default();
    bail!("{path} on {address} did not answer within 20 s; its log:\n{log}")
}

pub(super) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
