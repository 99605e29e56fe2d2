//! The model's tables, and the changes that keep them consistent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::ports::store::{Alternative, AuditRecord, EntryKey, EntryVersion, RollupName};
use postrider_core::{
    Address, AddressHash, AddressId, AttemptRecord, Delivery, DeliveryId, LaneId, LaneKey, Message,
    MessageId, ReceiptRecord, State, Strike, Target, TenantId, Timestamp,
};

use super::documents::MemoryDocuments;
use super::suspects::MemorySuspects;
use crate::holder::HolderNonce;
use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, StoredProgress, is_held, needs_body};
use crate::settled_before::SettledBefore;

#[derive(Default)]
pub(super) struct MemoryTables {
    pub(super) messages: BTreeMap<MessageId, MemoryMessage>,
    pub(super) deliveries: BTreeMap<DeliveryId, MemoryDelivery>,
    pub(super) lanes: Vec<Arc<LaneKey>>,
    lane_ids: HashMap<Arc<LaneKey>, LaneId>,
    /// The pending deliveries of each lane by due time. A leased one is due when its lease ends.
    pub(super) due: BTreeMap<LaneId, BTreeSet<(Timestamp, DeliveryId)>>,
    /// All pending deliveries by expiry.
    pub(super) expiries: BTreeSet<(Timestamp, DeliveryId)>,
    pub(super) dedup: BTreeMap<[u8; 16], MemoryKey>,
    pub(super) gone: BTreeMap<(TenantId, AddressHash), AddressEnd>,
    /// The strikes of addresses, each kind once.
    pub(super) strikes: BTreeMap<(TenantId, AddressHash), Vec<Strike>>,
    pub(super) addresses: BTreeMap<AddressId, Address>,
    pub(super) documents: MemoryDocuments,
    /// By number.
    pub(super) audit: BTreeMap<u64, AuditRecord>,
    pub(super) rollups: BTreeMap<RollupName, String>,
    pub(super) entries: BTreeMap<EntryKey, (EntryVersion, Arc<str>)>,
    /// Suspended lanes, each with the end of its suspension.
    pub(super) suspended: BTreeMap<LaneId, Timestamp>,
    pub(super) token: u64,
    pub(super) suspects: MemorySuspects,
    /// The time of the last check for expired deliveries.
    pub(super) checked_at: Option<Timestamp>,
    /// The time of the last `ready_lanes`.
    pub(super) listed_at: Timestamp,
    /// Whether something due arrived since then.
    pub(super) has_new_work: bool,
    pub(super) settled_before: SettledBefore,
    /// Who may lease.
    pub(super) holder: HolderNonce,
}

pub(super) struct MemoryMessage {
    pub(super) message: Arc<Message>,
    pub(super) scrubbed: bool,
    pub(super) deliveries: Vec<DeliveryId>,
}

pub(super) struct MemoryDelivery {
    pub(super) message: MessageId,
    pub(super) lane: LaneId,
    pub(super) target: Option<Arc<Target>>,
    pub(super) hash: AddressHash,
    pub(super) recipient: Option<Arc<str>>,
    pub(super) address: Option<AddressId>,
    pub(super) address_since: Option<Timestamp>,
    pub(super) expires: Timestamp,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) progress: StoredProgress,
    pub(super) discarded: bool,
    pub(super) mark: DeliveryMark,
    pub(super) alternatives: Vec<Alternative>,
    pub(super) log: Vec<AttemptRecord>,
    pub(super) receipts: Vec<ReceiptRecord>,
    pub(super) lease: Option<MemoryLease>,
    /// It waits until then, because it may have caused crashes and another such delivery is leased.
    pub(super) held_until: Option<Timestamp>,
}

#[derive(Clone, Copy)]
pub(super) struct MemoryLease {
    pub(super) token: u64,
    pub(super) until: Timestamp,
}

pub(super) struct MemoryKey {
    pub(super) message: MessageId,
    pub(super) deliveries: Vec<DeliveryId>,
    pub(super) fingerprint: [u8; 16],
    pub(super) expires: Timestamp,
}

impl MemoryDelivery {
    /// One time serves delay, retry and lease.
    fn key(&self) -> Timestamp {
        let leased = self.lease.map(|lease| lease.until);
        self.held_until.or(leased).unwrap_or(self.progress.due)
    }

    pub(super) fn is_leased(&self, now: Timestamp) -> bool {
        self.lease.is_some_and(|lease| lease.until > now)
    }

    pub(super) fn state(&self, now: Timestamp) -> State {
        if self.is_leased(now) { State::Sending } else { self.progress.state }
    }

    /// Moves the delivery to its first alternative.
    pub(super) fn go_to(&mut self, lane: LaneId, place: Alternative) {
        self.lane = lane;
        self.target = Some(place.target);
        self.hash = place.hash;
        self.address = place.address;
        self.address_since = place.address_since;
        self.alternatives.remove(0);
    }

    /// Erases what a final delivery does not need.
    pub(super) fn erase(&mut self) {
        self.target = None;
        self.alternatives.clear();
    }
}

impl MemoryTables {
    pub(super) fn intern(&mut self, key: &Arc<LaneKey>) -> LaneId {
        if let Some(id) = self.lane_ids.get(key) {
            return *id;
        }
        let id = LaneId(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        self.lanes.push(key.clone());
        self.lane_ids.insert(key.clone(), id);
        id
    }

    pub(super) fn lane(&self, id: LaneId) -> &Arc<LaneKey> {
        &self.lanes[id.0 as usize]
    }

    /// Changes a delivery and its entry in the queue.
    pub(super) fn change<T>(
        &mut self,
        id: DeliveryId,
        change: impl FnOnce(&mut MemoryDelivery) -> T,
    ) -> Option<T> {
        let row = self.deliveries.get_mut(&id)?;
        if let Some(queue) = self.due.get_mut(&row.lane) {
            queue.remove(&(row.key(), id));
            if queue.is_empty() {
                self.due.remove(&row.lane);
            }
        }
        self.expiries.remove(&(row.expires, id));
        let result = change(row);
        if row.progress.state.is_pending() {
            self.due.entry(row.lane).or_default().insert((row.key(), id));
            self.expiries.insert((row.expires, id));
        }
        Some(result)
    }

    /// Erases the body once nothing needs it any more.
    pub(super) fn scrub(&mut self, id: MessageId) {
        let Some(row) = self.messages.get_mut(&id) else { return };
        let deliveries = &self.deliveries;
        let needed = row.deliveries.iter().filter_map(|d| deliveries.get(d));
        row.scrubbed = !needed.into_iter().any(|d| needs_body(d.progress.state, d.discarded));
    }

    pub(super) fn is_suspended(&self, lane: LaneId, now: Timestamp) -> bool {
        self.suspended.get(&lane).is_some_and(|until| *until > now)
    }

    /// Whether a delivery with this due time wakes those who wait.
    pub(super) fn is_new_work(&self, lane: LaneId, due: Timestamp, now: Timestamp) -> bool {
        due <= now && !self.is_suspended(lane, now)
    }

    pub(super) fn forget_leases(&mut self, crashed: bool) {
        self.suspended.clear();
        let leased = self.deliveries.iter().filter(|(_, row)| row.lease.is_some());
        let leased: Vec<_> = leased.map(|(id, _)| *id).collect();
        for id in leased {
            self.change(id, |row| {
                row.lease = None;
                if crashed {
                    row.mark = row.mark.crashed();
                }
            });
        }
        self.forget_suspects();
        self.settled_before = SettledBefore::default();
        self.has_new_work = true;
    }

    pub(super) fn sees(&self, tenant: Option<&TenantId>, row: &MemoryDelivery) -> bool {
        tenant.is_none_or(|tenant| *tenant == self.lane(row.lane).tenant)
    }

    pub(super) fn view(&self, id: DeliveryId, row: &MemoryDelivery, now: Timestamp) -> Delivery {
        let lane = self.lane(row.lane);
        Delivery {
            id,
            message: row.message,
            tenant: lane.tenant.clone(),
            channel: lane.channel,
            provider: lane.provider.clone(),
            class: lane.class.clone(),
            recipient: row.recipient.clone(),
            address: row.address,
            address_hash: row.hash,
            state: row.state(now),
            reason: row.progress.reason,
            discarded: row.discarded,
            attempts: row.progress.attempts,
            created_at: id.created_at(),
            expires_at: row.expires,
            held: row.progress.is_held(),
            due_at: Some(row.key()).filter(|due| row.progress.state.is_pending() && !is_held(*due)),
            changed_at: row.progress.changed,
            log: row.log.clone(),
            receipts: row.receipts.clone(),
        }
    }
}
