//! Everything in the store as records of the port, for another store.

mod import;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{AddressHash, Message, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::postgres::PostgresStore;
use crate::postgres::failure::{PgFailure, PgResult};
use crate::postgres::leasing::shared_message;
use crate::postgres::registry::address;
use crate::postgres::rows::{StoredRow, hash};
use crate::postgres::session::PgSession;
use crate::postgres::shared::PgShared;
use crate::postgres::strikes::strike;
use crate::postgres::value::{PgId, get};
use crate::progress::HELD_MS;

/// A position in one of several tables.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct TablePosition {
    table: usize,
    /// As text, because JSON has no such numbers.
    #[serde(with = "hex")]
    after: u128,
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

/// A position among gone marks and strikes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct MarkPosition {
    hash: Vec<u8>,
    tenant: String,
    kind: i16,
}

fn position<T: Default + for<'a> Deserialize<'a>>(after: Option<&str>) -> PgResult<T> {
    let read =
        |text| serde_json::from_str(text).map_err(|_| PgFailure::damaged("a position of a copy"));
    after.map_or_else(|| Ok(T::default()), read)
}

fn written(position: &impl Serialize) -> PgResult<String> {
    serde_json::to_string(position).map_err(|_| PgFailure::damaged("a position of a copy"))
}

/// A page with everything: there is little of it.
fn whole(records: Vec<StoreRecord>) -> RecordPage {
    RecordPage { records, next: None }
}

const MESSAGES: [&str; 4] = [
    "SELECT * FROM message WHERE id > $1 ORDER BY id LIMIT $2",
    "SELECT * FROM queue WHERE id > $1 AND NOT shares_message ORDER BY id LIMIT $2",
    "SELECT * FROM dead WHERE id > $1 AND NOT shares_message ORDER BY id LIMIT $2",
    "SELECT * FROM ledger WHERE id > $1 AND NOT shares_message ORDER BY id LIMIT $2",
];

const DELIVERIES: [&str; 3] = [
    "SELECT * FROM queue WHERE id > $1 ORDER BY id LIMIT $2",
    "SELECT * FROM dead WHERE id > $1 ORDER BY id LIMIT $2",
    "SELECT * FROM ledger WHERE id > $1 ORDER BY id LIMIT $2",
];

const ADDRESSES: [&str; 1] = ["SELECT * FROM address WHERE id > $1 ORDER BY id LIMIT $2"];

impl PgShared {
    /// Records of several tables, one after the other, by id.
    async fn export_by_id(
        &self,
        kind: RecordKind,
        tables: &[&'static str],
        after: Option<&str>,
        limit: usize,
    ) -> PgResult<RecordPage> {
        let TablePosition { table, after } = position(after)?;
        let Some(select) = tables.get(table) else { return Ok(RecordPage::default()) };
        let mut session = self.pool.durable().await?;
        let rows = session.rows(select, &[&PgId(after), &(limit as i64)]).await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            records.push(match kind {
                RecordKind::Address => StoreRecord::Address(address(row)?),
                RecordKind::Message if table == 0 => message_record(&shared_message(row)?, row)?,
                RecordKind::Message => self.lone_record(&mut session, row).await?,
                _ => {
                    let stored = StoredRow::read(row)?;
                    let lane = self.lane_of(&mut session, stored.lane).await?;
                    delivery_record(stored, lane, table == 1)
                }
            });
        }
        let last = rows.last().map(|row| get::<PgId>(row, "id")).transpose()?;
        let next = match last.filter(|_| rows.len() == limit) {
            Some(last) => Some(TablePosition { table, after: last.0 }),
            None => Some(TablePosition { table: table + 1, after: 0 }),
        };
        let next = next.filter(|next| next.table < tables.len());
        Ok(RecordPage { records, next: next.map(|next| written(&next)).transpose()? })
    }

    async fn lone_record(&self, session: &mut PgSession, row: &Row) -> PgResult<StoreRecord> {
        let stored = StoredRow::read(row)?;
        let lane = self.lane_of(session, stored.lane).await?;
        let message = stored.lone_message(&lane)?;
        Ok(StoreRecord::Message(Box::new(StoredMessageRecord {
            id: message.id,
            tenant: message.tenant,
            class: (*message.class).into(),
            expires_at: message.expires_at,
            ttl_s: message.ttl_s,
            deliveries: 1,
            envelope: stored.envelope.map(String::into_boxed_str),
            content: None,
        })))
    }

    async fn export_marks(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
    ) -> PgResult<RecordPage> {
        let after: MarkPosition = position(after)?;
        let mut session = self.pool.durable().await?;
        let select = match kind {
            RecordKind::GoneMark => {
                "SELECT hash, tenant, deleted_before, 0::smallint AS kind FROM gone WHERE (hash, tenant) > ($1, $2) \
                 AND $3::smallint >= 0 ORDER BY hash, tenant LIMIT $4"
            }
            _ => {
                "SELECT * FROM strike WHERE (hash, tenant, kind) > ($1, $2, $3) \
                 ORDER BY hash, tenant, kind LIMIT $4"
            }
        };
        let values: [&(dyn ToSql + Sync); 4] =
            [&after.hash, &after.tenant, &after.kind, &(limit as i64)];
        let rows = session.rows(select, &values).await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            let tenant = TenantId(get::<String>(row, "tenant")?.into());
            let hash: AddressHash = hash(get(row, "hash")?)?;
            records.push(match kind {
                RecordKind::GoneMark => {
                    let key: Option<i64> = get(row, "deleted_before")?;
                    let deleted_before = key.map(|key| key as u64);
                    StoreRecord::GoneMark { tenant, hash, deleted_before }
                }
                _ => StoreRecord::Strike { tenant, hash, strike: strike(row)? },
            });
        }
        let next = match rows.last().filter(|_| rows.len() == limit) {
            Some(row) => Some(written(&MarkPosition {
                hash: get(row, "hash")?,
                tenant: get(row, "tenant")?,
                kind: get(row, "kind")?,
            })?),
            None => None,
        };
        Ok(RecordPage { records, next })
    }

    async fn export_keys(
        &self,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> PgResult<RecordPage> {
        let after: Vec<u8> = position(after)?;
        let mut session = self.pool.durable().await?;
        let select = "SELECT * FROM dedup WHERE key > $1 AND expires > $2 ORDER BY key LIMIT $3";
        let rows = session.rows(select, &[&after, &over_by.0, &(limit as i64)]).await?;
        let record = |row: &Row| -> PgResult<StoreRecord> {
            let bytes = |column: &str| -> PgResult<[u8; 16]> {
                let bytes: Vec<u8> = get(row, column)?;
                bytes.try_into().map_err(|_| PgFailure::damaged("an idempotency key"))
            };
            Ok(StoreRecord::IdempotencyKey(IdempotencyRecord {
                key: bytes("key")?,
                fingerprint: bytes("fingerprint")?,
                message: postrider_core::MessageId(get::<PgId>(row, "message")?.0),
                expires_at: Timestamp(get(row, "expires")?),
            }))
        };
        let last = rows.last().filter(|_| rows.len() == limit);
        let last = last.map(|row| get::<Vec<u8>>(row, "key")).transpose()?;
        Ok(RecordPage {
            records: rows.iter().map(record).collect::<PgResult<_>>()?,
            next: last.map(|key| written(&key)).transpose()?,
        })
    }

    async fn export_lanes(&self) -> PgResult<RecordPage> {
        let mut session = self.pool.durable().await?;
        let rows = session.rows("SELECT id FROM lane ORDER BY id", &[]).await?;
        let numbers: Vec<_> =
            rows.iter().map(|row| Ok(get::<i32>(row, "id")? as u32)).collect::<PgResult<_>>()?;
        self.lanes.learn(&mut session, &numbers).await?;
        let keys = numbers.iter().filter_map(|number| self.lanes.key(*number));
        Ok(whole(keys.map(StoreRecord::Lane).collect()))
    }
}

fn message_record(message: &Message, row: &Row) -> PgResult<StoreRecord> {
    Ok(StoreRecord::Message(Box::new(StoredMessageRecord {
        id: message.id,
        tenant: message.tenant.clone(),
        class: (*message.class).into(),
        expires_at: message.expires_at,
        ttl_s: message.ttl_s,
        deliveries: get::<i32>(row, "deliveries")? as u32,
        envelope: get::<Option<String>>(row, "envelope")?.map(String::into_boxed_str),
        content: get::<Option<String>>(row, "content")?.map(String::into_boxed_str),
    })))
}

fn delivery_record(
    stored: StoredRow,
    lane: std::sync::Arc<postrider_core::LaneKey>,
    dead_letter: bool,
) -> StoreRecord {
    let boxed = |text: Option<String>| text.map(String::into_boxed_str);
    let progress = stored.progress;
    let held = progress.is_held();
    let due = Timestamp(if held { progress.due.0 - HELD_MS } else { progress.due.0 });
    StoreRecord::Delivery(Box::new(StoredDeliveryRecord {
        id: postrider_core::DeliveryId(stored.id),
        message: stored.message,
        lane,
        state: progress.state,
        reason: progress.reason,
        dead_letter,
        due: Some(due).filter(|_| progress.state.is_pending()),
        held,
        attempts: progress.attempts,
        tries: progress.tries,
        last_delay_ms: progress.last_delay.as_millis() as i64,
        expires_at: Timestamp(stored.expires),
        changed_at: progress.changed,
        hash: stored.hash,
        address: stored.address,
        address_since: stored.address_since,
        recipient: boxed(stored.recipient),
        retry: boxed(stored.retry),
        log: boxed(stored.log),
        target: boxed(stored.target),
        body: boxed(stored.body),
        alternatives: boxed(stored.alternatives),
        crashes: stored.mark.crashes,
        started: stored.mark.started,
        cancelled: stored.mark.cancelled,
    }))
}

#[async_trait]
impl StoreTransfer for PostgresStore {
    async fn export(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> StoreResult<RecordPage> {
        let (shared, limit) = (&self.shared, limit.max(1));
        match kind {
            RecordKind::Document => {
                let all = self.documents("").await?.into_iter();
                let records = all.filter_map(|document| {
                    let Document { name, json, expires_at, .. } = document;
                    Some(StoreRecord::Document(DocumentRecord { name, json: json?, expires_at }))
                });
                Ok(whole(records.collect()))
            }
            RecordKind::Lane => Ok(shared.export_lanes().await?),
            RecordKind::Address => Ok(shared.export_by_id(kind, &ADDRESSES, after, limit).await?),
            RecordKind::Message => Ok(shared.export_by_id(kind, &MESSAGES, after, limit).await?),
            RecordKind::Delivery => {
                Ok(shared.export_by_id(kind, &DELIVERIES, after, limit).await?)
            }
            RecordKind::IdempotencyKey => Ok(shared.export_keys(after, limit, over_by).await?),
            RecordKind::Audit => crate::audit_pages::export(self, after, limit).await,
            RecordKind::Entry => crate::entry_pages::export(self, after, limit).await,
            RecordKind::Rollup => crate::rollup_pages::export(self, after, limit).await,
            RecordKind::GoneMark | RecordKind::Strike => {
                Ok(shared.export_marks(kind, after, limit).await?)
            }
        }
    }

    async fn import(&self, records: Vec<StoreRecord>) -> StoreResult<()> {
        let shared = &self.shared;
        shared.import(&records).await?;
        shared.tell_of_notes();
        Ok(shared.refresh().await?)
    }
}
