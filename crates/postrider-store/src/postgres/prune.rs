//! Forgets what is over. Whole partitions go at once; single rows go only where a tenant keeps little.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::model::id::{from_order_key, order_key, order_key_at};
use postrider_core::policy::strikes;
use postrider_core::ports::store::{PruneProgress, Retention, RetentionTimes};
use postrider_core::{MessageId, State, TenantId, Timestamp};
use tokio_postgres::Row;

use super::failure::PgResult;
use super::operator::CHUNK;
use super::rows::state;
use super::session::PgSession;
use super::shared::PgShared;
use super::tally::TallyChanges;
use super::value::{PgId, get};
use crate::progress::DELETED_MARKS_KEPT;
use crate::sharded::ShardId;

/// Rows of one statement, and of one call.
const ROWS_AT_ONCE: i64 = 5_000;
const PRUNE_CALL: u64 = 10_000;
const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
/// Partitions are made so far ahead.
const AHEAD: i64 = 3;
/// Rows are deleted one by one only if they are kept for less than this; otherwise their partition goes later.
const ROW_BY_ROW: Duration = Duration::from_secs(2 * 86_400);
/// A write is not repeated after this time.
const RECEIPTS_KEPT_MS: i64 = 2 * HOUR_MS;

/// A range of times that is one table.
struct Partition {
    name: String,
    /// The first time that is not in it; absent for the table of all others.
    end: Option<i64>,
}

fn id_at(ms: i64) -> PgId {
    PgId(from_order_key(order_key_at(Timestamp(ms)), 0))
}

fn uuid_text(id: PgId) -> String {
    let hex = format!("{:032x}", id.0);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Makes the tables of the next days and hours. Somebody else may do the same.
pub(super) async fn make_partitions(shared: &PgShared) -> PgResult<()> {
    let now = shared.clock.now().0;
    let mut session = shared.pool.durable().await?;
    for (table, width) in [("ledger", DAY_MS), ("receipt", HOUR_MS)] {
        let known = partitions(&mut session, table).await?;
        for step in 0..=AHEAD {
            let start = (now.div_euclid(width) + step) * width;
            let name = format!("{table}_{start}");
            if !known.iter().any(|partition| partition.name == name) {
                make_partition(&mut session, table, &name, start, width).await?;
            }
        }
    }
    Ok(())
}

async fn make_partition(
    session: &mut PgSession,
    table: &str,
    name: &str,
    start: i64,
    width: i64,
) -> PgResult<()> {
    let key = if table == "receipt" { "batch" } else { "id" };
    let (from, to) = (id_at(start), id_at(start + width));
    let create = format!(
        "DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('{name}', 1)); \
         IF NOT EXISTS (SELECT 1 FROM {table}_rest WHERE {key} >= '{from}' AND {key} < '{to}') THEN \
         CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} FOR VALUES FROM ('{from}') TO ('{to}'); \
         END IF; END $$",
        from = uuid_text(from),
        to = uuid_text(to),
    );
    session.script(&create).await
}

/// The partitions of a table; their names have the times.
async fn partitions(session: &mut PgSession, table: &str) -> PgResult<Vec<Partition>> {
    let select = "SELECT c.relname::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                  WHERE i.inhparent = to_regclass($1::text) ORDER BY c.relname";
    let width = if table == "receipt" { HOUR_MS } else { DAY_MS };
    let rows = session.rows(select, &[&table]).await?;
    let read = |row: &Row| {
        let name: String = get(row, "name")?;
        let start = name.rsplit('_').next().and_then(|text| text.parse::<i64>().ok());
        Ok(Partition { name, end: start.map(|start| start + width) })
    };
    rows.iter().map(read).collect()
}

impl PgShared {
    pub(super) async fn prune(&self, retention: &Retention) -> PgResult<PruneProgress> {
        let over_by = self.clock.bounds().earliest;
        make_partitions(self).await?;
        self.prune_receipts(over_by).await?;
        self.prune_keys(over_by).await?;
        self.prune_strikes(over_by).await?;
        self.prune_deleted_marks(over_by).await?;
        self.prune_shares().await?;
        self.prune_documents(over_by).await?;
        self.discard_old(retention, over_by).await?;
        self.prune_ledger(retention, over_by).await
    }

    async fn prune_receipts(&self, over_by: Timestamp) -> PgResult<()> {
        let before = over_by.0 - RECEIPTS_KEPT_MS;
        let mut session = self.pool.durable().await?;
        for partition in partitions(&mut session, "receipt").await? {
            if partition.end.is_some_and(|end| end <= before) {
                session.script(&format!("DROP TABLE IF EXISTS {}", partition.name)).await?;
            }
        }
        let delete = "DELETE FROM receipt_rest WHERE batch < $1";
        session.run(delete, &[&id_at(before)]).await.map(drop)
    }

    async fn prune_keys(&self, over_by: Timestamp) -> PgResult<()> {
        let delete = "DELETE FROM dedup WHERE key = ANY(ARRAY(SELECT key FROM dedup WHERE expires <= $1 \
                      ORDER BY expires LIMIT $2)) AND expires <= $1";
        loop {
            let mut session = self.pool.durable().await?;
            let deleted = session.run(delete, &[&over_by.0, &ROWS_AT_ONCE]).await?;
            if deleted < ROWS_AT_ONCE as u64 {
                return Ok(());
            }
        }
    }

    async fn prune_strikes(&self, over_by: Timestamp) -> PgResult<()> {
        let mut session = self.pool.durable().await?;
        let delete = "DELETE FROM strike WHERE last_at <= $1";
        session.run(delete, &[&(over_by - strikes::KEPT).0]).await.map(drop)
    }

    async fn prune_deleted_marks(&self, over_by: Timestamp) -> PgResult<()> {
        let before = order_key_at(over_by - DELETED_MARKS_KEPT) as i64;
        let mut session = self.pool.durable().await?;
        let delete = "DELETE FROM gone WHERE deleted_before < $1";
        session.run(delete, &[&before]).await.map(drop)
    }

    async fn prune_shares(&self) -> PgResult<()> {
        let mut session = self.pool.relaxed().await?;
        let idle = self.clock.now().0 - DAY_MS;
        session.run("DELETE FROM share WHERE idle_at < $1", &[&idle]).await.map(drop)
    }

    /// Discards dead letters whose time is over.
    async fn discard_old(&self, retention: &Retention, over_by: Timestamp) -> PgResult<()> {
        let Some(latest) = retention.latest_discarded(over_by) else { return Ok(()) };
        let mut after = PgId(0);
        loop {
            let mut session = self.pool.durable().await?;
            let select = "SELECT id, tenant, changed FROM dead WHERE id > $1 AND id < $2 \
                          ORDER BY id LIMIT $3";
            let end = id_at(latest.0 + 1);
            let rows = session.rows(select, &[&after, &end, &(10 * CHUNK as i64)]).await?;
            drop(session);
            let Some(last) = rows.last() else { return Ok(()) };
            after = get(last, "id")?;
            let mut over = Vec::new();
            for row in &rows {
                let times = retention.times(&TenantId(get::<String>(row, "tenant")?.into()));
                let changed = Timestamp(get(row, "changed")?);
                if times.dead_letters.is_some_and(|keep| changed <= over_by - keep) {
                    over.push(get::<PgId>(row, "id")?.0);
                }
            }
            self.discard(&over).await?;
        }
    }

    async fn prune_ledger(
        &self,
        retention: &Retention,
        over_by: Timestamp,
    ) -> PgResult<PruneProgress> {
        let mut deleted = 0;
        let mut session = self.pool.durable().await?;
        let known = partitions(&mut session, "ledger").await?;
        drop(session);
        let latest = retention.latest_forgotten(over_by);
        for partition in known {
            if deleted >= PRUNE_CALL {
                break;
            }
            let is_old = partition.end.is_some_and(|end| end <= latest.0);
            if is_old
                && let Some(count) = self.drop_partition(&partition, retention, over_by).await?
            {
                deleted += count;
                continue;
            }
            deleted += self.prune_rows(&partition, is_old, retention, over_by).await?;
        }
        Ok(PruneProgress { deleted, has_more: deleted >= PRUNE_CALL })
    }

    /// Drops a partition if everything in it is over. Answers how many deliveries it had.
    async fn drop_partition(
        &self,
        partition: &Partition,
        retention: &Retention,
        over_by: Timestamp,
    ) -> PgResult<Option<u64>> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        session.script("SET LOCAL statement_timeout = '120s'").await?;
        session.script(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", partition.name)).await?;
        let newest = format!(
            "SELECT tenant, max(changed) AS changed FROM {} GROUP BY tenant",
            partition.name
        );
        for row in session.rows_of(&newest, &[]).await? {
            let times = retention.times(&TenantId(get::<String>(&row, "tenant")?.into()));
            if Timestamp(get(&row, "changed")?) > over_by - times.deliveries {
                session.roll_back().await?;
                return Ok(None);
            }
        }
        let (mut tally, mut count) = (TallyChanges::default(), 0);
        let sums = format!(
            "SELECT shard, tenant, state, shares_message, count(*) AS n FROM {} GROUP BY 1, 2, 3, 4",
            partition.name
        );
        for row in session.rows_of(&sums, &[]).await? {
            let n: i64 = get(&row, "n")?;
            count += n as u64;
            forget(&mut tally, &row, n)?;
        }
        let messages = format!(
            "SELECT message, count(*)::integer AS n FROM {} WHERE shares_message GROUP BY message",
            partition.name
        );
        let shared = session.rows_of(&messages, &[]).await?;
        forget_messages(&mut session, &shared, &mut tally).await?;
        let tags = format!(
            "DELETE FROM tag WHERE message IN (SELECT message FROM {} WHERE NOT shares_message)",
            partition.name
        );
        session.rows_of(&tags, &[]).await?;
        let last = format!("SELECT id FROM {} ORDER BY id DESC LIMIT 1", partition.name);
        let last = session.rows_of(&last, &[]).await?;
        if let Some(row) = last.first() {
            note_last(&mut session, get(row, "id")?).await?;
        }
        session.script(&format!("DROP TABLE {}", partition.name)).await?;
        tally.write(&mut session).await?;
        session.commit().await?;
        Ok(Some(count))
    }

    /// Deletes single rows: those of tenants that keep little, and late ones of an old partition.
    async fn prune_rows(
        &self,
        partition: &Partition,
        is_old: bool,
        retention: &Retention,
        over_by: Timestamp,
    ) -> PgResult<u64> {
        let goes_row_by_row = |times: &RetentionTimes| {
            is_old || partition.end.is_none() || times.deliveries < ROW_BY_ROW
        };
        let mut pruned = 0;
        let own: Vec<_> =
            retention.tenants.keys().map(|tenant| tenant.as_str().to_owned()).collect();
        for (tenant, times) in &retention.tenants {
            if goes_row_by_row(times) {
                let name = Some(tenant.as_str().to_owned());
                pruned +=
                    self.delete_rows(partition, name, &[], over_by - times.deliveries).await?;
            }
        }
        if goes_row_by_row(&retention.default) {
            let before = over_by - retention.default.deliveries;
            pruned += self.delete_rows(partition, None, &own, before).await?;
        }
        Ok(pruned)
    }

    /// Of one tenant, or of all but some.
    async fn delete_rows(
        &self,
        partition: &Partition,
        tenant: Option<String>,
        except: &[String],
        before: Timestamp,
    ) -> PgResult<u64> {
        let delete = format!(
            "DELETE FROM {name} WHERE id = ANY(ARRAY(SELECT id FROM {name} WHERE id < $1 AND changed <= $2 \
             AND ($3::text IS NULL OR tenant = $3) AND NOT tenant = ANY($4) ORDER BY id LIMIT $5)) \
             RETURNING id, message, shard, tenant, state, shares_message",
            name = partition.name
        );
        let end = id_at(before.0 + 1);
        let mut pruned = 0;
        loop {
            let mut session = self.pool.durable().await?;
            session.begin().await?;
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&end, &before.0, &tenant, &except, &ROWS_AT_ONCE];
            let rows = session.rows_of(&delete, &values).await?;
            if rows.is_empty() {
                session.roll_back().await?;
                return Ok(pruned);
            }
            let mut tally = TallyChanges::default();
            let mut last = PgId(0);
            let mut shared: BTreeMap<u128, i32> = BTreeMap::new();
            let mut lone = Vec::new();
            for row in &rows {
                forget(&mut tally, row, 1)?;
                last = last.max(get(row, "id")?);
                let message: PgId = get(row, "message")?;
                match get(row, "shares_message")? {
                    true => *shared.entry(message.0).or_default() += 1,
                    false => lone.push(message),
                }
            }
            session.run("DELETE FROM tag WHERE message = ANY($1)", &[&lone]).await?;
            for (message, n) in shared {
                forget_message(&mut session, PgId(message), n, &mut tally).await?;
            }
            note_last(&mut session, last).await?;
            tally.write(&mut session).await?;
            session.commit().await?;
            pruned += rows.len() as u64;
            if pruned >= PRUNE_CALL {
                return Ok(pruned);
            }
        }
    }
}

/// What counts lose with so many deliveries of a kind.
fn forget(tally: &mut TallyChanges, row: &Row, n: i64) -> PgResult<()> {
    let shard = get::<i16>(row, "shard")? as ShardId;
    let tenant = TenantId(get::<String>(row, "tenant")?.into());
    let of: State = state(get(row, "state")?)?;
    tally.add_state(shard, &tenant, of, -n);
    if !get::<bool>(row, "shares_message")? {
        tally.add_messages(shard, &tenant, -n);
    }
    Ok(())
}

async fn forget_messages(
    session: &mut PgSession,
    shared: &[Row],
    tally: &mut TallyChanges,
) -> PgResult<()> {
    for row in shared {
        forget_message(session, get(row, "message")?, get(row, "n")?, tally).await?;
    }
    Ok(())
}

/// A shared message goes with its last delivery.
async fn forget_message(
    session: &mut PgSession,
    id: PgId,
    n: i32,
    tally: &mut TallyChanges,
) -> PgResult<()> {
    let update =
        "UPDATE message SET remaining = remaining - $2 WHERE id = $1 RETURNING remaining, tenant";
    let Some(row) = session.first(update, &[&id, &n]).await? else { return Ok(()) };
    if get::<i32>(&row, "remaining")? <= 0 {
        session.run("DELETE FROM message WHERE id = $1", &[&id]).await?;
        session.run("DELETE FROM tag WHERE message = $1", &[&id]).await?;
        let shard = crate::sharded::shard_of(MessageId(id.0).0);
        tally.add_messages(shard, &TenantId(get::<String>(&row, "tenant")?.into()), -1);
    }
    Ok(())
}

/// Remembers the highest id that was forgotten, so that ids go on above it.
async fn note_last(session: &mut PgSession, last: PgId) -> PgResult<()> {
    let upsert = "INSERT INTO meta (key, value) VALUES ('last_id', $1) \
                  ON CONFLICT (key) DO UPDATE SET value = greatest(meta.value, excluded.value)";
    session.run(upsert, &[&(order_key(last.0) as i64)]).await.map(drop)
}
