//! The order that `kill -9` cannot show, because the page cache survives it: the fsync of a message ends before its
//! 202 is written.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::http::call;
use postrider_testkit::process::{await_ok, free_port};

struct TracedServer(Child);

impl Drop for TracedServer {
    fn drop(&mut self) {
        // strace blocks signals to itself and ends with what it traces.
        let pid = self.0.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let _ = Command::new("kill").arg("-TERM").args(children.split_whitespace()).status();
        let _ = self.0.wait();
    }
}

fn serve_under_strace(dir: &Path, at: SocketAddr) -> TracedServer {
    let child = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-s",
            "64",
            "-e",
            "trace=fdatasync,fsync,pwrite64,write,writev,sendto,sendmsg",
            "-o",
        ])
        .arg(dir.join("trace"))
        .arg(env!("CARGO_BIN_EXE_postrider"))
        .args(["serve", "--listen", &at.to_string(), "--role", "api", "--data"])
        .arg(dir.join("data"))
        .env("POSTRIDER_ADMIN_KEY", ADMIN_KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace must be installed: `cargo xtask test` does that");
    TracedServer(child)
}

/// What the trace says, in order, about the write-ahead log and the answer.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Step {
    LogWritten,
    LogSynced,
    Answered202,
}

fn steps(trace: &str) -> Vec<Step> {
    let mut syncing: Vec<&str> = Vec::new();
    let mut steps = Vec::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let is_sync = call.starts_with("fdatasync(") || call.starts_with("fsync(");
        if call.contains("HTTP/1.1 202") {
            steps.push(Step::Answered202);
        } else if call.starts_with("pwrite64(") && call.contains("-wal>") {
            steps.push(Step::LogWritten);
        } else if is_sync && call.contains("-wal>") && call.contains("unfinished") {
            syncing.push(pid);
        } else if is_sync && call.contains("-wal>") && call.ends_with("= 0") {
            steps.push(Step::LogSynced);
        } else if call.contains("sync resumed>") && call.ends_with("= 0") && syncing.contains(&pid)
        {
            syncing.retain(|p| *p != pid);
            steps.push(Step::LogSynced);
        }
    }
    steps
}

/// Starts a server in a new folder, sends so many messages, and returns the folder and the trace.
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
fn trace_of(messages: usize) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = free_port().unwrap();
    let server = serve_under_strace(dir.path(), at);
    await_ok(at, "/readyz").unwrap();
    let message = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;
    for _ in 0..messages {
        let answer = call(at, "POST", "/v1/messages", message).unwrap();
        assert_eq!(answer.status, 202, "{}", answer.body);
    }
    drop(server);
    let trace = std::fs::read_to_string(dir.path().join("trace")).unwrap();
    (dir, trace)
}

#[test]
fn a_new_folder_is_synced_with_the_one_above_it_before_the_first_202() {
    let (dir, trace) = trace_of(1);
    let before = trace.split("HTTP/1.1 202").next().unwrap();
    for folder in [dir.path().to_owned(), dir.path().join("data")] {
        let synced = format!("<{}>", folder.display());
        let is_sync = |line: &&str| line.contains("fsync(") && line.contains(&synced);
        assert!(before.lines().any(|line| is_sync(&line)), "{synced} is not synced");
    }
}

#[test]
fn the_202_is_written_only_after_the_disk_has_confirmed() {
    let answers = 3;
    let steps = steps(&trace_of(answers).1);
    let mut rest = steps.as_slice();
    for n in 1..=answers {
        let at = rest.iter().position(|s| *s == Step::Answered202).expect("an answer in the trace");
        let before = &rest[..at];
        let written = before
            .iter()
            .rposition(|s| *s == Step::LogWritten)
            .expect("the log is written before the answer");
        assert!(
            before[written..].contains(&Step::LogSynced),
            "answer {n} came before its sync: {before:?}"
        );
        rest = &rest[at + 1..];
    }
}
