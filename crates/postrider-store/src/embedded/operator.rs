//! What an operator does to deliveries: cancel, replay, discard. In chunks, so that commits never wait for
//! long.

use postrider_core::model::id::order_key;
use postrider_core::policy::ttl::expires_at;
use postrider_core::ports::store::{CancelResult, DeliveryFilter, Replay, Selection, StoreResult};
use postrider_core::{DeliveryId, MessageId, State, TenantId, Timestamp};
use rusqlite::params;

use crate::embedded::EmbeddedStore;
use crate::embedded::index::effects::{BodyRelease, ReplayedDelivery, TransactionEffects};
use crate::embedded::ledger::page;
use crate::embedded::sql::error::{damaged, sql};
use crate::embedded::sql::rows::{self, get, to_json};
use crate::embedded::writer::Writer;
use crate::progress::{DeliveryMark, paced};

/// Rows of one transaction.
const CHUNK: usize = 1_000;

impl EmbeddedStore {
    pub(crate) async fn replay_in_chunks(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let mut replayed = 0;
        for chunk in self.choose(tenant, which).await?.chunks(CHUNK) {
            let (chunk, how, from) = (chunk.to_vec(), how.clone(), replayed);
            replayed += self.run_task(move |writer| writer.replay(&chunk, &how, from)).await?;
        }
        Ok(replayed)
    }

    pub(crate) async fn discard_in_chunks(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
    ) -> StoreResult<u64> {
        let mut discarded = 0;
        for chunk in self.choose(tenant, which).await?.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            discarded += self.run_task(move |writer| writer.discard(&chunk)).await?;
        }
        Ok(discarded)
    }

    /// The ids of the chosen dead letters, oldest first.
    async fn choose(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
    ) -> StoreResult<Vec<DeliveryId>> {
        let mut chosen = match which {
            Selection::Ids(ids) => self.choose_ids(tenant, ids).await?,
            Selection::Filter(filter) => self.choose_matching(tenant, filter).await?,
        };
        chosen.sort_unstable();
        chosen.dedup();
        Ok(chosen)
    }

    async fn choose_ids(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<Vec<DeliveryId>> {
        let mut chosen = Vec::with_capacity(ids.len());
        for id in ids {
            use postrider_core::ports::store::Ledger;
            chosen.extend(self.delivery(tenant, id).await?.map(|delivery| delivery.id));
        }
        Ok(chosen)
    }

    async fn choose_matching(
        &self,
        tenant: Option<&TenantId>,
        mut filter: DeliveryFilter,
    ) -> StoreResult<Vec<DeliveryId>> {
        match (tenant, &filter.tenant) {
            (Some(ours), Some(asked)) if ours != asked => return Ok(Vec::new()),
            (Some(ours), _) => filter.tenant = Some(ours.clone()),
            (None, _) => {}
        }
        let most = if filter.limit == 0 { usize::MAX } else { filter.limit };
        let mut chosen = Vec::new();
        loop {
            filter.limit = CHUNK.min(most - chosen.len());
            let asked = filter.clone();
            let page =
                self.shared.read(move |conn, shared| page(conn, shared, &asked, true)).await?;
            chosen.extend(page.items.iter().map(|delivery| delivery.id));
            filter.cursor = page.next;
            if page.next.is_none() || chosen.len() >= most {
                return Ok(chosen);
            }
        }
    }

    pub(crate) async fn cancel_in_chunks(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        self.shared.index().end_leases(self.shared.now().0);
        let seq = order_key(id.0);
        let found = self.shared.read(move |conn, _| rows::message(conn, seq)).await?;
        let found = found.filter(|row| row.message.id == id);
        let Some(row) = found.filter(|r| tenant.is_none_or(|t| *t == r.message.tenant)) else {
            return Ok(None);
        };
        let shared = (row.deliveries > 1).then(|| row.content.as_ref().map_or(0, String::len));
        let mut sum = CancelResult::default();
        let last = seq + u64::from(row.deliveries);
        let mut from = seq + 1;
        while from <= last {
            let to = last.min(from + CHUNK as u64 - 1);
            let part = self.run_task(move |writer| writer.cancel(seq, from, to, shared)).await?;
            sum.cancelled += part.cancelled;
            sum.in_flight += part.in_flight;
            sum.already_final += part.already_final;
            from = to + 1;
        }
        Ok(Some(sum))
    }
}

impl Writer {
    /// The number of a tenant that has deliveries.
    pub(crate) fn tenant_number(&self, name: &TenantId) -> StoreResult<u32> {
        self.tenants.get(name).copied().ok_or_else(|| damaged("the tenant of a delivery"))
    }

    pub(crate) fn tenant_of(&self, lane: u32) -> StoreResult<u32> {
        let index = self.shared.index();
        let named = index.names.get(lane as usize);
        named.map(|(_, tenant)| *tenant).ok_or_else(|| damaged("the lane of a delivery"))
    }

    fn replay(&mut self, ids: &[DeliveryId], how: &Replay, from: u64) -> StoreResult<u64> {
        let retry = how.retry.as_ref().map(to_json).transpose()?;
        self.transact_surely(|writer, effects| {
            let mut replayed = 0;
            for id in ids {
                let due = paced(writer.shared.now(), from + replayed, how.rate_per_s);
                let done =
                    writer.replay_one(order_key(id.0), due, how, retry.as_deref(), effects)?;
                replayed += u64::from(done);
            }
            Ok(replayed)
        })
    }

    fn replay_one(
        &mut self,
        seq: u64,
        due: Timestamp,
        how: &Replay,
        retry: Option<&str>,
        effects: &mut TransactionEffects,
    ) -> StoreResult<bool> {
        let now = self.shared.now();
        let Some(dead) = self.take_dead_letter(seq, effects)? else { return Ok(false) };
        let expires = expires_at(now, Some(due), how.ttl_s.unwrap_or(dead.ttl_s));
        self.conn
            .prepare_cached(
                "UPDATE delivery SET state = ?2, reason = NULL, due = ?3, attempts = 0, \
                 last_delay_ms = 0, expires = ?4, changed = ?5, retry = ?6 WHERE seq = ?1",
            )
            .and_then(|mut update| {
                let state = State::Queued.code();
                update.execute(params![seq as i64, state, due.0, expires.0, now.0, retry])
            })
            .map_err(sql)?;
        let count = effects.counts_of(dead.tenant);
        count.add(State::Failed, -1);
        count.add(State::Queued, 1);
        count.bytes += dead.bytes;
        if dead.siblings > 1 {
            effects.release(dead.message, BodyRelease { holds: 0, pending: -1, ..dead.body });
        }
        self.list_if_neighbours_are(seq, expires.0)?;
        effects.replayed.push(ReplayedDelivery {
            lane: dead.lane,
            due: due.0,
            seq,
            expires: expires.0,
        });
        Ok(true)
    }

    fn discard(&mut self, ids: &[DeliveryId]) -> StoreResult<u64> {
        self.transact_surely(|writer, effects| {
            let mut discarded = 0;
            for id in ids {
                let seq = order_key(id.0);
                let Some(dead) = writer.take_dead_letter(seq, effects)? else { continue };
                writer
                    .conn
                    .prepare_cached("UPDATE delivery SET target = NULL, body = NULL, alternatives = NULL WHERE seq = ?1")
                    .and_then(|mut update| update.execute([seq as i64]))
                    .map_err(sql)?;
                if dead.siblings > 1 {
                    effects.release(dead.message, BodyRelease { holds: 1, pending: 0, ..dead.body });
                }
                discarded += 1;
            }
            Ok(discarded)
        })
    }

    /// Takes a delivery out of the dead letters; `None` if it is not one.
    fn take_dead_letter(
        &self,
        seq: u64,
        effects: &mut TransactionEffects,
    ) -> StoreResult<Option<DeadLetterRow>> {
        let taken = self
            .conn
            .prepare_cached("DELETE FROM dead_letter WHERE seq = ?1")
            .and_then(|mut delete| delete.execute([seq as i64]))
            .map_err(sql)?;
        if taken == 0 {
            return Ok(None);
        }
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT d.lane, d.reason, d.message, m.ttl_s, m.deliveries, \
                 coalesce(length(CAST(d.target AS BLOB)), 0) \
                 + coalesce(length(CAST(d.body AS BLOB)), 0) AS bytes, \
                 coalesce(length(CAST(m.content AS BLOB)), 0) AS shared FROM delivery d \
                 JOIN message m ON m.seq = d.message WHERE d.seq = ?1",
            )
            .map_err(sql)?;
        let mut rows = select.query([seq as i64]).map_err(sql)?;
        let Some(row) = rows.next().map_err(sql)? else { return Ok(None) };
        let lane: u32 = get(row, "lane")?;
        let tenant = self.tenant_of(lane)?;
        let reason: Option<u8> = get(row, "reason")?;
        if let Some(reason) = reason.and_then(postrider_core::DeadReason::from_code) {
            effects.counts_of(tenant).add_dead(reason, -1);
        }
        effects.rows += 2;
        Ok(Some(DeadLetterRow {
            lane,
            tenant,
            message: get::<i64>(row, "message")? as u64,
            ttl_s: get(row, "ttl_s")?,
            siblings: get(row, "deliveries")?,
            bytes: get(row, "bytes")?,
            body: BodyRelease {
                tenant,
                bytes: get::<i64>(row, "shared")?.unsigned_abs() as usize,
                holds: 0,
                pending: 0,
            },
        }))
    }

    /// Cancels the deliveries of a message in a range of sequences, except those in flight. `shared` is the
    /// length of the body that its deliveries share.
    fn cancel(
        &mut self,
        message: u64,
        from: u64,
        to: u64,
        shared: Option<usize>,
    ) -> StoreResult<CancelResult> {
        self.transact_surely(|writer, effects| {
            let now = writer.shared.now();
            let mut result = CancelResult::default();
            let mut waiting = Vec::new();
            {
                let mut select = writer
                    .conn
                    .prepare_cached(
                        "SELECT seq, lane, state, due, \
                         coalesce(length(CAST(target AS BLOB)), 0) \
                         + coalesce(length(CAST(body AS BLOB)), 0) AS bytes \
                         FROM delivery WHERE seq >= ?1 AND seq <= ?2",
                    )
                    .map_err(sql)?;
                let mut found = select.query([from as i64, to as i64]).map_err(sql)?;
                while let Some(row) = found.next().map_err(sql)? {
                    match get::<Option<i64>>(row, "due")? {
                        None => result.already_final += 1,
                        Some(due) => {
                            let (lane, seq): (u32, i64) = (get(row, "lane")?, get(row, "seq")?);
                            let bytes: i64 = get(row, "bytes")?;
                            waiting.push((lane, due, seq as u64, rows::state(row)?, bytes));
                        }
                    }
                }
            }
            for (lane, due, seq, state, bytes) in waiting {
                let (withdrawn, mark) = {
                    let mut index = writer.shared.index();
                    (index.withdraw(lane, due, seq), index.mark(seq))
                };
                if !withdrawn {
                    result.in_flight += 1;
                    writer.put_mark(seq, DeliveryMark { cancelled: true, ..mark }, effects)?;
                    continue;
                }
                if !mark.is_empty() {
                    writer.put_mark(seq, DeliveryMark::default(), effects)?;
                }
                effects.withdrawn.push((lane, due, seq));
                let tenant = writer.cancel_one(lane, seq, state, now, effects)?;
                effects.counts_of(tenant).bytes -= bytes;
                if let Some(bytes) = shared {
                    effects.release(message, BodyRelease { tenant, bytes, holds: 1, pending: 1 });
                }
                result.cancelled += 1;
            }
            Ok(result)
        })
    }

    fn cancel_one(
        &self,
        lane: u32,
        seq: u64,
        state: State,
        now: Timestamp,
        effects: &mut TransactionEffects,
    ) -> StoreResult<u32> {
        self.conn
            .prepare_cached(
                "UPDATE delivery SET state = ?2, due = NULL, changed = ?3, target = NULL, \
                 body = NULL, alternatives = NULL WHERE seq = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![seq as i64, State::Cancelled.code(), now.0])
            })
            .map_err(sql)?;
        let tenant = self.tenant_of(lane)?;
        let count = effects.counts_of(tenant);
        count.add(state, -1);
        count.add(State::Cancelled, 1);
        effects.rows += 1;
        Ok(tenant)
    }
}

/// A delivery that was taken out of the dead letters.
struct DeadLetterRow {
    lane: u32,
    tenant: u32,
    message: u64,
    ttl_s: u32,
    siblings: u32,
    /// The length of its own target and body.
    bytes: i64,
    /// The body that it shares with the other deliveries of its message.
    body: BodyRelease,
}
