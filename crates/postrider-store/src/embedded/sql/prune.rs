//! Deletes what is old and final, in small steps, so that commits never wait for long. Each delivery is looked at
//! once, when it is old enough. What is kept for longer is listed in `prune_later` with the time to look at it
//! again; what is not final yet, or a dead letter, is listed when it becomes final or is discarded.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::{Retention, RetentionTimes, StoreError};

use super::prelude::*;
use super::scan::scan;
use super::set_aside::set_aside;
use super::statement::is_local;
use crate::embedded::requests::SharedRow;

/// Rows that one step reads and deletes.
const PRUNE_STEP: usize = 200;
/// Listed deliveries that one step reads, one by one.
const LISTED_STEP: usize = 50;
/// The table `prune_later`, as in the schema.
const LATER_COLUMNS: &str =
    "(at INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (at, seq)) WITHOUT ROWID";
/// Rows that one call deletes.
pub(crate) const PRUNE_CALL: u64 = 10_000;

/// Deletes some of what is old. Answers how many deliveries that were, and whether there may be more. It is a
/// chore, between the transactions of others.
pub(crate) struct PruneStep {
    pub(crate) retention: Arc<Retention>,
    /// What becomes old later waits for the next call. Else there would always be a little more while work goes on.
    pub(crate) over_by: Timestamp,
}

impl SharedRow for PruneStep {
    type Answer = (u64, bool);

    fn write(steps: &[Self], writer: &mut Writer) -> StoreResult<Vec<Self::Answer>> {
        steps.iter().map(|step| writer.prune(step)).collect()
    }

    fn transact(steps: &[Self], writer: &mut Writer) -> StoreResult<Vec<Self::Answer>> {
        steps.iter().map(|step| writer.prune_what_can_be(step)).collect()
    }
}

impl Writer {
    pub(crate) fn save_last_id(&mut self) -> StoreResult<()> {
        let last = self.shared.ids().last();
        run(
            &self.conn,
            "INSERT INTO meta (key, value) VALUES ('last_id', ?1) \
             ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
            [last as i64],
        )
        .map(drop)
    }

    /// The next start knows that its time is not before this one.
    pub(crate) fn save_time(&mut self) -> StoreResult<()> {
        set_meta(&self.conn, "clock", self.shared.now().0)
    }

    pub(crate) fn prune_keys(&mut self) -> StoreResult<()> {
        let over_by = self.shared.earliest();
        match self.dedup.prune(&self.conn, over_by) {
            // What is deleted next may make room for it.
            Err(error @ StoreError::Full { .. }) => {
                tracing::warn!(%error, "old idempotency keys cannot be dropped; will try again");
                Ok(())
            }
            done => done,
        }
    }

    pub(crate) fn retention_of(
        &self,
        lane: u32,
        retention: &Retention,
    ) -> StoreResult<RetentionTimes> {
        let index = self.shared.index();
        let key = index.lane_key(lane).ok_or_else(|| damaged("the lane of a delivery"))?;
        Ok(retention.times(&key.tenant))
    }

    /// What is to be deleted next.
    fn next_old(&mut self, step: &PruneStep) -> StoreResult<SeenRows> {
        let over_by = step.over_by.min(self.shared.earliest());
        let latest = step.retention.latest_forgotten(over_by);
        let before = order_key_at(latest + Duration::from_millis(1)).max(self.prune_from);
        let (mut seen, next) =
            self.old_rows((self.prune_from, before), &step.retention, over_by)?;
        let listed = self.listed_until(latest)?;
        for (_, seq) in listed.iter().filter(|(_, seq)| *seq < self.prune_from) {
            let (found, _) = self.old_rows((*seq, *seq + 1), &step.retention, over_by)?;
            seen.append_alone(found);
        }
        seen.more = next.is_some() || listed.len() == LISTED_STEP;
        seen.position = next.unwrap_or(before);
        seen.listed = listed;
        Ok(seen)
    }

    /// In one transaction.
    fn prune(&mut self, step: &PruneStep) -> StoreResult<(u64, bool)> {
        self.look_again_if_new(&step.retention)?;
        let seen = self.next_old(step)?;
        self.delete_rows(&seen.old)?;
        self.save_position(&seen, &[])?;
        Ok((seen.old.len() as u64, seen.more))
    }

    /// The same in as many transactions as are needed, if a row cannot be deleted or the disk is full.
    fn prune_what_can_be(&mut self, step: &PruneStep) -> StoreResult<(u64, bool)> {
        self.transact_surely(|writer| writer.look_again_if_new(&step.retention))?;
        let seen = match self.next_old(step) {
            Err(error) if is_local(&error) => return self.renew_later(&error).map(|()| (0, true)),
            seen => seen?,
        };
        let (pruned, failed) = self.prune_rows(&seen.old)?;
        match self.transact_surely(|writer| writer.save_position(&seen, &failed)) {
            Err(error) if is_local(&error) => self.renew_later(&error)?,
            saved => saved?,
        }
        Ok((pruned, seen.more))
    }

    /// The list of what is to be looked at later is damaged: begins a new one, and looks at everything once more.
    fn renew_later(&mut self, error: &StoreError) -> StoreResult<()> {
        tracing::error!(%error, "the list of deliveries to be deleted later is damaged; it is made anew");
        self.transact_surely(|writer| {
            set_aside(&writer.conn, "prune_later", LATER_COLUMNS)?;
            writer.move_pruning(0)
        })
    }

    /// What was seen needs no second look, except what is to be looked at later, and what `failed`.
    fn save_position(&mut self, seen: &SeenRows, failed: &[(i64, u64)]) -> StoreResult<()> {
        self.save_last_id()?;
        self.save_time()?;
        for (at, seq) in &seen.listed {
            let delete = "DELETE FROM prune_later WHERE at = ?1 AND seq = ?2";
            run(&self.conn, delete, params![at, *seq as i64])?;
        }
        self.list_for_later(&seen.later)?;
        self.list_for_later(failed)?;
        self.move_pruning(seen.position)
    }

    fn move_pruning(&mut self, to: u64) -> StoreResult<()> {
        self.effects.pruned_before.get_or_insert(self.prune_from);
        self.prune_from = to;
        set_meta(&self.conn, "pruned", to as i64)
    }

    /// Some of those that were listed and may be old enough now.
    fn listed_until(&self, latest: Timestamp) -> StoreResult<Vec<(i64, u64)>> {
        let select = "SELECT at, seq FROM prune_later WHERE at <= ?1 ORDER BY at, seq LIMIT ?2";
        let entry = |row: &Row<'_>| Ok((get::<i64>(row, 0)?, unsigned(row, 1)?));
        all_rows(&self.conn, select, params![latest.0, LISTED_STEP as i64], entry)
    }

    /// With other times than before, every delivery is looked at once more.
    fn look_again_if_new(&mut self, retention: &Retention) -> StoreResult<()> {
        let now = number_of(retention);
        let select = "SELECT value FROM meta WHERE key = 'retention'";
        if value(&self.conn, select, [])? == Some(now) {
            return Ok(());
        }
        set_meta(&self.conn, "retention", now)?;
        self.move_pruning(0)
    }

    /// A delivery that the search has passed is final now.
    pub(crate) fn list_if_passed(&mut self, seq: u64, changed: Timestamp) -> StoreResult<()> {
        // If the list is damaged, the next deletion makes it anew and finds the delivery.
        let is_left_out = self.numbers_only || seq >= self.prune_from;
        if is_left_out { Ok(()) } else { self.list_for_later(&[(changed.0, seq)]) }
    }

    fn list_for_later(&mut self, later: &[(i64, u64)]) -> StoreResult<()> {
        let insert = "INSERT OR IGNORE INTO prune_later (at, seq) VALUES (?1, ?2)";
        for (at, seq) in later {
            run(&self.conn, insert, params![at, *seq as i64])?;
        }
        Ok(())
    }

    /// By halves if a row cannot be deleted, or if the disk is too full for all at once. Also returns those that
    /// cannot be deleted, with the time from which to try again.
    fn prune_rows(&mut self, old: &[FinishedRow]) -> StoreResult<(u64, Vec<(i64, u64)>)> {
        match self.transact_surely(|writer| writer.delete_rows(old)) {
            Ok(()) => Ok((old.len() as u64, Vec::new())),
            Err(error) if !is_local(&error) && !is_too_much(&error, old) => Err(error),
            Err(_) if old.len() <= 1 && self.give_up_recipient_index() => self.prune_rows(old),
            Err(error) if old.len() <= 1 => {
                tracing::warn!(%error, "an old delivery cannot be deleted");
                let now = self.shared.now().0;
                Ok((0, old.iter().map(|row| (now, row.seq)).collect()))
            }
            Err(_) => {
                let (first, second) = old.split_at(old.len() / 2);
                let (mut pruned, mut failed) = self.prune_rows(first)?;
                let rest = self.prune_rows(second)?;
                pruned += rest.0;
                failed.extend(rest.1);
                Ok((pruned, failed))
            }
        }
    }

    /// Neighbours are deleted by one statement.
    fn delete_rows(&mut self, old: &[FinishedRow]) -> StoreResult<()> {
        for run_of_rows in old.chunk_by(|row, next| row.run == next.run) {
            self.delete_neighbours(run_of_rows)?;
        }
        for row in old {
            let tenant = self.tenant_of(row.lane)?;
            self.effects.counts_of(tenant).add(row.state, -1);
        }
        Ok(())
    }

    fn delete_neighbours(&mut self, rows: &[FinishedRow]) -> StoreResult<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let delete = "DELETE FROM delivery WHERE seq BETWEEN ?1 AND ?2";
        let deleted = run(&self.conn, delete, [first.seq as i64, last.seq as i64])?;
        if deleted != rows.len() {
            return Err(damaged("old deliveries are not those that were read"));
        }
        self.delete_inner_messages(rows, (first.message, last.message))?;
        self.delete_message_if_empty(first.message)?;
        if last.message != first.message {
            self.delete_message_if_empty(last.message)?;
        }
        Ok(())
    }

    /// The messages between the first and the last one have no other deliveries than these.
    fn delete_inner_messages(
        &mut self,
        rows: &[FinishedRow],
        (first, last): (u64, u64),
    ) -> StoreResult<()> {
        let inner = rows.chunk_by(|row, next| row.message == next.message);
        let inner = inner.filter_map(|of_one| of_one.first());
        let mut count = 0;
        for row in inner.filter(|row| row.message > first && row.message < last) {
            let tenant = self.tenant_of(row.lane)?;
            self.effects.counts_of(tenant).messages -= 1;
            count += 1;
        }
        let delete = "DELETE FROM message WHERE seq > ?1 AND seq < ?2";
        if run(&self.conn, delete, [first as i64, last as i64])? != count {
            return Err(damaged("the messages of old deliveries"));
        }
        self.delete_tags(first + 1, last.saturating_sub(1))
    }

    fn delete_message_if_empty(&mut self, message: u64) -> StoreResult<()> {
        let delete = "DELETE FROM message WHERE seq = ?1 AND NOT EXISTS \
                      (SELECT 1 FROM delivery d WHERE d.seq > message.seq \
                      AND d.seq <= message.seq + message.deliveries) RETURNING tenant";
        let Some(name) = value::<String>(&self.conn, delete, [message as i64])? else {
            return Ok(());
        };
        let tenant = self.tenant_number(&TenantId(name.into()))?;
        self.effects.counts_of(tenant).messages -= 1;
        self.delete_tags(message, message)
    }

    /// Leaves out what cannot be read. Also returns where to go on.
    fn old_rows(
        &self,
        (from, before): (u64, u64),
        retention: &Retention,
        now: Timestamp,
    ) -> StoreResult<(SeenRows, Option<u64>)> {
        let latest = retention.latest_forgotten(now);
        let select = "SELECT d.seq, d.lane, d.state, d.message, d.due, d.changed, x.seq \
                      FROM delivery d LEFT JOIN dead_letter x ON x.seq = d.seq \
                      WHERE d.seq >= ?1 AND d.seq < ?2 ORDER BY d.seq LIMIT ?3";
        let (mut seen, mut run) = (SeenRows::default(), 0);
        let found = scan(&self.conn, select, (from, before), PRUNE_STEP, |row| {
            let waiting = get::<Option<i64>>(row, 4)?.is_some();
            let dead = get::<Option<i64>>(row, 6)?.is_some();
            if waiting || dead {
                run += 1;
                return Ok(None::<()>);
            }
            let (seq, lane, message) = (unsigned(row, 0)?, get(row, 1)?, unsigned(row, 3)?);
            let state = State::from_code(get(row, 2)?);
            let state = state.ok_or_else(|| damaged("a delivery's state"))?;
            let keep = self.retention_of(lane, retention)?.deliveries;
            let changed = Timestamp(get(row, 5)?);
            match changed > now - keep {
                // As much later as this tenant keeps its deliveries longer than others.
                true => {
                    run += 1;
                    seen.later.push((latest.0 + (changed + keep).0 - now.0, seq));
                }
                false => seen.old.push(FinishedRow { run, seq, lane, message, state }),
            }
            Ok(None)
        })?;
        self.shared.report_skipped("delivery", &found.skipped);
        Ok((seen, found.next))
    }
}

/// A number for the times. Another version may get another one for the same times, which costs a second look.
pub(crate) fn number_of(retention: &Retention) -> i64 {
    let mut hasher = DefaultHasher::new();
    format!("{retention:?}").hash(&mut hasher);
    (hasher.finish() >> 1) as i64
}

/// What a step found.
#[derive(Default)]
struct SeenRows {
    old: Vec<FinishedRow>,
    /// Deliveries to look at again, each after a time.
    later: Vec<(i64, u64)>,
    /// Entries of the list that were looked at.
    listed: Vec<(i64, u64)>,
    /// Everything before this sequence was looked at.
    position: u64,
    more: bool,
}

impl SeenRows {
    /// Other rows may be between these and the ones before.
    fn append_alone(&mut self, other: Self) {
        let run = self.old.last().map_or(0, |row| row.run + 1);
        self.old.extend(other.old.into_iter().map(|row| FinishedRow { run, ..row }));
        self.later.extend(other.later);
    }
}

/// Deleting takes room in the journal: on a full disk, fewer rows may fit.
fn is_too_much(error: &StoreError, rows: &[FinishedRow]) -> bool {
    matches!(error, StoreError::Full { .. }) && rows.len() > 1
}

/// A delivery that may be deleted.
struct FinishedRow {
    /// The same for rows that have no other row between them.
    run: u64,
    seq: u64,
    lane: u32,
    message: u64,
    state: State,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{AddressLearning, Ledger, Selection, Settlement};
    use postrider_core::{Clock, DeadReason};

    use super::*;
    use crate::ManualClock;
    use crate::conformance::WorkingStore;
    use crate::conformance::message;
    use crate::embedded::StoreOptions;

    const DAY: Duration = Duration::from_secs(86_400);

    async fn settle_all(store: &WorkingStore, decide: impl Fn(&TenantId) -> Decision) {
        for lane in store.ready_lanes(10).await.unwrap() {
            let leased = store.lease(lane.id, 10_000, DAY).await.unwrap();
            let settle = |leased: postrider_core::ports::store::LeasedDelivery| Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts: Vec::new(),
                decision: decide(&leased.message.tenant),
                learned: AddressLearning::default(),
            };
            store.settle(leased.into_iter().map(settle).collect()).await.unwrap();
        }
    }

    /// The position, and how many deliveries are listed for later.
    async fn position(store: &WorkingStore) -> (u64, i64) {
        let read = |writer: &mut Writer| {
            let listed = value(&writer.conn, "SELECT count(*) FROM prune_later", [])?;
            Ok((writer.prune_from, listed.unwrap_or(-1)))
        };
        store.run_task(read).await.unwrap()
    }

    async fn messages(store: &WorkingStore) -> u64 {
        store.counts(None).await.unwrap().messages
    }

    #[tokio::test]
    async fn what_is_kept_for_longer_is_not_read_again_before_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let open = || WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default());
        let store = open().unwrap();
        for tenant in ["dead", "pending", "long", "short"] {
            store.accept((0..50).map(|_| message(tenant, 1)).collect()).await.unwrap();
        }
        settle_all(&store, |tenant| match tenant.as_str() {
            "dead" => Decision::DeadLetter(DeadReason::Permanent),
            "pending" => Decision::Park { after: 10 * DAY },
            _ => Decision::Done,
        })
        .await;
        let mut retention = Retention::of(DAY);
        let long = RetentionTimes { deliveries: 5 * DAY, dead_letters: None };
        retention.tenants.insert(TenantId::new("long"), long);
        clock.advance(2 * DAY);
        assert_eq!(store.prune(&retention).await.unwrap().deleted, 50, "those of the last tenant");
        let (passed, listed) = position(&store).await;
        assert!(passed >= order_key_at(clock.now() - DAY) && listed == 50, "{passed}, {listed}");
        drop(store);
        let store = open().unwrap();
        assert_eq!(position(&store).await, (passed, listed), "also after a restart");
        assert_eq!(store.discard(None, Selection::Filter(Default::default())).await.unwrap(), 50);
        assert_eq!(position(&store).await.1, 100);
        assert_eq!(store.prune(&retention).await.unwrap().deleted, 50, "the dead letters");
        clock.advance(4 * DAY);
        assert_eq!(
            store.prune(&retention).await.unwrap().deleted,
            50,
            "those that are kept for longer"
        );
        assert_eq!(messages(&store).await, 50);
        clock.advance(6 * DAY);
        settle_all(&store, |_| Decision::Done).await;
        clock.advance(2 * DAY);
        assert_eq!(store.prune(&retention).await.unwrap().deleted, 50, "what was pending");
        assert_eq!((messages(&store).await, position(&store).await.1), (0, 0));
    }

    #[tokio::test]
    async fn a_shorter_retention_reaches_what_was_to_be_kept_for_longer() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        store.accept((0..50).map(|_| message("long", 1)).collect()).await.unwrap();
        settle_all(&store, |_| Decision::Done).await;
        let mut retention = Retention::of(DAY);
        let long = RetentionTimes { deliveries: 50 * DAY, dead_letters: None };
        retention.tenants.insert(TenantId::new("long"), long);
        clock.advance(2 * DAY);
        assert_eq!(store.prune(&retention).await.unwrap().deleted, 0);
        assert_eq!(store.prune(&Retention::of(DAY)).await.unwrap().deleted, 50);
    }

    #[tokio::test]
    async fn a_call_that_its_bound_ends_says_that_there_is_more() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        for _ in 0..11 {
            store.accept((0..1_000).map(|_| message("acme", 1)).collect()).await.unwrap();
            settle_all(&store, |_| Decision::Done).await;
        }
        clock.advance(2 * DAY);
        let first = store.prune(&Retention::of(DAY)).await.unwrap();
        assert!(first.has_more && first.deleted >= PRUNE_CALL, "{first:?}");
        let second = store.prune(&Retention::of(DAY)).await.unwrap();
        assert_eq!((first.deleted + second.deleted, second.has_more), (11_000, false));
    }
}
