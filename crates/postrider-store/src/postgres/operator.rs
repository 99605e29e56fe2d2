//! What operators do: cancel, replay, discard, hold and release. Each step counts as an act on its shards, so that no
//! lease that saw the state before it is written after it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_core::policy::ttl::{DISPATCH_WINDOW, expires_at};
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, MessageId, State, TenantId, Timestamp};

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::holders::epoch;
use super::intake::delivery_range;
use super::notes::NewNotes;
use super::rows::StoredRow;
use super::session::PgSession;
use super::settle_one::{count_stored_move, insert_row, release_message};
use super::shared::PgShared;
use super::tally::TallyChanges;
use super::value::{PgId, get, ids};
use crate::progress::{StoredProgress, died_before, paced};
use crate::sharded::{NoteEntry, shard_of};

/// Deliveries of one transaction.
pub(super) const CHUNK: usize = 500;

const WAITING: &str = "SELECT q.*, (SELECT l.until FROM lease l WHERE l.shard = q.shard AND l.batch > q.free_batch \
    AND q.id = ANY(l.ids) ORDER BY l.batch DESC LIMIT 1) AS lease_end, \
    s.nonce IS NOT NULL AND s.epoch <> $2 AS unsure FROM queue q JOIN shard s ON s.id = q.shard \
    WHERE q.id = ANY($1) ORDER BY q.id FOR UPDATE OF q";

/// Rows of one transaction of an operator.
struct ActedRows {
    rows: Vec<StoredRow>,
    /// Whether each is in flight.
    in_flight: Vec<bool>,
}

fn entry(row: &StoredRow) -> NoteEntry {
    NoteEntry { id: row.id, lane: row.lane, due: row.progress.due.0, expires: row.expires }
}

/// Acts on the shards of these deliveries, until the end of the transaction.
async fn act_on(session: &mut PgSession, chosen: &[u128]) -> PgResult<()> {
    let mut shards: Vec<_> = chosen.iter().map(|id| shard_of(*id) as i16).collect();
    shards.sort_unstable();
    shards.dedup();
    let lock = "SELECT id FROM shard WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    session.rows(lock, &[&shards]).await?;
    let update = "UPDATE shard SET acts = acts + 1 WHERE id = ANY($1)";
    session.run(update, &[&shards]).await.map(drop)
}

impl PgShared {
    /// Pending deliveries, locked.
    async fn waiting(&self, session: &mut PgSession, chosen: &[u128]) -> PgResult<ActedRows> {
        let now = self.clock.now().0;
        let epoch = epoch(session, now | 1).await?;
        let found = session.rows(WAITING, &[&ids(chosen.iter().copied()), &epoch]).await?;
        let mut acted = ActedRows { rows: Vec::new(), in_flight: Vec::new() };
        for row in &found {
            let end: Option<i64> = get(row, "lease_end")?;
            // After a crash of the server, leases are known again once their holder has written them again.
            let is_in_flight = end.is_some_and(|end| end > now) || get(row, "unsure")?;
            acted.rows.push(StoredRow::read(row)?);
            acted.in_flight.push(is_in_flight);
        }
        Ok(acted)
    }

    pub(super) async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> PgResult<Option<CancelResult>> {
        let _write = self.load.begin_write();
        let mut session = self.pool.durable().await?;
        let Some(found) = self.stored_message(&mut session, tenant, id).await? else {
            return Ok(None);
        };
        let (first, last) = delivery_range(id, found.deliveries);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&first, &last, &PgId(id.0)];
        let select = "SELECT id FROM queue WHERE id BETWEEN $1 AND $2 AND message = $3 ORDER BY id";
        let pending = session.rows(select, &values).await?;
        let pending: Vec<_> =
            pending.iter().map(|row| Ok(get::<PgId>(row, "id")?.0)).collect::<PgResult<_>>()?;
        let mut result = CancelResult::default();
        for chunk in pending.chunks(CHUNK) {
            self.cancel_some(&mut session, chunk, &mut result).await?;
        }
        let select = "SELECT (SELECT count(*) FROM dead WHERE id BETWEEN $1 AND $2 AND message = $3) \
                      + (SELECT count(*) FROM ledger WHERE id BETWEEN $1 AND $2 AND message = $3) AS n";
        let row = session.first(select, &values).await?;
        let ended = row.map(|row| get::<i64>(&row, "n")).transpose()?.unwrap_or(0) as u64;
        result.already_final = ended.saturating_sub(result.cancelled);
        self.tell_of_notes();
        Ok(Some(result))
    }

    /// Message by message, because a transaction releases one body.
    pub(super) async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        asked: Vec<DeliveryId>,
    ) -> PgResult<CancelResult> {
        let _write = self.load.begin_write();
        let mut session = self.pool.durable().await?;
        let tenant = tenant.map(TenantId::as_str);
        let asked = ids(asked.into_iter().map(|id| id.0));
        let select = "SELECT id, message FROM queue WHERE id = ANY($1) AND ($2::text IS NULL OR tenant = $2)";
        let mut messages: BTreeMap<u128, Vec<u128>> = BTreeMap::new();
        for row in session.rows(select, &[&asked, &tenant]).await? {
            let (id, message) = (get::<PgId>(&row, "id")?.0, get::<PgId>(&row, "message")?.0);
            messages.entry(message).or_default().push(id);
        }
        let select = "SELECT (SELECT count(*) FROM dead WHERE id = ANY($1) AND ($2::text IS NULL OR tenant = $2)) \
                      + (SELECT count(*) FROM ledger WHERE id = ANY($1) AND ($2::text IS NULL OR tenant = $2)) AS n";
        let row = session.first(select, &[&asked, &tenant]).await?;
        let ended = row.map(|row| get::<i64>(&row, "n")).transpose()?.unwrap_or(0) as u64;
        let mut result = CancelResult { already_final: ended, ..CancelResult::default() };
        for chosen in messages.values_mut() {
            chosen.sort_unstable();
            for chunk in chosen.chunks(CHUNK) {
                self.cancel_some(&mut session, chunk, &mut result).await?;
            }
        }
        self.tell_of_notes();
        Ok(result)
    }

    async fn cancel_some(
        &self,
        session: &mut PgSession,
        chosen: &[u128],
        result: &mut CancelResult,
    ) -> PgResult<()> {
        let now = self.clock.now();
        session.begin().await?;
        act_on(session, chosen).await?;
        let acted = self.waiting(session, chosen).await?;
        let (mut tally, mut notes) = (TallyChanges::default(), NewNotes::default());
        let (mut in_flight, mut ended) = (Vec::new(), Vec::new());
        for (row, is_in_flight) in acted.rows.iter().zip(acted.in_flight) {
            if is_in_flight {
                in_flight.push(PgId(row.id));
                continue;
            }
            let to = StoredProgress { state: State::Cancelled, changed: now, ..row.progress };
            count_stored_move(&mut tally, row, &to);
            notes.removed(entry(row));
            ended.push(PgId(row.id));
        }
        let mark = "UPDATE queue SET cancelled = true WHERE id = ANY($1)";
        session.run(mark, &[&in_flight]).await?;
        let state = i16::from(State::Cancelled.code());
        session.run(END_ROWS, &[&ended, &state, &now.0]).await?;
        if let Some(row) = acted.rows.first() {
            let count = ended.len() as i32;
            release_message(session, row, count, count, &mut tally).await?;
        }
        tally.write(session).await?;
        notes.write(session).await?;
        session.commit().await?;
        tally.change_load(&self.load);
        result.cancelled += ended.len() as u64;
        result.in_flight += in_flight.len() as u64;
        Ok(())
    }

    /// The ids of the chosen dead letters or held deliveries, oldest first.
    pub(super) async fn choose(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        dead: bool,
    ) -> PgResult<Vec<u128>> {
        let mut chosen = Vec::new();
        match which {
            Selection::Ids(asked) => {
                let table = if dead { "dead" } else { "queue" };
                let select = format!(
                    "SELECT id FROM {table} WHERE id = ANY($1) AND ($2::text IS NULL OR tenant = $2) ORDER BY id"
                );
                let asked = ids(asked.into_iter().map(|id| id.0));
                let mut session = self.pool.durable().await?;
                let tenant = tenant.map(TenantId::as_str);
                for row in session.rows_of(&select, &[&asked, &tenant]).await? {
                    chosen.push(get::<PgId>(&row, "id")?.0);
                }
                return Ok(chosen);
            }
            Selection::Filter(filter) => {
                let wanted = if filter.limit == 0 { usize::MAX } else { filter.limit };
                let mut filter = DeliveryFilter { limit: 1_000, held: !dead, ..filter };
                let sees = |of: &TenantId| tenant.is_none_or(|tenant| tenant == of);
                loop {
                    let page = self.page(&filter, dead).await?;
                    let ours = page.items.iter().filter(|delivery| sees(&delivery.tenant));
                    chosen.extend(ours.map(|delivery| delivery.id.0));
                    filter.cursor = page.next;
                    if page.next.is_none() || chosen.len() >= wanted {
                        break;
                    }
                }
                chosen.truncate(wanted);
            }
        }
        chosen.reverse();
        Ok(chosen)
    }

    pub(super) async fn replay(&self, chosen: &[u128], how: &Replay) -> PgResult<u64> {
        let _write = self.load.begin_write();
        let (mut replayed, now) = (0, self.clock.now());
        for chunk in chosen.chunks(CHUNK) {
            replayed += self.replay_some(chunk, how, now, replayed).await?;
        }
        self.tell_of_notes();
        Ok(replayed)
    }

    async fn replay_some(
        &self,
        chosen: &[u128],
        how: &Replay,
        now: Timestamp,
        from: u64,
    ) -> PgResult<u64> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let mut dead = dead_rows(&mut session, chosen).await?;
        dead.retain(|row| died_before(&row.progress, how.dead_before));
        let ttls = self.ttls(&mut session, &dead).await?;
        let retry = how.retry.as_ref().map(serde_json::to_string).transpose();
        let retry = retry.map_err(|_| PgFailure::damaged("a retry policy"))?;
        let (mut tally, mut notes) = (TallyChanges::default(), NewNotes::default());
        for (index, row) in dead.iter().enumerate() {
            let due = paced(now, from + index as u64, how.rate_per_s);
            let ttl_s = how.ttl_s.or(ttls.get(&row.id).copied()).unwrap_or(0);
            let again = StoredRow {
                progress: row.progress.replayed(due, now),
                expires: expires_at(now, Some(due), ttl_s, DISPATCH_WINDOW).0,
                message_expires: row.message_expires.or(Some(row.expires)),
                retry: retry.clone(),
                free_batch: 0,
                ..row.clone()
            };
            count_stored_move(&mut tally, row, &again.progress);
            if let Some(reason) = row.progress.reason {
                tally.add_dead(row.shard, &row.tenant, reason, -1);
            }
            insert_row(&mut session, super::settle_one::RowTable::Queue, &again).await?;
            release_message(&mut session, row, -1, 0, &mut tally).await?;
            notes.returned(entry(&again));
        }
        let gone = ids(dead.iter().map(|row| row.id));
        session.run("DELETE FROM dead WHERE id = ANY($1)", &[&gone]).await?;
        tally.write(&mut session).await?;
        notes.write(&mut session).await?;
        session.commit().await?;
        tally.change_load(&self.load);
        Ok(dead.len() as u64)
    }

    /// The TTL of each delivery's message.
    async fn ttls(
        &self,
        session: &mut PgSession,
        rows: &[StoredRow],
    ) -> PgResult<BTreeMap<u128, u32>> {
        let shared = rows.iter().filter(|row| row.shares_message).map(|row| row.message);
        let messages = super::leasing::shared_messages(session, shared).await?;
        let ttl = |row: &StoredRow| match row.shares_message {
            true => messages.get(&row.message).map_or(0, |message| message.ttl_s),
            false => row.ttl_s.unwrap_or(0) as u32,
        };
        Ok(rows.iter().map(|row| (row.id, ttl(row))).collect())
    }

    pub(super) async fn discard(&self, chosen: &[u128]) -> PgResult<u64> {
        let mut discarded = 0;
        for chunk in chosen.chunks(CHUNK) {
            let mut session = self.pool.durable().await?;
            session.begin().await?;
            let dead = dead_rows(&mut session, chunk).await?;
            let mut tally = TallyChanges::default();
            for row in &dead {
                if let Some(reason) = row.progress.reason {
                    tally.add_dead(row.shard, &row.tenant, reason, -1);
                }
                let ended = StoredRow { discarded: true, ..row.clone() }.erased();
                insert_row(&mut session, super::settle_one::RowTable::Ledger, &ended).await?;
                release_message(&mut session, row, 0, 1, &mut tally).await?;
            }
            let gone = ids(dead.iter().map(|row| row.id));
            session.run("DELETE FROM dead WHERE id = ANY($1)", &[&gone]).await?;
            tally.write(&mut session).await?;
            session.commit().await?;
            discarded += dead.len() as u64;
        }
        Ok(discarded)
    }

    /// Changes the due times of pending deliveries that are not in flight. Answers how many.
    async fn move_waiting(
        &self,
        chosen: &[u128],
        change: impl Fn(usize, &StoredProgress) -> Option<StoredProgress>,
    ) -> PgResult<u64> {
        let mut moved = 0;
        for (number, chunk) in chosen.chunks(CHUNK).enumerate() {
            let mut session = self.pool.durable().await?;
            session.begin().await?;
            act_on(&mut session, chunk).await?;
            let acted = self.waiting(&mut session, chunk).await?;
            let (mut tally, mut notes) = (TallyChanges::default(), NewNotes::default());
            let (mut of, mut states, mut dues, mut changed) = (vec![], vec![], vec![], vec![]);
            for (row, is_in_flight) in acted.rows.iter().zip(&acted.in_flight) {
                let place = chunk.iter().position(|id| *id == row.id).unwrap_or(0);
                let to = change(number * CHUNK + place, &row.progress);
                let Some(to) = to.filter(|_| !is_in_flight) else { continue };
                count_stored_move(&mut tally, row, &to);
                notes.removed(entry(row));
                notes.returned(NoteEntry { due: to.due.0, ..entry(row) });
                of.push(PgId(row.id));
                states.push(i16::from(to.state.code()));
                dues.push(to.due.0);
                changed.push(to.changed.0);
            }
            let update = "UPDATE queue q SET state = u.state, due = u.due, changed = u.changed \
                          FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[]) \
                          AS u (id, state, due, changed) WHERE q.id = ANY($1) AND q.id = u.id";
            session.run(update, &[&of, &states, &dues, &changed]).await?;
            tally.write(&mut session).await?;
            notes.write(&mut session).await?;
            session.commit().await?;
            moved += of.len() as u64;
        }
        self.tell_of_notes();
        Ok(moved)
    }

    async fn hold_everything(&self) -> PgResult<u64> {
        let now = self.clock.now();
        let (mut held, mut after) = (0, PgId(0));
        loop {
            let mut session = self.pool.durable().await?;
            let select = "SELECT id FROM queue WHERE id > $1 ORDER BY id LIMIT $2";
            let rows = session.rows(select, &[&after, &(10 * CHUNK as i64)]).await?;
            drop(session);
            let found: Vec<_> =
                rows.iter().map(|row| Ok(get::<PgId>(row, "id")?.0)).collect::<PgResult<_>>()?;
            let Some(last) = found.last() else { return Ok(held) };
            after = PgId(*last);
            let hold =
                |_, progress: &StoredProgress| (!progress.is_held()).then(|| progress.held(now));
            held += self.move_waiting(&found, hold).await?;
        }
    }

    async fn release(&self, chosen: Vec<u128>, rate_per_s: Option<f64>) -> PgResult<u64> {
        let now = self.clock.now();
        let mut session = self.pool.durable().await?;
        let select = "SELECT id FROM queue WHERE id = ANY($1) AND due >= $2 ORDER BY lane, due, id";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&ids(chosen), &crate::progress::HELD_MS];
        let rows = session.rows(select, &values).await?;
        drop(session);
        let held: Vec<_> =
            rows.iter().map(|row| Ok(get::<PgId>(row, "id")?.0)).collect::<PgResult<_>>()?;
        let release = |place: usize, progress: &StoredProgress| {
            let at_least = paced(now, place as u64, rate_per_s);
            progress.is_held().then(|| progress.released(at_least, now))
        };
        self.move_waiting(&held, release).await
    }
}

/// Moves pending deliveries to the ledger in one state.
const END_ROWS: &str = "WITH q AS (DELETE FROM queue q WHERE id = ANY($1) RETURNING q.*) \
    INSERT INTO ledger SELECT q.id, q.message, q.shard, q.lane, q.tenant, $2, NULL, q.due, q.attempts, q.tries, \
    q.last_delay, q.expires, $3, q.hash, q.address, q.address_since, q.recipient, q.retry, q.log, q.class, q.ttl_s, \
    q.envelope, q.message_expires, NULL, q.shares_message, NULL, NULL, q.bytes, 0, false, false, false, 0 FROM q";

/// Dead letters in the given order, locked.
async fn dead_rows(session: &mut PgSession, chosen: &[u128]) -> PgResult<Vec<StoredRow>> {
    let select = "SELECT * FROM dead WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    let rows = session.rows(select, &[&ids(chosen.iter().copied())]).await?;
    rows.iter().map(StoredRow::read).collect()
}

#[async_trait]
impl HeldDeliveries for PostgresStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        Ok(self.shared.hold_everything().await?)
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, false).await?;
        Ok(self.shared.release(chosen, rate_per_s).await?)
    }
}
