//! Another program reads the data file, such as `sqlite3`, Datasette or Litestream: nobody waits for it.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::ports::store::Ledger;
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, message};
use postrider_store::{StoreOptions, SystemClock};

/// The journal is checkpointed when nothing was written for five seconds.
const LONGER_THAN_IDLE: Duration = Duration::from_millis(6_500);

fn open(dir: &Path, options: StoreOptions) -> WorkingStore {
    WorkingStore::open(dir, Arc::new(SystemClock), options).unwrap()
}

/// A read transaction of another connection. It ends when this is dropped.
fn foreign_reader(dir: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(dir.join("postrider.db")).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    let _: i64 = conn.query_row("SELECT count(*) FROM message", [], |row| row.get(0)).unwrap();
    conn
}

#[tokio::test]
async fn no_accept_waits_for_a_foreign_reader() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions::default());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let reader = foreign_reader(dir.path());
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < LONGER_THAN_IDLE {
        let asked = Instant::now();
        store.accept(vec![message("acme", 1)]).await.unwrap();
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "an accept took {slowest:?}");
    drop(reader);
}

#[tokio::test]
async fn a_journal_that_a_foreign_reader_holds_is_reported_and_shrinks_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    // A journal of more than 4.5 MiB is long then.
    let options = StoreOptions { reserve_bytes: 4 << 20, ..StoreOptions::default() };
    let store = open(dir.path(), options);
    store.accept(vec![message("acme", 1)]).await.unwrap();
    assert!(store.check_health().problems.is_empty());
    let reader = foreign_reader(dir.path());
    let problem = loop {
        store.accept(vec![batch("acme", &[1; 500])]).await.unwrap();
        if let Some(problem) = store.check_health().problems.pop() {
            break problem;
        }
        assert!(store.check_health().journal_bytes < 1 << 30, "it is never reported");
    };
    assert_eq!(problem.code, "journal_blocked");
    assert!(problem.what.contains("holds a read transaction"), "{}", problem.what);
    assert!(store.check_health().journal_bytes > 4 << 20);
    drop(reader);
    let shrunk = async {
        while !store.check_health().problems.is_empty()
            || store.check_health().journal_bytes > 4 << 20
        {
            store.accept(vec![batch("acme", &[1; 5])]).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), shrunk).await.expect("it ends by itself");
}

#[tokio::test]
async fn a_foreign_reader_does_not_delay_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions::default());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let reader = foreign_reader(dir.path());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let asked = Instant::now();
    store.close().await;
    assert!(asked.elapsed() < Duration::from_secs(5), "the end took {:?}", asked.elapsed());
    drop(reader);
    let store = open(dir.path(), StoreOptions::default());
    assert_eq!(store.counts(None).await.unwrap().messages, 2);
}

#[tokio::test]
async fn a_journal_that_a_foreign_reader_holds_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { journal_bytes_max: 16 << 20, ..StoreOptions::default() };
    let store = open(dir.path(), options);
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let reader = foreign_reader(dir.path());
    let refusal = loop {
        if let Err(refusal) = store.accept(vec![batch("acme", &[1; 200])]).await {
            break refusal;
        }
        assert!(store.check_health().journal_bytes < 64 << 20, "new work is never refused");
    };
    assert!(refusal.to_string().contains("end that program"), "{refusal}");
    let lanes = store.ready_lanes(10).await.unwrap();
    let leased = store.lease(lanes[0].id, 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(leased.len(), 10, "what was accepted goes on");
    drop(reader);
    let taken = async {
        while store.accept(vec![message("acme", 1)]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.expect("it ends by itself");
}
