//! The size of the file follows what is retained.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{AddressLearning, Intake as _, Ledger, Retention, Settlement};
use postrider_core::{Clock, DeliveryId, Timestamp};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{message, success};
use postrider_store::{ManualClock, StoreOptions, fsck};

const LEASE: Duration = Duration::from_secs(60);
const BODY: usize = 900;

fn open(dir: &Path, clock: &Arc<ManualClock>) -> WorkingStore {
    WorkingStore::open(dir, clock.clone(), StoreOptions::default()).unwrap()
}

async fn accept(store: &WorkingStore, count: usize) {
    let content = format!(r#"{{"title":"{}"}}"#, "x".repeat(BODY));
    for _ in 0..count.div_ceil(100) {
        let new = (0..100).map(|_| {
            let mut new = message("acme", 1);
            new.content = content.as_str().into();
            new.ttl_s = 10 * 86_400;
            new
        });
        store.accept(new.collect()).await.unwrap();
    }
}

async fn deliver(store: &WorkingStore, clock: &ManualClock, count: usize) -> Vec<DeliveryId> {
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let mut done = Vec::new();
    while done.len() < count {
        let leased = store.lease(lane, 100.min(count - done.len()), LEASE).await.unwrap();
        let settlement = |l: &postrider_core::ports::store::LeasedDelivery| Settlement {
            delivery: l.delivery,
            token: l.token,
            attempts: vec![success(1, clock.now())],
            decision: Decision::Done,
            learned: AddressLearning::default(),
        };
        store.settle(leased.iter().map(settlement).collect()).await.unwrap();
        done.extend(leased.iter().map(|leased| leased.delivery));
    }
    done
}

/// Bytes of the pages of a table in use, and of what is in them.
fn pages(dir: &Path, table: &str) -> (i64, i64) {
    let conn = rusqlite::Connection::open(dir.join("postrider.db")).unwrap();
    let select = "SELECT sum(pgsize), sum(payload) FROM dbstat WHERE name = ?1";
    conn.query_row(select, [table], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// Gives the writer occasion for its chores.
async fn let_it_work(store: &WorkingStore, clock: &ManualClock) {
    for _ in 0..3 {
        clock.advance(Duration::from_secs(600));
        store.prune(&Retention::of(Duration::from_secs(86_400 * 30))).await.unwrap();
    }
    // The writer answers the next request only when it has done a step.
    for _ in 0..400 {
        store.prune(&Retention::of(Duration::from_secs(86_400 * 30))).await.unwrap();
    }
}

#[tokio::test]
async fn a_finished_delivery_takes_the_room_of_its_ledger_entry() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = open(dir.path(), &clock);
    accept(&store, 5_000).await;
    let done = deliver(&store, &clock, 5_000).await;
    let_it_work(&store, &clock).await;
    store.close().await;
    let (bytes, content) = pages(dir.path(), "delivery");
    assert!(bytes * 10 <= content * 13, "{bytes} bytes for {content}");
    assert!(bytes / 5_000 < 500, "{} bytes for each", bytes / 5_000);
    assert!(fsck::check(dir.path()).unwrap().is_empty());
    let store = open(dir.path(), &clock);
    for id in done.into_iter().step_by(61) {
        let delivery = store.delivery(None, id).await.unwrap().unwrap();
        assert_eq!(delivery.log.len(), 1);
    }
}

#[tokio::test]
async fn what_is_finished_late_gives_its_room_back_later() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = open(dir.path(), &clock);
    accept(&store, 5_000).await;
    deliver(&store, &clock, 2_000).await;
    let_it_work(&store, &clock).await;
    assert_eq!(store.load(None).deliveries, 3_000);
    store.close().await;
    let store = open(dir.path(), &clock);
    deliver(&store, &clock, 3_000).await;
    clock.advance(Duration::from_secs(86_400));
    let_it_work(&store, &clock).await;
    store.close().await;
    let (bytes, content) = pages(dir.path(), "delivery");
    assert!(bytes * 10 <= content * 13, "{bytes} bytes for {content}");
}

/// Packing goes on behind a page that cannot be read.
#[tokio::test]
async fn a_damaged_page_does_not_stop_the_packing() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = open(dir.path(), &clock);
    accept(&store, 5_000).await;
    deliver(&store, &clock, 5_000).await;
    store.close().await;
    let before = pages(dir.path(), "delivery").0;
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    let select = "SELECT pageno FROM dbstat WHERE name = 'delivery' AND pagetype = 'leaf' \
                  ORDER BY path LIMIT 1 OFFSET 20";
    let page: u32 = conn.query_row(select, [], |row| row.get(0)).unwrap();
    drop(conn);
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("postrider.db"));
    let at = (u64::from(page) - 1) * 4096;
    std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &[0xFF; 4096], at).unwrap();
    let store = open(dir.path(), &clock);
    let_it_work(&store, &clock).await;
    store.close().await;
    let after = pages(dir.path(), "delivery").0;
    assert!(after * 2 < before, "{after} of {before} bytes");
}

#[tokio::test]
async fn a_shared_content_gives_its_room_back_when_the_last_delivery_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = open(dir.path(), &clock);
    let content = format!(r#"{{"title":"{}"}}"#, "x".repeat(BODY));
    let count = 3_000;
    for _ in 0..count / 100 {
        let new = (0..100).map(|_| {
            let mut new = message("acme", 1);
            new.deliveries.push(new.deliveries[0].clone());
            new.content = content.as_str().into();
            new
        });
        store.accept(new.collect()).await.unwrap();
    }
    deliver(&store, &clock, 2 * count).await;
    let_it_work(&store, &clock).await;
    let (bytes, content) = pages(dir.path(), "message");
    assert!(bytes < 2 * content, "{bytes} bytes for {content} bytes of content");
}
