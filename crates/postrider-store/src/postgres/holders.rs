//! Who holds which shard, and what holders read.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::StoreResult;
use postrider_core::{Clock, LaneKey};
use tokio_postgres::Row;

use super::failure::PgResult;
use super::notes::fences;
use super::session::PgSession;
use super::shared::PgShared;
use super::value::{PgId, get, ids};
use crate::sharded::{
    HeartbeatReport, HeldShard, LanePlace, LeaseOrder, LeaseRecord, LeasedRow, QueueEntry,
    QueueNote, SettleOrder, SettledPlace, ShardContent, ShardEngine, ShardId, ShardNews, TERM,
    shard_of,
};

/// Tokens that a worker gets at once.
const TOKENS: u64 = 1 << 20;

const SHARDS_NOW: &str = "SELECT s.id, s.nonce, s.acts, s.epoch, s.node IS NULL AS unheld, \
    coalesce(s.node = $1 AND s.number = $2, false) AS ours, \
    s.node IS NULL OR s.node = $1 OR coalesce(n.beat <= $3, true) AS free \
    FROM shard s LEFT JOIN node n ON n.name = s.node AND n.number = s.number";

fn held_shard(row: &Row) -> PgResult<HeldShard> {
    let nonce: Option<i64> = get(row, "nonce")?;
    Ok(HeldShard {
        shard: get::<i16>(row, "id")? as ShardId,
        nonce: nonce.unwrap_or(0),
        acts: get(row, "acts")?,
    })
}

fn entry(row: &Row) -> PgResult<QueueEntry> {
    Ok(QueueEntry {
        id: get::<PgId>(row, "id")?.0,
        lane: get::<i32>(row, "lane")? as u32,
        due: get(row, "due")?,
        expires: get(row, "expires")?,
    })
}

/// The server's epoch. A new one begins after a crash of the server, because that may have lost the last leases.
pub(super) async fn epoch(session: &mut PgSession, random: i64) -> PgResult<i64> {
    loop {
        let row = session.first("SELECT number FROM epoch", &[]).await?;
        if let Some(row) = row {
            return Ok(get(&row, "number")?);
        }
        let insert = "INSERT INTO epoch (number) VALUES ($1) ON CONFLICT DO NOTHING";
        session.run(insert, &[&random]).await?;
    }
}

impl PgShared {
    fn random_number(&self) -> i64 {
        let mut bytes = [0; 8];
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            tracing::error!("the system gives no random numbers");
        }
        // Never 0, which stands for nobody.
        i64::from_le_bytes(bytes) | 1
    }

    fn term_began(&self) -> i64 {
        (self.clock.now() - TERM).0
    }

    async fn beat(&self, node: &str, number: i64) -> PgResult<HeartbeatReport> {
        let mut session = self.pool.relaxed().await?;
        let now = self.clock.now().0;
        let update = "UPDATE node SET beat = $3 WHERE name = $1 AND number = $2";
        if session.run(update, &[&node, &number, &now]).await? == 0 {
            return Ok(HeartbeatReport::default());
        }
        let epoch = epoch(&mut session, self.random_number()).await?;
        let began = self.term_began();
        let mut report = HeartbeatReport::default();
        let mut held = Vec::new();
        for row in session.rows(SHARDS_NOW, &[&node, &number, &began]).await? {
            if get(&row, "ours")? {
                report.lost_leases |= get::<i64>(&row, "epoch")? != epoch;
                held.push(held_shard(&row)?);
            } else if get(&row, "free")? {
                report.free.push(get::<i16>(&row, "id")? as ShardId);
            }
        }
        report.free.sort_unstable();
        report.held = Some(held);
        let others = "SELECT ARRAY(SELECT name FROM node WHERE beat > $1) AS workers, \
                      (SELECT until FROM turn WHERE delivery IS NOT NULL) AS turn";
        if let Some(row) = session.first(others, &[&began]).await? {
            report.workers = get(&row, "workers")?;
            report.suspect_until = get(&row, "turn")?;
        }
        Ok(report)
    }

    /// The names of the workers that live.
    pub(super) async fn workers(&self) -> PgResult<Vec<String>> {
        let mut session = self.pool.relaxed().await?;
        let select = "SELECT name FROM node WHERE beat > $1";
        let rows = session.rows(select, &[&self.term_began()]).await?;
        rows.iter().map(|row| Ok(get(row, "name")?)).collect()
    }

    async fn take_shards(
        &self,
        node: &str,
        number: i64,
        shards: &[ShardId],
    ) -> PgResult<Vec<HeldShard>> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let wanted: Vec<_> = shards.iter().map(|shard| *shard as i16).collect();
        let lock = "SELECT id FROM shard WHERE id = ANY($1) ORDER BY id FOR UPDATE";
        session.rows(lock, &[&wanted]).await?;
        let mut taken = Vec::new();
        let mut crashed = Vec::new();
        for row in session.rows(SHARDS_NOW, &[&node, &number, &self.term_began()]).await? {
            let id: i16 = get(&row, "id")?;
            if !wanted.contains(&id) || get(&row, "ours")? || !get::<bool>(&row, "free")? {
                continue;
            }
            if !get::<bool>(&row, "unheld")? {
                crashed.push(id);
            }
            taken.push(HeldShard { nonce: self.random_number(), ..held_shard(&row)? });
        }
        count_crashes(&mut session, &crashed).await?;
        let (shards, nonces) = fences(&taken);
        session.run("DELETE FROM lease WHERE shard = ANY($1)", &[&shards]).await?;
        end_turns(&mut session, &shards).await?;
        let epoch = epoch(&mut session, self.random_number()).await?;
        let update = "UPDATE shard s SET node = $3, number = $4, nonce = u.nonce, epoch = $5 \
                      FROM unnest($1::smallint[], $2::bigint[]) AS u (id, nonce) WHERE s.id = u.id";
        session.run(update, &[&shards, &nonces, &node, &number, &epoch]).await?;
        session.commit().await?;
        Ok(taken)
    }

    async fn end_holding(&self, shards: &[HeldShard]) -> PgResult<()> {
        let mut session = self.pool.durable().await?;
        let (ids, nonces) = fences(shards);
        session.begin().await?;
        let update = "WITH h AS (UPDATE shard s SET node = NULL, number = NULL, nonce = NULL \
                      FROM unnest($1::smallint[], $2::bigint[]) AS u (id, nonce) \
                      WHERE s.id = u.id AND s.nonce = u.nonce RETURNING s.id) \
                      DELETE FROM lease WHERE shard IN (SELECT id FROM h)";
        session.run(update, &[&ids, &nonces]).await?;
        end_turns(&mut session, &ids).await?;
        session.commit().await
    }

    /// The leases and the epoch become durable together.
    async fn write_leases(&self, shards: &[HeldShard], leases: &[LeaseRecord]) -> PgResult<()> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        for lease in leases {
            let insert = "INSERT INTO lease (shard, batch, nonce, until, ids) \
                          SELECT $1, $2, $3, $4, $5 FROM shard WHERE id = $1 AND nonce = $3 \
                          ON CONFLICT (shard, batch) DO NOTHING";
            let shard = lease.shard as i16;
            let of = ids(lease.ids.iter().copied());
            session.run(insert, &[&shard, &lease.batch, &lease.nonce, &lease.until, &of]).await?;
        }
        let epoch = epoch(&mut session, self.random_number()).await?;
        let (ids, nonces) = fences(shards);
        let update = "UPDATE shard s SET epoch = $3 FROM unnest($1::smallint[], $2::bigint[]) \
                      AS u (id, nonce) WHERE s.id = u.id AND s.nonce = u.nonce";
        session.run(update, &[&ids, &nonces, &epoch]).await?;
        session.commit().await
    }

    async fn shard_content(&self, shards: &[ShardId]) -> PgResult<ShardContent> {
        let shards: Vec<_> = shards.iter().map(|shard| *shard as i16).collect();
        let mut session = self.pool.relaxed().await?;
        let mut content = ShardContent::default();
        for row in session.rows(FIRST_OF_LANES, &[&shards]).await? {
            content.lanes.push((get::<i32>(&row, "lane")? as u32, get(&row, "due")?));
        }
        let crashed = "SELECT id, crashes FROM queue WHERE shard = ANY($1) AND crashes > 0";
        for row in session.rows(crashed, &[&shards]).await? {
            let crashes = get::<i32>(&row, "crashes")? as u32;
            content.crashed.push((get::<PgId>(&row, "id")?.0, crashes));
        }
        let expiry = "SELECT min(f.expires) AS first FROM unnest($1::smallint[]) AS s (id) \
                      CROSS JOIN LATERAL (SELECT expires FROM queue WHERE shard = s.id \
                      ORDER BY expires LIMIT 1) AS f";
        let row = session.first(expiry, &[&shards]).await?;
        content.first_expiry = row.map(|row| get(&row, "first")).transpose()?.flatten();
        Ok(content)
    }

    async fn held_now(&self, shards: &[HeldShard]) -> PgResult<Vec<HeldShard>> {
        let mut session = self.pool.relaxed().await?;
        let select = "SELECT s.id, s.nonce, s.acts FROM shard s \
                      JOIN unnest($1::smallint[], $2::bigint[]) AS u (id, nonce) \
                      ON s.id = u.id AND s.nonce = u.nonce";
        let (ids, nonces) = fences(shards);
        session.rows(select, &[&ids, &nonces]).await?.iter().map(held_shard).collect()
    }

    async fn due_entries(
        &self,
        shards: &[ShardId],
        lane: u32,
        (due, id): LanePlace,
        limit: usize,
    ) -> PgResult<Vec<QueueEntry>> {
        let shards: Vec<_> = shards.iter().map(|shard| *shard as i16).collect();
        let mut session = self.pool.relaxed().await?;
        // As the index has it, so that nothing is sorted and nothing before the place is read.
        let select = "SELECT f.* FROM unnest($1::smallint[]) AS s (id) CROSS JOIN LATERAL \
                      (SELECT id, lane, due, expires FROM queue WHERE shard = s.id AND lane = $2 \
                      AND (due, uuid_send(id)) > ($3, uuid_send($4)) \
                      ORDER BY due, uuid_send(id) LIMIT $5) AS f ORDER BY f.due, f.id LIMIT $5";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&shards, &(lane as i32), &due, &PgId(id), &(limit as i64)];
        session.rows(select, &values).await?.iter().map(entry).collect()
    }

    async fn expiring_entries(
        &self,
        shards: &[ShardId],
        limit: usize,
    ) -> PgResult<Vec<QueueEntry>> {
        let shards: Vec<_> = shards.iter().map(|shard| *shard as i16).collect();
        let mut session = self.pool.relaxed().await?;
        let select = "SELECT f.* FROM unnest($1::smallint[]) AS s (id) CROSS JOIN LATERAL \
                      (SELECT id, lane, due, expires FROM queue WHERE shard = s.id \
                      ORDER BY expires LIMIT $2) AS f ORDER BY f.expires, f.id LIMIT $2";
        session.rows(select, &[&shards, &(limit as i64)]).await?.iter().map(entry).collect()
    }

    async fn turn(&self, id: u128, until: i64) -> PgResult<Result<(), i64>> {
        let mut session = self.pool.durable().await?;
        let update = "UPDATE turn SET delivery = $1, until = $2 \
                      WHERE delivery IS NULL OR delivery = $1 OR until <= $3";
        let now = self.clock.now().0;
        if session.run(update, &[&PgId(id), &until, &now]).await? == 1 {
            return Ok(Ok(()));
        }
        let row = session.first("SELECT until FROM turn", &[]).await?;
        Ok(Err(row.map(|row| get(&row, "until")).transpose()?.unwrap_or(until)))
    }

    async fn turn_ends(&self, id: u128) -> PgResult<()> {
        let mut session = self.pool.relaxed().await?;
        let update = "UPDATE turn SET delivery = NULL, until = 0 WHERE delivery = $1";
        session.run(update, &[&PgId(id)]).await.map(drop)
    }

    async fn new_tokens(&self) -> PgResult<Range<u64>> {
        let mut session = self.pool.durable().await?;
        let row = session.first("SELECT nextval('lease_token') AS first", &[]).await?;
        let first = row.map(|row| get::<i64>(&row, "first")).transpose()?.unwrap_or(1) as u64;
        Ok(first..first + TOKENS)
    }

    async fn known_receipts(&self, receipts: &[u128]) -> PgResult<Vec<u128>> {
        let mut session = self.pool.durable().await?;
        let asked = ids(receipts.iter().copied());
        let select = "SELECT batch FROM receipt WHERE batch = ANY($1)";
        let rows = session.rows(select, &[&asked]).await?;
        rows.iter().map(|row| Ok(get::<PgId>(row, "batch")?.0)).collect()
    }
}

/// The first due time of each lane, from one lane to the next, so that it does not matter how much waits.
const FIRST_OF_LANES: &str = "WITH RECURSIVE l AS (\
      SELECT s.id AS shard, f.lane, f.due FROM unnest($1::smallint[]) AS s (id) CROSS JOIN LATERAL \
      (SELECT lane, due FROM queue WHERE shard = s.id ORDER BY lane, due LIMIT 1) AS f \
      UNION ALL SELECT l.shard, f.lane, f.due FROM l CROSS JOIN LATERAL \
      (SELECT q.lane, q.due FROM queue q WHERE q.shard = l.shard AND q.lane > l.lane \
       ORDER BY q.lane, q.due LIMIT 1) AS f) \
    SELECT lane, min(due) AS due FROM l GROUP BY lane";

/// Deliveries that were leased in shards whose holder died.
async fn count_crashes(session: &mut PgSession, shards: &[i16]) -> PgResult<()> {
    if shards.is_empty() {
        return Ok(());
    }
    let (mut leased, mut batches) = (Vec::new(), Vec::new());
    let select = "SELECT batch, ids FROM lease WHERE shard = ANY($1)";
    for row in session.rows(select, &[&shards]).await? {
        let batch: i64 = get(&row, "batch")?;
        let of: Vec<PgId> = get(&row, "ids")?;
        batches.extend(std::iter::repeat_n(batch, of.len()));
        leased.extend(of);
    }
    let update = "UPDATE queue q SET crashes = q.crashes + 1 \
                  FROM unnest($1::uuid[], $2::bigint[]) AS u (id, batch) \
                  WHERE q.id = ANY($1) AND q.id = u.id AND q.free_batch < u.batch";
    session.run(update, &[&leased, &batches]).await.map(drop)
}

/// A suspect of these shards that had the turn is not leased any more.
async fn end_turns(session: &mut PgSession, shards: &[i16]) -> PgResult<()> {
    let row = session.first("SELECT delivery FROM turn", &[]).await?;
    let delivery: Option<PgId> = row.map(|row| get(&row, "delivery")).transpose()?.flatten();
    if let Some(delivery) = delivery.filter(|id| shards.contains(&(shard_of(id.0) as i16))) {
        let update = "UPDATE turn SET delivery = NULL, until = 0 WHERE delivery = $1";
        session.run(update, &[&delivery]).await?;
    }
    Ok(())
}

#[async_trait]
impl ShardEngine for PgShared {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn news(&self) -> &ShardNews {
        &self.news
    }

    async fn join(&self, node: &str) -> StoreResult<i64> {
        let mut session = self.pool.durable().await?;
        let insert = "INSERT INTO node AS n (name, number, beat) VALUES ($1, nextval('node_number'), $2) \
                      ON CONFLICT (name) DO UPDATE SET number = excluded.number, beat = excluded.beat \
                      RETURNING number";
        let now = self.clock.now().0;
        let row = session.first(insert, &[&node, &now]).await?;
        let number = row.map(|row| get::<i64>(&row, "number")).transpose();
        Ok(number.map_err(super::failure::PgFailure::from)?.unwrap_or(0))
    }

    async fn heartbeat(&self, node: &str, number: i64) -> StoreResult<HeartbeatReport> {
        Ok(self.beat(node, number).await?)
    }

    async fn take(
        &self,
        node: &str,
        number: i64,
        shards: &[ShardId],
    ) -> StoreResult<Vec<HeldShard>> {
        Ok(self.take_shards(node, number, shards).await?)
    }

    async fn hand_over(&self, shards: &[HeldShard]) -> StoreResult<()> {
        self.end_holding(shards).await?;
        self.tell_of_notes();
        Ok(())
    }

    async fn leave(&self, node: &str, number: i64) -> StoreResult<()> {
        let mut session = self.pool.durable().await?;
        let delete = "DELETE FROM node WHERE name = $1 AND number = $2";
        session.run(delete, &[&node, &number]).await?;
        Ok(())
    }

    async fn write_again(&self, shards: &[HeldShard], leases: &[LeaseRecord]) -> StoreResult<()> {
        Ok(self.write_leases(shards, leases).await?)
    }

    async fn still_held(&self, shards: &[HeldShard]) -> StoreResult<Vec<HeldShard>> {
        Ok(self.held_now(shards).await?)
    }

    async fn content(&self, shards: &[ShardId]) -> StoreResult<ShardContent> {
        Ok(self.shard_content(shards).await?)
    }

    async fn notes(&self, shards: &[HeldShard]) -> StoreResult<Vec<QueueNote>> {
        Ok(self.read_notes(shards).await?)
    }

    async fn confirm(&self, shards: &[HeldShard], notes: &[QueueNote]) -> StoreResult<()> {
        Ok(self.confirm_notes(shards, notes).await?)
    }

    async fn due(
        &self,
        shards: &[ShardId],
        lane: u32,
        after: LanePlace,
        limit: usize,
    ) -> StoreResult<Vec<QueueEntry>> {
        Ok(self.due_entries(shards, lane, after, limit).await?)
    }

    async fn expiring(&self, shards: &[ShardId], limit: usize) -> StoreResult<Vec<QueueEntry>> {
        Ok(self.expiring_entries(shards, limit).await?)
    }

    async fn lease(&self, order: &LeaseOrder) -> StoreResult<Option<Vec<LeasedRow>>> {
        Ok(self.write_lease(order).await?)
    }

    async fn start(&self, shards: &[HeldShard], started: &[u128]) -> StoreResult<Vec<u128>> {
        Ok(self.start_attempts(shards, started).await?)
    }

    async fn settle(&self, order: &SettleOrder) -> StoreResult<bool> {
        Ok(self.settle_many(order).await?)
    }

    async fn settle_one(&self, order: &SettleOrder) -> StoreResult<SettledPlace> {
        Ok(self.settle_single(order).await?)
    }

    async fn receipts(&self, receipts: &[u128]) -> StoreResult<Vec<u128>> {
        Ok(self.known_receipts(receipts).await?)
    }

    async fn take_turn(&self, id: u128, until: i64) -> StoreResult<Result<(), i64>> {
        Ok(self.turn(id, until).await?)
    }

    async fn end_turn(&self, id: u128) -> StoreResult<()> {
        Ok(self.turn_ends(id).await?)
    }

    async fn tokens(&self) -> StoreResult<Range<u64>> {
        Ok(self.new_tokens().await?)
    }

    fn new_receipt(&self) -> u128 {
        self.new_id()
    }

    fn lane_key(&self, lane: u32) -> Option<Arc<LaneKey>> {
        self.lanes.key(lane)
    }

    async fn learn_lanes(&self, lanes: &[u32]) -> StoreResult<()> {
        if self.lanes.knows(lanes) {
            return Ok(());
        }
        let mut session = self.pool.relaxed().await?;
        Ok(self.lanes.learn(&mut session, lanes).await?)
    }
}
