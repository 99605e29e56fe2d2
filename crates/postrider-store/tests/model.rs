//! Runs random operations and crashes on the embedded store and on the reference model. Both must show the
//! same.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::model::delivery::{AttemptRecord, DeadReason, Delivery};
use postrider_core::policy::strikes::NewStrike;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::{
    AddressLearning, Admission, Alternative, DedupKey, DeliveryFilter, Intake, LeasedDelivery,
    Ledger, NewAddress, NewMessage, Registry, Replay, Retention, Selection, Settlement,
    StrikeFilter,
};
use postrider_core::{
    AddressHash, Clock, DeliveryId, LaneId, LaneKey, MessageId, StrikeKind, TenantId, Timestamp,
};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::{batch, delivery_to, success, webhook};
use postrider_store::{ManualClock, MemoryStore, StoreOptions};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Operation {
    Accept { tenant: bool, to: Vec<u32>, key: Option<(u8, u8)>, delay_s: u64 },
    Lease { lane: usize, max: usize, for_s: u64 },
    Settle { lease: usize, decision: Decision, attempts: u32 },
    SettleTogether { decisions: Vec<Decision> },
    Advance { ms: u64 },
    Cancel { message: usize },
    Replay { which: Option<usize>, rate: Option<f64>, ttl_s: Option<u32> },
    Discard { which: Option<usize> },
    Register { tenant: bool, number: u32 },
    Prune { keep_s: u64 },
    Start { lease: usize },
    LeaseExpired { max: usize, for_s: u64 },
    Suspend { lane: usize, for_s: u64 },
    Resume { lane: Option<usize> },
    Crash,
    TakeOver { cleanly: bool },
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![
        4 => Just(Decision::Done),
        1 => Just(Decision::Expire),
        1 => Just(Decision::MarkGone),
        2 => Just(Decision::DeadLetter(DeadReason::Permanent)),
        1 => Just(Decision::DeadLetter(DeadReason::Ttl)),
        3 => (0..20_000u64).prop_map(|ms| Decision::Retry { after: Duration::from_millis(ms), counted: true }),
        1 => (0..60_000u64).prop_map(|ms| Decision::Park { after: Duration::from_millis(ms) }),
        2 => Just(Decision::Release),
        1 => Just(Decision::FallBack),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let to = prop::collection::vec(0..4u32, 1..5);
    let key = prop::option::of((0..6u8, 0..2u8));
    prop_oneof![
        8 => (any::<bool>(), to, key, prop_oneof![3 => Just(0u64), 1 => 0..30u64])
            .prop_map(|(tenant, to, key, delay_s)| Operation::Accept { tenant, to, key, delay_s }),
        8 => (0..8usize, 1..6usize, 1..40u64)
            .prop_map(|(lane, max, for_s)| Operation::Lease { lane, max, for_s }),
        8 => (any::<usize>(), decision(), 0..4u32)
            .prop_map(|(lease, decision, attempts)| Operation::Settle { lease, decision, attempts }),
        2 => prop::collection::vec(decision(), 1..6)
            .prop_map(|decisions| Operation::SettleTogether { decisions }),
        4 => (0..20_000u64).prop_map(|ms| Operation::Advance { ms }),
        1 => any::<usize>().prop_map(|message| Operation::Cancel { message }),
        1 => (prop::option::of(any::<usize>()), prop::option::of(0.5..50.0f64), prop::option::of(1..5000u32))
            .prop_map(|(which, rate, ttl_s)| Operation::Replay { which, rate, ttl_s }),
        1 => prop::option::of(any::<usize>()).prop_map(|which| Operation::Discard { which }),
        1 => (any::<bool>(), 0..4u32).prop_map(|(tenant, number)| Operation::Register { tenant, number }),
        1 => (0..60u64).prop_map(|keep_s| Operation::Prune { keep_s }),
        2 => any::<usize>().prop_map(|lease| Operation::Start { lease }),
        2 => (1..6usize, 1..40u64).prop_map(|(max, for_s)| Operation::LeaseExpired { max, for_s }),
        1 => (0..8usize, 0..30u64).prop_map(|(lane, for_s)| Operation::Suspend { lane, for_s }),
        1 => prop::option::of(0..8usize).prop_map(|lane| Operation::Resume { lane }),
        1 => Just(Operation::Crash),
        1 => any::<bool>().prop_map(|cleanly| Operation::TakeOver { cleanly }),
    ]
}

/// A strike, unless the delivery succeeded.
fn learned(attempts: &[AttemptRecord], decision: &Decision) -> AddressLearning {
    let number = attempts.iter().map(|attempt| attempt.number).sum::<u32>() as usize;
    let kinds = StrikeKind::ALL;
    let strikes = number > 0 && *decision != Decision::Done;
    let strike = strikes.then(|| NewStrike {
        kind: kinds[number % kinds.len()],
        suspect: number.is_multiple_of(4),
    });
    AddressLearning { strike, target: None }
}

/// The two stores, and the ids and leases of the same things in both.
struct StorePair {
    clock: Arc<ManualClock>,
    model: WorkingStore<MemoryStore>,
    store: WorkingStore,
    folder: tempfile::TempDir,
    options: StoreOptions,
    messages: Vec<(MessageId, MessageId)>,
    deliveries: Vec<(DeliveryId, DeliveryId)>,
    leases: Vec<(LeasedDelivery, LeasedDelivery)>,
}

fn tenant(first: bool) -> &'static str {
    if first { "acme" } else { "other" }
}

/// Gives an alternative to the deliveries for recipient 0.
fn with_alternatives(mut new: NewMessage, tenant: &str) -> NewMessage {
    for delivery in &mut new.deliveries {
        let number = u32::from(delivery.recipient.as_ref().is_some_and(|r| r.ends_with('0')));
        delivery.alternatives = (1..=number).map(|n| alternative(tenant, n)).collect();
    }
    new
}

fn alternative(tenant: &str, number: u32) -> Alternative {
    let other = delivery_to(tenant, number);
    Alternative {
        lane: other.lane,
        target: other.target,
        hash: other.hash,
        address: None,
        address_since: None,
    }
}

fn lane_id(number: usize) -> LaneId {
    LaneId(number as u32)
}

fn hash_of(number: u32) -> AddressHash {
    batch("acme", &[number]).deliveries[0].hash
}

impl StorePair {
    fn new(options: StoreOptions) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let folder = tempfile::tempdir().unwrap();
        Self {
            model: WorkingStore::over(Arc::new(MemoryStore::new(clock.clone()))),
            store: WorkingStore::open(folder.path(), clock.clone(), options).unwrap(),
            clock,
            folder,
            options,
            messages: Vec::new(),
            deliveries: Vec::new(),
            leases: Vec::new(),
        }
    }

    async fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Accept { tenant: t, to, key, delay_s } => {
                self.accept(tenant(t), &to, key, delay_s).await
            }
            Operation::Lease { lane, max, for_s } => self.lease(lane, max, for_s).await,
            Operation::Settle { lease, decision, attempts } if !self.leases.is_empty() => {
                let lease = lease % self.leases.len();
                self.settle(vec![(lease, decision, attempts)]).await;
            }
            Operation::SettleTogether { decisions } => {
                let picked =
                    decisions.into_iter().enumerate().filter(|(i, _)| *i < self.leases.len());
                let picked = picked.map(|(i, decision)| (i, decision, 1)).collect::<Vec<_>>();
                self.settle(picked).await;
            }
            Operation::Advance { ms } => self.clock.advance(Duration::from_millis(ms)),
            Operation::Cancel { message } if !self.messages.is_empty() => {
                let (a, b) = self.messages[message % self.messages.len()];
                let ours = self.model.cancel(None, a).await.unwrap();
                assert_eq!(self.store.cancel(None, b).await.unwrap(), ours);
            }
            Operation::Replay { which, rate, ttl_s } => {
                let how = Replay { ttl_s, rate_per_s: rate, ..Replay::default() };
                let (a, b) = self.selection(which);
                let ours = self.model.replay(None, a, how.clone()).await.unwrap();
                assert_eq!(self.store.replay(None, b, how).await.unwrap(), ours);
            }
            Operation::Discard { which } => {
                let (a, b) = self.selection(which);
                let ours = self.model.discard(None, a).await.unwrap();
                assert_eq!(self.store.discard(None, b).await.unwrap(), ours);
            }
            Operation::Register { tenant: t, number } => {
                let new = NewAddress {
                    tenant: TenantId::new(tenant(t)),
                    recipient: None,
                    target: webhook(number),
                    hash: hash_of(number),
                };
                let ours = self.model.put_address(new.clone()).await.unwrap();
                let theirs = self.store.put_address(new).await.unwrap();
                assert_eq!((ours.1, ours.0.status), (theirs.1, theirs.0.status));
            }
            Operation::Prune { keep_s } => {
                let keep = Duration::from_secs(keep_s);
                let mut retention = Retention::of(keep);
                retention.default.dead_letters = Some(keep * 2);
                let ours = self.model.prune(&retention).await.unwrap();
                assert_eq!(self.store.prune(&retention).await.unwrap(), ours);
            }
            Operation::Start { lease } if !self.leases.is_empty() => {
                let (a, b) = &self.leases[lease % self.leases.len()];
                let ours = self.model.start(vec![(a.delivery, a.token)]).await.unwrap();
                let theirs = self.store.start(vec![(b.delivery, b.token)]).await.unwrap();
                assert_eq!(theirs, ours);
            }
            Operation::LeaseExpired { max, for_s } => self.lease_expired(max, for_s).await,
            Operation::Suspend { lane, for_s } => {
                let (lane, until) = (lane_id(lane), self.clock.now() + Duration::from_secs(for_s));
                self.model.suspend(lane, until);
                self.store.suspend(lane, until);
            }
            Operation::Resume { lane } => {
                self.model.resume(lane.map(lane_id));
                self.store.resume(lane.map(lane_id));
            }
            Operation::Crash => self.crash().await,
            Operation::TakeOver { cleanly } => self.take_over(cleanly).await,
            Operation::Settle { .. } | Operation::Cancel { .. } | Operation::Start { .. } => {}
        }
    }

    async fn accept(&mut self, tenant: &str, to: &[u32], key: Option<(u8, u8)>, delay_s: u64) {
        let delay = Duration::from_secs(delay_s);
        let dedup = key.map(|(key, body)| DedupKey {
            key: [key; 16],
            fingerprint: [body; 16],
            window: Duration::from_secs(if key % 2 == 0 { 20 } else { 100_000 }),
        });
        let new = NewMessage {
            send_at: (delay_s > 0).then(|| self.clock.now() + delay),
            dedup,
            ttl_s: if to.len().is_multiple_of(2) { 15 } else { 3600 },
            now_or_never: DISPATCH_WINDOW,
            member_keys: Vec::new(),
            ..batch(tenant, to)
        };
        let new = with_alternatives(new, tenant);
        let ours = self.model.accept(vec![new.clone()]).await.unwrap().remove(0);
        let theirs = self.store.accept(vec![new]).await.unwrap().remove(0);
        match (ours, theirs) {
            (
                Admission::Accepted { message: a, deliveries: ours },
                Admission::Accepted { message: b, deliveries: theirs },
            ) => {
                assert_eq!(ours.len(), theirs.len());
                self.messages.push((a, b));
                self.deliveries.extend(ours.into_iter().zip(theirs));
            }
            (
                Admission::Duplicate { message: a, deliveries: ours },
                Admission::Duplicate { message: b, deliveries: theirs },
            ) => {
                assert!(self.messages.contains(&(a, b)));
                assert_eq!(self.store_ids(&ours), theirs);
            }
            (Admission::Conflict { message: a }, Admission::Conflict { message: b }) => {
                assert!(self.messages.contains(&(a, b)));
            }
            (ours, theirs) => panic!("{ours:?} but {theirs:?}"),
        }
    }

    /// The ids that the embedded store gave to these deliveries of the model.
    fn store_ids(&self, ours: &[DeliveryId]) -> Vec<DeliveryId> {
        let name = |id: &DeliveryId| self.deliveries.iter().find(|(a, _)| a == id).unwrap().1;
        ours.iter().map(name).collect()
    }

    fn selection(&self, which: Option<usize>) -> (Selection, Selection) {
        match which {
            Some(index) if !self.deliveries.is_empty() => {
                let (a, b) = self.deliveries[index % self.deliveries.len()];
                (Selection::Ids(vec![a]), Selection::Ids(vec![b]))
            }
            _ => {
                let all = Selection::Filter(DeliveryFilter::default());
                (all.clone(), all)
            }
        }
    }

    async fn lease(&mut self, lane: usize, max: usize, for_s: u64) {
        let ours = self.model.ready_lanes(100).await.unwrap();
        let theirs = self.store.ready_lanes(100).await.unwrap();
        assert_eq!(ours, theirs);
        if ours.is_empty() {
            return;
        }
        let lane = ours[lane % ours.len()].id;
        let duration = Duration::from_secs(for_s);
        let ours = self.model.lease(lane, max, duration).await.unwrap();
        // A store may lease fewer than asked for, but never none while some are due.
        let mut theirs = Vec::new();
        loop {
            let more = self.store.lease(lane, max - theirs.len(), duration).await.unwrap();
            if more.is_empty() {
                break;
            }
            theirs.extend(more);
        }
        self.leased(ours, theirs);
    }

    async fn lease_expired(&mut self, max: usize, for_s: u64) {
        let duration = Duration::from_secs(for_s);
        let ours = self.model.lease_expired(max, duration).await.unwrap();
        let theirs = self.store.lease_expired(max, duration).await.unwrap();
        let lanes = |leased: &[(Arc<LaneKey>, LeasedDelivery)]| {
            leased.iter().map(|(lane, _)| lane.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lanes(&theirs), lanes(&ours));
        let leased =
            |leased: Vec<(_, LeasedDelivery)>| leased.into_iter().map(|(_, l)| l).collect();
        self.leased(leased(ours), leased(theirs));
    }

    fn leased(&mut self, ours: Vec<LeasedDelivery>, theirs: Vec<LeasedDelivery>) {
        assert_eq!(ours.len(), theirs.len());
        for (a, b) in ours.into_iter().zip(theirs) {
            assert_eq!(self.store_ids(&[a.delivery]), [b.delivery]);
            assert_eq!((a.attempts, a.tries, a.last_delay), (b.attempts, b.tries, b.last_delay));
            assert_eq!((a.expires_at, a.halt, &a.retry), (b.expires_at, b.halt, &b.retry));
            assert_eq!(a.alternatives, b.alternatives);
            assert_eq!(a.strikes, b.strikes);
            assert_eq!((a.crashes, a.started), (b.crashes, b.started));
            assert_eq!((&a.target, a.hash), (&b.target, b.hash));
            assert_eq!(a.message.content, b.message.content);
            self.leases.push((a, b));
        }
    }

    async fn settle(&mut self, picked: Vec<(usize, Decision, u32)>) {
        let now = self.clock.now();
        let both = picked.into_iter().map(|(lease, decision, attempts)| {
            let (a, b) = &self.leases[lease];
            let attempts: Vec<AttemptRecord> =
                (1..=attempts).map(|n| success(a.tries + n, now)).collect();
            let of = |leased: &LeasedDelivery| Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts: attempts.clone(),
                decision: decision.clone(),
                learned: learned(&attempts, &decision),
            };
            (of(a), of(b))
        });
        let (ours, theirs): (Vec<_>, Vec<_>) = both.unzip();
        let ours = self.model.settle(ours).await.unwrap();
        assert_eq!(self.store.settle(theirs).await.unwrap(), ours);
    }

    /// Both stores show the same strikes.
    async fn compare_strikes(&self) {
        for tenant in ["acme", "other"].map(TenantId::new) {
            let all = StrikeFilter { limit: 100, ..StrikeFilter::default() };
            let ours = self.model.strikes(&tenant, all.clone()).await.unwrap();
            assert_eq!(self.store.strikes(&tenant, all).await.unwrap(), ours);
        }
    }

    /// Opens a copy of the files as they are at this moment. The store is not closed first.
    async fn crash(&mut self) {
        let copy = tempfile::tempdir().unwrap();
        copy_files(self.folder.path(), copy.path());
        self.store = WorkingStore::open(copy.path(), self.clock.clone(), self.options).unwrap();
        self.folder = copy;
        self.model = WorkingStore::over(self.model.store().clone());
        self.begin_to_consume().await;
    }

    async fn begin_to_consume(&self) {
        self.model.take_over().await.unwrap();
        self.store.take_over().await.unwrap();
    }

    /// Another consumer takes over, in the same process.
    async fn take_over(&mut self, cleanly: bool) {
        if cleanly {
            self.model.close_consumer().await;
            self.store.close_consumer().await;
        }
        self.model = WorkingStore::over(self.model.store().clone());
        self.store = WorkingStore::over(self.store.store().clone());
        self.begin_to_consume().await;
    }

    async fn compare(&self) {
        self.compare_strikes().await;
        for name in [None, Some(TenantId::new("acme")), Some(TenantId::new("other"))] {
            let ours = self.model.counts(name.as_ref()).await.unwrap();
            assert_eq!(self.store.counts(name.as_ref()).await.unwrap(), ours, "{name:?}");
            assert_eq!(self.store.load(name.as_ref()), self.model.load(name.as_ref()), "{name:?}");
        }
        let lanes = self.model.lanes(None, 100).await.unwrap();
        let theirs = self.store.lanes(None, 100).await.unwrap();
        let depth = |lanes: &[postrider_core::ports::store::LaneDepth]| {
            lanes.iter().map(|l| (l.id, l.key.clone(), l.pending, l.in_flight)).collect::<Vec<_>>()
        };
        assert_eq!(depth(&theirs), depth(&lanes));
        let ours = self.model.oldest_pending().await.unwrap();
        assert_eq!(self.store.oldest_pending().await.unwrap(), ours);
        for (a, b) in &self.deliveries {
            let ours = self.model.delivery(None, *a).await.unwrap();
            let theirs = self.store.delivery(None, *b).await.unwrap();
            assert_eq!(theirs.map(|d| self.plain(d)), ours.map(|d| self.plain(d)));
        }
        for (a, b) in &self.messages {
            let ours = self.model.message(None, *a).await.unwrap();
            let theirs = self.store.message(None, *b).await.unwrap();
            assert_eq!(
                theirs.map(|m| (m.states, m.has_content, m.expires_at)),
                ours.map(|m| (m.states, m.has_content, m.expires_at))
            );
        }
        let filter = DeliveryFilter { limit: 1000, ..DeliveryFilter::default() };
        let ours = self.model.dead_letters(filter.clone()).await.unwrap().items;
        let theirs = self.store.dead_letters(filter).await.unwrap().items;
        let ids = |items: Vec<Delivery>| items.into_iter().map(|d| d.id).collect::<Vec<_>>();
        assert_eq!(ids(theirs), self.store_ids(&ids(ours)));
    }

    /// Without the parts of ids that are random.
    fn plain(&self, delivery: Delivery) -> Delivery {
        Delivery { id: DeliveryId(0), message: MessageId(0), ..delivery }
    }
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["postrider.db", "postrider.db-wal", "postrider.flight"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

const SMALL: StoreOptions = StoreOptions {
    lane_window: 2,
    window_total: 6,
    delivery_cache_bytes: 4_000,
    page_cache_kib: 256,
    listed_at_once: 3,
    dedup_bucket_keys: 3,
    reserve_bytes: 0,
    journal_bytes_max: u64::MAX,
};

fn compare_runs(operations: Vec<Operation>, options: StoreOptions) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut pair = StorePair::new(options);
        for operation in operations {
            pair.run(operation).await;
            pair.compare().await;
        }
        pair.crash().await;
        pair.compare().await;
    });
}

/// The environment variable `PROPTEST_CASES` sets another number.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_and_crashes_show_the_same_as_the_model(operations in prop::collection::vec(operation(), 1..60)) {
        compare_runs(operations, StoreOptions::default());
    }

    #[test]
    fn so_do_they_with_very_little_memory(operations in prop::collection::vec(operation(), 1..60)) {
        compare_runs(operations, SMALL);
    }
}
