//! The way in. What several callers hand in at the same time goes into one statement.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::model::id::{from_order_key, order_key};
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, LaneKey, MessageId, TenantId, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::PostgresStore;
use super::accept_batch::{AcceptBatch, AcceptedKeys};
use super::failure::{PgFailure, PgResult};
use super::keys::StoredKeys;
use super::shared::PgShared;
use super::value::{PgId, get};
use crate::sharded::{in_shard, shard_of_new};

/// Messages and deliveries of one statement, as far as whole requests allow.
const GROUP_MESSAGES: usize = 512;
/// Statements that are under way at once.
pub(super) const ACCEPT_LINES: usize = 3;
/// A write whose answer was lost is repeated so long.
pub(super) const REPEAT_FOR: Duration = Duration::from_secs(10);

/// Messages of one caller.
pub(super) struct AcceptRequest {
    messages: Vec<NewMessage>,
    answer: oneshot::Sender<Vec<StoreResult<Admission>>>,
}

pub(super) type AcceptQueue = Arc<tokio::sync::Mutex<mpsc::Receiver<AcceptRequest>>>;

#[async_trait]
impl Intake for PostgresStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let count = messages.len();
        if count == 0 {
            return Vec::new();
        }
        let (answer, answered) = oneshot::channel();
        let request = AcceptRequest { messages, answer };
        let closed = || vec![Err(StoreError::Closed); count];
        if self.shared.pool.is_closed() || self.requests.send(request).await.is_err() {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let over_by = self.shared.clock.bounds().earliest;
        let mut session = self.shared.pool.durable().await?;
        let asked: Vec<_> = keys.iter().map(|key| key.key).collect();
        let known = StoredKeys::read(&mut session, &asked, over_by).await?;
        Ok(keys.iter().map(|key| known.repeated(key)).collect())
    }

    fn takes_work(&self) -> StoreResult<()> {
        self.shared.takes_work()
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.shared.load.load(tenant)
    }
}

/// Accepts for as long as the store lives.
pub(super) async fn keep_accepting(shared: Arc<PgShared>, requests: AcceptQueue) {
    loop {
        let mut group = Vec::new();
        {
            let mut requests = requests.lock().await;
            let Some(first) = requests.recv().await else { return };
            let mut count = first.messages.len();
            group.push(first);
            while count < GROUP_MESSAGES {
                let Ok(next) = requests.try_recv() else { break };
                count += next.messages.len();
                group.push(next);
            }
        }
        let mut messages = Vec::new();
        let mut callers = Vec::new();
        for request in group {
            callers.push((request.messages.len(), request.answer));
            messages.extend(request.messages);
        }
        let mut answers = shared.accept(messages).await.into_iter();
        for (count, caller) in callers {
            // A caller that went away wants no answer.
            let _ = caller.send(answers.by_ref().take(count).collect());
        }
    }
}

impl PgShared {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        // Messages with keys of their deliveries go one by one, behind the others.
        let (lists, plain): (Vec<_>, Vec<_>) =
            messages.into_iter().enumerate().partition(|(_, new)| !new.member_keys.is_empty());
        if lists.is_empty() {
            return self.accept_plain(plain.into_iter().map(|(_, new)| new).collect()).await;
        }
        let mut answers = vec![Err(StoreError::Closed); lists.len() + plain.len()];
        let (places, plain): (Vec<_>, Vec<_>) = plain.into_iter().unzip();
        for (place, answer) in places.into_iter().zip(self.accept_plain(plain).await) {
            answers[place] = answer;
        }
        for (place, list) in lists {
            answers[place] = self.accept_list(list).await.map_err(StoreError::from);
        }
        answers
    }

    async fn accept_plain(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let count = messages.len();
        if count == 0 {
            return Vec::new();
        }
        match self.try_to_accept(messages).await {
            Ok(answers) => answers,
            Err(failure) => vec![Err(StoreError::from(failure)); count],
        }
    }

    async fn try_to_accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> PgResult<Vec<StoreResult<Admission>>> {
        let _write = self.load.begin_write();
        let end = Instant::now() + REPEAT_FOR;
        let lanes = loop {
            match self.lanes_of(&messages).await {
                Ok(lanes) => break lanes,
                Err(failure) => self.pause_or_fail(failure, end).await?,
            }
        };
        let now = self.clock.now();
        let batch = AcceptBatch::new(self, messages, &lanes, now);
        let mut is_repeat = false;
        let accepted = loop {
            match self.write_batch(&batch, is_repeat).await {
                Ok(accepted) => break accepted,
                Err(failure) => {
                    is_repeat |= failure.is_interruption();
                    self.pause_or_fail(failure, end).await?;
                }
            }
        };
        for (message, change) in &batch.loads {
            if accepted.is_accepted(*message) {
                self.load.change(&batch.tenants[message], *change);
            }
        }
        self.tell_of_notes();
        Ok(batch.answers(&accepted))
    }

    /// Accepts a message with keys of its deliveries: all of them are new, or nothing is written.
    async fn accept_list(&self, list: NewMessage) -> PgResult<Admission> {
        let _write = self.load.begin_write();
        let end = Instant::now() + REPEAT_FOR;
        let messages = [list];
        let lanes = loop {
            match self.lanes_of(&messages).await {
                Ok(lanes) => break lanes,
                Err(failure) => self.pause_or_fail(failure, end).await?,
            }
        };
        let batch = AcceptBatch::new(self, messages.into(), &lanes, self.clock.now());
        let mut is_repeat = false;
        let admission = loop {
            match self.write_list(&batch, is_repeat).await {
                Ok(admission) => break admission,
                Err(failure) => {
                    is_repeat |= failure.is_interruption();
                    self.pause_or_fail(failure, end).await?;
                }
            }
        };
        if matches!(admission, Admission::Accepted { .. }) {
            for (message, change) in &batch.loads {
                self.load.change(&batch.tenants[message], *change);
            }
            self.tell_of_notes();
        }
        Ok(admission)
    }

    async fn write_list(&self, batch: &AcceptBatch, is_repeat: bool) -> PgResult<Admission> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let over_by = self.clock.bounds().earliest;
        let rows = session.rows(ACCEPT, &batch.values(&over_by.0)).await?;
        let row = rows.first().ok_or_else(|| PgFailure::damaged("an accept has no answer"))?;
        let is_new = get::<i64>(row, "fresh")? == 1;
        if !is_new && !is_repeat {
            return Err(PgFailure::damaged("a number of a write was used twice"));
        }
        let won: Vec<PgId> = get(row, "won")?;
        let keyed: Vec<_> = batch.keys.iter().map(|key| key.key.key).collect();
        let known = StoredKeys::read(&mut session, &keyed, over_by).await?;
        let accepted = AcceptedKeys { won: HashSet::new(), known, keyed: batch.keyed_messages() };
        let answer = batch.list_answer(&accepted);
        let answer = answer.ok_or_else(|| PgFailure::damaged("a list has no answer"))?;
        match won.len() == batch.keys.len() {
            true => session.commit().await?,
            false => session.roll_back().await?,
        }
        Ok(answer)
    }

    /// Waits a moment before a write is repeated; gives up in the end.
    pub(super) async fn pause_or_fail(&self, failure: PgFailure, end: Instant) -> PgResult<()> {
        let may_repeat = failure.is_conflict() || failure.is_interruption();
        if !may_repeat || Instant::now() >= end || self.pool.is_closed() {
            return Err(failure);
        }
        let pause = if failure.is_conflict() { 5 } else { 100 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        Ok(())
    }

    async fn lanes_of(&self, messages: &[NewMessage]) -> PgResult<HashMap<Arc<LaneKey>, u32>> {
        let mut keys: Vec<_> = messages
            .iter()
            .flat_map(|message| message.deliveries.iter().map(|delivery| delivery.lane.clone()))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers = match self.lanes.known_numbers(&keys) {
            Some(numbers) => numbers,
            None => self.lanes.numbers(&mut *self.pool.durable().await?, &keys).await?,
        };
        Ok(keys.into_iter().zip(numbers).collect())
    }

    async fn write_batch(&self, batch: &AcceptBatch, is_repeat: bool) -> PgResult<AcceptedKeys> {
        let mut session = self.pool.durable().await?;
        let over_by = self.clock.bounds().earliest;
        let rows = session.rows(ACCEPT, &batch.values(&over_by.0)).await?;
        let row = rows.first().ok_or_else(|| PgFailure::damaged("an accept has no answer"))?;
        let is_new = get::<i64>(row, "fresh")? == 1;
        if !is_new && !is_repeat {
            return Err(PgFailure::damaged("a number of a write was used twice"));
        }
        let won: Vec<PgId> = get(row, "won")?;
        let keyed: Vec<_> = batch.keys.iter().map(|key| key.key.key).collect();
        let is_open =
            !keyed.is_empty() && (!is_new || won.len() < batch.keys.len() || batch.repeats > 0);
        let known = match is_open {
            // An older key may have ended since; then its message is named, but was not accepted again.
            true => StoredKeys::read(&mut session, &keyed, Timestamp(i64::MIN)).await?,
            false => StoredKeys::default(),
        };
        let won = match is_new {
            true => won.into_iter().map(|id| MessageId(id.0)).collect(),
            false => known.messages().collect(),
        };
        Ok(AcceptedKeys { won, known, keyed: batch.keyed_messages() })
    }
}

const ACCEPT: &str = "WITH r AS (INSERT INTO receipt (batch) VALUES ($1) ON CONFLICT DO NOTHING RETURNING batch), \
    k AS (INSERT INTO dedup AS o (key, fingerprint, message, deliveries, expires) \
      SELECT u.* FROM unnest($2::bytea[], $3::bytea[], $4::uuid[], $5::integer[], $6::bigint[]) \
        AS u (key, fingerprint, message, deliveries, expires), r ORDER BY u.key \
      ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, message = excluded.message, \
        deliveries = excluded.deliveries, expires = excluded.expires WHERE o.expires <= $7 \
      RETURNING message), \
    m AS (INSERT INTO message (id, tenant, class, expires, ttl_s, deliveries, envelope, content, bytes, \
        pending, needed, remaining) \
      SELECT u.id, u.tenant, u.class, u.expires, u.ttl_s, u.deliveries, u.envelope, u.content, \
        octet_length(u.content), u.deliveries, u.deliveries, u.deliveries \
      FROM unnest($8::uuid[], $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], \
        $14::text[], $15::text[], $16::boolean[]) \
        AS u (id, tenant, class, expires, ttl_s, deliveries, envelope, content, keyed), r \
      WHERE NOT u.keyed OR u.id IN (SELECT message FROM k)), \
    d AS (SELECT u.* FROM unnest($17::uuid[], $18::uuid[], $19::smallint[], $20::integer[], $21::text[], \
        $22::bigint[], $23::bigint[], $24::bytea[], $25::uuid[], $26::bigint[], $27::text[], $28::text[], \
        $29::text[], $30::integer[], $31::text[], $32::integer[], $33::text[], $34::text[], $35::boolean[], \
        $36::boolean[], $37::boolean[], $38::integer[]) \
        AS u (id, message, shard, lane, tenant, due, expires, hash, address, address_since, recipient, target, \
        alternatives, bytes, class, ttl_s, envelope, body, shares_message, keyed, first, load), r \
      WHERE NOT u.keyed OR u.message IN (SELECT message FROM k)), \
    q AS (INSERT INTO queue (id, message, shard, lane, tenant, state, due, expires, changed, hash, address, \
        address_since, recipient, target, alternatives, bytes, class, ttl_s, envelope, body, shares_message) \
      SELECT id, message, shard, lane, tenant, 0, due, expires, $39, hash, address, address_since, recipient, \
        target, alternatives, bytes, class, ttl_s, envelope, body, shares_message FROM d), \
    i AS (INSERT INTO inbox (shard, kind, ids, lanes, dues, expires, bytes, firsts) \
      SELECT shard, 0, array_agg(id), array_agg(lane), array_agg(due), array_agg(expires), array_agg(load), \
        array_agg(first) FROM d GROUP BY shard), \
    g AS (INSERT INTO tag SELECT u.tenant, u.tag, u.message, u.first, u.last FROM unnest($40::text[], $41::text[], \
        $42::uuid[], $43::uuid[], $44::uuid[], $45::boolean[]) AS u (tenant, tag, message, first, last, keyed), r \
      WHERE NOT u.keyed OR u.message IN (SELECT message FROM k)) \
    SELECT (SELECT count(*) FROM r) AS fresh, ARRAY(SELECT message FROM k) AS won";

impl PgShared {
    /// Ids of a message and its deliveries, one after the other, so that a message finds them.
    pub(super) fn mint(&self, new: &NewMessage, now: Timestamp) -> (MessageId, Vec<DeliveryId>) {
        let mut ids = self.ids();
        let message = MessageId(ids.next(now));
        let mint =
            |delivery: &NewDelivery| DeliveryId(in_shard(ids.next(now), shard_of_new(delivery)));
        (message, new.deliveries.iter().map(mint).collect())
    }
}

/// The ids that the deliveries of a message can have.
pub(super) fn delivery_range(message: MessageId, count: u32) -> (PgId, PgId) {
    let first = order_key(message.0) + 1;
    let last = first + u64::from(count.max(1)) - 1;
    (PgId(from_order_key(first, 0)), PgId(from_order_key(last, u64::MAX)))
}
