//! Leases: one row per batch and shard, written before anything is sent.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::{Message, MessageId, TenantId, Timestamp};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::failure::{PgFailure, PgResult};
use super::intake::REPEAT_FOR;
use super::notes::fences;
use super::rows::{StoredRow, parse};
use super::session::PgSession;
use super::shared::PgShared;
use super::value::{PgId, get, ids};
use crate::sharded::{HeldShard, LeaseOrder, LeasedRow};

/// Nothing is leased if a shard has another holder, or if operators acted on it since: the statement might see its
/// deliveries as they were before.
const LEASE: &str = "WITH h AS (SELECT s.id FROM shard s \
      JOIN unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS u (id, nonce, acts) \
      ON s.id = u.id AND s.nonce = u.nonce AND s.acts = u.acts FOR SHARE OF s), \
    ok AS (SELECT count(*) = cardinality($1) AS ok FROM h), \
    r AS (SELECT q.* FROM queue q, ok WHERE ok.ok AND q.id = ANY($4) AND (q.due <= $5 OR $6)), \
    w AS (INSERT INTO lease (shard, batch, nonce, until, ids) \
      SELECT r.shard, $7, u.nonce, $8, array_agg(r.id) FROM r \
      JOIN unnest($1::smallint[], $2::bigint[]) AS u (id, nonce) ON u.id = r.shard \
      GROUP BY r.shard, u.nonce ON CONFLICT (shard, batch) DO NOTHING), \
    e AS (DELETE FROM lease l USING unnest($9::smallint[], $10::bigint[]) AS x (shard, batch) \
      WHERE l.shard = x.shard AND l.batch = x.batch) \
    SELECT ok.ok, r.*, \
      (SELECT coalesce(g.deleted_before, -1) FROM gone g WHERE g.hash = r.hash AND g.tenant = r.tenant) AS gone, \
      (SELECT string_agg(concat_ws(',', s.kind, s.count, s.first_at, s.last_at, s.suspect::integer), ';' \
         ORDER BY s.kind) FROM strike s WHERE s.hash = r.hash AND s.tenant = r.tenant) AS strikes \
    FROM ok LEFT JOIN r ON true";

impl PgShared {
    pub(super) async fn write_lease(&self, order: &LeaseOrder) -> PgResult<Option<Vec<LeasedRow>>> {
        let end = Instant::now() + REPEAT_FOR / 4;
        loop {
            match self.try_to_lease(order).await {
                // The same lease may be written twice: it is the same row.
                Err(failure) => self.pause_or_fail(failure, end).await?,
                leased => return leased,
            }
        }
    }

    async fn try_to_lease(&self, order: &LeaseOrder) -> PgResult<Option<Vec<LeasedRow>>> {
        let mut session = self.pool.relaxed().await?;
        let (shards, nonces) = fences(&order.shards);
        let acts: Vec<_> = order.shards.iter().map(|held| held.acts).collect();
        let wanted = ids(order.ids.iter().copied());
        let ended: Vec<_> = order.ended_batches.iter().map(|(shard, _)| *shard as i16).collect();
        let ended_batches: Vec<_> = order.ended_batches.iter().map(|(_, batch)| *batch).collect();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &shards,
            &nonces,
            &acts,
            &wanted,
            &order.now,
            &order.expired,
            &order.batch,
            &order.until,
            &ended,
            &ended_batches,
        ];
        let rows = session.rows(LEASE, &values).await?;
        let is_held = rows.first().map(|row| get::<bool>(row, "ok")).transpose()?.unwrap_or(false);
        if !is_held {
            return Ok(None);
        }
        self.leased_rows(&mut session, &rows).await.map(Some)
    }

    async fn leased_rows(&self, session: &mut PgSession, rows: &[Row]) -> PgResult<Vec<LeasedRow>> {
        let mut stored = Vec::with_capacity(rows.len());
        for row in rows {
            if get::<Option<PgId>>(row, "id")?.is_some() {
                stored.push((StoredRow::read(row)?, row));
            }
        }
        let lanes: Vec<_> = stored.iter().map(|(row, _)| row.lane).collect();
        self.lanes.learn(session, &lanes).await?;
        let shared =
            stored.iter().filter(|(row, _)| row.shares_message).map(|(row, _)| row.message);
        let messages = shared_messages(session, shared).await?;
        let mut leased = Vec::with_capacity(stored.len());
        for (row, flags) in stored {
            let id = row.id;
            match self.leased_row(row, flags, &messages) {
                Ok(row) => leased.push(row),
                // It stays leased until its time is over, and others are not held up.
                Err(failure) => {
                    let id = postrider_core::DeliveryId(id);
                    tracing::error!(%id, ?failure, "a delivery cannot be read");
                }
            }
        }
        Ok(leased)
    }

    fn leased_row(
        &self,
        row: StoredRow,
        flags: &Row,
        messages: &HashMap<MessageId, Arc<Message>>,
    ) -> PgResult<LeasedRow> {
        let message = match row.shares_message {
            true => messages.get(&row.message).cloned(),
            false => {
                let lane = self.lanes.key(row.lane);
                lane.map(|lane| row.lone_message(&lane)).transpose()?.map(Arc::new)
            }
        };
        let message =
            message.ok_or_else(|| PgFailure::damaged("a delivery without its message"))?;
        row.leased(message, flags)
    }

    pub(super) async fn start_attempts(
        &self,
        shards: &[HeldShard],
        started: &[u128],
    ) -> PgResult<Vec<u128>> {
        let mut session = self.pool.durable().await?;
        let update = "WITH h AS (SELECT s.id FROM shard s JOIN unnest($1::smallint[], $2::bigint[]) \
                      AS u (id, nonce) ON s.id = u.id AND s.nonce = u.nonce FOR SHARE OF s) \
                      UPDATE queue SET started = true WHERE id = ANY($3) AND NOT cancelled \
                      AND shard IN (SELECT id FROM h) RETURNING id";
        let (of, nonces) = fences(shards);
        let rows = session.rows(update, &[&of, &nonces, &ids(started.iter().copied())]).await?;
        rows.iter().map(|row| Ok(get::<PgId>(row, "id")?.0)).collect()
    }
}

/// Messages that several deliveries share, with their content.
pub(super) async fn shared_messages(
    session: &mut PgSession,
    of: impl Iterator<Item = MessageId>,
) -> PgResult<HashMap<MessageId, Arc<Message>>> {
    let mut asked: Vec<_> = of.map(|id| PgId(id.0)).collect();
    asked.sort_unstable();
    asked.dedup();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = session.rows("SELECT * FROM message WHERE id = ANY($1)", &[&asked]).await?;
    let read = |row: &Row| -> PgResult<_> {
        let message = shared_message(row)?;
        Ok((message.id, Arc::new(message)))
    };
    rows.iter().map(read).collect()
}

pub(super) fn shared_message(row: &Row) -> PgResult<Message> {
    let id = MessageId(get::<PgId>(row, "id")?.0);
    let envelope: Option<&str> = get(row, "envelope")?;
    Ok(Message {
        id,
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        class: get::<String>(row, "class")?.into(),
        created_at: id.created_at(),
        expires_at: Timestamp(get(row, "expires")?),
        ttl_s: get::<i32>(row, "ttl_s")? as u32,
        envelope: envelope.map_or(Ok(Default::default()), |json| parse(json, "an envelope"))?,
        content: get::<Option<String>>(row, "content")?.unwrap_or_default().into(),
    })
}
