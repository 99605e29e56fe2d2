//! A store with everything in it is moved to another one, over the ports.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::message::Envelope;
use postrider_core::policy::strikes::NewStrike;
use postrider_core::ports::store::*;
use postrider_core::{Clock as _, DeadReason, Decision, State, StrikeKind, TenantId, Timestamp};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, message, success, webhook};
use postrider_store::migrate::{MigrationPhase, check_usable, migrate, reopen};
use postrider_store::{ManualClock, StoreOptions};

const LEASE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp(1_790_000_000_000);
/// Small, so that keys are in runs and most deliveries are not in memory.
const SMALL: StoreOptions = StoreOptions {
    lane_window: 3,
    window_total: 10,
    delivery_cache_bytes: 3_000,
    page_cache_kib: 256,
    listed_at_once: 20,
    dedup_bucket_keys: 100,
    reserve_bytes: 0,
    journal_bytes_max: u64::MAX,
};

fn open(dir: &Path, clock: &Arc<ManualClock>) -> WorkingStore {
    WorkingStore::open(dir, clock.clone(), SMALL).unwrap()
}

fn keyed(number: u32, hours: u64) -> NewMessage {
    let mut key = [7; 16];
    key[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
    let window = Duration::from_secs(hours * 3600);
    let dedup = Some(DedupKey { key, fingerprint: [1; 16], window });
    NewMessage { dedup, ..message("acme", number % 5) }
}

async fn next(store: &WorkingStore) -> LeasedDelivery {
    for lane in store.ready_lanes(100).await.unwrap() {
        if let Some(leased) = store.lease(lane.id, 1, LEASE).await.unwrap().pop() {
            return leased;
        }
    }
    panic!("nothing is due");
}

async fn settle(store: &WorkingStore, leased: LeasedDelivery, decision: Decision) {
    let learned = match &decision {
        Decision::Retry { .. } => AddressLearning {
            strike: Some(NewStrike { kind: StrikeKind::ALL[0], suspect: true }),
            target: None,
        },
        _ => AddressLearning::default(),
    };
    let attempts = vec![success(1, START)];
    let LeasedDelivery { delivery, token, .. } = leased;
    let settlement = Settlement { delivery, token, attempts, decision, learned };
    assert_eq!(store.settle(vec![settlement]).await.unwrap(), [SettleResult::Done]);
}

/// Deliveries in every stage, addresses and documents.
async fn fill(store: &WorkingStore, clock: &ManualClock) {
    let new = NewAddress {
        tenant: TenantId::new("acme"),
        recipient: Some("user".into()),
        target: webhook(9),
        hash: postrider_core::AddressHash([9; 16]),
    };
    store.put_address(new).await.unwrap();
    store.put_document("classes/x", Some("{}"), None, None).await.unwrap();
    let own_key = r#"{"keys":[{"id":"key_1","secret":"AQID"}]}"#;
    store.put_document("key/signing/-/hash", Some(own_key), None, None).await.unwrap();
    let short = Some(Duration::from_secs(100_000));
    store.put_document("short", Some("1"), None, short).await.unwrap();
    let decisions = [
        Decision::Done,
        Decision::DeadLetter(DeadReason::Permanent),
        Decision::MarkGone,
        Decision::Retry { after: Duration::from_secs(600), counted: true },
        Decision::Park { after: Duration::from_secs(900) },
    ];
    for (number, decision) in (20..).zip(decisions) {
        store.accept(vec![message("umbra", number)]).await.unwrap();
        let leased = next(store).await;
        settle(store, leased, decision).await;
    }
    // A message of which one delivery is sent, one is a dead letter and one waits.
    store.accept(vec![batch("acme", &[1, 2, 3])]).await.unwrap();
    for decision in [Decision::Done, Decision::DeadLetter(DeadReason::Permanent)] {
        let leased = next(store).await;
        settle(store, leased, decision).await;
    }
    let started = next(store).await;
    assert!(store.start(vec![(started.delivery, started.token)]).await.unwrap()[0]);
    clock.advance(LEASE * 2);
    for number in 0..1_000 {
        let hours = if number % 3 == 0 { 200 } else { 2 };
        store.accept(vec![keyed(number, hours)]).await.unwrap();
    }
    let tags = vec!["sale".into(), "eu".into()];
    let envelope = Envelope { collapse_key: Some("c".into()), tags, ..Envelope::default() };
    let later = Some(clock.now() + Duration::from_secs(7_200));
    let late = NewMessage { envelope, send_at: later, ..message("acme", 1) };
    store.accept(vec![late]).await.unwrap();
    let (at, text) = (clock.now(), "{\"action\":\"a test\"}".to_owned());
    let entry = AuditRecord { number: 1, at, tenant: Some(TenantId::new("acme")), text };
    assert!(store.append_audit(vec![entry]).await.unwrap());
    let key = EntryKey::new(&TenantId::new("acme"), EntryKind::Recipient, "user");
    let person = EntryWrite { key, json: Some("{}".into()), expected: None };
    store.write_entries(vec![person]).await.unwrap();
    let part = |tenant: Option<&str>| RollupPart {
        name: RollupName {
            span: RollupSpan::Minute,
            at: RollupSpan::Minute.begin(at),
            tenant: tenant.map(TenantId::new),
            writer: 7,
        },
        text: "[]".to_owned(),
    };
    store.put_rollups(vec![part(None), part(Some("acme"))]).await.unwrap();
}

#[tokio::test]
async fn everything_is_moved_and_goes_on_in_the_new_store() {
    let (old_dir, new_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(ManualClock::at(START));
    let old = open(old_dir.path(), &clock);
    fill(&old, &clock).await;
    old.close().await;
    // A restart forgets leases, and adds marks of the crash to none.
    let (old, new) = (open(old_dir.path(), &clock), open(new_dir.path(), &clock));
    let mut phases = Vec::new();
    let mut seen = |progress: postrider_store::migrate::MigrationProgress| {
        phases.push(progress.phase);
    };
    let report = migrate(&*old, &*new, "elsewhere", clock.now(), &mut seen).await.unwrap();
    phases.dedup();
    assert_eq!(phases, [MigrationPhase::Copying, MigrationPhase::Verifying]);
    assert!(!report.resumed);
    for (kind, total) in report.totals.all() {
        assert!(total.count > 0, "the test has no {}", kind.name());
    }
    assert!(check_usable(&*new).await.is_ok());
    let texts = async |store: &WorkingStore| -> Vec<_> {
        let all = store.documents("").await.unwrap().into_iter();
        let all = all.filter(|document| !document.name.starts_with("migration/"));
        all.map(|document| (document.name, document.json, document.expires_at)).collect()
    };
    assert_eq!(texts(&new).await.len(), 3);
    assert_eq!(texts(&old).await, texts(&new).await);
    let refused = check_usable(&*old).await.unwrap_err().to_string();
    assert!(refused.contains("was moved to elsewhere"), "{refused}");
    assert!(reopen(&*old).await.unwrap() && check_usable(&*old).await.is_ok());

    for _ in 0..2 {
        for tenant in [None, Some(TenantId::new("acme")), Some(TenantId::new("umbra"))] {
            let tenant = tenant.as_ref();
            assert_eq!(old.counts(tenant).await.unwrap(), new.counts(tenant).await.unwrap());
            assert_eq!(old.load(tenant), new.load(tenant));
            let (depths, moved) =
                (old.lanes(tenant, 99).await.unwrap(), new.lanes(tenant, 99).await.unwrap());
            assert_eq!(depths, moved);
        }
        let tenant = Some(TenantId::new("acme"));
        let tagged = DeliveryFilter { tenant, tag: Some("eu".into()), ..DeliveryFilter::default() };
        let moved = new.deliveries(tagged.clone()).await.unwrap();
        assert_eq!((moved.items.len(), &moved), (1, &old.deliveries(tagged).await.unwrap()));
        let key = |number| keyed(number, 1).dedup.unwrap();
        let keys: Vec<_> = (0..1_100).map(key).collect();
        let (ours, theirs) = (old.repeats(keys.clone()).await, new.repeats(keys).await);
        let ours = ours.unwrap();
        assert_eq!(ours.iter().flatten().count(), 1_000);
        assert_eq!(ours, theirs.unwrap());
        // Both serve the same work in the same order.
        for _ in 0..200 {
            let (mine, moved) = (next(&old).await, next(&new).await);
            assert_eq!(mine.delivery, moved.delivery);
            assert_eq!((mine.started, &mine.message), (moved.started, &moved.message));
            settle(&old, mine, Decision::Done).await;
            settle(&new, moved, Decision::Done).await;
        }
        let all = || Selection::Filter(DeliveryFilter::default());
        let (replayed, moved) = (
            old.replay(None, all(), Replay::default()).await.unwrap(),
            new.replay(None, all(), Replay::default()).await.unwrap(),
        );
        assert_eq!(replayed, moved);
    }
    clock.advance(Duration::from_secs(100_000));
    let (over, moved) = (
        old.lease_expired(2_000, LEASE).await.unwrap(),
        new.lease_expired(2_000, LEASE).await.unwrap(),
    );
    let ids = |leased: &[(_, LeasedDelivery)]| -> Vec<_> {
        leased.iter().map(|(_, leased)| leased.delivery).collect()
    };
    assert!(over.len() > 500, "{} expire", over.len());
    assert_eq!(ids(&over), ids(&moved));
    let new_id = match new.accept(vec![message("acme", 1)]).await.unwrap().remove(0) {
        Admission::Accepted { deliveries, .. } => deliveries[0],
        other => panic!("{other:?}"),
    };
    assert!(ids(&moved).iter().all(|id| *id < new_id), "ids go on above the moved ones");
    assert_eq!(new.delivery(None, new_id).await.unwrap().unwrap().state, State::Queued);
}

#[tokio::test]
async fn a_part_of_another_store_is_not_completed_and_a_used_store_is_not_overwritten() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let clock = Arc::new(ManualClock::at(START));
    let stores: Vec<_> = dirs.iter().map(|dir| open(dir.path(), &clock)).collect();
    fill(&stores[0], &clock).await;
    fill(&stores[1], &clock).await;
    let mut ignore = |_| ();
    let error = migrate(&*stores[0], &*stores[1], "x", clock.now(), &mut ignore).await.unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    let state = r#"{"source":"key_other","over_by":1,"kind":"message","after":null,"totals":{}}"#;
    stores[2].put_document("migration/incoming", Some(state), None, None).await.unwrap();
    let error = migrate(&*stores[0], &*stores[2], "x", clock.now(), &mut ignore).await.unwrap_err();
    assert!(error.to_string().contains("a part of another store"), "{error}");
    assert!(check_usable(&*stores[2]).await.is_err());
    assert!(check_usable(&*stores[0]).await.is_ok(), "nothing was begun");
}
