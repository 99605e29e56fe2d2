//! Nodes over stores that cannot work, and what they answer.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestAnswer, call, get};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// What `serve` says when it cannot start. It ends by itself and soon.
pub(crate) fn refused_start(url: &str, password: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", url]).env("PGPASSWORD", password);
    command.env("REDISCLI_AUTH", password);
    command.env("POSTRIDER_ADMIN_KEY", postrider_testkit::ADMIN_KEY).current_dir(folder.path());
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.try_wait()?.is_none() {
        if Instant::now() > deadline {
            server.kill()?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let done = server.wait_with_output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(matches!(done.status.code(), Some(1 | 2)), "it ended with {}: {said}", done.status);
    ensure!(!said.contains("panicked"), "{said}");
    Ok(said)
}

/// One that accepts and sends nothing.
pub(crate) fn node_at(url: &str) -> Result<ProcessFixture> {
    let store = format!("[server]\nrole = \"api\"\n[store]\nurl = \"{url}\"\n");
    let mut node = ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}{store}"))?;
    let started = node.start();
    started.with_context(|| node.server_log().unwrap_or_default())?;
    Ok(node)
}

pub(crate) fn post(node: &ProcessFixture, key: usize, bytes: usize) -> Result<TestAnswer> {
    let body = noise(key, bytes);
    let message = format!(
        r#"{{"to":{{"address":{{"channel":"webhook","url":"http://127.0.0.1:9/hook"}}}},"content":{{"body":"{body}"}},"idempotency_key":"setup-{key}"}}"#
    );
    call(node.server_at, "POST", "/v1/messages", &message)
}

/// Letters that cannot be compressed much.
fn noise(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64;
    let mut letter = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEF"[(state >> 59) as usize])
    };
    (0..bytes).map(|_| letter()).collect()
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub(crate) fn pending(node: &ProcessFixture) -> Result<u64> {
    let stats = get(node.server_at, "/v1/stats")?.json()?;
    stats["states"]["queued"].as_u64().with_context(|| format!("no count in {stats}"))
}

/// A refusal that says when to come back.
pub(crate) fn ensure_put_off(answer: &TestAnswer) -> Result<()> {
    ensure!(answer.status == 503, "{}: {}", answer.status, answer.body);
    ensure!(answer.retry_after_s.is_some(), "no Retry-After: {}", answer.body);
    let problem: Value = serde_json::from_str(&answer.body)?;
    ensure!(problem["detail"].is_string(), "{problem}");
    Ok(())
}

/// A small file system in memory. Needs root.
pub(crate) struct SmallDisk {
    pub(crate) folder: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn mount(size: &str) -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=755"), "tmpfs"]);
        let mounted = mount.arg(folder.path()).stderr(Stdio::null()).status();
        Ok(mounted.is_ok_and(|status| status.success()).then_some(Self { folder }))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}
