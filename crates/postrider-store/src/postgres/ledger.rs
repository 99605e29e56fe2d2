//! The ledger: three tables read as one, with what is in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{
    Delivery, DeliveryId, LaneId, LaneKey, Message, MessageId, State, TenantId, Timestamp,
};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::intake::delivery_range;
use super::leasing::shared_message;
use super::ledger_query::LedgerQuery;
use super::rows::{StoredRow, state};
use super::session::PgSession;
use super::shared::PgShared;
use super::tally::{SUMS, counts};
use super::value::{PgId, get};
use crate::view::{self, SHOWN};

/// Rows that one statement looks at, and that one call does: a rare match costs several short reads.
pub(super) const LOOK_AT: i64 = 2_000;
const READ_MAX: i64 = 20_000;
/// An answer about lanes that took so long is given again for a while.
const SLOW_LANES: Duration = Duration::from_millis(50);

/// Answers about lanes that are remembered; those of one tenant and those of all count as one each.
const SLOW_LANES_MAX: usize = 100;

/// By tenant, or for all: until when an answer is given again, and the answer.
type ReadLanes = HashMap<Option<TenantId>, (Instant, Vec<LaneDepth>)>;

/// Answers about lanes that took long.
#[derive(Default)]
pub(super) struct SlowLanes(Mutex<ReadLanes>);

/// The depths of all lanes. `$2` is no tenant.
const DEPTHS: &str = "WITH x AS (SELECT u.id, max(l.batch) AS batch FROM lease l \
      CROSS JOIN LATERAL unnest(l.ids) AS u (id) WHERE l.until > $1 GROUP BY u.id) \
    SELECT q.lane, count(*) AS n, count(x.id) AS in_flight, min(q.due) FILTER (WHERE x.id IS NULL) AS next_due \
    FROM queue q LEFT JOIN x ON x.id = q.id AND x.batch > q.free_batch WHERE $2::text IS NULL GROUP BY q.lane";
/// The same for the lanes of a tenant. The order has the rows read by the tenant's index, also if the plan is the same
/// for tenants with much and with little.
const DEPTHS_OF_TENANT: &str = "WITH x AS (SELECT u.id, max(l.batch) AS batch FROM lease l \
      CROSS JOIN LATERAL unnest(l.ids) AS u (id) WHERE l.until > $1 GROUP BY u.id) \
    SELECT q.lane, count(*) AS n, count(x.id) AS in_flight, min(q.due) FILTER (WHERE x.id IS NULL) AS next_due \
    FROM (SELECT id, lane, due, free_batch FROM queue WHERE tenant = $2 ORDER BY uuid_send(id) OFFSET 0) AS q \
    LEFT JOIN x ON x.id = q.id AND x.batch > q.free_batch GROUP BY q.lane";

#[async_trait]
impl Ledger for PostgresStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        let now = self.shared.clock.now().0;
        let mut session = self.shared.pool.durable().await?;
        let found = self.shared.stored_message(&mut session, tenant, id).await?;
        let Some(found) = found else { return Ok(None) };
        let mut view = view::message(&found.message, found.has_content);
        for (id, state) in deliveries_of(&mut session, id, found.deliveries, now).await? {
            view::add_delivery(&mut view, id, state);
        }
        Ok(Some(view))
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        let mut session = self.shared.pool.durable().await?;
        let found = self.shared.stored_message(&mut session, tenant, id).await?;
        Ok(found.filter(|found| found.has_content).map(|found| found.message.content))
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        let mut session = self.shared.pool.durable().await?;
        let found = self.shared.delivery_row(&mut session, id).await?;
        let sees = |delivery: &Delivery| tenant.is_none_or(|tenant| *tenant == delivery.tenant);
        Ok(found.filter(sees))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.shared.page(&filter, false).await?)
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.shared.page(&filter, true).await?)
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, true).await?;
        Ok(self.shared.replay(&chosen, &how).await?)
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, true).await?;
        Ok(self.shared.discard(&chosen).await?)
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        Ok(self.shared.cancel(tenant, id).await?)
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        Ok(self.shared.cancel_deliveries(tenant, ids).await?)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        Ok(self.shared.counts(tenant).await?)
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        Ok(self.shared.holdings().await?)
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        let lanes = self.shared.lane_depths(tenant, &self.slow_lanes).await?;
        Ok(view::deepest(lanes.into_iter(), tenant, limit))
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        let numbers = match self.shared.lanes.known_numbers(&keys) {
            Some(numbers) => numbers,
            None => {
                let mut session = self.shared.pool.durable().await?;
                self.shared.lanes.numbers(&mut session, &keys).await?
            }
        };
        Ok(numbers.into_iter().map(LaneId).collect())
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        let mut session = self.shared.pool.durable().await?;
        let row = session.first("SELECT id FROM queue ORDER BY id LIMIT 1", &[]).await?;
        let id = row.map(|row| get::<PgId>(&row, "id")).transpose().map_err(PgFailure::from)?;
        Ok(id.map(|id| DeliveryId(id.0).created_at()))
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        Ok(self.shared.prune(retention).await?)
    }

    fn check_health(&self) -> StoreHealth {
        self.shared.health()
    }
}

/// A message as it is found.
pub(super) struct FoundMessage {
    pub(super) message: Message,
    pub(super) deliveries: u32,
    pub(super) has_content: bool,
}

const LONE_ROW: &str = "SELECT * FROM queue WHERE id BETWEEN $1 AND $2 AND message = $3 AND NOT shares_message \
    UNION ALL SELECT * FROM dead WHERE id BETWEEN $1 AND $2 AND message = $3 AND NOT shares_message \
    UNION ALL SELECT * FROM ledger WHERE id BETWEEN $1 AND $2 AND message = $3 AND NOT shares_message LIMIT 1";

const STATES_OF: &str = "SELECT id, state, (SELECT l.until FROM lease l WHERE l.shard = q.shard \
      AND l.batch > q.free_batch AND q.id = ANY(l.ids) ORDER BY l.batch DESC LIMIT 1) AS lease_end \
      FROM queue q WHERE id BETWEEN $1 AND $2 AND message = $3 \
    UNION ALL SELECT id, state, NULL FROM dead WHERE id BETWEEN $1 AND $2 AND message = $3 \
    UNION ALL SELECT id, state, NULL FROM ledger WHERE id BETWEEN $1 AND $2 AND message = $3 ORDER BY id";

async fn deliveries_of(
    session: &mut PgSession,
    message: MessageId,
    count: u32,
    now: i64,
) -> PgResult<Vec<(DeliveryId, State)>> {
    let (first, last) = delivery_range(message, count);
    let rows = session.rows(STATES_OF, &[&first, &last, &PgId(message.0)]).await?;
    let read = |row: &Row| {
        let end: Option<i64> = get(row, "lease_end")?;
        let state = match end.is_some_and(|end| end > now) {
            true => State::Sending,
            false => state(get(row, "state")?)?,
        };
        Ok((DeliveryId(get::<PgId>(row, "id")?.0), state))
    };
    rows.iter().map(read).collect()
}

impl PgShared {
    /// A message, if the tenant may see it.
    pub(super) async fn stored_message(
        &self,
        session: &mut PgSession,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> PgResult<Option<FoundMessage>> {
        let select = "SELECT * FROM message WHERE id = $1";
        let found = match session.first(select, &[&PgId(id.0)]).await? {
            Some(row) => Some(FoundMessage {
                message: shared_message(&row)?,
                deliveries: get::<i32>(&row, "deliveries")? as u32,
                has_content: get::<Option<&str>>(&row, "content")?.is_some(),
            }),
            None => self.lone_message(session, id).await?,
        };
        let sees =
            |found: &FoundMessage| tenant.is_none_or(|tenant| *tenant == found.message.tenant);
        Ok(found.filter(sees))
    }

    async fn lone_message(
        &self,
        session: &mut PgSession,
        id: MessageId,
    ) -> PgResult<Option<FoundMessage>> {
        let (first, last) = delivery_range(id, 1);
        let row = session.first(LONE_ROW, &[&first, &last, &PgId(id.0)]).await?;
        let Some(row) = row else { return Ok(None) };
        let stored = StoredRow::read(&row)?;
        let lane = self.lane_of(session, stored.lane).await?;
        let has_content = stored.body.is_some();
        Ok(Some(FoundMessage { message: stored.lone_message(&lane)?, deliveries: 1, has_content }))
    }

    pub(super) async fn lane_of(
        &self,
        session: &mut PgSession,
        lane: u32,
    ) -> PgResult<Arc<LaneKey>> {
        self.lanes.learn(session, &[lane]).await?;
        self.lanes.key(lane).ok_or_else(|| PgFailure::damaged("a delivery's lane"))
    }

    async fn delivery_row(
        &self,
        session: &mut PgSession,
        id: DeliveryId,
    ) -> PgResult<Option<Delivery>> {
        let select = "SELECT q.*, (SELECT l.until FROM lease l WHERE l.shard = q.shard \
                      AND l.batch > q.free_batch AND q.id = ANY(l.ids) ORDER BY l.batch DESC LIMIT 1) \
                      AS lease_end FROM queue q WHERE id = $1 \
                      UNION ALL SELECT *, NULL FROM dead WHERE id = $1 \
                      UNION ALL SELECT *, NULL FROM ledger WHERE id = $1 LIMIT 1";
        let row = session.first(select, &[&PgId(id.0)]).await?;
        let Some(row) = row else { return Ok(None) };
        self.view_of(session, &row).await.map(Some)
    }

    async fn view_of(&self, session: &mut PgSession, row: &Row) -> PgResult<Delivery> {
        let stored = StoredRow::read(row)?;
        let lane = self.lane_of(session, stored.lane).await?;
        stored.view(&lane, get(row, "lease_end")?, self.clock.now().0)
    }

    pub(super) async fn page(
        &self,
        filter: &DeliveryFilter,
        dead: bool,
    ) -> PgResult<Page<Delivery, DeliveryId>> {
        let limit = if filter.limit == 0 { SHOWN } else { filter.limit };
        let mut session = self.pool.durable().await?;
        let mut cursor = filter.cursor;
        let (mut items, mut looked_at) = (Vec::new(), 0);
        loop {
            let step =
                self.look(&mut session, filter, dead, cursor, limit + 1 - items.len()).await?;
            items.extend(step.found);
            looked_at += step.looked_at;
            cursor = step.last;
            if items.len() > limit || step.is_end {
                return Ok(view::page(items, limit, |delivery| delivery.id));
            }
            if looked_at >= READ_MAX {
                return Ok(Page { items, next: cursor });
            }
        }
    }

    /// Looks at the next rows, newest first.
    async fn look(
        &self,
        session: &mut PgSession,
        filter: &DeliveryFilter,
        dead: bool,
        cursor: Option<DeliveryId>,
        limit: usize,
    ) -> PgResult<LookStep> {
        let mut query = LedgerQuery::new(filter, cursor);
        if let Some(message) = filter.message {
            let found = self.stored_message(session, None, message).await?;
            let (first, last) = delivery_range(message, found.map_or(1, |found| found.deliveries));
            query.bound(">=", first);
            query.bound("<=", last);
        }
        let sql = query.sql(filter, dead, limit);
        let rows = session.rows_of(&sql, &query.values()).await?;
        let mut step = LookStep { is_end: true, ..LookStep::default() };
        for row in &rows {
            step.looked_at = get(row, "looked_at")?;
            step.last = get::<Option<PgId>>(row, "last_id")?.map(|id| DeliveryId(id.0));
            if get::<Option<PgId>>(row, "id")?.is_none() {
                continue;
            }
            let delivery = self.view_of(session, row).await?;
            if view::matches(filter, &delivery) {
                step.found.push(delivery);
            }
        }
        step.is_end = step.looked_at < LOOK_AT;
        if rows.len() >= limit && step.found.len() < limit || step.found.len() >= limit {
            // There may be more among what was looked at.
            let last = rows.last().map(|row| get::<Option<PgId>>(row, "id")).transpose()?.flatten();
            step.last = last.map(|id| DeliveryId(id.0)).or(step.last);
            step.is_end = false;
        }
        Ok(step)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> PgResult<Counts> {
        let tenant = tenant.map(TenantId::as_str);
        let now = self.clock.now().0;
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        session.script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        let row = session.first(*SUMS, &[&tenant]).await?;
        let mut sums = row.map(|row| counts(&row)).transpose()?.unwrap_or_default();
        let leased = "SELECT q.state, count(*) AS n FROM lease l CROSS JOIN LATERAL unnest(l.ids) AS u (id) \
                      CROSS JOIN LATERAL (SELECT state, tenant FROM queue WHERE id = u.id \
                      AND free_batch < l.batch OFFSET 0) AS q \
                      WHERE l.until > $1 AND ($2::text IS NULL OR q.tenant = $2) GROUP BY q.state";
        for row in session.rows(leased, &[&now, &tenant]).await? {
            let (of, n) = (state(get(&row, "state")?)?, get::<i64>(&row, "n")? as u64);
            let left = sums.states.get(&of).copied().unwrap_or(0).saturating_sub(n);
            match left {
                0 => drop(sums.states.remove(&of)),
                left => drop(sums.states.insert(of, left)),
            }
            *sums.states.entry(State::Sending).or_default() += n;
        }
        session.commit().await?;
        Ok(sums)
    }

    async fn lane_depths(
        &self,
        tenant: Option<&TenantId>,
        slow: &SlowLanes,
    ) -> PgResult<Vec<LaneDepth>> {
        if let Some(known) = slow.known(tenant) {
            return Ok(known);
        }
        let began = Instant::now();
        let mut session = self.pool.durable().await?;
        let select = if tenant.is_some() { DEPTHS_OF_TENANT } else { DEPTHS };
        let name = tenant.map(|tenant| tenant.as_str());
        let rows = session.rows(select, &[&self.clock.now().0, &name]).await?;
        let numbers: Vec<_> =
            rows.iter().map(|row| Ok(get::<i32>(row, "lane")? as u32)).collect::<PgResult<_>>()?;
        self.lanes.learn(&mut session, &numbers).await?;
        let mut lanes = Vec::with_capacity(rows.len());
        for (row, number) in rows.iter().zip(numbers) {
            let Some(key) = self.lanes.key(number) else { continue };
            let in_flight = get::<i64>(row, "in_flight")? as u64;
            lanes.push(LaneDepth {
                id: LaneId(number),
                key,
                pending: (get::<i64>(row, "n")? as u64).saturating_sub(in_flight),
                in_flight,
                next_due: get::<Option<i64>>(row, "next_due")?.map(Timestamp),
            });
        }
        slow.note(tenant, began, &lanes);
        Ok(lanes)
    }
}

impl SlowLanes {
    fn known(&self, tenant: Option<&TenantId>) -> Option<Vec<LaneDepth>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, lanes) = known.get(&tenant.cloned())?;
        (*until > Instant::now()).then(|| lanes.clone())
    }

    fn note(&self, tenant: Option<&TenantId>, began: Instant, lanes: &[LaneDepth]) {
        let (now, took) = (Instant::now(), began.elapsed());
        if took <= SLOW_LANES {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SLOW_LANES_MAX {
            known.retain(|_, (until, _)| *until > now);
        }
        if known.len() < SLOW_LANES_MAX {
            known.insert(tenant.cloned(), (now + 10 * took, lanes.to_vec()));
        }
    }
}

#[derive(Default)]
struct LookStep {
    found: Vec<Delivery>,
    looked_at: i64,
    last: Option<DeliveryId>,
    /// There are no rows after these.
    is_end: bool,
}
