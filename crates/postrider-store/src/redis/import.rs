//! Writes records of another store. Each can be written again: a batch that was interrupted is repeated as a whole, and
//! the document that says how far the copy is comes last.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::*;
use postrider_core::{Address, Message, Timestamp};

use super::changes::{ShardChange, ShardChanges, needs_value, outbox_field};
use super::failure::{RedisFailure, RedisResult};
use super::keys::StoredDedupKey;
use super::marks::KnownAddress;
use super::messages::{NEEDS_DEAD, NEEDS_FINAL, NEEDS_PENDING, SharedMessage};
use super::names::{RowPlace, minute, shard_of_address, shard_of_key};
use super::registry::StoredAddress;
use super::row::{FixedPart, RedisRow, RowPayload, parse, place_in_message};
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, HELD_MS, StoredProgress, is_held};
use crate::sharded::{NoteEntry, NoteKind, shard_of};

/// Records that are written at the same time.
const AT_ONCE: usize = 64;

impl RedisShared {
    pub(super) async fn import(&self, records: &[StoreRecord]) -> RedisResult<()> {
        let lanes: BTreeSet<_> = records
            .iter()
            .filter_map(|record| match record {
                StoreRecord::Lane(key) => Some(key.clone()),
                StoreRecord::Delivery(delivery) => Some(delivery.lane.clone()),
                _ => None,
            })
            .collect();
        for some in lanes.into_iter().collect::<Vec<_>>().chunks(1_000) {
            self.lane_numbers(some).await?;
        }
        let is_document = |record: &&StoreRecord| matches!(record, StoreRecord::Document(_));
        let (last, first): (Vec<_>, Vec<_>) = records.iter().partition(is_document);
        // Messages come before their deliveries, also within a batch.
        let (messages, rest): (Vec<_>, Vec<_>) =
            first.into_iter().partition(|record| matches!(record, StoreRecord::Message(_)));
        for part in [messages, rest, last] {
            for some in part.chunks(AT_ONCE) {
                let mut writes = Vec::with_capacity(some.len());
                for record in some {
                    writes.push(self.import_record(record));
                }
                try_join_all(writes).await?;
            }
        }
        Ok(())
    }

    async fn import_record(&self, record: &StoreRecord) -> RedisResult<()> {
        match record {
            StoreRecord::Document(record) => {
                let until = record.expires_at.map(|at| at.0);
                self.write_document(&record.name, Some(&record.json), None, until).await.map(drop)
            }
            StoreRecord::Lane(_) => Ok(()),
            StoreRecord::Address(address) => {
                self.ids().raise(order_key(address.id.0));
                self.import_address(address).await
            }
            StoreRecord::GoneMark { tenant, hash, deleted_before } => {
                let end = AddressEnd::of_mark(*deleted_before);
                let mark = |known: &mut KnownAddress| known.marks.end = Some(end);
                self.change_address(tenant, *hash, None, mark).await.map(drop)
            }
            StoreRecord::Strike { tenant, hash, strike } => {
                let add = |known: &mut KnownAddress| {
                    known.marks.strikes.retain(|known| known.kind != strike.kind);
                    known.marks.strikes.push(*strike);
                    known.marks.strikes.sort_unstable_by_key(|strike| strike.kind.code());
                };
                self.change_address(tenant, *hash, None, add).await.map(drop)
            }
            StoreRecord::Message(message) => {
                self.ids().raise(order_key(message.id.0) + u64::from(message.deliveries));
                self.import_message(message).await
            }
            StoreRecord::Delivery(delivery) => self.import_delivery(delivery).await,
            StoreRecord::IdempotencyKey(key) => self.import_key(key).await,
            StoreRecord::Audit(entry) => self.import_audit(entry).await,
            StoreRecord::Entry(entry) => self.import_entry(entry).await,
            StoreRecord::Rollup(part) => self.put_rollups(std::slice::from_ref(part)).await,
        }
    }

    async fn import_address(&self, new: &Address) -> RedisResult<()> {
        let stored = StoredAddress {
            id: new.id,
            tenant: new.tenant.clone(),
            recipient: new.recipient.as_deref().map(str::to_owned),
            channel: new.channel,
            hash: new.hash,
            target: new.target.as_ref().map(|target| target.as_json().to_owned()),
            status: new.status,
            gone_at: new.gone_at.map(|at| at.0),
        };
        let write = |known: &mut KnownAddress| known.address = Some(stored.clone());
        self.change_address(&new.tenant, new.hash, None, write).await?;
        let (home, shard) = (shard_of(new.id.0), shard_of_address(&new.hash));
        if home != shard {
            // Its id leads to another shard, which knows where it is.
            let (key, field) =
                (self.names.of(home, "al"), super::names::address_field(&new.tenant, &new.hash));
            let set: [&[u8]; 4] = [b"HSET", key.as_bytes(), &new.id.0.to_be_bytes(), &field];
            self.link.ask(&super::link::words(&set)).await?;
        }
        Ok(())
    }

    /// Deliveries add themselves when they come.
    async fn import_message(&self, new: &StoredMessageRecord) -> RedisResult<()> {
        let envelope = new.envelope.as_deref();
        let message = Message {
            id: new.id,
            tenant: new.tenant.clone(),
            class: (*new.class).into(),
            created_at: new.id.created_at(),
            expires_at: new.expires_at,
            ttl_s: new.ttl_s,
            envelope: envelope.map_or(Ok(Default::default()), |json| parse(json, "an envelope"))?,
            content: new.content.as_deref().unwrap_or_default().into(),
        };
        let shared = SharedMessage {
            message,
            envelope: new.envelope.as_deref().map(str::to_owned),
            deliveries: Vec::new(),
            count: new.deliveries,
            has_content: new.content.is_some(),
        };
        let needs = [0; 5].repeat(new.deliveries as usize);
        self.put_message(&shared, Some(&needs), None).await
    }

    async fn import_delivery(&self, new: &StoredDeliveryRecord) -> RedisResult<()> {
        let shared = self.shared_message(new.message.0).await?;
        let shared =
            shared.ok_or_else(|| RedisFailure::damaged("a delivery without its message"))?;
        let lanes = self.lane_numbers(std::slice::from_ref(&new.lane)).await?;
        let row = imported_row(new, lanes.first().copied().unwrap_or_default(), &shared);
        self.add_to_message(new, &shared).await?;
        let is_pending = row.progress.state.is_pending();
        let (place, needs) = match (is_pending, new.dead_letter) {
            (true, _) => (RowPlace::Queue, NEEDS_PENDING),
            (false, true) => (RowPlace::Dead, NEEDS_DEAD),
            (false, false) => (RowPlace::Ledger, NEEDS_FINAL),
        };
        let shard = shard_of(row.id);
        let mut all = ShardChanges::new(self, shard);
        let (mut change, mut counts) = (ShardChange::default(), CountChanges::default());
        for known in RowPlace::ALL {
            let key = all.key(self.names.rows(shard, known, minute(row.id)));
            change.if_field(key, &row.id.to_be_bytes(), None);
        }
        change.put_row(self, &mut all, place, &row);
        let tenant = &row.fixed.tenant;
        counts.add_state(tenant, new.state, 1);
        counts.add_held(tenant, i64::from(new.held));
        if let Some(reason) = new.reason.filter(|_| new.dead_letter) {
            counts.add_dead(tenant, reason, 1);
            counts.add_dead_bytes(tenant, row.fixed.bytes);
        }
        if is_pending {
            counts.add_bytes(tenant, row.fixed.bytes);
            change.enter_lane(self, &mut all, &row, row.fixed.lane);
            let (id, lane, due) = (row.id, row.fixed.lane, row.progress.due.0);
            let entry = NoteEntry { id, lane, due, expires: row.expires };
            change.note(self, &mut all, NoteKind::Returned, &[entry]);
        }
        if row.mark.crashes > 0 {
            let crashed = all.key(self.names.of(shard, "cr"));
            change.run(
                "HSET",
                crashed,
                &[&row.id.to_be_bytes(), row.mark.crashes.to_string().as_bytes()],
            );
        }
        change.count(self, &mut all, &counts);
        let field = outbox_field(new.message.0, place_in_message(new.message.0, row.id));
        let needs = needs_value(needs, row.moves);
        change.send_out(self, &mut all, &field, &needs);
        all.push(change);
        self.apply(all).await?;
        self.tell_messages(shard, vec![(field, needs)]).await
    }

    /// The message gets to know the delivery; the only one brings the body.
    async fn add_to_message(
        &self,
        new: &StoredDeliveryRecord,
        known: &SharedMessage,
    ) -> RedisResult<()> {
        let shard = shard_of(new.message.0);
        let name = self.names.message(shard, new.message.0);
        for _ in 0..super::leasing::TRIES {
            let Some(mut shared) = self.shared_message(new.message.0).await? else { return Ok(()) };
            if shared.deliveries.contains(&new.id.0) {
                return Ok(());
            }
            let before = shared.record();
            shared.deliveries.push(new.id.0);
            shared.deliveries.sort_unstable();
            let mut all = ShardChanges::new(self, shard);
            let key = all.key(name.clone());
            let mut change = ShardChange::default();
            change.if_field(key, b"record", Some(&before)).run(
                "HSET",
                key,
                &[b"record", &shared.record()],
            );
            if let Some(body) = new.body.as_deref().filter(|_| known.count == 1) {
                let length = body.len().to_string();
                change.run(
                    "HSET",
                    key,
                    &[b"content", body.as_bytes(), b"bytes", length.as_bytes()],
                );
            }
            all.push(change);
            if self.apply(all).await?.first() == Some(&super::changes::ChangeResult::Written) {
                return Ok(());
            }
        }
        Err(RedisFailure::Busy)
    }

    async fn import_key(&self, key: &IdempotencyRecord) -> RedisResult<()> {
        let shared = self.shared_message(key.message.0).await?;
        let stored = StoredDedupKey {
            fingerprint: key.fingerprint,
            message: key.message,
            deliveries: shared.map_or(1, |shared| shared.count),
            expires: key.expires_at.0,
            sealed: true,
        };
        let asked = super::keys::AskedKey { key: key.key, value: Some(stored) };
        debug_assert!(shard_of_key(&asked.key) < crate::sharded::SHARDS);
        self.reserve(&[asked]).await.map(drop)
    }
}

fn imported_row(new: &StoredDeliveryRecord, lane: u32, message: &SharedMessage) -> RedisRow {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let due = new.due.unwrap_or(new.changed_at);
    let due = if new.held && !is_held(due) { Timestamp(due.0 + HELD_MS) } else { due };
    let target = text(&new.target);
    RedisRow {
        id: new.id.0,
        progress: StoredProgress {
            state: new.state,
            reason: new.reason,
            due,
            attempts: new.attempts,
            tries: new.tries,
            last_delay: std::time::Duration::from_millis(new.last_delay_ms.max(0) as u64),
            changed: new.changed_at,
        },
        mark: DeliveryMark { crashes: new.crashes, started: new.started, cancelled: new.cancelled },
        discarded: new.reason.is_some() && !new.dead_letter,
        shares_message: true,
        moves: 1,
        expires: new.expires_at.0,
        free_batch: 0,
        fixed: FixedPart {
            message: new.message,
            lane,
            tenant: message.message.tenant.clone(),
            hash: new.hash,
            bytes: target.as_ref().map_or(0, String::len) as i64,
            address: new.address,
            address_since: new.address_since.map(|at| at.0),
            recipient: text(&new.recipient),
            retry: text(&new.retry),
            class: None,
            ttl_s: None,
            envelope: None,
            message_expires: None,
        },
        payload: RowPayload { target, body: None, alternatives: text(&new.alternatives) },
        log: text(&new.log).unwrap_or_default(),
    }
}
