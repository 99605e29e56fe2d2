//! Stores in PostgreSQL that cannot work, tested on the real binary: at the start a clear error, later 503 with
//! Retry-After. The process never ends by itself later, and nothing that was acknowledged is lost.

#![cfg(feature = "postgres")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestAnswer, call, get};
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use postrider_testkit::rewriting_proxy::RewritingProxy;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// What `serve` says when it cannot start. It ends by itself and soon.
fn refused_start(url: &str, password: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", url]).env("PGPASSWORD", password);
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

fn node(postgres: &PostgresServer, schema: &str) -> Result<ProcessFixture> {
    node_at(&postgres.url(&format!("schema={schema}")))
}

/// One that accepts and sends nothing.
fn node_at(url: &str) -> Result<ProcessFixture> {
    let store = format!("[server]\nrole = \"api\"\n[store]\nurl = \"{url}\"\n");
    let mut node = ProcessFixture::new(BINARY, &format!("{LOCAL_TARGETS}{store}"))?;
    let started = node.start();
    started.with_context(|| node.server_log().unwrap_or_default())?;
    Ok(node)
}

fn post(node: &ProcessFixture, key: usize, bytes: usize) -> Result<TestAnswer> {
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

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn pending(node: &ProcessFixture) -> Result<u64> {
    let stats = get(node.server_at, "/v1/stats")?.json()?;
    stats["states"]["queued"].as_u64().with_context(|| format!("no count in {stats}"))
}

/// A refusal that says when to come back.
fn ensure_put_off(answer: &TestAnswer) -> Result<()> {
    ensure!(answer.status == 503, "{}: {}", answer.status, answer.body);
    ensure!(answer.retry_after_s.is_some(), "no Retry-After: {}", answer.body);
    let problem: Value = serde_json::from_str(&answer.body)?;
    ensure!(problem["detail"].is_string(), "{problem}");
    Ok(())
}

#[test]
fn a_wrong_url_is_refused_at_the_start() -> Result<()> {
    let said = refused_start("postgres://postrider@127.0.0.1:1/postrider", "")?;
    assert!(said.contains("cannot connect to 127.0.0.1:1/postrider"), "{said}");
    let said = refused_start("postgres://postrider@nowhere.invalid/postrider", "")?;
    assert!(said.contains("nowhere.invalid"), "{said}");
    let said = refused_start("postgras://postrider@127.0.0.1/postrider", "")?;
    assert!(said.contains("store.url") && said.contains("postgras"), "{said}");
    let postgres = PostgresServer::start()?;
    let missing = postgres.url("").replace("/postgres?", "/nothing?");
    let said = refused_start(&missing, "")?;
    assert!(said.contains("create the database first"), "{said}");
    Ok(())
}

#[test]
fn a_wrong_password_is_refused_at_the_start_and_not_repeated() -> Result<()> {
    let postgres = PostgresServer::start()?;
    postgres.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")?;
    let said = refused_start(&postgres.url("").replace("postgres@", "guarded@"), "a-wrong-one")?;
    assert!(said.contains("password") && said.contains("pg_hba.conf"), "{said}");
    assert!(!said.contains("a-wrong-one"), "{said}");
    Ok(())
}

#[test]
fn an_old_server_is_refused_at_the_start() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let old = RewritingProxy::start(
        ([127, 0, 0, 1], postgres.port).into(),
        &[
            ("current_setting('server_version_num')::integer", "140009"),
            ("current_setting('server_version')", "'14.9'"),
        ],
    )?;
    let url = postgres.url("").replace(&postgres.port.to_string(), &old.address.port().to_string());
    let said = refused_start(&url, "")?;
    assert!(said.contains("PostgreSQL 14.9 is too old: version 15 or newer is needed"), "{said}");
    Ok(())
}

#[test]
fn a_read_only_replica_is_refused_at_the_start() -> Result<()> {
    let primary = PostgresServer::start()?;
    let replica = primary.start_replica()?;
    let said = refused_start(&replica.url(""), "")?;
    assert!(said.contains("is a replica: the store needs the primary"), "{said}");
    Ok(())
}

#[test]
fn missing_permissions_are_refused_at_the_start() -> Result<()> {
    let postgres = PostgresServer::start()?;
    postgres.sql("CREATE ROLE guest LOGIN")?;
    let url = postgres.url("schema=denied").replace("postgres@", "guest@");
    let said = refused_start(&url, "")?;
    assert!(said.contains("permission denied") && said.contains("grant the user CREATE"), "{said}");
    Ok(())
}

#[test]
fn a_server_that_becomes_read_only_puts_work_off_and_goes_on_later() -> Result<()> {
    let postgres = PostgresServer::start()?;
    let node = node(&postgres, "turned")?;
    assert_eq!(post(&node, 1, 10)?.status, 202);
    let set = |value: &str| {
        postgres.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))?;
        postgres.sql("SELECT pg_reload_conf()")
    };
    set("on")?;
    until("work is put off", || Ok(post(&node, 2, 10)?.status == 503))?;
    ensure_put_off(&post(&node, 2, 10)?)?;
    set("off")?;
    until("work is accepted again", || Ok(post(&node, 2, 10)?.status == 202))?;
    assert_eq!(pending(&node)?, 2);
    Ok(())
}

#[test]
fn permissions_that_are_taken_away_put_work_off_and_it_goes_on_later() -> Result<()> {
    let postgres = PostgresServer::start()?;
    postgres.sql("CREATE ROLE tenant LOGIN")?;
    postgres.sql("GRANT CREATE ON DATABASE postgres TO tenant")?;
    let url = postgres.url("schema=taken").replace("postgres@", "tenant@");
    let node = node_at(&url)?;
    assert_eq!(post(&node, 1, 10)?.status, 202);
    postgres.sql("ALTER TABLE taken.queue OWNER TO postgres")?;
    ensure_put_off(&post(&node, 2, 10)?)?;
    postgres.sql("ALTER TABLE taken.queue OWNER TO tenant")?;
    until("work is accepted again", || Ok(post(&node, 2, 10)?.status == 202))?;
    assert_eq!(pending(&node)?, 2);
    Ok(())
}

/// A small file system in memory. Needs root.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Result<Option<Self>> {
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

#[test]
fn a_full_disk_of_the_database_puts_work_off_and_loses_nothing() -> Result<()> {
    let Some(disk) = SmallDisk::mount("180m")? else {
        eprintln!("NOT TESTED: a small disk cannot be mounted without root");
        return Ok(());
    };
    let ballast = disk.folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; 32 << 20])?;
    let folder = disk.folder.path().join("server");
    std::fs::create_dir(&folder)?;
    let postgres = PostgresServer::start_in(folder, None)?;
    postgres.sql("ALTER SYSTEM SET max_wal_size = '32MB'")?;
    postgres.sql("ALTER SYSTEM SET min_wal_size = '32MB'")?;
    postgres.restart()?;
    let node = node(&postgres, "crowded")?;
    let (mut accepted, mut key) = (0, 0);
    let refused = loop {
        key += 1;
        let answer = post(&node, key, 200_000)?;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        ensure!(key < 2_000, "the disk does not become full");
    };
    ensure_put_off(&refused)?;
    assert!(accepted > 10, "{accepted} were accepted");
    assert!(get(node.server_at, "/healthz")?.status == 200, "the process goes on");
    std::fs::remove_file(&ballast)?;
    // A server that could not write its journal has ended, and an operator starts it.
    if postgres.sql("SELECT 1").is_err() {
        let _ = postgres.start_again();
    }
    until("work is accepted again", || Ok(post(&node, key, 200_000)?.status == 202))?;
    assert_eq!(pending(&node)?, accepted + 1, "nothing is lost, and the refused one is there once");
    Ok(())
}
