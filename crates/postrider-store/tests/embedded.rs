//! Tests of the embedded store alone: files, locks, full disks and damage.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{
    AddressLearning, Admission, DeliveryFilter, DocumentVersion, Documents, Intake as _,
    LeasedDelivery, Ledger, Load, PutResult, Retention, SettleResult, Settlement, StoreError,
};
use postrider_core::{Clock, DeadReason, DeliveryId, State, TenantId, Timestamp};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, message, success, url};
use postrider_store::{ManualClock, StoreOptions};

const LEASE: std::time::Duration = std::time::Duration::from_secs(60);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)))
}

fn open(dir: &Path) -> WorkingStore {
    WorkingStore::open(dir, clock(), StoreOptions::default()).unwrap()
}

fn database(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join("postrider.db")).unwrap()
}

/// The settlement of a delivery that arrived.
fn done(leased: &LeasedDelivery) -> Settlement {
    Settlement {
        delivery: leased.delivery,
        token: leased.token,
        attempts: Vec::new(),
        decision: Decision::Done,
        learned: AddressLearning::default(),
    }
}

#[tokio::test]
async fn a_folder_is_held_by_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let second = WorkingStore::open(dir.path(), clock(), StoreOptions::default());
    let error = second.err().expect("the folder is in use");
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains("--data"), "{text}");
    store.close().await;
    open(dir.path());
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    store.close().await;
    let refused = store.accept(vec![message("acme", 1)]).await;
    assert!(matches!(refused, Err(StoreError::Closed)));
    let journal = dir.path().join("postrider.db-wal");
    assert!(journal.metadata().map_or(0, |meta| meta.len()) == 0, "the journal is folded in");
}

#[tokio::test]
async fn a_clean_end_is_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let store = open(dir.path());
        store.accept(vec![message("acme", 1)]).await.unwrap();
        let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
        let leased = store.lease(lane, 10, LEASE).await.unwrap();
        assert!(leased.iter().all(|l| l.crashes == 0));
        store.close().await;
    }
}

#[tokio::test]
async fn what_was_accepted_before_a_clean_end_expires_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    for _ in 0..2 {
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        store.accept(vec![message("acme", 1)]).await.unwrap();
        assert!(store.lease_expired(10, LEASE).await.unwrap().is_empty());
        store.close().await;
        clock.advance(LEASE / 10);
    }
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    clock.advance(LEASE * 60 - LEASE / 5);
    assert_eq!(store.lease_expired(10, LEASE).await.unwrap().len(), 1);
    clock.advance(LEASE / 10);
    assert_eq!(store.lease_expired(10, LEASE).await.unwrap().len(), 1);
    let listed: i64 = database(dir.path())
        .query_row("SELECT count(*) FROM expiry", [], |row| row.get(0))
        .unwrap();
    assert_eq!(listed, 2);
}

/// What the first version wrote, by its own layout.
const FIRST_LAYOUT: &str = include_str!("first_layout.sql");

#[tokio::test]
async fn a_store_of_the_first_version_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let old = database(dir.path());
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    old.execute_batch(FIRST_LAYOUT).unwrap();
    drop(old);
    let clock = clock();
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    let bytes = r#"{"title":"lone"}{"title":"fan-out"}"#.len() as u64;
    let address = r#"{"channel":"webhook","url":"https://host-1.example/hook"}"#.len() as u64;
    assert_eq!(store.load(None), Load { deliveries: 2, bytes: bytes + 2 * address });
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 10, LEASE).await.unwrap();
    assert_eq!(leased.len(), 2);
    clock.advance(LEASE * 100);
    let leased = store.lease_expired(10, LEASE).await.unwrap();
    let leased: Vec<_> = leased.into_iter().map(|(_, leased)| leased).collect();
    assert_eq!(leased.len(), 2, "both expired meanwhile");
    assert_eq!(&*leased[0].message.content, r#"{"title":"lone"}"#);
    assert_eq!(&*leased[1].message.content, r#"{"title":"fan-out"}"#);
    for l in leased {
        let settlement = Settlement {
            delivery: l.delivery,
            token: l.token,
            attempts: vec![success(1, clock.now())],
            decision: Decision::Done,
            learned: AddressLearning::default(),
        };
        assert_eq!(store.settle(vec![settlement]).await.unwrap(), [SettleResult::Done]);
    }
    assert_eq!(store.load(None), Load::default());
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.states[&State::Sent], counts.states[&State::Failed]), (3, 1));
    store.accept(vec![message("acme", 1)]).await.unwrap();
    store.close().await;
    open(dir.path());
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a/data");
    let store = open(&data);
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn a_newer_layout_is_reported_as_such_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await;
    database(dir.path()).pragma_update(None, "user_version", 99).unwrap();
    let error = WorkingStore::open(dir.path(), clock(), StoreOptions::default()).err().unwrap();
    assert!(matches!(error, StoreError::NewerLayout { found: 99, known: 15 }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the store has layout 99, and this version of Postrider knows layouts up to 15: a newer version \
         wrote it; run that version, or restore a backup from before the upgrade"
    );
    let layout = database(dir.path()).pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(layout, Ok(99));
}

#[tokio::test]
async fn a_full_disk_refuses_new_work_keeps_the_old_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = store.accept(vec![batch("acme", &[1; 20])]).await.unwrap();
    store.limit_size(Some(0)).await.unwrap();
    let mut accepted = 0;
    let refused = loop {
        match store.accept(vec![batch("acme", &[1; 20])]).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 100, "the limit is never felt");
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.messages, 1 + accepted, "nothing is half accepted");

    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 20, LEASE).await.unwrap();
    assert_eq!(leased.len(), 20);
    let settled = store.settle(leased.iter().map(done).collect()).await.unwrap();
    assert!(settled.iter().all(|s| *s == SettleResult::Done), "what is there can be finished");
    let Admission::Accepted { message, .. } = first[0] else { panic!() };
    let view = store.message(None, message).await.unwrap().unwrap();
    assert_eq!(view.states[&State::Sent], 20);

    store.limit_size(None).await.unwrap();
    store.accept(vec![batch("acme", &[1; 500])]).await.unwrap();
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states[&State::Queued], 500 + 20 * accepted);
}

#[tokio::test]
async fn one_refused_order_does_not_fail_those_it_was_grouped_with() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 1, LEASE).await.unwrap().remove(0);
    store.limit_size(Some(0)).await.unwrap();
    let (accepted, settled) = tokio::join!(
        store.accept(vec![batch("acme", &[1; 3000])]),
        store.settle(vec![done(&leased)])
    );
    assert!(matches!(accepted, Err(StoreError::Full { .. })));
    assert_eq!(settled.unwrap(), [SettleResult::Done]);
}

#[tokio::test]
async fn a_damaged_delivery_does_not_stop_the_rest_of_its_lane() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    let accepted = store.accept(vec![batch("acme", &[1, 1, 1])]).await.unwrap();
    let Admission::Accepted { deliveries, .. } = &accepted[0] else { panic!() };
    store.close().await;
    let damage = "UPDATE delivery SET target = '{' WHERE seq = (SELECT min(seq) FROM delivery)";
    database(dir.path()).execute(damage, []).unwrap();

    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 10, LEASE).await.unwrap();
    let ids: Vec<_> = leased.iter().map(|l| l.delivery).collect();
    assert_eq!(ids, deliveries[1..]);
    let dead = store.dead_letters(DeliveryFilter::default()).await.unwrap().items;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].id, dead[0].reason), (deliveries[0], Some(DeadReason::Poison)));
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.states[&State::Failed], counts.states[&State::Sending]), (1, 2));
    clock.set(clock.now() + LEASE);
    assert_eq!(store.lease(lane, 10, LEASE).await.unwrap().len(), 2);
}

#[tokio::test]
async fn concurrent_callers_share_commits_and_each_gets_its_own_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let callers = (0..200).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.accept(vec![message("acme", n % 7)]).await })
    });
    let mut ids = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        let mut answers = caller.await.unwrap().unwrap();
        assert_eq!(answers.len(), 1);
        let Admission::Accepted { message, deliveries } = answers.remove(0) else { panic!() };
        assert_eq!(
            store.message(None, message).await.unwrap().unwrap().deliveries[0].0,
            deliveries[0]
        );
        ids.push(message);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

#[tokio::test]
async fn what_was_erased_is_not_in_the_files_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mark = |size: usize| format!("MARK{}", "y".repeat(size));
    for size in [10, 200, 1_500, 6_000, 100_000] {
        for _ in 0..10 {
            let mut new = message("acme", 1);
            new.content = format!(r#"{{"title":"{}"}}"#, mark(size)).into();
            store.accept(vec![new]).await.unwrap();
        }
    }
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 100, LEASE).await.unwrap();
    assert_eq!(leased.len(), 50);
    let url = url(&leased[0].target);
    let settlements = leased.iter().map(|l| Settlement {
        delivery: l.delivery,
        token: l.token,
        attempts: Vec::new(),
        decision: Decision::Done,
        learned: AddressLearning::default(),
    });
    store.settle(settlements.collect()).await.unwrap();
    store.close().await;
    let file = std::fs::read(dir.path().join("postrider.db")).unwrap();
    let count = |text: &str| file.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
    assert_eq!((count("MARK"), count(&"y".repeat(100)), count(&url)), (0, 0, 0));
}

/// Three leased deliveries of which the first is then damaged, and decisions about all of them.
async fn settle_with_damage(damage: &str) -> (WorkingStore, Vec<SettleResult>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.accept(vec![batch("acme", &[1, 1, 1])]).await.unwrap();
    store.close().await;
    let before =
        "UPDATE delivery SET log = '[', tries = 500 WHERE seq = (SELECT min(seq) FROM delivery)";
    database(dir.path()).execute(before, []).unwrap();
    let store = open(dir.path());
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    let leased = store.lease(lane, 10, LEASE).await.unwrap();
    assert_eq!(leased.len(), 3);
    database(dir.path()).execute_batch(damage).unwrap();
    let at = clock().now();
    let settlements = leased.iter().map(|l| Settlement {
        delivery: l.delivery,
        token: l.token,
        attempts: vec![success(1, at)],
        decision: Decision::Done,
        learned: AddressLearning::default(),
    });
    let settled = store.settle(settlements.collect()).await.unwrap();
    (store, settled, dir)
}

#[tokio::test]
async fn a_settlement_that_cannot_be_written_does_not_fail_the_others() {
    let (store, settled, _dir) = settle_with_damage("").await;
    assert_eq!(settled, [SettleResult::Fenced, SettleResult::Done, SettleResult::Done]);
    let counts = store.counts(None).await.unwrap();
    assert_eq!((counts.states[&State::Failed], counts.states[&State::Sent]), (1, 2));
    assert_eq!(counts.dead[&DeadReason::Poison], 1);
    assert!(store.ready_lanes(1).await.unwrap().is_empty(), "it is not tried again");
}

#[tokio::test]
async fn a_settlement_of_what_is_missing_does_not_fail_the_others() {
    let lose = "DELETE FROM delivery WHERE seq = (SELECT min(seq) FROM delivery)";
    let (store, settled, _dir) = settle_with_damage(lose).await;
    assert_eq!(settled, [SettleResult::Fenced, SettleResult::Done, SettleResult::Done]);
    assert_eq!(store.counts(None).await.unwrap().states[&State::Sent], 2);
    assert!(store.ready_lanes(1).await.unwrap().is_empty(), "it is not tried again");
}

#[tokio::test]
async fn without_a_reserve_the_store_opens_but_takes_nothing_new_until_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    store.close().await;
    let reserve = dir.path().join("postrider.reserve");
    std::fs::remove_file(&reserve).unwrap();
    std::fs::create_dir(&reserve).unwrap();

    let store = open(dir.path());
    assert!(matches!(store.takes_work(), Err(StoreError::Full { .. })));
    let refused = store.accept(vec![message("acme", 1)]).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
    assert_eq!(store.lease(lane, 10, LEASE).await.unwrap().len(), 1, "the old is delivered");

    std::fs::remove_dir(&reserve).unwrap();
    let healed = async {
        while store.takes_work().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LEASE, healed).await.unwrap();
    store.accept(vec![message("acme", 1)]).await.unwrap();
}

#[tokio::test]
async fn a_second_store_is_refused_although_the_lock_file_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    std::fs::remove_file(dir.path().join("postrider.lock")).unwrap();
    let second = WorkingStore::open(dir.path(), clock(), StoreOptions::default());
    assert!(matches!(second.err(), Some(StoreError::Locked { .. })));
    store.accept(vec![message("acme", 1)]).await.unwrap();
    store.close().await;
    assert_eq!(open(dir.path()).counts(None).await.unwrap().messages, 2);
}

/// Where locks do not work, such as on some network disks, the file itself tells.
#[tokio::test]
async fn a_store_that_was_taken_over_writes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let other = database(dir.path());
    other.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'", []).unwrap();
    let refused = store.accept(vec![message("acme", 1)]).await;
    assert!(matches!(refused, Err(StoreError::Locked { .. } | StoreError::Closed)), "{refused:?}");
    let cause = tokio::time::timeout(LEASE, store.failure().wait()).await.unwrap();
    assert!(cause.contains("another server"), "{cause}");
    let messages: i64 =
        other.query_row("SELECT count(*) FROM message", [], |row| row.get(0)).unwrap();
    assert_eq!(messages, 1);
}

#[tokio::test]
async fn a_recipient_is_found_without_reading_the_deliveries_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut one = message("acme", 1);
    one.deliveries[0].recipient = Some("user-7".into());
    let Admission::Accepted { deliveries, .. } = store.accept(vec![one]).await.unwrap().remove(0)
    else {
        panic!("refused")
    };
    // More than one page reads.
    for _ in 0..21 {
        store.accept((0..1_000).map(|_| message("acme", 1)).collect()).await.unwrap();
    }
    let filter = DeliveryFilter { recipient: Some("user-7".into()), ..DeliveryFilter::default() };
    let page = store.deliveries(filter.clone()).await.unwrap();
    assert_eq!(page.items.iter().map(|found| found.id).collect::<Vec<_>>(), deliveries);
    assert!(store.dead_letters(filter).await.unwrap().items.is_empty());
}

/// Each tenant's deliveries, oldest first.
async fn accept_of_tenants(store: &WorkingStore, rounds: u32) -> Vec<Vec<DeliveryId>> {
    let mut all = vec![Vec::new(); 10];
    for _ in 0..rounds {
        let new = (0..1_000).map(|n| message(&format!("tenant-{}", n % 10), n % 3)).collect();
        for (n, admission) in store.accept(new).await.unwrap().into_iter().enumerate() {
            let Admission::Accepted { deliveries, .. } = admission else { panic!("refused") };
            all[n % 10].extend(deliveries);
        }
    }
    all
}

async fn all_of(store: &WorkingStore, filter: DeliveryFilter) -> Vec<DeliveryId> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let filter = DeliveryFilter { cursor, limit: 700, ..filter.clone() };
        let page = store.deliveries(filter).await.unwrap();
        found.extend(page.items.iter().map(|delivery| delivery.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    found.reverse();
    found
}

/// More than some blocks of the order and its tail have.
#[tokio::test]
async fn a_list_of_a_tenant_has_all_of_its_deliveries_and_reads_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    let rare = store.accept(vec![message("rare", 1)]).await.unwrap().remove(0);
    let Admission::Accepted { deliveries: rare, .. } = rare else { panic!("refused") };
    let all = accept_of_tenants(&store, 21).await;
    let of = |name: &str| DeliveryFilter {
        tenant: Some(TenantId::new(name)),
        ..DeliveryFilter::default()
    };
    let one = DeliveryFilter { limit: 1, ..of("rare") };
    // In one call, because only its own are looked at.
    assert_eq!(store.deliveries(one).await.unwrap().items[0].id, rare[0]);
    assert_eq!(all_of(&store, of("tenant-3")).await, all[3]);
    let third: Vec<_> = {
        let numbers = |n: usize| (0..1_000).filter(move |m| m % 10 == n).map(|m| m % 3);
        let of_lane = (0..21).flat_map(|_| numbers(3)).zip(&all[3]);
        of_lane.filter(|(lane, _)| *lane == 2).map(|(_, id)| *id).collect()
    };
    let by_provider =
        DeliveryFilter { provider: Some("https://host-2.example".into()), ..of("tenant-3") };
    assert_eq!(all_of(&store, by_provider.clone()).await, third);
    store.close().await;
    drop(store);
    let blocks = "SELECT count(*) FROM ledger_block";
    let count = || -> i64 { database(dir.path()).query_row(blocks, [], |row| row.get(0)).unwrap() };
    assert_eq!(count(), 2);
    // As a folder of an older version.
    database(dir.path())
        .execute_batch("DELETE FROM ledger_block; DELETE FROM ledger_block_tenant")
        .unwrap();
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    assert_eq!(all_of(&store, of("tenant-3")).await, all[3]);
    assert_eq!(all_of(&store, by_provider).await, third);
    loop {
        let mut some = Vec::new();
        for lane in store.ready_lanes(100).await.unwrap() {
            some.extend(store.lease(lane.id, 100, LEASE).await.unwrap());
        }
        if some.is_empty() {
            break;
        }
        store.settle(some.iter().map(done).collect()).await.unwrap();
    }
    clock.advance(LEASE * 2);
    while store.prune(&Retention::of(LEASE)).await.unwrap().has_more {}
    store.prune(&Retention::of(LEASE)).await.unwrap();
    assert!(all_of(&store, of("tenant-3")).await.is_empty());
    store.close().await;
    drop(store);
    assert_eq!(count(), 0, "blocks of deleted deliveries are deleted");
}

#[tokio::test]
async fn a_tag_is_found_without_reading_what_is_not_tagged_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
    let mut one = message("acme", 1);
    one.envelope.tags = vec!["sale".into(), "eu".into()];
    let Admission::Accepted { deliveries, .. } = store.accept(vec![one]).await.unwrap().remove(0)
    else {
        panic!("refused")
    };
    // More than one page reads.
    for _ in 0..21 {
        store.accept((0..1_000).map(|_| message("acme", 1)).collect()).await.unwrap();
    }
    let tenant = Some(TenantId::new("acme"));
    let filter = DeliveryFilter { tenant, tag: Some("eu".into()), ..DeliveryFilter::default() };
    let page = store.deliveries(filter).await.unwrap();
    assert_eq!(page.items.iter().map(|found| found.id).collect::<Vec<_>>(), deliveries);
    for lane in store.ready_lanes(10).await.unwrap() {
        let leased = store.lease(lane.id, 1, LEASE).await.unwrap();
        store.settle(leased.iter().map(done).collect()).await.unwrap();
    }
    clock.advance(LEASE * 2);
    store.prune(&Retention::of(LEASE)).await.unwrap();
    store.close().await;
    let left = "SELECT count(*) FROM message_tag";
    let left: i64 = database(dir.path()).query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn tags_of_layout_8_are_found_after_the_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut one = message("acme", 1);
    one.envelope.tags = vec!["sale".into()];
    store.accept(vec![message("other", 1), one, message("acme", 2)]).await.unwrap();
    store.close().await;
    let eighth = "DROP TABLE entry; DROP INDEX dead_letter_tenant; ALTER TABLE dead_letter DROP COLUMN tenant; \
                  ALTER TABLE dead_letter DROP COLUMN lane; ALTER TABLE dead_letter DROP COLUMN reason; \
                  DROP TABLE ledger_block; DROP TABLE ledger_block_tenant; DROP TABLE lane_change; \
                  DROP INDEX gone_deleted; ALTER TABLE gone DROP COLUMN deleted_before; \
                  DROP TABLE rollup; DROP TABLE waiting_ended; DROP TABLE audit; DROP TABLE message_tag; \
                  PRAGMA user_version = 8";
    database(dir.path()).execute_batch(eighth).unwrap();
    let store = open(dir.path());
    let tenant = Some(TenantId::new("acme"));
    let filter = DeliveryFilter { tenant, tag: Some("sale".into()), ..DeliveryFilter::default() };
    let found = store.deliveries(filter).await.unwrap().items;
    assert_eq!(found.iter().map(|d| &*d.provider).collect::<Vec<_>>(), ["https://host-1.example"]);
}

/// What layout 6 had and what later ones added, in a folder with that layout.
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
DELETE FROM meta WHERE key = 'listed';
CREATE INDEX pending ON delivery (lane, due) WHERE due IS NOT NULL;
DROP TABLE document;
CREATE TABLE setting (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE api_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL,
  secret_hash BLOB NOT NULL, created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE signing_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, kind TEXT NOT NULL, secret BLOB NOT NULL,
  created INTEGER NOT NULL, retired INTEGER) WITHOUT ROWID;
INSERT INTO setting VALUES ('class/news', '{\"values\":{}}'), ('pause/tenant/acme', '{}');
INSERT INTO api_key VALUES
  (x'01900000000070008000000000000001', 'acme', 'ci', '\"read\"', zeroblob(32), 5, 9);
INSERT INTO signing_key VALUES
  (x'01900000000070008000000000000002', 'acme', 'webhook', x'0102', 6, 7),
  (x'01900000000070008000000000000003', 'acme', 'webhook', x'0304', 7, NULL),
  (x'01900000000070008000000000000004', '', 'hash', x'0506', 8, NULL);
PRAGMA user_version = 6;
";

#[tokio::test]
async fn settings_and_keys_of_layout_6_become_documents() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await;
    database(dir.path()).execute_batch(SIXTH_LAYOUT).unwrap();
    let store = open(dir.path());
    let id = |number: u128| {
        postrider_core::KeyId(0x0190_0000_0000_7000_8000_0000_0000_0000 + number).to_string()
    };
    let webhook = format!(
        r#"{{"keys":[{{"created_at":6,"id":"{}","retired_at":7,"secret":"AQI="}},{{"created_at":7,"id":"{}","retired_at":null,"secret":"AwQ="}}]}}"#,
        id(2),
        id(3)
    );
    let hash = format!(
        r#"{{"keys":[{{"created_at":8,"id":"{}","retired_at":null,"secret":"BQY="}}]}}"#,
        id(4)
    );
    let secret_hash = format!("{}=", "A".repeat(43));
    let api_key = format!(
        r#"{{"created_at":5,"name":"ci","revoked_at":9,"scope":"read","secret_hash":"{secret_hash}","tenant":"acme"}}"#
    );
    let expected = [
        ("class/news".to_owned(), r#"{"values":{}}"#.to_owned()),
        (format!("key/api/{}", id(1)), api_key),
        ("key/signing/-/hash".to_owned(), hash),
        ("key/signing/acme/webhook".to_owned(), webhook),
        ("pause/tenant/acme".to_owned(), "{}".to_owned()),
    ];
    let all = store.documents("").await.unwrap();
    let found: Vec<_> = all.into_iter().map(|d| (d.name, d.json.unwrap())).collect();
    let parsed = |all: &[(String, String)]| -> Vec<(String, serde_json::Value)> {
        let pair =
            |(name, json): &(String, String)| (name.clone(), serde_json::from_str(json).unwrap());
        all.iter().map(pair).collect()
    };
    assert_eq!(parsed(&found), parsed(&expected));
    let put = store.put_document("class/news", None, None, None).await.unwrap();
    assert_eq!(put, PutResult::Written(DocumentVersion(6)), "versions go on behind the moved ones");
    let left =
        "SELECT count(*) FROM sqlite_master WHERE name IN ('setting', 'api_key', 'signing_key')";
    let left: i64 = database(dir.path()).query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
