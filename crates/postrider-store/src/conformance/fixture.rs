//! A store, its clock, and the calls that the promises make.

use std::collections::HashMap;
pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

use postrider_core::DecisionKind;
use postrider_core::model::message::Envelope;
use postrider_core::model::outcome::OutcomeKind;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
pub(super) use postrider_core::ports::store::*;
pub(super) use postrider_core::{
    Address, AddressHash, AddressStatus, AttemptRecord, ChannelKind, Clock, DeadReason, Decision,
    Delivery, DeliveryId, LaneId, LaneKey, MessageId, State, Strike, StrikeKind, Target, TenantId,
    Timestamp,
};

use super::{StoreFactory, WorkingStore};
use crate::ManualClock;

/// A store under test, and its clock.
pub struct StoreFixture<'a> {
    pub store: WorkingStore<dyn Store>,
    pub clock: Arc<ManualClock>,
    factory: &'a dyn StoreFactory,
}

pub(super) const LEASE: Duration = Duration::from_secs(60);

pub(super) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A counted retry after so many seconds.
pub(super) fn retry(after: u64) -> Decision {
    Decision::Retry { after: secs(after), counted: true }
}

pub(super) fn acme() -> TenantId {
    TenantId::new("acme")
}

impl<'a> StoreFixture<'a> {
    pub async fn new(factory: &'a dyn StoreFactory) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::over(factory.open(clock.clone()).await);
        Self { store, clock, factory }
    }

    /// The store after a crash; `None` if it keeps nothing.
    pub async fn reopened(&self) -> Option<StoreFixture<'a>> {
        let old = self.store.store().clone();
        let store = self.factory.reopen(old, self.clock.clone()).await?;
        let store = WorkingStore::over(store);
        store.take_over().await.unwrap();
        Some(StoreFixture { store, clock: self.clock.clone(), factory: self.factory })
    }

    /// The store after a crash, or the same store if it keeps nothing.
    pub async fn after_crash(&self) -> StoreFixture<'a> {
        match self.reopened().await {
            Some(reopened) => reopened,
            None => {
                let store = WorkingStore::over(self.store.store().clone());
                StoreFixture { store, clock: self.clock.clone(), factory: self.factory }
            }
        }
    }

    /// The load, with the expected bytes if the store has sizes of its own.
    pub fn load(&self, tenant: Option<&TenantId>, expected: Load) -> Load {
        let found = self.store.load(tenant);
        match self.factory.keeps_sizes() {
            true => found,
            false => Load { bytes: expected.bytes, ..found },
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn accept(&self, new: NewMessage) -> (MessageId, Vec<DeliveryId>) {
        match self.store.accept(vec![new]).await.unwrap().remove(0) {
            Admission::Accepted { message, deliveries } => (message, deliveries),
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Accepts one message with one delivery to the first webhook lane.
    pub async fn accept_one(&self) -> DeliveryId {
        self.accept(message("acme", 1)).await.1[0]
    }

    pub async fn ready(&self) -> Vec<LaneId> {
        self.store.ready_lanes(1000).await.unwrap().into_iter().map(|lane| lane.id).collect()
    }

    /// Leases up to `max` from every ready lane.
    pub async fn lease(&self, max: usize) -> Vec<LeasedDelivery> {
        let mut leased = Vec::new();
        for lane in self.ready().await {
            leased.extend(self.store.lease(lane, max, LEASE).await.unwrap());
        }
        leased
    }

    /// Everything that is due: a store may give less at once than is asked for.
    pub async fn lease_all(&self) -> Vec<LeasedDelivery> {
        let mut all = Vec::new();
        loop {
            let some = self.lease(100).await;
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    pub async fn lease_one(&self) -> LeasedDelivery {
        let mut leased = self.lease(1).await;
        assert_eq!(leased.len(), 1, "one delivery should be due");
        leased.remove(0)
    }

    /// Accepts a message with one delivery, and leases that.
    pub async fn accept_and_lease(&self, new: NewMessage) -> LeasedDelivery {
        self.accept(new).await;
        self.lease_one().await
    }

    pub async fn settle(&self, leased: &LeasedDelivery, decision: Decision) -> SettleResult {
        let attempt =
            (decision != Decision::Release).then(|| success(leased.tries + 1, self.now()));
        self.settle_with(leased, decision, attempt.into_iter().collect()).await
    }

    /// Leases the one delivery that is due, and settles it.
    pub async fn settle_next(&self, decision: Decision) -> SettleResult {
        let leased = self.lease_one().await;
        self.settle(&leased, decision).await
    }

    /// Accepts a message with one delivery, and settles that.
    pub async fn accept_and_settle(&self, new: NewMessage, decision: Decision) -> SettleResult {
        self.accept(new).await;
        self.settle_next(decision).await
    }

    pub async fn settle_with(
        &self,
        leased: &LeasedDelivery,
        decision: Decision,
        attempts: Vec<AttemptRecord>,
    ) -> SettleResult {
        self.settle_learned(leased, decision, attempts, AddressLearning::default()).await
    }

    pub async fn settle_learned(
        &self,
        leased: &LeasedDelivery,
        decision: Decision,
        attempts: Vec<AttemptRecord>,
        learned: AddressLearning,
    ) -> SettleResult {
        let (delivery, token) = (leased.delivery, leased.token);
        let settlement = Settlement { delivery, token, attempts, decision, learned };
        self.store.settle(vec![settlement]).await.unwrap()[0]
    }

    /// Starts the attempt of a leased delivery; false if the store refuses.
    pub async fn start(&self, leased: &LeasedDelivery) -> bool {
        self.store.start(vec![(leased.delivery, leased.token)]).await.unwrap()[0]
    }

    pub async fn content(&self, id: MessageId) -> Option<Arc<str>> {
        self.store.content(None, id).await.unwrap()
    }

    pub async fn counts(&self) -> Counts {
        self.store.counts(None).await.unwrap()
    }

    /// Pending deliveries and deliveries in flight, of the deepest lanes.
    pub async fn depths(&self, tenant: Option<&TenantId>, limit: usize) -> Vec<(u64, u64)> {
        let lanes = self.store.lanes(tenant, limit).await.unwrap();
        lanes.iter().map(|lane| (lane.pending, lane.in_flight)).collect()
    }

    pub async fn delivery(&self, id: DeliveryId) -> Delivery {
        self.store.delivery(None, id).await.unwrap().expect("the delivery is there")
    }

    pub async fn state(&self, id: DeliveryId) -> State {
        self.delivery(id).await.state
    }

    /// Every page of a listing, newest first.
    pub async fn all(&self, filter: DeliveryFilter, dead: bool) -> Vec<DeliveryId> {
        let all = all_pages(async |cursor| {
            let filter = DeliveryFilter { cursor, ..filter.clone() };
            match dead {
                true => self.store.dead_letters(filter).await,
                false => self.store.deliveries(filter).await,
            }
        });
        all.await.iter().map(|delivery| delivery.id).collect()
    }

    pub async fn dead(&self) -> Vec<DeliveryId> {
        self.all(DeliveryFilter { limit: 10, ..DeliveryFilter::default() }, true).await
    }
}

/// The items of all pages; `read` reads the page after a cursor.
pub(super) async fn all_pages<T, C>(
    read: impl AsyncFn(Option<C>) -> StoreResult<Page<T, C>>,
) -> Vec<T> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = read(cursor).await.unwrap();
        all.extend(page.items);
        match page.next {
            None => return all,
            next => cursor = next,
        }
    }
}

pub fn lane(tenant: &str, number: u32) -> Arc<LaneKey> {
    Arc::new(LaneKey {
        tenant: TenantId::new(tenant),
        channel: WEBHOOK,
        provider: format!("https://host-{number}.example").into(),
        class: "transactional".into(),
    })
}

/// The kind of all deliveries here; a store knows no channel.
const WEBHOOK: ChannelKind = ChannelKind::new("webhook");

/// An address with this URL.
pub(super) fn target(url: &str) -> Target {
    Target::new(WEBHOOK, &HashMap::from([("url", url)]))
}

/// The URL of such an address.
pub fn url(target: &Target) -> String {
    let mut fields: HashMap<String, String> = target.read().expect("a target of this file");
    fields.remove("url").expect("it has a URL")
}

pub fn webhook(number: u32) -> Target {
    target(&format!("https://host-{number}.example/hook"))
}

pub(super) fn hash(number: u32) -> AddressHash {
    AddressHash(
        u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes(),
    )
}

pub fn delivery_to(tenant: &str, number: u32) -> NewDelivery {
    NewDelivery {
        lane: lane(tenant, number),
        target: Arc::new(webhook(number)),
        hash: hash(number),
        recipient: Some(format!("user-{number}").into()),
        address: None,
        address_since: None,
        alternatives: Vec::new(),
        is_wide: false,
        region: None,
    }
}

/// A message with one delivery, to the lane and host of that number.
pub fn message(tenant: &str, number: u32) -> NewMessage {
    batch(tenant, &[number])
}

pub fn batch(tenant: &str, numbers: &[u32]) -> NewMessage {
    NewMessage {
        tenant: TenantId::new(tenant),
        class: "transactional".into(),
        ttl_s: 3600,
        now_or_never: DISPATCH_WINDOW,
        member_keys: Vec::new(),
        send_at: None,
        envelope: Envelope::default(),
        content: r#"{"title":"hello"}"#.into(),
        dedup: None,
        deliveries: numbers.iter().map(|number| delivery_to(tenant, *number)).collect(),
    }
}

pub(super) fn keyed(key: u64, fingerprint: u8, window: Duration) -> NewMessage {
    let spread = |x: u64| {
        let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let key = u128::from(spread(key + 1)) << 64 | u128::from(spread(key + 77));
    let dedup = DedupKey { key: key.to_le_bytes(), fingerprint: [fingerprint; 16], window };
    NewMessage { dedup: Some(dedup), ..message("acme", 1) }
}

pub fn success(number: u32, at: Timestamp) -> AttemptRecord {
    AttemptRecord {
        number,
        at,
        latency_ms: 12,
        outcome: OutcomeKind::Accepted,
        decision: DecisionKind::Done,
        status: Some(201),
        code: None,
        detail: None,
        retry_after: None,
        provider_id: None,
        account: None,
        key: None,
        next_at: None,
        counted: true,
        strike: None,
    }
}
