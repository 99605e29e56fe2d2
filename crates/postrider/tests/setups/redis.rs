//! Redis that cannot work.

use anyhow::{Context as _, Result};
use postrider_testkit::http::get;
use postrider_testkit::process::ProcessFixture;
use postrider_testkit::redis::RedisServer;
use postrider_testkit::rewriting_proxy::RewritingProxy;

use crate::fixture::{SmallDisk, ensure_put_off, node_at, pending, post, refused_start, until};

fn node(redis: &RedisServer, prefix: &str) -> Result<ProcessFixture> {
    node_at(&redis.url(&format!("prefix={prefix}")))
}

#[test]
fn a_wrong_url_is_refused_at_the_start() -> Result<()> {
    let said = refused_start("redis://127.0.0.1:1/0", "")?;
    assert!(said.contains("cannot connect to 127.0.0.1:1/0"), "{said}");
    let said = refused_start("redis://nowhere.invalid:6379/0", "")?;
    assert!(said.contains("nowhere.invalid"), "{said}");
    let said = refused_start("rediss://127.0.0.1:1/0?tls_ca=/nowhere.pem", "")?;
    assert!(said.contains("tls_ca") && said.contains("/nowhere.pem"), "{said}");
    let said = refused_start("redis://127.0.0.1:1/0?prefixx=a", "")?;
    assert!(said.contains("prefixx"), "{said}");
    let alone = RedisServer::start()?;
    let said = refused_start(&format!("redis+cluster://127.0.0.1:{}", alone.port), "")?;
    assert!(said.contains("cannot connect") || said.contains("cluster"), "{said}");
    Ok(())
}

#[test]
fn a_wrong_password_is_refused_at_the_start_and_not_repeated() -> Result<()> {
    let redis = RedisServer::start()?;
    redis.run(&["ACL", "SETUSER", "guarded", "on", ">right", "~*", "+@all"])?;
    let url = redis.url("").replace("redis://", "redis://guarded@");
    let said = refused_start(&url, "a-wrong-one")?;
    let is_clear = said.contains("authentication failed") && said.contains("store.password");
    assert!(is_clear, "{said}");
    assert!(!said.contains("a-wrong-one"), "{said}");
    Ok(())
}

#[test]
fn an_old_server_is_refused_at_the_start() -> Result<()> {
    let redis = RedisServer::start()?;
    let info = redis.run(&["INFO", "server"])?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let version = format!("redis_version:{}", version.context("no version")?.trim());
    let old = RewritingProxy::start_for_answers(
        ([127, 0, 0, 1], redis.port).into(),
        &[(&version, "redis_version:6.2.9")],
    )?;
    let said = refused_start(&format!("redis://127.0.0.1:{}/0", old.address.port()), "")?;
    assert!(said.contains("6.2.9") && said.contains("7"), "{said}");
    Ok(())
}

#[test]
fn a_server_that_evicts_or_forgets_is_refused_at_the_start_unless_that_is_accepted() -> Result<()> {
    let redis = RedisServer::start()?;
    let set = |name: &str, value: &str| redis.run(&["CONFIG", "SET", name, value]);
    for (name, bad, good, risk) in [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "eviction"),
        ("maxmemory", "0", "1gb", "no_maxmemory"),
        ("appendfsync", "everysec", "always", "everysec"),
        ("appendonly", "no", "yes", "no_persistence"),
    ] {
        set(name, bad)?;
        let said = refused_start(&redis.url("prefix=risky"), "")?;
        assert!(said.contains(&format!("risk={risk}")), "{name}: {said}");
        let forced = node_at(&redis.url(&format!("prefix=risky&risk={risk}")))?;
        let stats = get(forced.server_at, "/v1/stats")?.body;
        assert!(stats.contains(name) || stats.contains(&risk.replace('_', "")), "{stats}");
        set(name, good)?;
    }
    Ok(())
}

#[test]
fn a_read_only_replica_is_refused_at_the_start() -> Result<()> {
    let (master, replica) = (RedisServer::start()?, RedisServer::start()?);
    replica.run(&["REPLICAOF", "127.0.0.1", &master.port.to_string()])?;
    let said = refused_start(&replica.url("prefix=copy"), "")?;
    assert!(said.contains("read-only replica"), "{said}");
    Ok(())
}

#[test]
fn missing_permissions_are_refused_at_the_start() -> Result<()> {
    let redis = RedisServer::start()?;
    redis.run(&["ACL", "SETUSER", "guest", "on", "nopass", "~other:*", "+@all"])?;
    let url = redis.url("prefix=denied").replace("redis://", "redis://guest@");
    let said = refused_start(&url, "")?;
    assert!(said.contains("NOPERM") && said.contains("ACL SETUSER"), "{said}");
    Ok(())
}

#[test]
fn a_server_that_becomes_a_replica_puts_work_off_and_goes_on_later() -> Result<()> {
    let redis = RedisServer::start()?;
    let node = node(&redis, "turned")?;
    assert_eq!(post(&node, 1, 10)?.status, 202);
    // Nobody is there: it follows no one, and only refuses writes.
    redis.run(&["REPLICAOF", "127.0.0.1", "1"])?;
    until("work is put off", || Ok(post(&node, 2, 10)?.status == 503))?;
    ensure_put_off(&post(&node, 2, 10)?)?;
    redis.run(&["REPLICAOF", "NO", "ONE"])?;
    until("work is accepted again", || Ok(post(&node, 2, 10)?.status == 202))?;
    assert_eq!(pending(&node)?, 2);
    Ok(())
}

#[test]
fn permissions_that_are_taken_away_put_work_off_and_it_goes_on_later() -> Result<()> {
    let redis = RedisServer::start()?;
    let allow = |keys: &str| {
        let rule = ["ACL", "SETUSER", "tenant", "reset", "on", "nopass", keys, "&*", "+@all"];
        redis.run(&rule)
    };
    allow("~taken:*")?;
    let node = node_at(&redis.url("prefix=taken").replace("redis://", "redis://tenant@"))?;
    assert_eq!(post(&node, 1, 10)?.status, 202);
    allow("~other:*")?;
    until("work is put off", || Ok(post(&node, 2, 10)?.status == 503))?;
    ensure_put_off(&post(&node, 2, 10)?)?;
    allow("~taken:*")?;
    until("work is accepted again", || Ok(post(&node, 2, 10)?.status == 202))?;
    assert_eq!(pending(&node)?, 2);
    Ok(())
}

#[test]
fn a_server_without_memory_puts_work_off_and_loses_nothing() -> Result<()> {
    let redis = RedisServer::start()?;
    redis.run(&["CONFIG", "SET", "maxmemory", "24mb"])?;
    let node = node(&redis, "narrow")?;
    let (mut accepted, mut key) = (0, 0);
    let refused = loop {
        key += 1;
        let answer = post(&node, key, 200_000)?;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(key < 1_000, "the memory does not become full");
    };
    ensure_put_off(&refused)?;
    assert!(accepted > 10, "{accepted} were accepted");
    assert_eq!(get(node.server_at, "/healthz")?.status, 200, "the process goes on");
    redis.run(&["CONFIG", "SET", "maxmemory", "1gb"])?;
    until("work is accepted again", || Ok(post(&node, key, 200_000)?.status == 202))?;
    assert_eq!(pending(&node)?, accepted + 1, "nothing is lost, and the refused one is there once");
    Ok(())
}

#[test]
fn a_full_disk_of_the_server_puts_work_off_and_loses_nothing() -> Result<()> {
    let Some(disk) = SmallDisk::mount("48m")? else {
        eprintln!("NOT TESTED: a small disk cannot be mounted without root");
        return Ok(());
    };
    let ballast = disk.folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; 32 << 20])?;
    let redis = RedisServer::start_with(&format!("dir {}", disk.folder.path().display()))?;
    let node = node(&redis, "crowded")?;
    let (mut accepted, mut key) = (0, 0);
    let refused = loop {
        key += 1;
        let answer = post(&node, key, 200_000)?;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(key < 1_000, "the disk does not become full");
    };
    ensure_put_off(&refused)?;
    assert!(accepted > 10, "{accepted} were accepted");
    assert_eq!(get(node.server_at, "/healthz")?.status, 200, "the process goes on");
    std::fs::remove_file(&ballast)?;
    // With `appendfsync always`, a server that cannot write ends, and an operator starts it.
    if redis.run(&["PING"]).is_err() {
        redis.start_again()?;
    }
    until("work is accepted again", || Ok(post(&node, key, 200_000)?.status == 202))?;
    assert_eq!(pending(&node)?, accepted + 1, "nothing is lost, and the refused one is there once");
    Ok(())
}
