//! Accepts messages: writes the message, its deliveries and its idempotency key.

use std::sync::Arc;

use postrider_core::Message;
use postrider_core::policy::ttl::expires_at;
use postrider_core::ports::store::{Admission, Alternative, DedupKey, NewMessage, StoreError};

use super::prelude::*;
use crate::embedded::index::counts::TenantTotals;
use crate::embedded::index::delivery::StoredDelivery;
use crate::embedded::index::effects::{DedupEntry, UncommittedKeys};
use crate::embedded::requests::SharedRow;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::sql::dedup::DedupStore;
use crate::progress::{StoredProgress, stored_message};

/// A message with its JSON texts. The caller's thread makes them, not the writer's.
pub(crate) struct NewMessageRows {
    new: NewMessage,
    envelope: Option<String>,
    /// One per delivery, or none at all.
    alternatives: Vec<Option<String>>,
}

impl NewMessageRows {
    pub(crate) fn prepare(new: NewMessage) -> StoreResult<Self> {
        let plain = new.envelope == Default::default();
        let envelope = if plain { None } else { Some(to_json(&new.envelope)?) };
        let alternatives = match new.deliveries.iter().any(|d| !d.alternatives.is_empty()) {
            true => {
                let texts = new.deliveries.iter().map(|d| alternatives_json(&d.alternatives));
                texts.collect::<Result<_, _>>()?
            }
            false => Vec::new(),
        };
        Ok(Self { new, envelope, alternatives })
    }
}

impl SharedRow for NewMessageRows {
    type Answer = Admission;
    const IS_NEW_WORK: bool = true;

    fn rows(&self) -> usize {
        let NewMessage { deliveries, envelope, member_keys, .. } = &self.new;
        let marks = envelope.tags.len() + usize::from(envelope.campaign.is_some());
        1 + deliveries.len() + marks + member_keys.len()
    }

    fn bytes(&self) -> usize {
        self.new.content.len()
    }

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<Admission>> {
        rows.iter().map(|new| writer.accept(new)).collect()
    }

    /// New work does not use the reserve.
    fn transact(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<Admission>> {
        if !writer.reserve.is_whole() {
            return Err(DiskReserve::refusal());
        }
        writer.transact(|writer| Self::write(rows, writer))
    }

    fn write_damaged(&self, writer: &mut Writer, error: StoreError) -> StoreResult<Admission> {
        if !writer.give_up_recipient_index() {
            return Err(error);
        }
        let mut answers = Self::transact(std::slice::from_ref(self), writer)?;
        answers.pop().ok_or(error)
    }
}

/// The JSON of alternatives; `None` if there are none.
pub(crate) fn alternatives_json(alternatives: &[Alternative]) -> StoreResult<Option<String>> {
    if alternatives.is_empty() { Ok(None) } else { to_json(&alternatives).map(Some) }
}

impl Writer {
    fn accept(&mut self, rows: &NewMessageRows) -> StoreResult<Admission> {
        let now = self.shared.now();
        let new = &rows.new;
        if let Some(dedup) = &new.dedup
            && let Some(seen) = self.dedup.find(
                &self.conn,
                &self.effects.dedup,
                &dedup.key,
                self.shared.earliest(),
            )?
        {
            return self.repeated(seen, seen.fingerprint == dedup.fingerprint);
        }
        if let Some(repeated) = self.repeated_members(&new.member_keys)? {
            return Ok(repeated);
        }
        let (message, tails) = self.make_ids(new.deliveries.len(), now);
        self.insert_message(rows, message, now)?;
        let tenant = self.tenant(&new.tenant)?;
        let marks = new.envelope.marks();
        self.list_tags(order_key(message.0), tenant, &marks)?;
        let stored = Arc::new(stored_message(new, message, now));
        for (index, tail) in tails.iter().enumerate() {
            self.insert_delivery(rows, &stored, index, *tail, now)?;
        }
        for dedup in new.dedup.iter().chain(&new.member_keys) {
            DedupStore::note(&mut self.effects.dedup, dedup, &stored, now);
        }
        let count = self.effects.counts_of(tenant);
        count.messages += 1;
        count.add(State::Queued, tails.len() as i64);
        let targets: usize = new.deliveries.iter().map(|d| d.target.as_json().len()).sum();
        count.bytes += (targets + new.content.len()) as i64;
        let first = order_key(message.0) + 1;
        let ids = (first..).zip(&tails).map(|(seq, tail)| DeliveryId(from_order_key(seq, *tail)));
        Ok(Admission::Accepted { message, deliveries: ids.collect() })
    }

    /// The deliveries whose keys came before, if there are any.
    fn repeated_members(&self, keys: &[DedupKey]) -> StoreResult<Option<Admission>> {
        let over_by = self.shared.earliest();
        let (mut places, mut first) = (Vec::new(), None);
        for (place, key) in keys.iter().enumerate() {
            let seen = self.dedup.find(&self.conn, &self.effects.dedup, &key.key, over_by)?;
            if let Some(seen) = seen {
                places.push(place);
                first = first.or(Some(seen.message));
            }
        }
        Ok(first.map(|message| Admission::RepeatedMembers { places, message }))
    }

    /// The ids of a message's deliveries follow its own without a gap, so that no index is needed.
    fn make_ids(&self, deliveries: usize, now: Timestamp) -> (MessageId, Vec<u64>) {
        let mut ids = self.shared.ids();
        let message = MessageId(ids.next(now));
        let tails = (0..deliveries).map(|_| random_tail(ids.next(now))).collect();
        (message, tails)
    }

    fn insert_message(
        &self,
        rows: &NewMessageRows,
        id: MessageId,
        now: Timestamp,
    ) -> StoreResult<()> {
        let new = &rows.new;
        let count = new.deliveries.len() as i64;
        let content = if count == 1 { None } else { Some(&*new.content) };
        let insert = "INSERT INTO message (seq, tail, tenant, class, expires, ttl_s, deliveries, holds, \
                 pending, envelope, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7, ?8, ?9)";
        let row = params![
            order_key(id.0) as i64,
            random_tail(id.0) as i64,
            new.tenant.as_str(),
            &*new.class,
            expires_at(now, new.send_at, new.ttl_s, new.now_or_never).0,
            new.ttl_s,
            count,
            rows.envelope,
            content,
        ];
        run(&self.conn, insert, row).map(drop)
    }

    fn insert_delivery(
        &mut self,
        rows: &NewMessageRows,
        message: &Arc<Message>,
        index: usize,
        tail: u64,
        now: Timestamp,
    ) -> StoreResult<()> {
        let new = &rows.new;
        let delivery = &new.deliveries[index];
        let message_seq = order_key(message.id.0);
        let seq = message_seq + 1 + index as u64;
        let lane = self.lane(&delivery.lane, seq)?;
        let due = new.send_at.map_or(now, |at| at.max(now));
        let body = if new.deliveries.len() == 1 { Some(&*new.content) } else { None };
        let insert = "INSERT INTO delivery (seq, tail, message, lane, state, due, attempts, tries, \
                 last_delay_ms, expires, changed, hash, address, address_since, recipient, target, \
                 body, alternatives) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, ?7, ?8, ?9, ?10, ?11, \
                 ?12, ?13, ?14, ?15)";
        let row = params![
            seq as i64,
            tail as i64,
            message_seq as i64,
            lane,
            State::Queued.code(),
            due.0,
            message.expires_at.0,
            now.0,
            delivery.hash.0,
            delivery.address.map(|id| id.0.to_be_bytes()),
            delivery.address_since.map(|at| at.0),
            delivery.recipient.as_deref(),
            delivery.target.as_json(),
            body,
            rows.alternatives.get(index).and_then(Option::as_deref),
        ];
        run(&self.conn, insert, row)?;
        self.effects.arrivals.push(Arc::new(StoredDelivery {
            seq,
            tail,
            lane,
            message: message.clone(),
            siblings: u32::try_from(new.deliveries.len()).unwrap_or(u32::MAX),
            target: delivery.target.clone(),
            target_bytes: delivery.target.as_json().len(),
            hash: delivery.hash,
            recipient: delivery.recipient.clone(),
            address_since: delivery.address_since,
            expires: message.expires_at,
            retry: None,
            progress: StoredProgress::new(due, now),
            log: None,
            alternatives: delivery.alternatives.clone(),
        }));
        Ok(())
    }

    /// The answer that was given under the key. Not within a transaction.
    pub(crate) fn repeat(&self, key: &DedupKey) -> StoreResult<Option<Admission>> {
        let over_by = self.shared.earliest();
        let seen = self.dedup.find(&self.conn, &UncommittedKeys::default(), &key.key, over_by)?;
        seen.map(|seen| self.repeated(seen, seen.fingerprint == key.fingerprint)).transpose()
    }

    fn repeated(&self, seen: DedupEntry, same: bool) -> StoreResult<Admission> {
        let message = seen.message;
        if !same {
            return Ok(Admission::Conflict { message });
        }
        let deliveries = all_rows(
            &self.conn,
            "SELECT d.seq, d.tail FROM message m JOIN delivery d \
             ON d.seq > m.seq AND d.seq <= m.seq + m.deliveries WHERE m.seq = ?1 ORDER BY d.seq",
            [order_key(message.0) as i64],
            |row| row_id(row).map(DeliveryId),
        )?;
        Ok(Admission::Duplicate { message, deliveries })
    }

    pub(crate) fn tenant(&mut self, name: &TenantId) -> StoreResult<u32> {
        if let Some(tenant) = self.tenants.get(name) {
            return Ok(*tenant);
        }
        let tenant = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        run(
            &self.conn,
            "INSERT INTO tenant (id, name, counts, counted) VALUES (?1, ?2, ?3, 0)",
            params![tenant, name.as_str(), to_json(&TenantTotals::default())?],
        )?;
        self.tenants.insert(name.clone(), tenant);
        self.effects.new_tenants.push(name.clone());
        Ok(tenant)
    }
}
