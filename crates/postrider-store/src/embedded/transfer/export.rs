//! Reads rows as records.

use std::sync::Arc;

use postrider_core::ports::store::*;
use postrider_core::{AddressHash, AddressId, DeadReason};
use serde::{Deserialize, Serialize};

use crate::embedded::registry::address;
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::rows::{optional_time, state};
use crate::embedded::sql::strikes::{strike, tenant_and_hash};
use crate::progress::{HELD_MS, is_held};

/// A position among gone marks and strikes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct AddressPosition {
    tenant: String,
    hash: Vec<u8>,
    kind: i64,
}

const DELIVERY: &str = "SELECT d.*, m.tail AS message_tail, x.seq IS NOT NULL AS dead_letter, \
                        coalesce(k.crashes, 0) AS crashes, coalesce(k.started, 0) AS started, \
                        coalesce(k.cancelled, 0) AS cancelled FROM delivery d \
                        JOIN message m ON m.seq = d.message LEFT JOIN dead_letter x ON x.seq = d.seq \
                        LEFT JOIN mark k ON k.seq = d.seq WHERE d.seq > ?1 ORDER BY d.seq LIMIT ?2";

pub(super) fn number(after: Option<&str>) -> StoreResult<i64> {
    after.map_or(Ok(-1), |text| text.parse().map_err(|_| damaged("a position of a copy")))
}

pub(super) fn address_key(after: Option<&str>) -> StoreResult<AddressPosition> {
    after.map_or_else(|| Ok(AddressPosition::default()), |text| parse(text, "a position of a copy"))
}

/// The key that follows a position.
pub(super) fn key_after(after: Option<&str>) -> StoreResult<Option<[u8; 16]>> {
    let Some(text) = after else { return Ok(Some([0; 16])) };
    let last = u128::from_str_radix(text, 16).map_err(|_| damaged("a position of a copy"))?;
    Ok(last.checked_add(1).map(u128::to_be_bytes))
}

pub(super) fn keys(
    writer: &mut Writer,
    from: Option<[u8; 16]>,
    limit: usize,
    over_by: Timestamp,
) -> StoreResult<RecordPage> {
    let Some(from) = from else { return Ok(RecordPage::default()) };
    let found = writer.dedup.export(&writer.conn, from, limit, over_by)?;
    let last = found.last().filter(|_| found.len() == limit);
    let next = last.map(|(key, _)| format!("{:032x}", u128::from_be_bytes(*key)));
    let record = |(key, entry): &([u8; 16], crate::embedded::index::effects::DedupEntry)| {
        StoreRecord::IdempotencyKey(IdempotencyRecord {
            key: *key,
            fingerprint: entry.fingerprint,
            message: entry.message,
            expires_at: Timestamp(entry.expires),
        })
    };
    Ok(RecordPage { records: found.iter().map(record).collect(), next })
}

/// Addresses, messages or deliveries, by their sequence.
pub(super) fn by_number(
    conn: &Connection,
    shared: &StoreShared,
    kind: RecordKind,
    after: i64,
    limit: usize,
) -> StoreResult<RecordPage> {
    let values = params![after, limit as i64];
    let found = match kind {
        RecordKind::Address => {
            let select = "SELECT * FROM address WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            all_rows(conn, select, values, |row| {
                Ok((get::<i64>(row, "seq")?, StoreRecord::Address(address(row)?)))
            })?
        }
        RecordKind::Message => {
            let select = "SELECT * FROM message WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            all_rows(conn, select, values, |row| Ok((get::<i64>(row, "seq")?, message(row)?)))?
        }
        _ => all_rows(conn, DELIVERY, values, |row| {
            Ok((get::<i64>(row, "seq")?, delivery(row, shared)?))
        })?,
    };
    let next = found.last().filter(|_| found.len() == limit).map(|(seq, _)| seq.to_string());
    Ok(RecordPage { records: found.into_iter().map(|(_, record)| record).collect(), next })
}

fn message(row: &Row<'_>) -> StoreResult<StoreRecord> {
    Ok(StoreRecord::Message(Box::new(StoredMessageRecord {
        id: MessageId(row_id(row)?),
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        class: get::<String>(row, "class")?.into(),
        expires_at: Timestamp(get(row, "expires")?),
        ttl_s: get(row, "ttl_s")?,
        deliveries: get(row, "deliveries")?,
        envelope: text(row, "envelope")?,
        content: text(row, "content")?,
    })))
}

fn delivery(row: &Row<'_>, shared: &StoreShared) -> StoreResult<StoreRecord> {
    let lane: u32 = get(row, "lane")?;
    let lane =
        shared.index().lane_key(lane).cloned().ok_or_else(|| damaged("a delivery's lane"))?;
    let message = from_order_key(unsigned(row, "message")?, unsigned(row, "message_tail")?);
    let address: Option<[u8; 16]> = get(row, "address")?;
    let due = optional_time(row, "due")?;
    let held = due.is_some_and(is_held);
    Ok(StoreRecord::Delivery(Box::new(StoredDeliveryRecord {
        id: DeliveryId(row_id(row)?),
        message: MessageId(message),
        lane: Arc::clone(&lane),
        state: state(row)?,
        reason: get::<Option<u8>>(row, "reason")?.and_then(DeadReason::from_code),
        dead_letter: get(row, "dead_letter")?,
        due: due.map(|due| if held { Timestamp(due.0 - HELD_MS) } else { due }),
        held,
        attempts: get(row, "attempts")?,
        tries: get(row, "tries")?,
        last_delay_ms: get(row, "last_delay_ms")?,
        expires_at: Timestamp(get(row, "expires")?),
        changed_at: Timestamp(get(row, "changed")?),
        hash: AddressHash(get(row, "hash")?),
        address: address.map(|id| AddressId(u128::from_be_bytes(id))),
        address_since: optional_time(row, "address_since")?,
        recipient: text(row, "recipient")?,
        retry: text(row, "retry")?,
        log: text(row, "log")?,
        target: text(row, "target")?,
        body: text(row, "body")?,
        alternatives: text(row, "alternatives")?,
        crashes: get(row, "crashes")?,
        started: get(row, "started")?,
        cancelled: get(row, "cancelled")?,
    })))
}

fn text(row: &Row<'_>, column: &str) -> StoreResult<Option<Box<str>>> {
    Ok(get::<Option<String>>(row, column)?.map(String::into_boxed_str))
}

/// Gone marks or strikes, by tenant and address.
pub(super) fn by_address(
    conn: &Connection,
    kind: RecordKind,
    after: AddressPosition,
    limit: usize,
) -> StoreResult<RecordPage> {
    let select = match kind {
        RecordKind::GoneMark => {
            "SELECT tenant, hash, deleted_before, 0 AS kind FROM gone WHERE (tenant, hash) > (?1, ?2) AND ?3 >= 0 \
             ORDER BY tenant, hash LIMIT ?4"
        }
        _ => {
            "SELECT * FROM strike WHERE (tenant, hash, kind) > (?1, ?2, ?3) \
             ORDER BY tenant, hash, kind LIMIT ?4"
        }
    };
    let kind_after = if after.tenant.is_empty() { 0 } else { after.kind };
    let values = params![after.tenant, after.hash, kind_after, limit as i64];
    let found = all_rows(conn, select, values, |row| {
        let (tenant, hash) = tenant_and_hash(row)?;
        let position = AddressPosition {
            tenant: tenant.as_str().to_owned(),
            hash: hash.0.to_vec(),
            kind: get(row, "kind")?,
        };
        let record = match kind {
            RecordKind::GoneMark => {
                let key: Option<i64> = get(row, "deleted_before")?;
                let deleted_before = key.map(|key| key as u64);
                StoreRecord::GoneMark { tenant, hash, deleted_before }
            }
            _ => StoreRecord::Strike { tenant, hash, strike: strike(row)? },
        };
        Ok((position, record))
    })?;
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(|(position, _)| to_json(position)).transpose()?;
    Ok(RecordPage { records: found.into_iter().map(|(_, record)| record).collect(), next })
}
