//! Writes records as rows, with everything that follows from them: counts, marks, the queue in memory.

use std::collections::HashMap;

use postrider_core::Address;
use postrider_core::ports::store::*;

use crate::embedded::index::effects::{DedupEntry, ReplayedDelivery};
use crate::embedded::sql::dedup::DedupStore;
use crate::embedded::sql::documents::DocumentWrite;
use crate::embedded::sql::prelude::*;
use crate::progress::{DeliveryMark, HELD_MS, needs_body};

/// What the deliveries of one transaction add to the reference counts of a shared body.
#[derive(Default)]
struct BodyHolds {
    tenant: u32,
    holds: i64,
    pending: i64,
}

impl Writer {
    /// All records or none.
    pub(super) fn import(&mut self, records: &[StoreRecord]) -> StoreResult<()> {
        self.transact(|writer| {
            let mut bodies = HashMap::new();
            for record in records {
                writer.import_one(record, &mut bodies)?;
            }
            bodies.into_iter().try_for_each(|(message, body)| writer.hold_body(message, &body))
        })
    }

    fn import_one(
        &mut self,
        record: &StoreRecord,
        bodies: &mut HashMap<u64, BodyHolds>,
    ) -> StoreResult<()> {
        match record {
            StoreRecord::Document(document) => {
                let DocumentRecord { name, json, expires_at } = document.clone();
                let write = DocumentWrite { name, json: Some(json), expires: expires_at };
                self.write_document(&write, None).map(drop)
            }
            StoreRecord::Lane(key) => self.lane(key, 0).map(drop),
            StoreRecord::Address(address) => self.import_address(address),
            StoreRecord::GoneMark { tenant, hash, deleted_before } => {
                let insert = "INSERT INTO gone (tenant, hash, deleted_before) VALUES (?1, ?2, ?3)";
                let key = deleted_before.map(|key| key as i64);
                run(&self.conn, insert, params![tenant.as_str(), hash.0, key])?;
                self.effects.gone.push((tenant.clone(), *hash, true));
                Ok(())
            }
            StoreRecord::Strike { tenant, hash, strike } => {
                self.put_strike(tenant, *hash, strike)?;
                self.effects.struck.insert((tenant.clone(), *hash), true);
                Ok(())
            }
            StoreRecord::Message(message) => self.import_message(message),
            StoreRecord::Delivery(delivery) => self.import_delivery(delivery, bodies),
            StoreRecord::Audit(entry) => self.import_audit(entry),
            StoreRecord::Entry(entry) => self.import_entry(entry),
            StoreRecord::Rollup(part) => self.put_rollup(part),
            StoreRecord::IdempotencyKey(key) => {
                let IdempotencyRecord { key, fingerprint, message, expires_at } = *key;
                let entry = DedupEntry { message, fingerprint, expires: expires_at.0 };
                let now = self.shared.now();
                DedupStore::note_imported(&mut self.effects.dedup, key, entry, now);
                Ok(())
            }
        }
    }

    fn import_address(&self, address: &Address) -> StoreResult<()> {
        let seq = order_key(address.id.0);
        self.shared.ids().raise(seq);
        let insert = "INSERT INTO address (seq, tail, tenant, recipient, channel, hash, target, \
                      status, gone_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let row = params![
            seq as i64,
            random_tail(address.id.0) as i64,
            address.tenant.as_str(),
            address.recipient.as_deref(),
            address.channel.name(),
            address.hash.0,
            address.target.as_ref().map(|target| target.as_json()),
            to_json(&address.status)?,
            address.gone_at.map(|at| at.0),
        ];
        run(&self.conn, insert, row).map(drop)
    }

    /// Deliveries that share the body add themselves to its reference counts when they come.
    fn import_message(&mut self, message: &StoredMessageRecord) -> StoreResult<()> {
        let seq = order_key(message.id.0);
        self.shared.ids().raise(seq + u64::from(message.deliveries));
        let holds = i64::from(message.deliveries == 1);
        let insert = "INSERT INTO message (seq, tail, tenant, class, expires, ttl_s, deliveries, \
                      holds, pending, envelope, content) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10)";
        let row = params![
            seq as i64,
            random_tail(message.id.0) as i64,
            message.tenant.as_str(),
            message.class,
            message.expires_at.0,
            message.ttl_s,
            message.deliveries,
            holds,
            message.envelope,
            message.content,
        ];
        run(&self.conn, insert, row)?;
        let tenant = self.tenant(&message.tenant)?;
        self.effects.counts_of(tenant).messages += 1;
        message.envelope.as_deref().map_or(Ok(()), |text| self.list_tags_of(seq, tenant, text))
    }

    fn import_delivery(
        &mut self,
        delivery: &StoredDeliveryRecord,
        bodies: &mut HashMap<u64, BodyHolds>,
    ) -> StoreResult<()> {
        let (seq, message) = (order_key(delivery.id.0), order_key(delivery.message.0));
        let lane = self.lane(&delivery.lane, seq)?;
        let due = delivery.due.map(|due| if delivery.held { due.0 + HELD_MS } else { due.0 });
        self.insert_delivery_row(delivery, lane, due)?;
        self.drop_order()?;
        let StoredDeliveryRecord { crashes, started, cancelled, .. } = *delivery;
        let mark = DeliveryMark { crashes, started, cancelled };
        if !mark.is_empty() {
            self.put_mark(seq, mark)?;
        }
        let tenant = self.tenant(&delivery.lane.tenant)?;
        let count = self.effects.counts_of(tenant);
        count.add(delivery.state, 1);
        count.held += i64::from(delivery.held);
        if let Some(reason) = delivery.reason.filter(|_| delivery.dead_letter) {
            count.add_dead(reason, 1);
            self.add_dead_letter(seq, (tenant, lane), reason)?;
        }
        let count = self.effects.counts_of(tenant);
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len() as i64);
        if due.is_some() {
            count.bytes += length(&delivery.target) + length(&delivery.body);
        }
        let body = bodies.entry(message).or_default();
        body.tenant = tenant;
        body.holds += i64::from(needs_body(delivery.state, !delivery.dead_letter));
        body.pending += i64::from(due.is_some());
        if let Some(due) = due {
            let expires = delivery.expires_at.0;
            self.list_if_neighbours_are(seq, expires)?;
            self.list_waiting(lane, (due, seq))?;
            self.effects.replayed.push(ReplayedDelivery { lane, due, seq, expires });
        }
        Ok(())
    }

    fn insert_delivery_row(
        &self,
        delivery: &StoredDeliveryRecord,
        lane: u32,
        due: Option<i64>,
    ) -> StoreResult<()> {
        let insert = "INSERT INTO delivery (seq, tail, message, lane, state, reason, due, attempts, \
                      tries, last_delay_ms, expires, changed, hash, address, address_since, recipient, \
                      retry, log, target, body, alternatives) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, \
                      ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
        let row = params![
            order_key(delivery.id.0) as i64,
            random_tail(delivery.id.0) as i64,
            order_key(delivery.message.0) as i64,
            lane,
            delivery.state.code(),
            delivery.reason.map(|reason| reason.code()),
            due,
            delivery.attempts,
            delivery.tries,
            delivery.last_delay_ms,
            delivery.expires_at.0,
            delivery.changed_at.0,
            delivery.hash.0,
            delivery.address.map(|id| id.0.to_be_bytes()),
            delivery.address_since.map(|at| at.0),
            delivery.recipient,
            delivery.retry,
            delivery.log,
            delivery.target,
            delivery.body,
            delivery.alternatives,
        ];
        run(&self.conn, insert, row).map(drop)
    }

    /// A shared body counts as pending once one of its deliveries is.
    fn hold_body(&mut self, message: u64, body: &BodyHolds) -> StoreResult<()> {
        let update = "UPDATE message SET holds = holds + ?2, pending = pending + ?3 \
                      WHERE seq = ?1 AND deliveries > 1 \
                      RETURNING pending, coalesce(length(CAST(content AS BLOB)), 0)";
        let row = params![message as i64, body.holds, body.pending];
        let found = first_row(&self.conn, update, row, |row| {
            Ok((get::<i64>(row, 0)?, get::<i64>(row, 1)?))
        })?;
        if let Some((pending, bytes)) = found
            && body.pending > 0
            && pending == body.pending
        {
            self.effects.counts_of(body.tenant).bytes += bytes;
        }
        Ok(())
    }
}
