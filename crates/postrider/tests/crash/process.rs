//! The real binary as a child that does not outlive its test.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::http::get;

pub(crate) const KEY: &str = "crash-test-admin-key-0123456789";

pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(arguments: &[&str], settings: &[(&str, &str)], log: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(arguments)
            .envs(settings.iter().copied())
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// SIGKILL: no goodbye of any kind.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A sandbox in a process of its own, on ports that nobody else has; answers at its plain socket.
pub(crate) fn start_sandbox(folder: &Path) -> (Process, SocketAddr) {
    let at = free_port();
    let (http, any) = (at.to_string(), "127.0.0.1:0");
    let mut arguments = vec!["sandbox", "--listen-http", &http];
    arguments.extend(["--listen", any, "--listen-smtp", any, "--listen-smtps", any]);
    let sandbox = Process::start(&arguments, &[], &folder.join("sandbox.log"));
    await_ok(at, "/sandbox/received");
    (sandbox, at)
}

pub(crate) fn await_ok(at: SocketAddr, path: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !get(at, path, KEY).is_ok_and(|answer| answer.status == 200) {
        assert!(Instant::now() < deadline, "{path} on {at} did not answer within a minute");
        std::thread::yield_now();
    }
}

pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
