//! The model's way in.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, MessageId, TenantId, Timestamp};

use super::MemoryStore;
use super::rows::{MemoryDelivery, MemoryKey, MemoryMessage, MemoryTables};
use crate::ids::IdGenerator;
use crate::progress::{DeliveryMark, StoredProgress, stored_message};

#[async_trait]
impl Intake for MemoryStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let (now, over_by) = (self.clock.now(), self.clock.bounds().earliest);
        let answers = {
            let (mut rows, mut ids) = (self.rows(), self.ids());
            messages.into_iter().map(|new| Ok(rows.accept(new, &mut ids, now, over_by))).collect()
        };
        self.work.notify();
        answers
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let (rows, over_by) = (self.rows(), self.clock.bounds().earliest);
        Ok(keys.iter().map(|key| rows.repeated(key, over_by)).collect())
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        let rows = self.rows();
        let mut load = Load::default();
        for row in rows.messages.values() {
            if tenant.is_some_and(|tenant| *tenant != row.message.tenant) {
                continue;
            }
            let deliveries = row.deliveries.iter().filter_map(|id| rows.deliveries.get(id));
            let pending = deliveries.filter(|row| row.progress.state.is_pending());
            let before = load.deliveries;
            for delivery in pending {
                load.deliveries += 1;
                let target = delivery.target.as_ref().map_or(0, |target| target.as_json().len());
                load.bytes += target as u64;
            }
            if load.deliveries > before {
                load.bytes += row.message.content.len() as u64;
            }
        }
        load
    }
}

impl MemoryTables {
    fn repeated(&self, key: &DedupKey, over_by: Timestamp) -> Option<Admission> {
        let seen = self.dedup.get(&key.key).filter(|seen| seen.expires > over_by)?;
        let message = seen.message;
        if seen.fingerprint != key.fingerprint {
            return Some(Admission::Conflict { message });
        }
        let known = seen.deliveries.iter().filter(|id| self.deliveries.contains_key(id));
        Some(Admission::Duplicate { message, deliveries: known.copied().collect() })
    }

    fn repeated_members(&self, keys: &[DedupKey], over_by: Timestamp) -> Option<Admission> {
        let known = |key: &DedupKey| self.dedup.get(&key.key).filter(|seen| seen.expires > over_by);
        let seen = keys.iter().enumerate().filter_map(|(place, key)| Some((place, known(key)?)));
        let (places, seen): (Vec<_>, Vec<_>) = seen.unzip();
        Some(Admission::RepeatedMembers { places, message: seen.first()?.message })
    }

    fn accept(
        &mut self,
        new: NewMessage,
        ids: &mut IdGenerator,
        now: Timestamp,
        over_by: Timestamp,
    ) -> Admission {
        if let Some(repeated) = new.dedup.as_ref().and_then(|key| self.repeated(key, over_by)) {
            return repeated;
        }
        if let Some(repeated) = self.repeated_members(&new.member_keys, over_by) {
            return repeated;
        }
        let message = MessageId(ids.next(now));
        let due = new.send_at.map_or(now, |at| at.max(now));
        let stored = Arc::new(stored_message(&new, message, now));
        let mut deliveries = Vec::with_capacity(new.deliveries.len());
        for delivery in new.deliveries {
            let id = DeliveryId(ids.next(now));
            let lane = self.intern(&delivery.lane);
            let row = MemoryDelivery {
                message,
                lane,
                target: Some(delivery.target),
                hash: delivery.hash,
                recipient: delivery.recipient,
                address: delivery.address,
                address_since: delivery.address_since,
                expires: stored.expires_at,
                retry: None,
                progress: StoredProgress::new(due, now),
                discarded: false,
                mark: DeliveryMark::default(),
                alternatives: delivery.alternatives,
                log: Vec::new(),
                receipts: Vec::new(),
                lease: None,
                held_until: None,
            };
            self.expiries.insert((row.expires, id));
            self.deliveries.insert(id, row);
            self.due.entry(lane).or_default().insert((due, id));
            self.has_new_work |= self.is_new_work(lane, due, now);
            deliveries.push(id);
        }
        for dedup in new.dedup.into_iter().chain(new.member_keys) {
            let seen = MemoryKey {
                message,
                deliveries: deliveries.clone(),
                fingerprint: dedup.fingerprint,
                expires: (now + dedup.window).max(stored.expires_at),
            };
            self.dedup.insert(dedup.key, seen);
        }
        let ids = deliveries.clone();
        let row = MemoryMessage { message: stored, scrubbed: false, deliveries: ids };
        self.messages.insert(message, row);
        Admission::Accepted { message, deliveries }
    }
}
