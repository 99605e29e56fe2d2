//! The binary as processes: a server and its sandboxes, in their own folder. All end with the fixture.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::ADMIN_KEY;
use crate::http::get;

/// Lets a server reach receivers on this machine.
pub const LOCAL_TARGETS: &str =
    "[network]\nallow_private_targets = true\nallow_plain_http = true\n";

/// A process of the binary that does not outlive its test.
pub struct BinaryProcess(pub Child);

impl BinaryProcess {
    pub fn start(binary: &Path, arguments: &[&str], log: &Path) -> Result<Self> {
        Self::start_with(binary, arguments, log, &[])
    }

    fn start_with(
        binary: &Path,
        arguments: &[&str],
        log: &Path,
        environment: &[(String, PathBuf)],
    ) -> Result<Self> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let child = Command::new(binary)
            .args(arguments)
            .env("POSTRIDER_ADMIN_KEY", ADMIN_KEY)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self(child))
    }
}

impl Drop for BinaryProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and sandboxes as processes.
pub struct ProcessFixture {
    binary: PathBuf,
    pub server_at: SocketAddr,
    /// Variables of the server's environment.
    pub environment: Vec<(String, PathBuf)>,
    server: Option<BinaryProcess>,
    sandboxes: Vec<BinaryProcess>,
    // Last, so that the processes end before their folder goes.
    folder: tempfile::TempDir,
}

impl ProcessFixture {
    /// A server that is not started yet; `config` is its `postrider.toml`.
    pub fn new(binary: impl Into<PathBuf>, config: &str) -> Result<Self> {
        Self::in_folder(binary, tempfile::tempdir()?, config)
    }

    pub fn in_folder(
        binary: impl Into<PathBuf>,
        folder: tempfile::TempDir,
        config: &str,
    ) -> Result<Self> {
        let (binary, server_at) = (binary.into(), free_port()?);
        let (environment, sandboxes) = (Vec::new(), Vec::new());
        let fixture = Self { binary, server_at, environment, server: None, sandboxes, folder };
        fixture.write_config(config)?;
        Ok(fixture)
    }

    /// A server that runs.
    pub fn started(binary: impl Into<PathBuf>, config: &str) -> Result<Self> {
        let mut fixture = Self::new(binary, config)?;
        fixture.start()?;
        Ok(fixture)
    }

    pub fn write_config(&self, config: &str) -> Result<()> {
        Ok(std::fs::write(self.path("postrider.toml"), config)?)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn server_log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.path("server.log"))?)
    }

    /// Starts the server and waits until it answers.
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        await_ok(self.server_at, "/readyz")
    }

    /// Starts the server.
    pub fn spawn(&mut self) -> Result<()> {
        let shown = |name: &str| self.path(name).display().to_string();
        let (listen, data, config) =
            (self.server_at.to_string(), shown("data"), shown("postrider.toml"));
        let arguments = ["serve", "--listen", &listen, "--data", &data, "--config", &config];
        let log = self.path("server.log");
        let server = BinaryProcess::start_with(&self.binary, &arguments, &log, &self.environment)?;
        self.server = Some(server);
        Ok(())
    }

    /// The number of the server's process.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.0.id())
    }

    /// Ends the server with SIGKILL.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Ends all sandboxes with SIGKILL.
    pub fn kill_sandboxes(&mut self) {
        self.sandboxes.clear();
    }

    /// Waits until the server ends by itself.
    pub fn await_end(&mut self) -> Result<ExitStatus> {
        let server = self.server.as_mut().context("the server does not run")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = server.0.try_wait()? {
                self.server = None;
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "the server did not end within half a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal such as `HUP` to the server.
    pub fn signal(&self, name: &str) -> Result<()> {
        let server = self.server.as_ref().context("the server does not run")?;
        let pid = server.0.id().to_string();
        ensure!(Command::new("kill").args([&format!("-{name}"), &pid]).status()?.success());
        Ok(())
    }

    /// Starts a sandbox on ports that nobody else has; returns the address of its plain HTTP socket.
    pub fn start_sandbox(&mut self, options: &[&str]) -> Result<SocketAddr> {
        let (binary, any) = (self.binary.clone(), "127.0.0.1:0");
        let ready = self.start_sandbox_of(&binary, any, options)?;
        let origin = ready["http"].as_str().context("the sandbox says where it listens")?;
        Ok(origin.trim_start_matches("http://").parse()?)
    }

    /// Starts a sandbox of another binary, with all its sockets at `listen`; returns what it prints when it is ready.
    pub fn start_sandbox_of(
        &mut self,
        binary: &Path,
        listen: &str,
        options: &[&str],
    ) -> Result<Value> {
        let mut arguments =
            vec!["sandbox", "--json", "--inbox", "0", "--listen", listen, "--listen-http", listen];
        arguments.extend(["--listen-smtp", listen, "--listen-smtps", listen, "--allow-remote"]);
        arguments.extend(options);
        let log = self.path(&format!("sandbox-{}.log", self.sandboxes.len()));
        self.sandboxes.push(BinaryProcess::start(binary, &arguments, &log)?);
        await_ready_line(&log)
    }
}

/// The line of JSON that a sandbox prints when it is ready.
fn await_ready_line(log: &Path) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let ready = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(ready) = ready.filter(|ready| ready["ready"] == true) {
            return Ok(ready);
        }
        ensure!(Instant::now() < deadline, "the sandbox was not ready within a minute: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a GET is answered with 200.
pub fn await_ok(address: SocketAddr, path: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !get(address, path).is_ok_and(|answer| answer.status == 200) {
        ensure!(Instant::now() < deadline, "{path} on {address} did not answer within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
