//! Stores that several workers share: the queue is split into shards, and each shard is held by one worker at a time.
//! The holder keeps leases, windows of lanes, suspensions and wake-ups in its memory. What an engine has to do is the
//! trait [`ShardEngine`]; nothing here knows an engine.

mod consumer;
mod holding;
mod index;
mod lane;
mod leasing;
pub(crate) mod load;
pub(crate) mod server_time;
mod settling;
mod suspects;
pub(crate) mod worker_name;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::model::region::REGIONS_MAX;
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::ports::store::{
    AddressLearning, Alternative, LeasedDelivery, NewDelivery, StoreResult,
};
use postrider_core::{
    AddressHash, Clock, Decision, DeliveryId, LaneKey, Message, Strike, Target, Timestamp,
};

use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, StoredProgress};

pub(crate) use consumer::ShardConsumer;
pub(crate) use settling::settled_progress;

/// How many shards a store has. Fixed when it is set up.
pub(crate) const SHARDS: u16 = 64;
/// So many bits at the end of an id name its shard.
const SHARD_BITS: u32 = 10;

/// A holder says so often that it lives.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// A worker that was silent for so long is dead: others take its shards.
pub(crate) const TERM: Duration = Duration::from_secs(5);
/// A worker leases nothing so long after its last heartbeat, before others believe that it is dead.
pub(crate) const SURE_FOR: Duration = Duration::from_secs(4);
/// New work is looked for so often, even if nobody told of it.
pub(crate) const POLL: Duration = Duration::from_millis(250);

pub(crate) type ShardId = u16;

/// The place of a delivery in its lane: when it is due, and its id.
pub(crate) type LanePlace = (i64, u128);

pub(crate) fn shard_of(id: u128) -> ShardId {
    (id & ((1 << SHARD_BITS) - 1)) as u16 % SHARDS
}

/// So many of the first shards are for everything that no region has. The others are for regions.
pub(crate) const COMMON_SHARDS: u16 = 48;
/// So many shards a region has.
pub(crate) const REGION_SHARDS: u16 = (SHARDS - COMMON_SHARDS) / REGIONS_MAX as u16;

/// The region whose workers hold a shard, by its place; `None` if all workers may.
pub(crate) fn region_of(shard: ShardId, regions: usize) -> Option<usize> {
    let place = usize::from(shard.checked_sub(COMMON_SHARDS)? / REGION_SHARDS);
    Some(place).filter(|place| *place < regions)
}

/// The shard of a new delivery. What is pinned to a region is in the shards of that region. The origin decides, so that
/// everything about a host is known by one worker. Accounts and large push services are spread by address, so that all
/// workers send to them.
pub(crate) fn shard_of_new(delivery: &NewDelivery) -> ShardId {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let lane = &*delivery.lane;
    lane.channel.name().bytes().chain([0]).chain(lane.provider.bytes()).for_each(&mut add);
    if delivery.is_wide {
        delivery.hash.0.iter().copied().for_each(&mut add);
    }
    let within = |shards: u16| ((hash >> 20) % u64::from(shards)) as ShardId;
    match delivery.region {
        None => within(COMMON_SHARDS),
        Some(region) => {
            COMMON_SHARDS + region.place() as u16 * REGION_SHARDS + within(REGION_SHARDS)
        }
    }
}

/// JSON, or nothing if it is what a default is.
pub(crate) fn json_unless<T: serde::Serialize + PartialEq + Default>(value: &T) -> Option<String> {
    let is_default = *value == T::default();
    // Plain structs of texts and numbers: writing them cannot fail.
    (!is_default).then(|| serde_json::to_string(value).unwrap_or_default())
}

/// The same id, but in this shard.
pub(crate) fn in_shard(id: u128, shard: ShardId) -> u128 {
    let mask = (1 << SHARD_BITS) - 1;
    (id & !mask) | u128::from(shard)
}

/// A shard as its holder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldShard {
    pub(crate) shard: ShardId,
    /// Random, and another one for each holder. Everything that a holder writes is fenced by it.
    pub(crate) nonce: i64,
    /// How many acts of operators its leases know of.
    pub(crate) acts: i64,
}

/// What a heartbeat found.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatReport {
    /// Absent if another consumer of the same name replaced this one.
    pub(crate) held: Option<Vec<HeldShard>>,
    /// Shards that nobody holds.
    pub(crate) free: Vec<ShardId>,
    /// The names of the workers that live, with this one.
    pub(crate) workers: Vec<String>,
    /// The engine lost what was written last, so the leases have to be written again.
    pub(crate) lost_leases: bool,
    /// Until when a suspect of another worker is leased.
    pub(crate) suspect_until: Option<i64>,
}

/// Something that changed in the queue, not by its holder.
#[derive(Debug, Clone)]
pub(crate) struct QueueNote {
    /// Grows.
    pub(crate) number: i64,
    pub(crate) kind: NoteKind,
    pub(crate) entries: Vec<NoteEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteKind {
    /// New deliveries.
    Arrived,
    /// Deliveries that wait again, or at another time.
    Returned,
    /// They do not wait any more.
    Removed,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NoteEntry {
    pub(crate) id: u128,
    pub(crate) lane: u32,
    pub(crate) due: i64,
    pub(crate) expires: i64,
}

/// A pending delivery, as it is listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueEntry {
    pub(crate) id: u128,
    pub(crate) lane: u32,
    pub(crate) due: i64,
    pub(crate) expires: i64,
}

/// What a new holder reads.
#[derive(Debug, Default)]
pub(crate) struct ShardContent {
    /// Lanes, each with its first due time.
    pub(crate) lanes: Vec<(u32, i64)>,
    /// Deliveries that were in flight at crashes, and at how many.
    pub(crate) crashed: Vec<(u128, u32)>,
    /// When the first delivery expires.
    pub(crate) first_expiry: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct LeaseOrder {
    pub(crate) shards: Vec<HeldShard>,
    pub(crate) batch: i64,
    pub(crate) ids: Vec<u128>,
    pub(crate) now: i64,
    pub(crate) until: i64,
    /// Also what is not due yet, because it expired.
    pub(crate) expired: bool,
    /// Batches of which nothing is leased any more.
    pub(crate) ended_batches: Vec<(ShardId, i64)>,
}

/// A leased delivery as it is stored.
#[derive(Debug)]
pub(crate) struct LeasedRow {
    pub(crate) id: u128,
    pub(crate) lane: u32,
    pub(crate) message: Arc<Message>,
    /// Several deliveries share the message.
    pub(crate) shares_message: bool,
    pub(crate) target: Arc<Target>,
    pub(crate) hash: AddressHash,
    pub(crate) recipient: Option<Arc<str>>,
    pub(crate) address_since: Option<Timestamp>,
    pub(crate) progress: StoredProgress,
    pub(crate) mark: DeliveryMark,
    pub(crate) expires: i64,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) alternatives: Vec<Alternative>,
    /// JSON.
    pub(crate) log: Option<String>,
    /// Of its address, and of its body if it has its own.
    pub(crate) bytes: i64,
    pub(crate) end: Option<AddressEnd>,
    pub(crate) strikes: Vec<Strike>,
}

impl LeasedRow {
    pub(crate) fn leased(&self, token: u64) -> LeasedDelivery {
        LeasedDelivery {
            delivery: DeliveryId(self.id),
            token,
            message: self.message.clone(),
            target: self.target.clone(),
            hash: self.hash,
            recipient: self.recipient.clone(),
            address_since: self.address_since,
            due_at: self.progress.due,
            attempts: self.progress.attempts,
            tries: self.progress.tries,
            last_delay: self.progress.last_delay,
            expires_at: Timestamp(self.expires),
            retry: self.retry.clone(),
            halt: self.mark.halt(self.end, self.message.id),
            crashes: self.mark.crashes,
            started: self.mark.started,
            alternatives: self.alternatives.clone(),
            strikes: self.strikes.clone(),
        }
    }
}

/// A settlement of a lease that this worker has.
#[derive(Debug, Clone)]
pub(crate) struct SettleItem {
    pub(crate) row: Arc<LeasedRow>,
    /// The lease's batch.
    pub(crate) batch: i64,
    pub(crate) decision: Decision,
    pub(crate) attempts: Vec<postrider_core::AttemptRecord>,
    pub(crate) learned: AddressLearning,
}

/// One write of several settlements.
#[derive(Debug)]
pub(crate) struct SettleOrder {
    pub(crate) shards: Vec<HeldShard>,
    /// By this number a repeated write is known.
    pub(crate) receipt: u128,
    pub(crate) items: Vec<SettleItem>,
    pub(crate) ended_batches: Vec<(ShardId, i64)>,
    pub(crate) now: Timestamp,
}

/// Where a delivery is after its settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettledPlace {
    Final,
    Waits {
        lane: u32,
        due: i64,
        crashes: u32,
    },
    /// The lease was not valid any more.
    Fenced,
}

/// A lease for the engine to write again.
#[derive(Debug, Default)]
pub(crate) struct LeaseRecord {
    pub(crate) shard: ShardId,
    pub(crate) nonce: i64,
    pub(crate) batch: i64,
    pub(crate) until: i64,
    pub(crate) ids: Vec<u128>,
}

/// What an engine does for the holders of shards. Each call is atomic. All times are the engine's.
#[async_trait]
pub(crate) trait ShardEngine: Send + Sync + 'static {
    fn clock(&self) -> &Arc<dyn Clock>;

    /// Wakes when there may be notes, or shards to take.
    fn news(&self) -> &ShardNews;

    /// Makes a worker known under a new number. An older one of the same name is replaced by it.
    async fn join(&self, node: &str) -> StoreResult<i64>;

    /// Says that a worker lives, and tells it what it holds.
    async fn heartbeat(&self, node: &str, number: i64) -> StoreResult<HeartbeatReport>;

    /// Takes shards that nobody holds, or that an older consumer of the same name held. What their last holder had
    /// leased counts as in flight at a crash, unless it handed over.
    async fn take(
        &self,
        node: &str,
        number: i64,
        shards: &[ShardId],
    ) -> StoreResult<Vec<HeldShard>>;

    /// Ends the leases of these shards, and holds them no longer.
    async fn hand_over(&self, shards: &[HeldShard]) -> StoreResult<()>;

    /// The worker ends; it holds nothing any more.
    async fn leave(&self, node: &str, number: i64) -> StoreResult<()>;

    /// Writes leases again that the engine may have lost.
    async fn write_again(&self, shards: &[HeldShard], leases: &[LeaseRecord]) -> StoreResult<()>;

    /// The shards of these that still have the same holder, with their present number of acts.
    async fn still_held(&self, shards: &[HeldShard]) -> StoreResult<Vec<HeldShard>>;

    async fn content(&self, shards: &[ShardId]) -> StoreResult<ShardContent>;

    /// Some notes for these shards; none if there are none.
    async fn notes(&self, shards: &[HeldShard]) -> StoreResult<Vec<QueueNote>>;

    /// The notes are known now and can be deleted.
    async fn confirm(&self, shards: &[HeldShard], notes: &[QueueNote]) -> StoreResult<()>;

    /// Pending deliveries of a lane after a place, in order.
    async fn due(
        &self,
        shards: &[ShardId],
        lane: u32,
        after: LanePlace,
        limit: usize,
    ) -> StoreResult<Vec<QueueEntry>>;

    /// Pending deliveries, the first to expire first.
    async fn expiring(&self, shards: &[ShardId], limit: usize) -> StoreResult<Vec<QueueEntry>>;

    /// Leases those that still wait; `None` if a shard changed, see [`still_held`](Self::still_held).
    async fn lease(&self, order: &LeaseOrder) -> StoreResult<Option<Vec<LeasedRow>>>;

    /// Notes that attempts start. Answers which may.
    async fn start(&self, shards: &[HeldShard], ids: &[u128]) -> StoreResult<Vec<u128>>;

    /// Whether one write can concern several shards. Otherwise each settlement of several is for one shard.
    fn writes_across_shards(&self) -> bool {
        true
    }

    /// Writes settlements that concern only their deliveries. False if not all could be written, then none is.
    async fn settle(&self, order: &SettleOrder) -> StoreResult<bool>;

    /// Writes one settlement of any kind.
    async fn settle_one(&self, order: &SettleOrder) -> StoreResult<SettledPlace>;

    /// Those of these numbers under which settlements were written.
    async fn receipts(&self, receipts: &[u128]) -> StoreResult<Vec<u128>>;

    /// Asks for the turn of a suspect, until a time. Otherwise answers when the turn of another one ends.
    async fn take_turn(&self, id: u128, until: i64) -> StoreResult<Result<(), i64>>;

    async fn end_turn(&self, id: u128) -> StoreResult<()>;

    /// Tokens that nobody had before: the first of so many.
    async fn tokens(&self) -> StoreResult<std::ops::Range<u64>>;

    /// A number for a write.
    fn new_receipt(&self) -> u128;

    /// The lane's key, if it is known here.
    fn lane_key(&self, lane: u32) -> Option<Arc<LaneKey>>;

    /// Makes lanes known here.
    async fn learn_lanes(&self, lanes: &[u32]) -> StoreResult<()>;
}

/// Tells the consumers of a store that something may be new for them.
#[derive(Default)]
pub(crate) struct ShardNews {
    count: std::sync::atomic::AtomicU64,
    notify: Arc<tokio::sync::Notify>,
}

impl ShardNews {
    pub(crate) fn tell(&self) {
        self.count.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        self.notify.notify_waiters();
    }

    fn count(&self) -> u64 {
        self.count.load(std::sync::atomic::Ordering::Acquire)
    }

    fn notify(&self) -> &Arc<tokio::sync::Notify> {
        &self.notify
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_shard_and_wide_providers_are_spread_by_address() {
        let new = crate::conformance::message("acme", 1).deliveries.remove(0);
        let shard = |is_wide: bool, tenant: &str, address: u8| {
            let tenant = postrider_core::TenantId::new(tenant);
            let lane = Arc::new(LaneKey { tenant, ..(*new.lane).clone() });
            let hash = AddressHash([address; 16]);
            shard_of_new(&NewDelivery { lane, hash, is_wide, ..new.clone() })
        };
        let host: std::collections::HashSet<_> =
            (0..200).map(|n| shard(false, "acme", n)).collect();
        assert_eq!(host.len(), 1);
        let spread: std::collections::HashSet<_> =
            (0..200).map(|n| shard(true, "acme", n)).collect();
        assert!(spread.len() > 36, "{} of {COMMON_SHARDS} shards", spread.len());
        assert_eq!(shard(true, "acme", 7), shard(true, "other", 7), "an address has one");
    }

    #[test]
    fn what_is_pinned_to_a_region_is_in_the_shards_of_its_workers() {
        let new = crate::conformance::message("acme", 1).deliveries.remove(0);
        for place in 0..REGIONS_MAX {
            let region = postrider_core::RegionNumber::new(place);
            for address in 0..50 {
                let hash = AddressHash([address; 16]);
                let pinned = NewDelivery { region, hash, is_wide: true, ..new.clone() };
                let shard = shard_of_new(&pinned);
                assert!(shard < SHARDS);
                assert_eq!(region_of(shard, REGIONS_MAX), Some(place));
                assert_eq!(region_of(shard, place), None, "as long as nobody knows the region");
            }
        }
        assert_eq!(region_of(shard_of_new(&new), REGIONS_MAX), None);
    }

    #[test]
    fn an_id_names_its_shard() {
        for shard in 0..SHARDS {
            let id = in_shard(0x0123_4567_89ab_7cde_8f01_2345_6789_abcd, shard);
            assert_eq!(shard_of(id), shard);
            assert_eq!(id >> 64, 0x0123_4567_89ab_7cde);
        }
    }
}
