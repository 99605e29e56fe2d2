//! Holds pending deliveries until an operator releases them. Lane by lane, in chunks, so that commits never wait for
//! long.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::LaneKey;
use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::{DeliveryFilter, HeldDeliveries, Selection};

use super::EmbeddedStore;
use super::index::effects::ReplayedDelivery;
use super::index::lanes::DueKey;
use super::operator::CHUNK;
use super::sql::prelude::*;
use super::sql::rows::progress;
use super::sql::tags::has_marks;
use crate::progress::{HELD_MS, StoredProgress, paced};

const COLUMNS: &str = "SELECT seq, lane, state, reason, due, attempts, tries, last_delay_ms, changed, \
                       expires, recipient, message FROM delivery";

#[async_trait]
impl HeldDeliveries for EmbeddedStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        self.shared.index().end_leases(self.shared.now().0);
        let mut held = 0;
        for (lane, _) in self.all_lanes() {
            let mut from = Some((i64::MIN, 0));
            while let Some(after) = from {
                let (some, next) = self
                    .run_task(move |writer| {
                        writer.list_all_waiting()?;
                        writer.transact_surely(|writer| writer.hold_some(lane, after))
                    })
                    .await?;
                (held, from) = (held + some, next);
            }
        }
        Ok(held)
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let tenant = tenant.cloned();
        let filter = match which {
            Selection::Ids(ids) => return self.release_ids(tenant, &ids, rate_per_s).await,
            Selection::Filter(filter) => Arc::new(filter),
        };
        let of_filter = |lane: &LaneKey| {
            [&tenant, &filter.tenant].into_iter().flatten().all(|tenant| *tenant == lane.tenant)
                && filter.channel.is_none_or(|channel| channel == lane.channel)
        };
        let mut released = 0;
        for (lane, key) in self.all_lanes() {
            let mut from = Some((HELD_MS, 0)).filter(|_| of_filter(&key));
            while let Some(after) = from {
                let (filter, start) = (filter.clone(), released);
                let release = move |writer: &mut Writer| {
                    writer.list_all_waiting()?;
                    writer.transact_surely(|writer| {
                        writer.release_some(lane, after, &filter, (start, rate_per_s))
                    })
                };
                let (some, next) = self.run_task(release).await?;
                (released, from) = (released + some, next);
            }
        }
        self.shared.work.notify();
        Ok(released)
    }
}

impl EmbeddedStore {
    fn all_lanes(&self) -> Vec<(u32, Arc<LaneKey>)> {
        let index = self.shared.index();
        index.named_lanes().map(|(lane, key)| (lane, key.clone())).collect()
    }

    async fn release_ids(
        &self,
        tenant: Option<TenantId>,
        ids: &[DeliveryId],
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let mut released = 0;
        for chunk in ids.chunks(CHUNK) {
            let (chunk, tenant, start) = (chunk.to_vec(), tenant.clone(), released);
            let release = move |writer: &mut Writer| {
                writer.transact_surely(|writer| {
                    writer.release_ids(&chunk, tenant.as_ref(), (start, rate_per_s))
                })
            };
            released += self.run_task(release).await?;
        }
        self.shared.work.notify();
        Ok(released)
    }
}

/// The number of the next delivery to release, and how many go on per second.
type ReleasePace = (u64, Option<f64>);

/// A delivery that waits.
struct WaitingRow {
    seq: u64,
    lane: u32,
    progress: StoredProgress,
    expires: i64,
    recipient: Option<String>,
    message: u64,
}

impl Writer {
    /// Holds the next deliveries of a lane. Returns how many, and where to go on.
    fn hold_some(&mut self, lane: u32, after: DueKey) -> StoreResult<(u64, Option<DueKey>)> {
        let (rows, next) = self.waiting_rows(lane, after, HELD_MS)?;
        let (now, mut held) = (self.shared.now(), 0);
        for row in &rows {
            held += u64::from(self.change_waiting(row, row.progress.held(now))?);
        }
        Ok((held, next))
    }

    fn release_some(
        &mut self,
        lane: u32,
        after: DueKey,
        filter: &DeliveryFilter,
        (start, rate_per_s): ReleasePace,
    ) -> StoreResult<(u64, Option<DueKey>)> {
        let (rows, next) = self.waiting_rows(lane, after, i64::MAX)?;
        let (now, mut released) = (self.shared.now(), 0);
        for row in rows.iter().filter(|row| matches(row, filter)) {
            if !has_marks(&self.conn, row.message, &filter.marks())? {
                continue;
            }
            let at_least = paced(now, start + released, rate_per_s);
            released += u64::from(self.change_waiting(row, row.progress.released(at_least, now))?);
        }
        Ok((released, next))
    }

    fn release_ids(
        &mut self,
        ids: &[DeliveryId],
        tenant: Option<&TenantId>,
        (start, rate_per_s): ReleasePace,
    ) -> StoreResult<u64> {
        let select = format!("{COLUMNS} WHERE seq = ?1 AND tail = ?2 AND due >= ?3");
        let (now, mut released) = (self.shared.now(), 0);
        for id in ids {
            let values = params![order_key(id.0) as i64, random_tail(id.0) as i64, HELD_MS];
            let Some(row) = first_row(&self.conn, &select, values, waiting_row)? else { continue };
            let owner = self.shared.index().lane_key(row.lane).map(|key| key.tenant.clone());
            if tenant.is_some_and(|tenant| Some(tenant) != owner.as_ref()) {
                continue;
            }
            let at_least = paced(now, start + released, rate_per_s);
            released += u64::from(self.change_waiting(&row, row.progress.released(at_least, now))?);
        }
        Ok(released)
    }

    /// The next waiting deliveries of a lane whose due time is before `before`, and where to go on.
    fn waiting_rows(
        &self,
        lane: u32,
        after: DueKey,
        before: i64,
    ) -> StoreResult<(Vec<WaitingRow>, Option<DueKey>)> {
        let select = "SELECT due, seq FROM waiting WHERE lane = ?1 AND due >= ?2 AND due < ?4 \
                      AND (due > ?2 OR seq > ?3) ORDER BY due, seq LIMIT ?5";
        let values = params![lane, after.0, after.1 as i64, before, CHUNK as i64];
        let entry = |row: &Row<'_>| Ok((get::<i64>(row, 0)?, unsigned(row, 1)?));
        let listed = all_rows(&self.conn, select, values, entry)?;
        let select = format!("{COLUMNS} WHERE seq = ?1 AND lane = ?2 AND due = ?3");
        let mut rows = Vec::with_capacity(listed.len());
        for (due, seq) in &listed {
            let values = params![*seq as i64, lane, due];
            rows.extend(first_row(&self.conn, &select, values, waiting_row)?);
        }
        Ok((rows, listed.last().filter(|_| listed.len() == CHUNK).copied()))
    }

    /// Gives a waiting delivery another state and due time. False if it is leased.
    fn change_waiting(&mut self, row: &WaitingRow, new: StoredProgress) -> StoreResult<bool> {
        let (old, seq, lane) = (row.progress, row.seq, row.lane);
        if !self.shared.index().withdraw(lane, old.due.0, seq) {
            return Ok(false);
        }
        self.effects.withdrawn.push((lane, old.due.0, seq));
        run(
            &self.conn,
            "UPDATE delivery SET state = ?2, due = ?3, changed = ?4 WHERE seq = ?1",
            params![seq as i64, new.state.code(), new.due.0, new.changed.0],
        )?;
        self.relist(seq, (lane, old.due.0), Some((lane, new.due.0)))?;
        let tenant = self.tenant_of(lane)?;
        let count = self.effects.counts_of(tenant);
        count.add(old.state, -1);
        count.add(new.state, 1);
        count.held += i64::from(new.is_held()) - i64::from(old.is_held());
        let (due, expires) = (new.due.0, row.expires);
        self.effects.replayed.push(ReplayedDelivery { lane, due, seq, expires });
        Ok(true)
    }
}

fn waiting_row(row: &Row<'_>) -> StoreResult<WaitingRow> {
    Ok(WaitingRow {
        seq: unsigned(row, "seq")?,
        lane: get(row, "lane")?,
        progress: progress(row)?,
        expires: get(row, "expires")?,
        recipient: get(row, "recipient")?,
        message: unsigned(row, "message")?,
    })
}

/// The lane was compared before, and the tag is not looked at.
fn matches(row: &WaitingRow, filter: &DeliveryFilter) -> bool {
    filter.since.is_none_or(|since| row.seq >= order_key_at(since))
        && filter.until.is_none_or(|until| row.seq < order_key_at(until))
        && filter.message.is_none_or(|message| row.message == order_key(message.0))
        && filter.recipient.as_deref().is_none_or(|wanted| row.recipient.as_deref() == Some(wanted))
}
