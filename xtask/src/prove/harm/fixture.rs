//! One server, or several over one store, and one fake provider as processes. The provider listens on all addresses of
//! this machine, so that every 127.a.b.c is an origin of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture, await_ok, free_port};
use serde_json::Value;

use super::options::{HarmProofOptions, target};

const FIRST_ORIGIN: u32 = 0x7f01_0001;

/// The ports of the fake provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProviderPorts {
    pub(super) http: u16,
    pub(super) https: u16,
    pub(super) smtp: u16,
    /// Nobody listens here.
    pub(super) closed: u16,
}

pub(super) struct HarmFixture {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) ports: ProviderPorts,
    /// When sending begins, in milliseconds since 1970.
    pub(super) begin_ms: u64,
    // Ends the processes when it is dropped: the provider and the first server, then the other servers.
    processes: ProcessFixture,
    _others: Vec<ProcessFixture>,
}

impl HarmFixture {
    /// `faults` is the provider's profile; `config` adds to the server's configuration.
    pub(super) fn start(
        options: &HarmProofOptions,
        faults: &str,
        config: impl Fn(ProviderPorts) -> String,
    ) -> Result<Self> {
        Self::start_on(options, None, faults, config)
    }

    /// The same with servers that share a store.
    pub(super) fn start_on(
        options: &HarmProofOptions,
        store: Option<&str>,
        faults: &str,
        config: impl Fn(ProviderPorts) -> String,
    ) -> Result<Self> {
        let mut processes = server_process(options)?;
        let shown = |name: &str| processes.path(name).display().to_string();
        let (faults_file, ca_file) = (shown("faults.toml"), shown("ca.pem"));
        std::fs::write(&faults_file, faults)?;
        let provider = ["--faults", &faults_file, "--ca-out", &ca_file];
        let ready =
            processes.start_sandbox_of(&HarmProofOptions::sandbox(), "0.0.0.0:0", &provider)?;
        let begin_ms = now_ms() + options.lead_ms();
        let ports = ProviderPorts {
            http: port_of(&ready["http"])?,
            https: port_of(&ready["https"])?,
            smtp: port_of(&ready["smtp"])?,
            closed: free_port()?.port(),
        };
        let mut others = Vec::new();
        for _ in 1..options.nodes() {
            others.push(server_process(options)?);
        }
        let shared = format!(
            "{LOCAL_TARGETS}extra_ca_file = \"{ca_file}\"\n[log]\nlevel = \"warn\"\n{}",
            config(ports)
        );
        for (n, server) in std::iter::once(&mut processes).chain(&mut others).enumerate() {
            let own = store.map_or(String::new(), |url| {
                format!("[server]\nnode = \"node-{n}\"\n[store]\nurl = \"{url}\"\n")
            });
            server.write_config(&format!("{shared}{own}"))?;
            server.spawn()?;
        }
        let servers: Vec<_> =
            std::iter::once(&processes).chain(&others).map(|server| server.server_at).collect();
        servers.iter().try_for_each(|server| await_ok(*server, "/readyz"))?;
        ensure!(now_ms() < begin_ms, "the server was not ready in time; the machine is busy");
        Ok(Self { servers, ports, begin_ms, processes, _others: others })
    }

    /// The first server.
    pub(super) fn server(&self) -> SocketAddr {
        self.processes.server_at
    }

    /// The server's memory, in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
        let pid = self.processes.pid().context("the server does not run")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("no VmRSS in the status of the server")? * 1024)
    }

    /// Where the provider tells what it received.
    pub(super) fn provider(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.http).into()
    }
}

/// The address of the n-th origin.
pub(super) fn origin_address(origin: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ORIGIN + origin)
}

/// A server that is not started yet, in a folder of its own.
fn server_process(options: &HarmProofOptions) -> Result<ProcessFixture> {
    let proofs = target().join("proofs");
    std::fs::create_dir_all(&proofs)?;
    let folder = tempfile::Builder::new().prefix("harm").tempdir_in(proofs)?;
    let server = server_binary(options, folder.path())?;
    ProcessFixture::in_folder(server, folder, "")
}

/// The binary, or a script that starts it with a limit of open files.
fn server_binary(options: &HarmProofOptions, folder: &Path) -> Result<PathBuf> {
    let binary = options.server();
    let Some(files) = options.files else { return Ok(binary) };
    let script = folder.join("server.sh");
    let text = format!("#!/bin/sh\nulimit -n {files}\nexec {} \"$@\"\n", binary.display());
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    Ok(script)
}

fn port_of(origin: &Value) -> Result<u16> {
    let port = origin.as_str().and_then(|origin| origin.rsplit(':').next()?.parse().ok());
    port.with_context(|| format!("no port in {origin}"))
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Sleeps until a time in milliseconds since 1970.
pub(super) fn sleep_until(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms.saturating_sub(now_ms())));
}
