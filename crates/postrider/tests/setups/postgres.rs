//! PostgreSQL that cannot work.

use anyhow::Result;
use postrider_testkit::http::get;
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::process::ProcessFixture;
use postrider_testkit::rewriting_proxy::RewritingProxy;

use crate::fixture::{SmallDisk, ensure_put_off, node_at, pending, post, refused_start, until};

fn node(postgres: &PostgresServer, schema: &str) -> Result<ProcessFixture> {
    node_at(&postgres.url(&format!("schema={schema}")))
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
        assert!(key < 2_000, "the disk does not become full");
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
