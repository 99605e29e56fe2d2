//! A program that replicates the journal, as Litestream does: it has tables of its own in the database, holds a read
//! transaction, copies what is new, and now and then writes a row and checkpoints.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::process::ProcessFixture;
use rusqlite::Connection;

use super::BINARY;
use super::fixture::*;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER); \
                      CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)";

/// Copies the database and its journal again and again until it is told to stop. Returns how often.
fn replicate(database: &Path, to: &Path, stop: &AtomicBool) -> Result<u32> {
    let (reader, writer) = (Connection::open(database)?, Connection::open(database)?);
    for conn in [&reader, &writer] {
        conn.busy_timeout(Duration::from_secs(1))?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    }
    insist(|| writer.execute_batch(TABLES))?;
    std::fs::create_dir_all(to)?;
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        reader.execute_batch("BEGIN; SELECT count(*) FROM _litestream_seq")?;
        std::thread::sleep(Duration::from_millis(200));
        // Nobody writes while this lock is held, so the copies belong together.
        insist(|| writer.execute_batch("BEGIN IMMEDIATE"))?;
        writer.execute_batch("INSERT INTO _litestream_lock VALUES (1)")?;
        let copied = copy(database, to);
        writer.execute_batch("ROLLBACK")?;
        copied?;
        reader.execute_batch("ROLLBACK")?;
        writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        let next = "INSERT INTO _litestream_seq (id, seq) VALUES (1, 1) \
                    ON CONFLICT (id) DO UPDATE SET seq = seq + 1";
        insist(|| writer.execute_batch(next))?;
        rounds += 1;
    }
    Ok(rounds)
}

/// Tries again if the server writes all the time.
fn insist(mut act: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let is_busy = |error: &rusqlite::Error| {
        error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
    };
    let mut done = act();
    while done.as_ref().is_err_and(is_busy) {
        done = act();
    }
    done
}

fn copy(database: &Path, to: &Path) -> Result<()> {
    let journal = database.with_file_name("postrider.db-wal");
    for file in [database, &journal] {
        std::fs::copy(file, to.join(file.file_name().context("a name")?))?;
    }
    Ok(())
}

#[test]
fn a_program_that_replicates_the_journal_does_no_harm_and_its_copy_can_be_restored() -> Result<()> {
    let mut fixture = ProcessFixture::started(BINARY, "[server]\nrole = \"api\"\n")?;
    let (database, replica) = (fixture.path("data/postrider.db"), fixture.path("replica"));
    let (server, stop) = (fixture.server_at, AtomicBool::new(false));
    let (rounds, accepted) = std::thread::scope(|scope| -> Result<_> {
        let replicator = scope.spawn(|| replicate(&database, &replica, &stop));
        let accepted = accept(server, "https://hooks.example/a", 5, 200);
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        Ok((replicator.join().expect("the replicator")?, accepted?))
    })?;
    let mut took: Vec<_> = accepted.iter().map(|accepted| accepted.took).collect();
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    println!("{} accepts beside {rounds} rounds of a replicator: p99 {p99:?}", took.len());
    ensure!(accepted.len() >= 900 && p99 < Duration::from_secs(1), "p99 {p99:?}");
    let there = all_deliveries(server)?;
    ensure!(accepted.iter().all(|accepted| there.contains(&accepted.delivery)));
    fixture.signal("TERM")?;
    fixture.await_end()?;
    let checked = postrider(&["fsck", "--data", &shown(&fixture.path("data"))])?;
    ensure!(checked.status.success(), "{checked:?}");

    let (from, to) = (shown(&replica), shown(&fixture.path("restored")));
    let restored = postrider_json(&["restore", &from, "--data", &to, "--json"])?;
    ensure!(restored["held"] == accepted.len(), "{restored}");
    Ok(())
}
