//! One page of the database cannot be read: what is on it is set aside, and everything else goes on.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{
    AddressLearning, Admission, DedupKey, DeliveryFilter, Documents, LeasedDelivery, Ledger,
    NewMessage, PutResult, Retention, SettleResult, Settlement,
};
use postrider_core::{Clock, DeliveryId, State, TenantId, Timestamp};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, message, success};
use postrider_store::{ManualClock, StoreOptions, fsck};

const LEASE: Duration = Duration::from_secs(60);
const PAGE: u64 = 4096;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)))
}

fn open(dir: &Path, clock: &Arc<ManualClock>) -> WorkingStore {
    WorkingStore::open(dir, clock.clone(), StoreOptions::default()).unwrap()
}

/// The store reads nearly everything from disk.
fn open_small(dir: &Path, clock: &Arc<ManualClock>) -> WorkingStore {
    let options = StoreOptions {
        lane_window: 8,
        window_total: 16,
        delivery_cache_bytes: 0,
        page_cache_kib: 32,
        ..StoreOptions::default()
    };
    WorkingStore::open(dir, clock.clone(), options).unwrap()
}

/// Fills one leaf page of a table or an index, in the middle, with bytes that make no sense.
fn damage(dir: &Path, name: &str) {
    damage_at(dir, name, 2);
}

/// The same for the leaf page that is the last one in the file.
fn damage_last(dir: &Path, name: &str) {
    let conn = rusqlite::Connection::open(dir.join("postrider.db")).unwrap();
    let select = "SELECT max(pageno) FROM dbstat WHERE name = ?1 AND pagetype = 'leaf'";
    let last: u32 = conn.query_row(select, [name], |row| row.get(0)).unwrap();
    drop(conn);
    damage_page(dir, u64::from(last));
}

/// The same after so many quarters of the leaf pages.
fn damage_at(dir: &Path, name: &str, quarters: usize) {
    let file = dir.join("postrider.db");
    let conn = rusqlite::Connection::open(&file).unwrap();
    let select = "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path";
    let mut select = conn.prepare(select).unwrap();
    let leaves: Vec<u32> =
        select.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(leaves.len() >= 3, "{name} has only {} leaves", leaves.len());
    damage_page(dir, u64::from(leaves[leaves.len() * quarters / 4]));
}

fn damage_page(dir: &Path, page: u64) {
    let file = OpenOptions::new().write(true).open(dir.join("postrider.db")).unwrap();
    file.write_all_at(&[0xFF; PAGE as usize], (page - 1) * PAGE).unwrap();
}

/// Accepts messages with one delivery each, of two tenants in turn.
async fn accept(store: &WorkingStore, clock: &ManualClock, count: u32) -> Vec<DeliveryId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let tenant = if n % 2 == 0 { "acme" } else { "umbra" };
        let answers = store.accept(vec![message(tenant, n % 5)]).await.unwrap();
        let Admission::Accepted { deliveries, .. } = &answers[0] else { panic!() };
        ids.extend(deliveries);
        clock.advance(Duration::from_millis(10));
    }
    ids
}

/// The folder of a closed store with 2 000 pending deliveries.
async fn filled() -> (tempfile::TempDir, Arc<ManualClock>, Vec<DeliveryId>) {
    filled_with(2_000).await
}

async fn filled_with(count: u32) -> (tempfile::TempDir, Arc<ManualClock>, Vec<DeliveryId>) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    let ids = accept(&store, &clock, count).await;
    store.close().await;
    (dir, clock, ids)
}

async fn settle(store: &WorkingStore, leased: &[LeasedDelivery], now: Timestamp) -> Vec<bool> {
    let settlements = leased.iter().map(|l| Settlement {
        delivery: l.delivery,
        token: l.token,
        attempts: vec![success(1, now)],
        decision: Decision::Done,
        learned: AddressLearning::default(),
    });
    let settled = store.settle(settlements.collect()).await.unwrap();
    settled.into_iter().map(|result| result == SettleResult::Done).collect()
}

/// Leases and settles until no lane is ready. Returns what was settled.
async fn deliver_all(store: &WorkingStore, clock: &ManualClock) -> HashSet<DeliveryId> {
    let mut sent = HashSet::new();
    loop {
        let lanes = store.ready_lanes(100).await.unwrap();
        if lanes.is_empty() {
            return sent;
        }
        for lane in lanes {
            let leased = store.lease(lane.id, 64, LEASE).await.unwrap();
            let done = settle(store, &leased, clock.now()).await;
            let done = leased.iter().zip(done).filter(|(_, done)| *done);
            sent.extend(done.map(|(leased, _)| leased.delivery));
        }
    }
}

#[tokio::test]
async fn a_damaged_index_of_pending_work_is_rebuilt_at_the_start() {
    let (dir, clock, ids) = filled().await;
    damage(dir.path(), "waiting");
    let store = open(dir.path(), &clock);
    let sent = deliver_all(&store, &clock).await;
    assert_eq!(sent, ids.into_iter().collect());
    assert_eq!(store.check_health().quarantined, 0);
}

#[tokio::test]
async fn a_damaged_index_touches_one_lane_while_the_store_runs() {
    let (dir, clock, ids) = filled().await;
    let store = open_small(dir.path(), &clock);
    damage(dir.path(), "waiting");
    let sent = deliver_all(&store, &clock).await;
    // The page has a twelfth of the index, and its neighbours cannot shrink.
    assert!(sent.len() > ids.len() * 3 / 4, "only {} of {}", sent.len(), ids.len());
    assert!(sent.len() < ids.len(), "the damage is not felt");
    assert!(!store.check_health().problems.is_empty());
    let again = deliver_all(&store, &clock).await;
    assert!(again.is_empty(), "it is left alone for a while");
}

#[tokio::test]
async fn a_damaged_page_of_deliveries_touches_only_what_is_on_it() {
    let (dir, clock, ids) = filled().await;
    damage(dir.path(), "delivery");
    let store = open(dir.path(), &clock);
    let sent = deliver_all(&store, &clock).await;
    let missing = ids.len() - sent.len();
    assert!((1..100).contains(&missing), "{missing} deliveries are missing");
    let health = store.check_health();
    assert_eq!(health.quarantined, missing as u64);
    assert_eq!(health.problems.len(), 1, "{health:?}");
    assert_eq!(health.problems[0].code, "deliveries_quarantined");
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states[&State::Sent], sent.len() as u64);
    assert!(store.oldest_pending().await.unwrap().is_some(), "metrics go on");
}

#[tokio::test]
async fn what_expires_behind_a_damaged_page_expires() {
    let (dir, clock, ids) = filled().await;
    damage(dir.path(), "delivery");
    let store = open(dir.path(), &clock);
    clock.advance(LEASE * 60 * 24);
    let mut expired = HashSet::new();
    loop {
        let leased = store.lease_expired(64, LEASE).await.unwrap();
        if leased.is_empty() {
            break;
        }
        let leased: Vec<_> = leased.into_iter().map(|(_, leased)| leased).collect();
        settle(&store, &leased, clock.now()).await;
        expired.extend(leased.iter().map(|l| l.delivery));
        clock.advance(Duration::from_secs(2));
    }
    assert!(expired.len() > ids.len() - 100, "only {} expired", expired.len());
    assert!(expired.len() < ids.len(), "the damage is not felt");
}

#[tokio::test]
async fn a_damaged_list_of_expiries_is_made_anew() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    let ids = accept(&store, &clock, 2_000).await;
    clock.advance(LEASE * 5);
    // The housekeeping lists what is pending for long.
    accept(&store, &clock, 100).await;
    store.close().await;
    damage(dir.path(), "expiry");
    let store = open(dir.path(), &clock);
    clock.advance(LEASE * 60 * 24);
    assert!(store.lease_expired(5_000, LEASE).await.unwrap().is_empty(), "the list is begun anew");
    let mut expired = 0;
    loop {
        clock.advance(Duration::from_secs(2));
        let leased = store.lease_expired(5_000, LEASE * 60).await.unwrap();
        if leased.is_empty() {
            break;
        }
        expired += leased.len();
    }
    assert_eq!(expired, ids.len() + 100);
}

fn keyed(number: u32) -> NewMessage {
    let key =
        (u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_le_bytes();
    let dedup = DedupKey { key, fingerprint: [1; 16], window: LEASE * 60 };
    NewMessage { dedup: Some(dedup), ..message("acme", 1) }
}

#[tokio::test]
async fn a_damaged_page_of_keys_costs_only_its_keys() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    for n in 0..2_000u32 {
        store.accept(vec![keyed(n)]).await.unwrap();
    }
    store.close().await;
    damage(dir.path(), "dedup_new_short");
    let store = open(dir.path(), &clock);
    let mut repeats = 0;
    for n in 0..2_000u32 {
        let answers = store.accept(vec![keyed(n)]).await.unwrap();
        repeats += u32::from(matches!(answers[0], Admission::Duplicate { .. }));
    }
    assert!((1_800..2_000).contains(&repeats), "{repeats} keys are known");
    assert_eq!(store.check_health().problems[0].code, "rows_unreadable");
}

/// Without its lanes, no delivery can be sent.
#[tokio::test]
async fn a_start_that_damage_prevents_says_what_helps_and_that_helps() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    store.accept((0..1_000).map(|number| message("acme", number)).collect()).await.unwrap();
    store.close().await;
    damage(dir.path(), "lane");
    let refused = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).err();
    let refused = refused.expect("it does not open").to_string();
    assert!(refused.contains("postrider fsck --repair"), "{refused}");
    fsck::repair(dir.path()).unwrap().expect("there is damage");
    let store = open(dir.path(), &clock);
    let sent = deliver_all(&store, &clock).await.len();
    assert!((800..1_000).contains(&sent), "{sent} of 1000 can be saved");
}

#[tokio::test]
async fn a_damaged_list_of_tags_stops_nothing_and_is_made_anew_by_a_repair() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let accept_tagged = async |store: &WorkingStore| {
        let new = (0..1_000).map(|n| {
            let mut new = message("acme", 1);
            new.envelope.tags = vec![format!("tag {}", n % 10).into()];
            new
        });
        store.accept(new.collect()).await.unwrap();
    };
    let store = open(dir.path(), &clock);
    accept_tagged(&store).await;
    store.close().await;
    for list in ["message_tag", "message_tag_found"] {
        damage(dir.path(), list);
    }
    let store = open(dir.path(), &clock);
    accept_tagged(&store).await;
    let problems = store.check_health().problems;
    assert!(problems.iter().any(|problem| problem.code == "tags_unreadable"), "{problems:?}");
    assert_eq!(deliver_all(&store, &clock).await.len(), 2_000);
    store.close().await;
    fsck::repair(dir.path()).unwrap().expect("there is damage");
    let store = open(dir.path(), &clock);
    let tag = DeliveryFilter {
        tenant: Some(TenantId::new("acme")),
        tag: Some("tag 7".into()),
        limit: 1_000,
        ..DeliveryFilter::default()
    };
    assert_eq!(store.deliveries(tag).await.unwrap().items.len(), 200);
    store.close().await;
    damage(dir.path(), "message_tag");
    let store = open(dir.path(), &clock);
    clock.advance(LEASE * 60 * 24);
    while store.prune(&Retention::of(LEASE)).await.unwrap().deleted > 0 {}
    assert_eq!(store.counts(None).await.unwrap().messages, 0);
}

#[tokio::test]
async fn a_damaged_index_of_an_older_layout_does_not_stop_its_upgrade() {
    // So many that its last page lies behind those that SQLite moves for new tables.
    let (dir, clock, ids) = filled_with(6_000).await;
    let seventh_layout = "DROP TABLE entry; DROP INDEX dead_letter_tenant; ALTER TABLE dead_letter DROP COLUMN tenant; \
                  ALTER TABLE dead_letter DROP COLUMN lane; ALTER TABLE dead_letter DROP COLUMN reason; \
                  DROP TABLE ledger_block; DROP TABLE ledger_block_tenant; DROP TABLE lane_change; \
                  DROP INDEX gone_deleted; ALTER TABLE gone DROP COLUMN deleted_before; \
                          DROP TABLE rollup; DROP TABLE waiting_ended; DROP TABLE audit; DROP TABLE message_tag; \
                          DROP TABLE waiting; DELETE FROM meta WHERE key = 'listed'; \
                          PRAGMA incremental_vacuum; \
                          CREATE INDEX pending ON delivery (lane, due) WHERE due IS NOT NULL; \
                          PRAGMA user_version = 7";
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    conn.execute_batch(seventh_layout).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    // The last page: tables that the upgrade makes begin near the start, and SQLite moves what is there.
    damage_last(dir.path(), "pending");
    let store = open(dir.path(), &clock);
    assert_eq!(deliver_all(&store, &clock).await.len(), ids.len());
    accept(&store, &clock, 10).await;
    assert_eq!(deliver_all(&store, &clock).await.len(), 10);
}

/// The tables of layout 6 that later ones do not have, with so many rows that each has several pages. These are new
/// ones at the end of the file: the tables of later layouts begin where others were free.
const SIXTH_LAYOUT: &str = "
DROP TABLE entry;
DROP INDEX dead_letter_tenant;
ALTER TABLE dead_letter DROP COLUMN tenant;
ALTER TABLE dead_letter DROP COLUMN lane;
ALTER TABLE dead_letter DROP COLUMN reason;
DROP TABLE ledger_block;
DROP TABLE ledger_block_tenant;
DROP TABLE lane_change;
DROP INDEX gone_deleted;
ALTER TABLE gone DROP COLUMN deleted_before;
DROP TABLE rollup;
DROP TABLE waiting_ended;
DROP TABLE audit;
DROP TABLE message_tag;
DROP TABLE waiting;
DROP TABLE document;
DELETE FROM meta WHERE key = 'listed';
CREATE INDEX pending ON delivery (lane, due) WHERE due IS NOT NULL;
PRAGMA incremental_vacuum;
CREATE TABLE setting (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE api_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL,
  secret_hash BLOB NOT NULL, created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE signing_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, kind TEXT NOT NULL, secret BLOB NOT NULL,
  created INTEGER NOT NULL, retired INTEGER) WITHOUT ROWID;
WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 499)
  INSERT INTO setting SELECT 'class/c' || i, '{\"values\":{\"note\":\"' || printf('%.60c', 'x') || '\"}}' FROM n;
WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 499)
  INSERT INTO api_key SELECT CAST(printf('api-key-%08d', i) AS BLOB), 'acme', 'ci', '\"read\"', zeroblob(32), 5, NULL
  FROM n;
WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 499)
  INSERT INTO signing_key
  SELECT CAST(printf('signing-%08d', i) AS BLOB), 'tenant-' || i, 'webhook', zeroblob(64), 6, NULL FROM n;
PRAGMA user_version = 6;
";

/// A folder of layout 6 with 400 settings, 400 API keys and 400 tenants with a signing key.
async fn folder_of_layout_6() -> (tempfile::TempDir, Arc<ManualClock>, usize) {
    let (dir, clock, ids) = filled().await;
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    conn.execute_batch(SIXTH_LAYOUT).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    (dir, clock, ids.len())
}

#[tokio::test]
async fn damaged_settings_and_keys_of_layout_6_do_not_stop_its_upgrade() {
    let (dir, clock, deliveries) = folder_of_layout_6().await;
    for table in ["setting", "api_key", "signing_key"] {
        damage(dir.path(), table);
    }
    let problems = |store: &WorkingStore| {
        let problems = store.check_health().problems;
        problems.into_iter().filter(|p| p.code == "settings_unreadable").count()
    };
    let store = open(dir.path(), &clock);
    for prefix in ["class/", "key/api/", "key/signing/"] {
        let found = store.documents(prefix).await.unwrap().len();
        assert!((300..400).contains(&found), "{found} of {prefix}");
    }
    assert_eq!(problems(&store), 3);
    assert_eq!(deliver_all(&store, &clock).await.len(), deliveries);
    store.close().await;
    let findings = fsck::check(dir.path()).unwrap();
    assert!(findings.iter().any(|f| f.contains("setting_damaged")), "{findings:?}");
    let report = fsck::repair(dir.path()).unwrap().unwrap();
    assert!(report.unreadable.contains(&"setting_damaged: some rows".to_owned()), "{report:?}");
    let store = open(dir.path(), &clock);
    assert_eq!(problems(&store), 0, "a repair ends it");
    assert!(store.documents("class/").await.unwrap().len() >= 300);
}

#[tokio::test]
async fn a_row_of_layout_6_that_makes_no_sense_is_set_aside_alone() {
    let (dir, clock, _) = folder_of_layout_6().await;
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    let spoil = "UPDATE api_key SET scope = '{' WHERE id = CAST('api-key-00000200' AS BLOB)";
    assert_eq!(conn.execute(spoil, []).unwrap(), 1);
    drop(conn);
    let store = open(dir.path(), &clock);
    assert_eq!(store.documents("key/api/").await.unwrap().len(), 399);
    assert_eq!(store.documents("class/").await.unwrap().len(), 400);
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    let kept = "SELECT count(*) FROM api_key_damaged WHERE scope = '{'";
    assert_eq!(conn.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[tokio::test]
async fn old_deliveries_behind_a_damaged_page_are_deleted() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(dir.path(), &clock);
    let ids = accept(&store, &clock, 2_000).await;
    assert_eq!(deliver_all(&store, &clock).await.len(), ids.len());
    store.close().await;
    damage(dir.path(), "delivery");
    let store = open(dir.path(), &clock);
    clock.advance(LEASE * 60 * 24);
    let mut pruned = 0;
    loop {
        match store.prune(&Retention::of(LEASE)).await.unwrap().deleted {
            0 => break,
            some => pruned += some,
        }
    }
    assert!((1_900..2_000).contains(&pruned), "{pruned} are deleted");
}

/// Its rows are in memory, so they are leased and sent, but the result cannot be written.
#[tokio::test]
async fn a_delivery_that_cannot_be_settled_is_not_leased_again_in_this_run() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let options = StoreOptions { page_cache_kib: 32, ..StoreOptions::default() };
    let store = WorkingStore::open(dir.path(), clock.clone(), options).unwrap();
    let ids = accept(&store, &clock, 500).await;
    store.limit_size(None).await.unwrap();
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    damage(dir.path(), "delivery");
    let sent = deliver_all(&store, &clock).await;
    let missing = ids.len() - sent.len();
    assert!((1..100).contains(&missing), "{missing} deliveries are missing");
    let health = store.check_health();
    assert_eq!(health.quarantined, missing as u64);
    assert_eq!(health.problems[0].code, "deliveries_quarantined");
    for _ in 0..48 {
        clock.advance(LEASE * 30);
        assert!(deliver_all(&store, &clock).await.is_empty());
        for lane in store.lanes(None, 100).await.unwrap() {
            let leased = store.lease(lane.id, 64, LEASE).await.unwrap();
            assert!(leased.is_empty(), "{} are leased again", leased.len());
        }
    }
    assert_eq!(store.check_health().quarantined, missing as u64);
    let in_flight: u64 = store.lanes(None, 100).await.unwrap().iter().map(|l| l.in_flight).sum();
    assert_eq!(in_flight, 0);
    let accepted = store.accept(vec![batch("acme", &[1; 10])]).await.unwrap();
    assert!(matches!(accepted[0], Admission::Accepted { .. }));
}

#[tokio::test]
async fn a_repair_saves_what_is_not_on_the_damaged_pages_and_lists_the_rest() {
    let (dir, clock, ids) = filled().await;
    assert!(fsck::check(dir.path()).unwrap().is_empty());
    assert!(fsck::repair(dir.path()).unwrap().is_none(), "a good folder is left alone");
    let store = open(dir.path(), &clock);
    store.put_document("class/news", Some("{}"), None, None).await.unwrap();
    let documents = store.documents("").await.unwrap();
    store.close().await;
    drop(store);
    damage_at(dir.path(), "delivery", 1);
    damage_at(dir.path(), "message", 2);
    damage_at(dir.path(), "waiting", 3);
    assert!(!fsck::check(dir.path()).unwrap().is_empty());
    let report = fsck::repair(dir.path()).unwrap().expect("there is damage");
    assert!(report.rebuilt && !report.is_complete(), "{report:?}");
    assert_eq!(report.unreadable.len(), 2, "{report:?}");
    assert!(fsck::check(dir.path()).unwrap().is_empty());
    let store = open(dir.path(), &clock);
    assert_eq!(store.documents("").await.unwrap(), documents);
    let next = store.put_document("class/news", None, None, None).await.unwrap();
    assert!(matches!(next, PutResult::Written(next) if next > documents[0].version));
    let sent = deliver_all(&store, &clock).await;
    let lost: u64 = report.lost.iter().map(|(_, lost)| lost).sum();
    assert_eq!(sent.len() + lost as usize + report.orphans.len(), ids.len());
    assert!(report.orphans.iter().all(|orphan| !sent.contains(orphan)));
    assert!(sent.len() > ids.len() - 150, "{} of {}", sent.len(), ids.len());
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states.values().sum::<u64>(), sent.len() as u64);
}

#[tokio::test]
async fn a_store_of_an_earlier_version_opens_although_its_new_index_cannot_be_made() {
    let (dir, clock, all) = filled().await;
    let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).unwrap();
    conn.execute_batch("DROP INDEX delivery_recipient").unwrap();
    drop(conn);
    damage(dir.path(), "delivery");
    let store = open(dir.path(), &clock);
    let sent = deliver_all(&store, &clock).await;
    assert!(sent.len() * 10 > all.len() * 9, "{} of {}", sent.len(), all.len());
}
