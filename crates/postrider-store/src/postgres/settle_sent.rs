//! Settlements of deliveries that were sent, and nothing else: nearly all are. Their statement has only what they need,
//! because the server prepares every part of a statement anew each time, used or not.

use std::sync::LazyLock;

use postrider_core::State;
use tokio_postgres::types::ToSql;

use super::failure::PgResult;
use super::session::PgSession;
use super::settle::{SettleColumns, SettleFence};
use super::tally::{TallyArrays, columns_of_sent, forever};

static SETTLE_SENT: LazyLock<&'static str> = LazyLock::new(|| {
    let sent = State::Sent.code();
    let columns = columns_of_sent();
    let arrays: Vec<_> = (0..columns.len()).map(|n| format!("${}::bigint[]", 16 + n)).collect();
    let adds: Vec<_> = columns.iter().map(|c| format!("{c} = t.{c} + excluded.{c}")).collect();
    let (all, columns) = (super::rows::COLUMNS, columns.join(", "));
    forever(format!(
        "WITH t AS (INSERT INTO receipt (batch) VALUES ($1) ON CONFLICT DO NOTHING RETURNING batch), \
        h AS (SELECT s.id FROM shard s JOIN unnest($2::smallint[], $3::bigint[]) AS u (id, nonce) \
          ON s.id = u.id AND s.nonce = u.nonce FOR SHARE OF s), \
        f AS (DELETE FROM queue q USING t, unnest($4::uuid[], $5::bigint[], $6::integer[], $7::integer[], \
            $8::text[]) AS u (id, batch, attempts, tries, log) \
          WHERE q.id = ANY($4) AND q.id = u.id AND q.free_batch < u.batch \
          RETURNING q.id, q.message, q.shard, q.lane, q.tenant, q.due, u.attempts, u.tries, q.last_delay, q.expires, \
            q.hash, q.address, q.address_since, q.recipient, q.retry, u.log, q.class, q.ttl_s, q.envelope, \
            q.message_expires, q.bytes), \
        fi AS (INSERT INTO ledger ({all}) SELECT id, message, shard, lane, tenant, {sent}, NULL, due, attempts, tries, \
          last_delay, expires, $14, hash, address, address_since, recipient, retry, log, class, ttl_s, envelope, \
          message_expires, NULL, false, NULL, NULL, bytes, 0, false, false, false, 0 FROM f), \
        c AS (DELETE FROM strike s USING t, unnest($9::bytea[], $10::text[]) AS u (hash, tenant) \
          WHERE s.hash = ANY($9) AND s.hash = u.hash AND s.tenant = u.tenant RETURNING s.hash, s.tenant), \
        a AS (UPDATE address a SET status = 'active' FROM c WHERE a.tenant = c.tenant AND a.hash = c.hash \
          AND a.status = 'suspect'), \
        e AS (DELETE FROM lease l USING unnest($11::smallint[], $12::bigint[]) AS x (shard, batch) \
          WHERE l.shard = x.shard AND l.batch = x.batch), \
        y AS (INSERT INTO tally AS t (shard, tenant, {columns}) SELECT ($2::smallint[])[1], u.* \
            FROM t, unnest($15::text[], {arrays}) AS u (tenant, {columns}) \
          ON CONFLICT (shard, tenant) DO UPDATE SET {adds}) \
        SELECT 1 / CASE WHEN (SELECT count(*) FROM t) = 0 THEN 1 \
            WHEN (SELECT count(*) FROM h) = cardinality($2) AND (SELECT count(*) FROM f) = $13 THEN 1 \
            ELSE 0 END AS whole",
        arrays = arrays.join(", "),
        adds = adds.join(", "),
    ))
});

/// Whether these are all sent, alone in their messages.
pub(super) fn are_sent(columns: &SettleColumns) -> bool {
    let sent = i16::from(State::Sent.code());
    columns.dead_ids.is_empty()
        && columns.wait_ids.is_empty()
        && columns.messages.is_empty()
        && columns.final_states.iter().all(|state| *state == sent)
}

pub(super) async fn write_sent(
    session: &mut PgSession,
    fence: &SettleFence,
    c: &SettleColumns,
    tally: &TallyArrays,
) -> PgResult<()> {
    let count = c.final_ids.len() as i64;
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![
        &fence.receipt,
        &fence.shards,
        &fence.nonces,
        &c.final_ids,
        &c.final_batches,
        &c.final_attempts,
        &c.final_tries,
        &c.final_logs,
        &c.sent_hashes,
        &c.sent_tenants,
        &fence.ended,
        &fence.ended_batches,
        &count,
        &fence.now,
        &tally.tenants,
    ];
    values.extend(tally.of_sent().map(|field| field as &(dyn ToSql + Sync)));
    session.rows(*SETTLE_SENT, &values).await.map(drop)
}
