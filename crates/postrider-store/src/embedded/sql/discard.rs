//! Discards dead letters whose time is over, a few at a time. What is kept for longer is read again when the first of
//! its neighbours may be over. That is known in memory only: the first prune after a start reads all old ones once.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::DeadReason;
use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::Retention;

use super::prelude::*;
use super::prune::number_of;
use super::scan::scan;
use super::statement::is_local;

/// Dead letters that one step reads.
const STEP: usize = 500;
/// Beyond so many ranges, all dead letters are read once more, which makes fewer of them.
const RANGES_MAX: usize = 10_000;
/// A dead letter that cannot be read is tried again after this time.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(3_600);

/// Which dead letters were read, and when to read them again.
#[derive(Debug, Default)]
pub(crate) struct DiscardPlan {
    /// The number of the retention for which this holds.
    retention: Option<i64>,
    shortest: Duration,
    /// Everything before this sequence was read.
    read_before: u64,
    /// By first sequence: dead letters that are kept.
    kept: BTreeMap<u64, KeptRange>,
}

#[derive(Debug, Clone, Copy)]
struct KeptRange {
    /// The sequence behind the last one.
    end: u64,
    /// When the first of them is over; absent if all are kept for ever.
    next: Option<Timestamp>,
}

impl DiscardPlan {
    /// With other times than before, everything is read once more.
    fn adapt(&mut self, retention: i64, shortest: Duration) {
        if self.retention != Some(retention) {
            *self = Self { retention: Some(retention), shortest, ..Self::default() };
        }
    }

    /// The next sequences to read, up to `before`.
    fn next_range(&self, before: u64, now: Timestamp) -> Option<(u64, u64)> {
        let is_due = |range: &KeptRange| range.next.is_some_and(|next| next <= now);
        let due = self.kept.iter().find(|(_, range)| is_due(range));
        due.map(|(first, range)| (*first, range.end))
            .or((self.read_before < before).then_some((self.read_before, before)))
    }

    /// The range was read up to `end`. `kept` says when the first that is left is over; absent if none is left.
    fn note(&mut self, (first, last): (u64, u64), end: u64, kept: Option<Option<Timestamp>>) {
        if let Some(old) = self.kept.remove(&first)
            && end < last
        {
            self.kept.insert(end, old);
        }
        if let Some(next) = kept {
            self.kept.insert(first, KeptRange { end, next });
        }
        self.read_before = self.read_before.max(end);
        if self.kept.len() > RANGES_MAX {
            self.join_neighbours();
        }
    }

    /// Half as many ranges, each of which is read as soon as one of its two parts would be.
    fn join_neighbours(&mut self) {
        let mut old = std::mem::take(&mut self.kept).into_iter();
        while let Some((first, mut range)) = old.next() {
            if let Some((_, other)) = old.next() {
                let next = [range.next, other.next].into_iter().flatten().min();
                range = KeptRange { end: other.end, next };
            }
            self.kept.insert(first, range);
        }
    }

    /// A delivery is a dead letter now, perhaps in a range that was read.
    fn died(&mut self, seq: u64, now: Timestamp) {
        if seq >= self.read_before {
            return;
        }
        let next = Some(now + self.shortest);
        let known = self.kept.range_mut(..=seq).next_back().filter(|(_, range)| range.end > seq);
        match known {
            Some((_, range)) => range.next = range.next.min(next).or(next),
            None => drop(self.kept.insert(seq, KeptRange { end: seq + 1, next })),
        }
    }
}

impl Writer {
    pub(crate) fn add_dead_letter(
        &mut self,
        seq: u64,
        (tenant, lane): (u32, u32),
        reason: DeadReason,
    ) -> StoreResult<()> {
        let insert =
            "INSERT OR IGNORE INTO dead_letter (seq, tenant, lane, reason) VALUES (?1, ?2, ?3, ?4)";
        run(&self.conn, insert, params![seq as i64, tenant, lane, reason.code()])?;
        // It is only read too early if the transaction fails.
        self.discards.died(seq, self.shared.now());
        Ok(())
    }

    /// One step. True if there is more to do.
    pub(crate) fn discard_some(&mut self, retention: &Retention) -> StoreResult<bool> {
        let now = self.shared.earliest();
        let Some(latest) = retention.latest_discarded(now) else { return Ok(false) };
        self.discards.adapt(number_of(retention), now.since(latest));
        let before = order_key_at(latest + Duration::from_millis(1));
        let Some((first, last)) = self.discards.next_range(before, now) else { return Ok(false) };
        let select = "SELECT x.seq, d.tail, d.lane, d.changed FROM dead_letter x \
                      JOIN delivery d ON d.seq = x.seq WHERE x.seq >= ?1 AND x.seq < ?2 \
                      ORDER BY x.seq LIMIT ?3";
        let mut kept: Option<Option<Timestamp>> = None;
        let mut keep_until = |end: Option<Timestamp>| {
            let next = [kept.flatten(), end].into_iter().flatten().min();
            kept = Some(next);
        };
        let found = scan(&self.conn, select, (first, last), STEP, |row| {
            let keep = self.retention_of(get(row, "lane")?, retention)?.dead_letters;
            let changed = Timestamp(get(row, "changed")?);
            let end = keep.map(|keep| changed + keep);
            if end.is_some_and(|end| end <= now) {
                return Ok(Some(DeliveryId(row_id(row)?)));
            }
            keep_until(end);
            Ok(None)
        })?;
        if !found.skipped.is_empty() {
            keep_until(Some(now + UNREADABLE_PAUSE));
        }
        if self.discard_what_can_be(&found.rows)? < found.rows.len() {
            keep_until(Some(now + UNREADABLE_PAUSE));
        }
        self.discards.note((first, last), found.next.unwrap_or(last), kept);
        Ok(true)
    }

    /// By halves if one cannot be written. Returns how many are done.
    fn discard_what_can_be(&mut self, ids: &[DeliveryId]) -> StoreResult<usize> {
        if ids.is_empty() {
            return Ok(0);
        }
        match self.discard(ids) {
            Ok(_) => Ok(ids.len()),
            Err(error) if !is_local(&error) => Err(error),
            Err(error) if ids.len() == 1 => {
                tracing::warn!(%error, "an old dead letter cannot be discarded");
                Ok(0)
            }
            Err(_) => {
                let (first, second) = ids.split_at(ids.len() / 2);
                Ok(self.discard_what_can_be(first)? + self.discard_what_can_be(second)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(hours: u32) -> Timestamp {
        Timestamp(0) + HOUR * hours
    }

    #[test]
    fn a_range_that_is_kept_is_read_again_only_when_its_first_is_over() {
        let mut plan = DiscardPlan::default();
        plan.adapt(1, HOUR);
        assert_eq!(plan.next_range(100, at(1)), Some((0, 100)));
        plan.note((0, 100), 60, Some(Some(at(9))));
        assert_eq!(plan.next_range(100, at(1)), Some((60, 100)));
        plan.note((60, 100), 100, None);
        assert_eq!(plan.next_range(100, at(8)), None);
        assert_eq!(plan.next_range(100, at(9)), Some((0, 60)));
        plan.note((0, 60), 40, Some(None));
        assert_eq!(plan.next_range(100, at(9)), Some((40, 60)), "the rest of it");
        plan.note((40, 60), 60, None);
        assert_eq!(plan.next_range(100, at(1_000)), None, "the others are kept for ever");
        plan.adapt(2, HOUR);
        assert_eq!(plan.next_range(100, at(9)), Some((0, 100)), "with other times, all");
    }

    #[test]
    fn an_old_delivery_that_dies_late_is_read_when_it_may_be_over() {
        let mut plan = DiscardPlan::default();
        plan.adapt(1, HOUR * 5);
        plan.note((0, 100), 100, Some(None));
        plan.note((100, 200), 200, None);
        plan.died(50, at(10));
        plan.died(150, at(11));
        plan.died(250, at(12));
        assert_eq!(plan.next_range(200, at(14)), None);
        assert_eq!(plan.next_range(200, at(15)), Some((0, 100)));
        plan.note((0, 100), 100, None);
        assert_eq!(plan.next_range(200, at(16)), Some((150, 151)));
    }
}
