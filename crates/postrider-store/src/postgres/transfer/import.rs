//! Writes records as rows, with everything that follows from them: counts and notes.

use std::collections::BTreeMap;

use postrider_core::TenantId;
use postrider_core::Timestamp;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::*;
use tokio_postgres::types::ToSql;

use crate::postgres::audit::insert_audit;
use crate::postgres::documents::NewDocument;
use crate::postgres::entries::import_entry;
use crate::postgres::failure::{PgFailure, PgResult};
use crate::postgres::intake::delivery_range;
use crate::postgres::leasing::shared_message;
use crate::postgres::notes::NewNotes;
use crate::postgres::registry::status_name;
use crate::postgres::rollups::put_rollups;
use crate::postgres::rows::{self, StoredRow};
use crate::postgres::session::PgSession;
use crate::postgres::settle_one::{RowTable, insert_row};
use crate::postgres::shared::PgShared;
use crate::postgres::tally::TallyChanges;
use crate::postgres::value::{PgId, get};
use crate::progress::{DeliveryMark, HELD_MS, StoredProgress, is_held, needs_body};
use crate::sharded::{NoteEntry, shard_of};

/// What one transaction adds.
#[derive(Default)]
struct ImportEffects {
    tally: TallyChanges,
    notes: NewNotes,
    /// Deliveries of shared messages: pending, that need the content, all.
    shared: BTreeMap<u128, (i32, i32, i32)>,
}

impl PgShared {
    pub(super) async fn import(&self, records: &[StoreRecord]) -> PgResult<()> {
        let lanes: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                StoreRecord::Lane(key) => Some(key.clone()),
                StoreRecord::Delivery(delivery) => Some(delivery.lane.clone()),
                _ => None,
            })
            .collect();
        let mut session = self.pool.durable().await?;
        self.lanes.numbers(&mut session, &lanes).await?;
        session.begin().await?;
        let mut effects = ImportEffects::default();
        for record in records {
            self.import_record(&mut session, record, &mut effects).await?;
        }
        for (message, counts) in &effects.shared {
            hold_message(&mut session, *message, *counts, &mut effects.tally).await?;
        }
        effects.tally.write(&mut session).await?;
        effects.notes.write(&mut session).await?;
        session.commit().await
    }

    async fn import_record(
        &self,
        session: &mut PgSession,
        record: &StoreRecord,
        effects: &mut ImportEffects,
    ) -> PgResult<()> {
        match record {
            StoreRecord::Document(record) => {
                let until = record.expires_at.map(|at| at.0);
                let new = NewDocument { name: &record.name, json: Some(&record.json), until };
                self.put_in(session, &new, None).await.map(drop)
            }
            StoreRecord::Lane(_) => Ok(()),
            StoreRecord::Address(address) => {
                self.ids().raise(order_key(address.id.0));
                import_address(session, address).await
            }
            StoreRecord::GoneMark { tenant, hash, deleted_before } => {
                let insert = "INSERT INTO gone (hash, tenant, deleted_before) VALUES ($1, $2, $3)";
                let key = deleted_before.map(|key| key as i64);
                let place = hash.0.as_slice();
                session.run(insert, &[&place, &tenant.as_str(), &key]).await.map(drop)
            }
            StoreRecord::Strike { tenant, hash, strike } => {
                let insert = "INSERT INTO strike (hash, tenant, kind, count, first_at, last_at, suspect) \
                              VALUES ($1, $2, $3, $4, $5, $6, $7)";
                let values: [&(dyn ToSql + Sync); 7] = [
                    &hash.0.as_slice(),
                    &tenant.as_str(),
                    &i16::from(strike.kind.code()),
                    &(strike.count as i32),
                    &strike.first_at.0,
                    &strike.last_at.0,
                    &strike.suspect,
                ];
                session.run(insert, &values).await.map(drop)
            }
            StoreRecord::Message(message) => {
                self.ids().raise(order_key(message.id.0) + u64::from(message.deliveries));
                import_message(session, message, effects).await
            }
            StoreRecord::Delivery(delivery) => {
                let lanes =
                    self.lanes.numbers(session, std::slice::from_ref(&delivery.lane)).await?;
                let lane = lanes.first().copied().unwrap_or_default();
                import_delivery(session, delivery, lane, effects).await
            }
            StoreRecord::IdempotencyKey(key) => import_key(session, key).await,
            StoreRecord::Audit(entry) => insert_audit(session, std::slice::from_ref(entry)).await,
            StoreRecord::Entry(entry) => import_entry(session, entry).await,
            StoreRecord::Rollup(part) => put_rollups(session, std::slice::from_ref(part)).await,
        }
    }
}

async fn import_address(session: &mut PgSession, new: &postrider_core::Address) -> PgResult<()> {
    let insert = "INSERT INTO address (id, tenant, recipient, channel, hash, target, status, gone_at) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let values: [&(dyn ToSql + Sync); 8] = [
        &PgId(new.id.0),
        &new.tenant.as_str(),
        &new.recipient.as_deref(),
        &new.channel.name(),
        &new.hash.0.as_slice(),
        &new.target.as_ref().map(|target| target.as_json()),
        &status_name(new.status),
        &new.gone_at.map(|at| at.0),
    ];
    session.run(insert, &values).await.map(drop)
}

/// Deliveries add themselves when they come. A message with one delivery becomes a part of it then.
async fn import_message(
    session: &mut PgSession,
    new: &StoredMessageRecord,
    effects: &mut ImportEffects,
) -> PgResult<()> {
    let insert = "INSERT INTO message (id, tenant, class, expires, ttl_s, deliveries, envelope, content, bytes, \
                  pending, needed, remaining) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0)";
    let bytes = new.content.as_ref().map_or(0, |content| content.len()) as i32;
    let values: [&(dyn ToSql + Sync); 9] = [
        &PgId(new.id.0),
        &new.tenant.as_str(),
        &&*new.class,
        &new.expires_at.0,
        &(new.ttl_s as i32),
        &(new.deliveries as i32),
        &new.envelope.as_deref(),
        &new.content.as_deref(),
        &bytes,
    ];
    session.run(insert, &values).await?;
    effects.tally.add_messages(shard_of(new.id.0), &new.tenant, 1);
    let envelope: postrider_core::model::message::Envelope = match new.envelope.as_deref() {
        Some(json) => rows::parse(json, "an envelope")?,
        None => Default::default(),
    };
    let (first, last) = delivery_range(new.id, new.deliveries);
    for tag in envelope.marks() {
        let insert = "INSERT INTO tag (tenant, tag, message, first, last) VALUES ($1, $2, $3, $4, $5) \
                      ON CONFLICT DO NOTHING";
        let values: [&(dyn ToSql + Sync); 5] =
            [&new.tenant.as_str(), &&*tag, &PgId(new.id.0), &first, &last];
        session.run(insert, &values).await?;
    }
    Ok(())
}

async fn import_delivery(
    session: &mut PgSession,
    new: &StoredDeliveryRecord,
    lane: u32,
    effects: &mut ImportEffects,
) -> PgResult<()> {
    let select = "SELECT * FROM message WHERE id = $1";
    let row = session.first(select, &[&PgId(new.message.0)]).await?;
    let row = row.ok_or_else(|| PgFailure::damaged("a delivery without its message"))?;
    let is_lone = get::<i32>(&row, "deliveries")? == 1;
    let message = shared_message(&row)?;
    let (shard, tenant) = (shard_of(new.id.0), message.tenant.clone());
    let mut stored = imported_row(new, lane, &tenant);
    if is_lone {
        stored.class = Some(message.class.to_string());
        stored.ttl_s = Some(message.ttl_s as i32);
        stored.envelope = get(&row, "envelope")?;
        stored.message_expires = Some(message.expires_at.0);
        stored.shares_message = false;
        session.run("DELETE FROM message WHERE id = $1", &[&PgId(message.id.0)]).await?;
    }
    let is_pending = stored.progress.state.is_pending();
    let table = match (is_pending, new.dead_letter) {
        (true, _) => RowTable::Queue,
        (false, true) => RowTable::Dead,
        (false, false) => RowTable::Ledger,
    };
    insert_row(session, table, &stored).await?;
    effects.tally.add_state(shard, &tenant, new.state, 1);
    effects.tally.add_held(shard, &tenant, i64::from(new.held));
    if let Some(reason) = new.reason.filter(|_| new.dead_letter) {
        effects.tally.add_dead(shard, &tenant, reason, 1);
    }
    if is_pending {
        effects.tally.add_bytes(shard, &tenant, stored.bytes);
        let due = stored.progress.due.0;
        effects.notes.returned(NoteEntry { id: stored.id, lane, due, expires: stored.expires });
    }
    if !is_lone {
        let counts = effects.shared.entry(new.message.0).or_default();
        counts.0 += i32::from(is_pending);
        counts.1 += i32::from(needs_body(new.state, !new.dead_letter));
        counts.2 += 1;
    }
    Ok(())
}

fn imported_row(new: &StoredDeliveryRecord, lane: u32, tenant: &TenantId) -> StoredRow {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len() as i64);
    let due = new.due.unwrap_or(new.changed_at);
    let due = if new.held && !is_held(due) { Timestamp(due.0 + HELD_MS) } else { due };
    StoredRow {
        id: new.id.0,
        message: new.message,
        shard: shard_of(new.id.0),
        lane,
        tenant: tenant.clone(),
        progress: StoredProgress {
            state: new.state,
            reason: new.reason,
            due,
            attempts: new.attempts,
            tries: new.tries,
            last_delay: std::time::Duration::from_millis(new.last_delay_ms.max(0) as u64),
            changed: new.changed_at,
        },
        expires: new.expires_at.0,
        hash: new.hash,
        address: new.address,
        address_since: new.address_since,
        recipient: text(&new.recipient),
        retry: text(&new.retry),
        log: text(&new.log),
        class: None,
        ttl_s: None,
        envelope: None,
        message_expires: None,
        body: text(&new.body),
        shares_message: true,
        target: text(&new.target),
        alternatives: text(&new.alternatives),
        bytes: length(&new.target) + length(&new.body),
        mark: DeliveryMark { crashes: new.crashes, started: new.started, cancelled: new.cancelled },
        discarded: new.reason.is_some() && !new.dead_letter,
        free_batch: 0,
    }
}

/// A shared message gets deliveries.
async fn hold_message(
    session: &mut PgSession,
    id: u128,
    (pending, needed, all): (i32, i32, i32),
    tally: &mut TallyChanges,
) -> PgResult<()> {
    let update = "UPDATE message SET pending = pending + $2, needed = needed + $3, remaining = remaining + $4 \
                  WHERE id = $1 RETURNING pending, bytes, tenant";
    let row = session.first(update, &[&PgId(id), &pending, &needed, &all]).await?;
    let Some(row) = row else { return Ok(()) };
    if pending > 0 && get::<i32>(&row, "pending")? == pending {
        let tenant = TenantId(get::<String>(&row, "tenant")?.into());
        tally.add_bytes(shard_of(id), &tenant, i64::from(get::<i32>(&row, "bytes")?));
    }
    Ok(())
}

async fn import_key(session: &mut PgSession, key: &IdempotencyRecord) -> PgResult<()> {
    let insert = "INSERT INTO dedup (key, fingerprint, message, deliveries, expires) VALUES ($1, $2, $3, \
                  coalesce((SELECT deliveries FROM message WHERE id = $3), 1), $4)";
    let values: [&(dyn ToSql + Sync); 4] =
        [&key.key.as_slice(), &key.fingerprint.as_slice(), &PgId(key.message.0), &key.expires_at.0];
    session.run(insert, &values).await.map(drop)
}
