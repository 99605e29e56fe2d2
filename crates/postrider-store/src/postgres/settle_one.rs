//! One settlement of any kind, step by step in a transaction: also what it says about its address, and another address
//! to go to.

use std::sync::{Arc, LazyLock};

use postrider_core::ports::store::Alternative;
use postrider_core::{Decision, State};
use tokio::time::Instant;

use super::failure::{PgFailure, PgResult};
use super::intake::REPEAT_FOR;
use super::rows::{COLUMNS, StoredRow};
use super::session::PgSession;
use super::settle::longer_log;
use super::shared::PgShared;
use super::tally::{TallyChanges, forever};
use super::value::{PgId, get};
use crate::progress::{StoredProgress, effective_decision};
use crate::sharded::{HeldShard, SettleOrder, SettledPlace, json_unless, shard_of};

/// Where a delivery goes instead.
struct NewPlace {
    lane: u32,
    place: Alternative,
    rest: Vec<Alternative>,
}

impl PgShared {
    pub(super) async fn settle_single(&self, order: &SettleOrder) -> PgResult<SettledPlace> {
        let _write = self.load.begin_write();
        let end = Instant::now() + REPEAT_FOR;
        loop {
            let mut tally = TallyChanges::default();
            match self.try_to_settle_single(order, &mut tally).await {
                Ok(place) => {
                    if place != SettledPlace::Fenced {
                        tally.change_load(&self.load);
                    }
                    return Ok(place);
                }
                Err(failure) => self.pause_or_fail(failure, end).await?,
            }
        }
    }

    async fn try_to_settle_single(
        &self,
        order: &SettleOrder,
        tally: &mut TallyChanges,
    ) -> PgResult<SettledPlace> {
        let Some(item) = order.items.first() else { return Ok(SettledPlace::Fenced) };
        let elsewhere = match &item.decision {
            Decision::FallBack => self.new_place(&item.row.alternatives).await?,
            _ => None,
        };
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        if !is_held(&mut session, &order.shards).await? {
            session.roll_back().await?;
            return Ok(SettledPlace::Fenced);
        }
        let select = "SELECT * FROM queue WHERE id = $1 FOR UPDATE";
        let row = session.first(select, &[&PgId(item.row.id)]).await?;
        let stored = row.map(|row| StoredRow::read(&row)).transpose()?;
        let receipt = "INSERT INTO receipt (batch) VALUES ($1) ON CONFLICT DO NOTHING";
        if session.run(receipt, &[&PgId(order.receipt)]).await? == 0 {
            session.roll_back().await?;
            return Ok(place_of(stored));
        }
        let Some(stored) = stored.filter(|stored| stored.free_batch < item.batch) else {
            session.roll_back().await?;
            return Ok(SettledPlace::Fenced);
        };
        let has_alternative = elsewhere.is_some();
        let decision = effective_decision(&item.decision, stored.mark.cancelled, has_alternative);
        let progress = stored.progress.settled(&decision, &item.attempts, order.now);
        let settled = SettledRow {
            log: longer_log(stored.log.as_deref(), &item.attempts)?,
            crashes: stored.mark.settled(&decision).crashes,
            batch: item.batch,
            progress,
            stored,
        };
        let elsewhere = elsewhere.filter(|_| decision == Decision::FallBack);
        let place = settled.write(&mut session, elsewhere.as_ref(), tally).await?;
        self.learn(&mut session, item, &settled.stored, &decision, order.now).await?;
        for (shard, batch) in &order.ended_batches {
            let delete = "DELETE FROM lease WHERE shard = $1 AND batch = $2";
            session.run(delete, &[&(*shard as i16), batch]).await?;
        }
        tally.write(&mut session).await?;
        session.commit().await?;
        Ok(place)
    }

    async fn new_place(&self, alternatives: &[Alternative]) -> PgResult<Option<NewPlace>> {
        let Some((first, rest)) = alternatives.split_first() else { return Ok(None) };
        let mut session = self.pool.durable().await?;
        let lanes = self.lanes.numbers(&mut session, &[Arc::clone(&first.lane)]).await?;
        let lane = lanes.first().copied().ok_or_else(|| PgFailure::damaged("a lane"))?;
        Ok(Some(NewPlace { lane, place: first.clone(), rest: rest.to_vec() }))
    }
}

/// Where it is, if it was settled before.
fn place_of(stored: Option<StoredRow>) -> SettledPlace {
    match stored {
        None => SettledPlace::Final,
        Some(stored) => SettledPlace::Waits {
            lane: stored.lane,
            due: stored.progress.due.0,
            crashes: stored.mark.crashes,
        },
    }
}

pub(super) async fn is_held(session: &mut PgSession, shards: &[HeldShard]) -> PgResult<bool> {
    let select = "SELECT 1 FROM shard WHERE id = $1 AND nonce = $2 FOR SHARE";
    for held in shards {
        if session.first(select, &[&(held.shard as i16), &held.nonce]).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A delivery with its new progress.
struct SettledRow {
    stored: StoredRow,
    progress: StoredProgress,
    log: Option<String>,
    crashes: u32,
    batch: i64,
}

impl SettledRow {
    async fn write(
        &self,
        session: &mut PgSession,
        elsewhere: Option<&NewPlace>,
        tally: &mut TallyChanges,
    ) -> PgResult<SettledPlace> {
        count_stored_move(tally, &self.stored, &self.progress);
        let lane = match elsewhere {
            Some(place) => self.move_to(session, place, tally).await?,
            None => self.stored.lane,
        };
        if self.progress.state.is_pending() {
            self.write_waiting(session).await?;
            let due = self.progress.due.0;
            return Ok(SettledPlace::Waits { lane, due, crashes: self.crashes });
        }
        let table = if self.progress.state == State::Failed {
            DeadOrFinal::Dead
        } else {
            DeadOrFinal::Final
        };
        end_row(session, &self.stored, &self.progress, self.log.as_deref(), table).await?;
        let needed = i32::from(table == DeadOrFinal::Final);
        release_message(session, &self.stored, 1, needed, tally).await?;
        Ok(SettledPlace::Final)
    }

    async fn write_waiting(&self, session: &mut PgSession) -> PgResult<()> {
        let update = "UPDATE queue SET state = $2, due = $3, attempts = $4, tries = $5, last_delay = $6, \
                      changed = $7, log = $8, crashes = $9, started = false, free_batch = $10 WHERE id = $1";
        let p = &self.progress;
        session
            .run(
                update,
                &[
                    &PgId(self.stored.id),
                    &i16::from(p.state.code()),
                    &p.due.0,
                    &(p.attempts as i32),
                    &(p.tries as i32),
                    &(p.last_delay.as_millis() as i64),
                    &p.changed.0,
                    &self.log,
                    &(self.crashes as i32),
                    &self.batch,
                ],
            )
            .await
            .map(drop)
    }

    async fn move_to(
        &self,
        session: &mut PgSession,
        to: &NewPlace,
        tally: &mut TallyChanges,
    ) -> PgResult<u32> {
        let place = &to.place;
        let target = place.target.as_json();
        let old = self.stored.target.as_ref().map_or(0, String::len) as i64;
        let longer = target.len() as i64 - old;
        tally.add_bytes(shard_of(self.stored.id), &self.stored.tenant, longer);
        let update = "UPDATE queue SET lane = $2, target = $3, hash = $4, address = $5, address_since = $6, \
                      alternatives = $7, bytes = $8 WHERE id = $1";
        session
            .run(
                update,
                &[
                    &PgId(self.stored.id),
                    &(to.lane as i32),
                    &target,
                    &place.hash.0.as_slice(),
                    &place.address.map(|id| PgId(id.0)),
                    &place.address_since.map(|at| at.0),
                    &json_unless(&to.rest),
                    &((self.stored.bytes + longer) as i32),
                ],
            )
            .await?;
        Ok(to.lane)
    }
}

/// As for settlements in bulk, but from a row.
pub(super) fn count_stored_move(tally: &mut TallyChanges, stored: &StoredRow, to: &StoredProgress) {
    let (shard, tenant) = (stored.shard, &stored.tenant);
    tally.add_state(shard, tenant, stored.progress.state, -1);
    tally.add_state(shard, tenant, to.state, 1);
    let held = i64::from(to.is_held()) - i64::from(stored.progress.is_held());
    tally.add_held(shard, tenant, held);
    match (stored.progress.state.is_pending(), to.state.is_pending()) {
        (true, false) => tally.add_bytes(shard, tenant, -stored.bytes),
        (false, true) => tally.add_bytes(shard, tenant, stored.bytes),
        _ => {}
    }
    if let Some(reason) = to.reason.filter(|_| to.state == State::Failed) {
        tally.add_dead(shard, tenant, reason, 1);
    }
}

/// Where a delivery goes that is not pending any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadOrFinal {
    Dead,
    Final,
}

/// Moves a pending delivery to where it stays.
pub(super) async fn end_row(
    session: &mut PgSession,
    stored: &StoredRow,
    to: &StoredProgress,
    log: Option<&str>,
    table: DeadOrFinal,
) -> PgResult<()> {
    let delete = "DELETE FROM queue WHERE id = $1";
    session.run(delete, &[&PgId(stored.id)]).await?;
    let ended = StoredRow { progress: *to, log: log.map(str::to_owned), ..stored.clone() };
    match table {
        DeadOrFinal::Dead => insert_row(session, RowTable::Dead, &ended).await,
        DeadOrFinal::Final => insert_row(session, RowTable::Ledger, &ended.erased()).await,
    }
}

impl StoredRow {
    /// Without what a final delivery does not need.
    pub(super) fn erased(self) -> Self {
        Self { body: None, target: None, alternatives: None, mark: Default::default(), ..self }
    }
}

/// The tables of deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowTable {
    Queue,
    Dead,
    Ledger,
}

static INSERTS: LazyLock<[&'static str; 3]> = LazyLock::new(|| {
    let values: Vec<_> = (1..=33).map(|n| format!("${n}")).collect();
    let values = values.join(", ");
    ["queue", "dead", "ledger"]
        .map(|table| forever(format!("INSERT INTO {table} ({COLUMNS}) VALUES ({values})")))
});

pub(super) async fn insert_row(
    session: &mut PgSession,
    table: RowTable,
    row: &StoredRow,
) -> PgResult<()> {
    let insert = INSERTS[table as usize];
    let p = &row.progress;
    session
        .run(
            insert,
            &[
                &PgId(row.id),
                &PgId(row.message.0),
                &(row.shard as i16),
                &(row.lane as i32),
                &row.tenant.as_str(),
                &i16::from(p.state.code()),
                &p.reason.map(|reason| i16::from(reason.code())),
                &p.due.0,
                &(p.attempts as i32),
                &(p.tries as i32),
                &(p.last_delay.as_millis() as i64),
                &row.expires,
                &p.changed.0,
                &row.hash.0.as_slice(),
                &row.address.map(|id| PgId(id.0)),
                &row.address_since.map(|at| at.0),
                &row.recipient,
                &row.retry,
                &row.log,
                &row.class,
                &row.ttl_s,
                &row.envelope,
                &row.message_expires,
                &row.body,
                &row.shares_message,
                &row.target,
                &row.alternatives,
                &(row.bytes as i32),
                &(row.mark.crashes as i32),
                &row.mark.started,
                &row.mark.cancelled,
                &row.discarded,
                &row.free_batch,
            ],
        )
        .await
        .map(drop)
}

/// A shared message loses deliveries that are pending, or that need its content.
pub(super) async fn release_message(
    session: &mut PgSession,
    stored: &StoredRow,
    pending: i32,
    needed: i32,
    tally: &mut TallyChanges,
) -> PgResult<()> {
    if !stored.shares_message {
        return Ok(());
    }
    let update = "UPDATE message SET pending = pending - $2, needed = needed - $3, \
                  content = CASE WHEN needed - $3 <= 0 THEN NULL ELSE content END \
                  WHERE id = $1 RETURNING pending, bytes";
    let row = session.first(update, &[&PgId(stored.message.0), &pending, &needed]).await?;
    let Some(row) = row else { return Ok(()) };
    let (left, bytes) = (get::<i32>(&row, "pending")?, i64::from(get::<i32>(&row, "bytes")?));
    if pending > 0 && left == 0 {
        tally.add_bytes(stored.shard, &stored.tenant, -bytes);
    } else if pending < 0 && left == -pending {
        tally.add_bytes(stored.shard, &stored.tenant, bytes);
    }
    Ok(())
}
