//! A restart on one machine: while messages are handed in, a new process takes the place of the old one. No connection
//! is refused, every call is answered, and nothing is lost. A service manager hears of it.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use postrider_testkit::http::{call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture, await_ok};
use serde_json::json;

use super::BINARY;

/// Hears what a server tells its service manager.
struct FakeManager {
    socket: UnixDatagram,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl FakeManager {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { socket, path, _folder: folder })
    }

    fn hear(&self) -> Result<String> {
        let mut bytes = [0; 512];
        let read = self.socket.recv(&mut bytes).context("nothing was told")?;
        Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }

    fn hear_until(&self, word: &str) -> Result<String> {
        loop {
            let said = self.hear()?;
            if said.starts_with(word) {
                return Ok(said);
            }
        }
    }

    /// Waits for the next server that is ready; answers its process.
    fn await_ready(&self) -> Result<u32> {
        let said = self.hear_until("READY=1")?;
        let pid = said.lines().find_map(|line| line.strip_prefix("MAINPID="));
        Ok(pid.context("its process")?.parse()?)
    }
}

/// A process that is not a child of the test, and ends with it.
struct SuccessorProcess(u32);

impl Drop for SuccessorProcess {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0.to_string()]).status();
    }
}

fn message(n: usize) -> String {
    let url = "http://127.0.0.1:9/nobody";
    json!({
        "to": {"address": {"channel": "webhook", "url": url}}, "content": {"title": "Shipped"},
        "idempotency_key": format!("restart-{n}"),
    })
    .to_string()
}

/// Hands messages in, each over a connection of its own, until it is told to stop. Any failure is an error.
fn hand_in(server: SocketAddr, thread: usize, stop: &AtomicBool) -> Result<usize> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = call(server, "POST", "/v1/messages", &message(thread * 1_000_000 + count));
        let answer = answer.with_context(|| format!("call {count} of thread {thread}"))?;
        ensure!(answer.status == 202, "{}: {}", answer.status, answer.body);
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_new_process_takes_over_without_a_refused_connection() -> Result<()> {
    let manager = FakeManager::new()?;
    let mut fixture = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    fixture.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.clone()));
    fixture.start()?;
    let first = manager.await_ready()?;
    ensure!(Some(first) == fixture.pid(), "the manager knows the process");
    let stop = Arc::new(AtomicBool::new(false));
    let server = fixture.server_at;
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let stop = stop.clone();
            std::thread::spawn(move || hand_in(server, thread, &stop))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    fixture.signal("USR2")?;
    let told = manager.hear()?;
    ensure!(told.starts_with("MAINPID="), "the new process is the service's: {told}");
    ensure!(fixture.await_end()?.success(), "the old process ends in order");
    let told = manager.hear()?;
    let pid = told.lines().find_map(|line| line.strip_prefix("MAINPID="));
    let second = SuccessorProcess(pid.context("its process")?.parse()?);
    ensure!(told.starts_with("READY=1"), "the service never stops: {told}");
    println!("taken over in {} ms", begin.elapsed().as_millis());
    ensure!(second.0 != first, "another process");
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let mut accepted = 0;
    for thread in threads {
        let Ok(count) = thread.join() else { bail!("a caller panicked") };
        accepted += count?;
    }
    let stats = get(server, "/v1/stats")?.json()?;
    let states = stats["states"].as_object().context("states")?;
    let kept: u64 = states.values().filter_map(serde_json::Value::as_u64).sum();
    println!("accepted {accepted}, kept {kept}");
    ensure!(kept == accepted as u64, "of {accepted} accepted messages {kept} are kept");
    Ok(())
}

#[test]
fn a_process_goes_on_if_the_new_one_cannot_use_its_configuration() -> Result<()> {
    let manager = FakeManager::new()?;
    let mut fixture = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    fixture.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.clone()));
    fixture.start()?;
    let first = manager.await_ready()?;
    fixture.write_config("[server]\nno_such_setting = 1\n")?;
    fixture.signal("USR2")?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fixture.server_log()?.contains("this one goes on") {
        ensure!(Instant::now() < deadline, "the log: {}", fixture.server_log()?);
        std::thread::sleep(Duration::from_millis(10));
    }
    ensure!(fixture.pid() == Some(first));
    await_ok(fixture.server_at, "/readyz")
}

#[test]
fn a_service_manager_hears_of_reloads_life_and_the_end() -> Result<()> {
    let manager = FakeManager::new()?;
    let mut fixture = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    fixture.environment.push(("NOTIFY_SOCKET".to_owned(), manager.path.clone()));
    fixture.environment.push(("WATCHDOG_USEC".to_owned(), "300000".into()));
    fixture.start()?;
    manager.await_ready()?;
    manager.hear_until("WATCHDOG=1")?;
    fixture.signal("HUP")?;
    let reloading = manager.hear_until("RELOADING=1")?;
    ensure!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.await_ready()?;
    fixture.signal("TERM")?;
    manager.hear_until("STOPPING=1")?;
    ensure!(fixture.await_end()?.success());
    Ok(())
}

/// A listening socket as standard input, as systemd gives it.
#[test]
fn a_given_socket_is_listened_on_and_keeps_what_waits_across_a_restart() -> Result<()> {
    let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (address, folder) = (socket.local_addr()?, tempfile::tempdir()?);
    let data = folder.path().join("data");
    let start = || -> Result<std::process::Child> {
        let own = std::os::fd::OwnedFd::from(socket.try_clone()?);
        let mut command = Command::new(BINARY);
        command.args(["serve", "--data"]).arg(&data).current_dir(folder.path());
        command.env("POSTRIDER_ADMIN_KEY", postrider_testkit::ADMIN_KEY).stdin(own);
        Ok(command.stdout(std::process::Stdio::null()).spawn()?)
    };
    let mut server = start()?;
    await_ok(address, "/readyz")?;
    Command::new("kill").args(["-TERM", &server.id().to_string()]).status()?;
    server.wait()?;
    // Nobody accepts now; the connection waits.
    let waiting = std::thread::spawn(move || get(address, "/healthz"));
    std::thread::sleep(Duration::from_millis(100));
    let mut server = start()?;
    let Ok(answer) = waiting.join() else { bail!("the caller panicked") };
    let status = answer?.status;
    Command::new("kill").args(["-TERM", &server.id().to_string()]).status()?;
    server.wait()?;
    ensure!(status == 200, "status {status}");
    Ok(())
}
