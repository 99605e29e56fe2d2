//! Settlements that concern only their deliveries: many in one statement, which fails as a whole if one of them cannot
//! be written.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use postrider_core::{AttemptRecord, Decision, State, TenantId};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;

use super::failure::{PgFailure, PgResult};
use super::intake::REPEAT_FOR;
use super::notes::fences;
use super::settle_sent::{are_sent, write_sent};
use super::shared::PgShared;
use super::tally::{ADD, COLUMNS, TallyArrays, TallyChanges, forever};
use super::value::{PgId, get, ids};
use crate::history;
use crate::sharded::load::LoadChange;
use crate::sharded::{LeasedRow, SettleItem, SettleOrder, settled_progress, shard_of};

/// What the ledger keeps of a delivery, from a row `q` with new values `u`.
pub(super) const FINAL: &str = "q.id, q.message, q.shard, q.lane, q.tenant, u.state, u.reason, q.due, u.attempts, \
    u.tries, q.last_delay, q.expires, u.changed, q.hash, q.address, q.address_since, q.recipient, q.retry, u.log, \
    q.class, q.ttl_s, q.envelope, q.message_expires, NULL, q.shares_message, NULL, NULL, q.bytes, 0, false, false, \
    false, 0";

/// The number of the last value before the counts.
const VALUES: usize = 36;

static SETTLE: LazyLock<&'static str> = LazyLock::new(|| {
    let columns = COLUMNS.join(", ");
    let sums: Vec<_> = COLUMNS.iter().map(|c| format!("sum({c})")).collect();
    let arrays: Vec<_> =
        (0..COLUMNS.len()).map(|n| format!("${}::bigint[]", VALUES + 3 + n)).collect();
    let zeros: Vec<_> =
        COLUMNS.iter().map(|c| if c == "bytes" { "-m.bytes" } else { "0" }.to_owned()).collect();
    let final_ = FINAL.replace("u.reason", "NULL::smallint").replace("u.changed", "$36");
    let final_ = final_.replace("u.", "q.new_").replace("q.new_", "q.n_");
    let dead = "q.id, q.message, q.shard, q.lane, q.tenant, 11::smallint, q.n_reason, q.due, q.n_attempts, q.n_tries, \
        q.last_delay, q.expires, $36, q.hash, q.address, q.address_since, q.recipient, q.retry, q.n_log, q.class, \
        q.ttl_s, q.envelope, q.message_expires, q.body, q.shares_message, q.target, q.alternatives, q.bytes, 0, false, \
        false, false, 0::bigint";
    let all = super::rows::COLUMNS;
    forever(format!(
        "WITH t AS (INSERT INTO receipt (batch) VALUES ($1) ON CONFLICT DO NOTHING RETURNING batch), \
        h AS (SELECT s.id FROM shard s JOIN unnest($2::smallint[], $3::bigint[]) AS u (id, nonce) \
          ON s.id = u.id AND s.nonce = u.nonce FOR SHARE OF s), \
        f AS (DELETE FROM queue q USING t, unnest($4::uuid[], $5::bigint[], $6::smallint[], $7::integer[], \
            $8::integer[], $9::text[]) AS u (id, batch, state, attempts, tries, log) \
          WHERE q.id = ANY($4) AND q.id = u.id AND q.free_batch < u.batch \
          RETURNING q.*, u.state AS n_state, u.attempts AS n_attempts, u.tries AS n_tries, u.log AS n_log), \
        fi AS (INSERT INTO ledger ({all}) SELECT {final_} FROM f q), \
        d AS (DELETE FROM queue q USING t, unnest($10::uuid[], $11::bigint[], $12::smallint[], $13::integer[], \
            $14::integer[], $15::text[]) AS u (id, batch, reason, attempts, tries, log) \
          WHERE q.id = ANY($10) AND q.id = u.id AND q.free_batch < u.batch \
          RETURNING q.*, u.reason AS n_reason, u.attempts AS n_attempts, u.tries AS n_tries, u.log AS n_log), \
        di AS (INSERT INTO dead ({all}) SELECT {dead} FROM d q), \
        w AS (UPDATE queue q SET state = u.state, due = u.due, attempts = u.attempts, tries = u.tries, \
            last_delay = u.last_delay, changed = u.changed, log = u.log, crashes = u.crashes, started = false, \
            free_batch = u.batch \
          FROM t, unnest($16::uuid[], $17::bigint[], $18::smallint[], $19::bigint[], $20::integer[], $21::integer[], \
            $22::bigint[], $23::bigint[], $24::text[], $25::integer[]) \
            AS u (id, batch, state, due, attempts, tries, last_delay, changed, log, crashes) \
          WHERE q.id = ANY($16) AND q.id = u.id AND q.free_batch < u.batch AND NOT q.cancelled RETURNING q.id), \
        m AS (UPDATE message m SET pending = m.pending - u.pending, needed = m.needed - u.needed, \
            content = CASE WHEN m.needed - u.needed <= 0 THEN NULL ELSE m.content END \
          FROM t, unnest($26::uuid[], $27::integer[], $28::integer[]) AS u (id, pending, needed) \
          WHERE m.id = ANY($26) AND m.id = u.id \
          RETURNING m.tenant, CASE WHEN m.pending = 0 AND u.pending > 0 THEN m.bytes ELSE 0 END AS bytes), \
        c AS (DELETE FROM strike s USING t, unnest($29::bytea[], $30::text[]) AS u (hash, tenant) \
          WHERE s.hash = ANY($29) AND s.hash = u.hash AND s.tenant = u.tenant RETURNING s.hash, s.tenant), \
        a AS (UPDATE address a SET status = 'active' FROM c WHERE a.tenant = c.tenant AND a.hash = c.hash \
          AND a.status = 'suspect'), \
        e AS (DELETE FROM lease l USING unnest($31::smallint[], $32::bigint[]) AS x (shard, batch) \
          WHERE l.shard = x.shard AND l.batch = x.batch), \
        y AS (INSERT INTO tally AS t (shard, tenant, {columns}) SELECT shard, tenant, {sums} FROM (\
            SELECT u.* FROM t, unnest(${s}::smallint[], ${n}::text[], {arrays}) AS u (shard, tenant, {columns}) \
            UNION ALL SELECT ($2::smallint[])[1], m.tenant, {zeros} FROM m WHERE m.bytes > 0) AS b \
          GROUP BY shard, tenant ORDER BY shard, tenant {add}) \
        SELECT (SELECT count(*) FROM t) AS fresh, \
          1 / CASE WHEN (SELECT count(*) FROM t) = 0 THEN 1 \
            WHEN (SELECT count(*) FROM h) = cardinality($2) AND (SELECT count(*) FROM f) = $33 \
            AND (SELECT count(*) FROM d) = $34 AND (SELECT count(*) FROM w) = $35 THEN 1 ELSE 0 END AS whole, \
          ARRAY(SELECT tenant FROM m WHERE bytes > 0) AS tenants, \
          ARRAY(SELECT bytes FROM m WHERE bytes > 0) AS bytes",
        s = VALUES + 1,
        n = VALUES + 2,
        sums = sums.join(", "),
        arrays = arrays.join(", "),
        zeros = zeros.join(", "),
        add = *ADD,
    ))
});

/// The history with new attempts, as JSON; the oldest are dropped.
pub(super) fn longer_log(known: Option<&str>, new: &[AttemptRecord]) -> PgResult<Option<String>> {
    history::longer(known, new).map_err(|_| PgFailure::damaged("a delivery's history"))
}

/// What a write of settlements is fenced by, and what ends with it.
pub(super) struct SettleFence {
    pub(super) receipt: PgId,
    pub(super) shards: Vec<i16>,
    pub(super) nonces: Vec<i64>,
    pub(super) ended: Vec<i16>,
    pub(super) ended_batches: Vec<i64>,
    pub(super) now: i64,
}

impl SettleFence {
    fn of(order: &SettleOrder) -> Self {
        let (shards, nonces) = fences(&order.shards);
        let (ended, ended_batches) =
            order.ended_batches.iter().map(|(shard, batch)| (*shard as i16, *batch)).unzip();
        let (receipt, now) = (PgId(order.receipt), order.now.0);
        Self { receipt, shards, nonces, ended, ended_batches, now }
    }
}

/// Settlements as arrays.
#[derive(Default)]
pub(super) struct SettleColumns {
    pub(super) final_ids: Vec<PgId>,
    pub(super) final_batches: Vec<i64>,
    pub(super) final_states: Vec<i16>,
    pub(super) final_attempts: Vec<i32>,
    pub(super) final_tries: Vec<i32>,
    pub(super) final_logs: Vec<Option<String>>,
    pub(super) dead_ids: Vec<PgId>,
    pub(super) dead_batches: Vec<i64>,
    pub(super) dead_reasons: Vec<Option<i16>>,
    pub(super) dead_attempts: Vec<i32>,
    pub(super) dead_tries: Vec<i32>,
    pub(super) dead_logs: Vec<Option<String>>,
    pub(super) wait_ids: Vec<PgId>,
    pub(super) wait_batches: Vec<i64>,
    pub(super) wait_states: Vec<i16>,
    pub(super) wait_dues: Vec<i64>,
    pub(super) wait_attempts: Vec<i32>,
    pub(super) wait_tries: Vec<i32>,
    pub(super) wait_delays: Vec<i64>,
    pub(super) wait_changed: Vec<i64>,
    pub(super) wait_logs: Vec<Option<String>>,
    pub(super) wait_crashes: Vec<i32>,
    pub(super) messages: Vec<PgId>,
    pub(super) messages_pending: Vec<i32>,
    pub(super) messages_needed: Vec<i32>,
    pub(super) sent_hashes: Vec<Vec<u8>>,
    pub(super) sent_tenants: Vec<String>,
}

/// How the counts change when a delivery goes from one state to another.
pub(super) fn count_move(
    tally: &mut TallyChanges,
    row: &LeasedRow,
    to: &crate::progress::StoredProgress,
) {
    let (shard, tenant) = (shard_of(row.id), &row.message.tenant);
    tally.add_state(shard, tenant, row.progress.state, -1);
    tally.add_state(shard, tenant, to.state, 1);
    let held = i64::from(to.is_held()) - i64::from(row.progress.is_held());
    if held != 0 {
        tally.add_held(shard, tenant, held);
    }
    if to.state.is_final() {
        tally.add_bytes(shard, tenant, -row.bytes);
    }
    if let Some(reason) = to.reason.filter(|_| to.state == State::Failed) {
        tally.add_dead(shard, tenant, reason, 1);
    }
}

impl SettleColumns {
    fn add(
        &mut self,
        item: &SettleItem,
        order: &SettleOrder,
        tally: &mut TallyChanges,
        messages: &mut BTreeMap<u128, (i32, i32)>,
    ) -> PgResult<()> {
        let row = &item.row;
        let progress = settled_progress(item, order.now);
        let log = longer_log(row.log.as_deref(), &item.attempts)?;
        let (attempts, tries) = (progress.attempts as i32, progress.tries as i32);
        count_move(tally, row, &progress);
        let is_dead = progress.state == State::Failed;
        if progress.state.is_pending() {
            self.wait_ids.push(PgId(row.id));
            self.wait_batches.push(item.batch);
            self.wait_states.push(i16::from(progress.state.code()));
            self.wait_dues.push(progress.due.0);
            self.wait_attempts.push(attempts);
            self.wait_tries.push(tries);
            self.wait_delays.push(progress.last_delay.as_millis() as i64);
            self.wait_changed.push(progress.changed.0);
            self.wait_logs.push(log);
            self.wait_crashes.push(row.mark.settled(&item.decision).crashes as i32);
            return Ok(());
        }
        if row.shares_message {
            let message = messages.entry(row.message.id.0).or_default();
            message.0 += 1;
            message.1 += i32::from(!is_dead);
        }
        if item.decision == Decision::Done {
            self.sent_hashes.push(row.hash.0.to_vec());
            self.sent_tenants.push(row.message.tenant.as_str().to_owned());
        }
        match is_dead {
            true => {
                self.dead_ids.push(PgId(row.id));
                self.dead_batches.push(item.batch);
                self.dead_reasons.push(progress.reason.map(|reason| i16::from(reason.code())));
                self.dead_attempts.push(attempts);
                self.dead_tries.push(tries);
                self.dead_logs.push(log);
            }
            false => {
                self.final_ids.push(PgId(row.id));
                self.final_batches.push(item.batch);
                self.final_states.push(i16::from(progress.state.code()));
                self.final_attempts.push(attempts);
                self.final_tries.push(tries);
                self.final_logs.push(log);
            }
        }
        Ok(())
    }
}

impl PgShared {
    pub(super) async fn settle_many(&self, order: &SettleOrder) -> PgResult<bool> {
        let _write = self.load.begin_write();
        let mut tally = TallyChanges::default();
        let mut columns = SettleColumns::default();
        let mut messages = BTreeMap::new();
        for item in &order.items {
            columns.add(item, order, &mut tally, &mut messages)?;
        }
        columns.messages = ids(messages.keys().copied());
        columns.messages_pending = messages.values().map(|(pending, _)| *pending).collect();
        columns.messages_needed = messages.values().map(|(_, needed)| *needed).collect();
        let first = order.shards.first().map_or(0, |held| held.shard);
        let tally = tally.in_shard(first);
        let arrays = tally.arrays();
        let end = Instant::now() + REPEAT_FOR;
        let freed = loop {
            match self.write_settlements(order, &columns, &arrays).await {
                Ok(freed) => break freed,
                Err(failure) if failure.is_division_by_zero() => return Ok(false),
                Err(failure) => self.pause_or_fail(failure, end).await?,
            }
        };
        tally.change_load(&self.load);
        for (tenant, bytes) in freed {
            self.load.change(&TenantId(tenant.into()), LoadChange { deliveries: 0, bytes: -bytes });
        }
        Ok(true)
    }

    /// Answers the bytes of bodies that are not pending any more.
    async fn write_settlements(
        &self,
        order: &SettleOrder,
        c: &SettleColumns,
        tally: &TallyArrays,
    ) -> PgResult<Vec<(String, i64)>> {
        let mut session = self.pool.durable().await?;
        let fence = SettleFence::of(order);
        if are_sent(c) {
            return write_sent(&mut session, &fence, c, tally).await.map(|()| Vec::new());
        }
        let counts = [c.final_ids.len() as i64, c.dead_ids.len() as i64, c.wait_ids.len() as i64];
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &fence.receipt,
            &fence.shards,
            &fence.nonces,
            &c.final_ids,
            &c.final_batches,
            &c.final_states,
            &c.final_attempts,
            &c.final_tries,
            &c.final_logs,
            &c.dead_ids,
            &c.dead_batches,
            &c.dead_reasons,
            &c.dead_attempts,
            &c.dead_tries,
            &c.dead_logs,
            &c.wait_ids,
            &c.wait_batches,
            &c.wait_states,
            &c.wait_dues,
            &c.wait_attempts,
            &c.wait_tries,
            &c.wait_delays,
            &c.wait_changed,
            &c.wait_logs,
            &c.wait_crashes,
            &c.messages,
            &c.messages_pending,
            &c.messages_needed,
            &c.sent_hashes,
            &c.sent_tenants,
            &fence.ended,
            &fence.ended_batches,
            &counts[0],
            &counts[1],
            &counts[2],
            &fence.now,
            &tally.shards,
            &tally.tenants,
        ];
        values.extend(tally.fields.iter().map(|field| field as &(dyn ToSql + Sync)));
        let rows = session.rows(*SETTLE, &values).await?;
        let row = rows.first().ok_or_else(|| PgFailure::damaged("a settlement has no answer"))?;
        let tenants: Vec<String> = get(row, "tenants")?;
        let bytes: Vec<i32> = get(row, "bytes")?;
        Ok(tenants.into_iter().zip(bytes.into_iter().map(i64::from)).collect())
    }
}
