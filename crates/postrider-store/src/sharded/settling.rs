//! Settlements of a worker: many in one write, and one by one where that does not work.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _};
use postrider_core::ports::store::{SettleResult, Settlement, StoreError, StoreResult};
use postrider_core::{Decision, Timestamp};

use super::consumer::ShardWorker;
use super::{SettleItem, SettleOrder, SettledPlace, ShardEngine, ShardId, shard_of};
use crate::progress::{StoredProgress, effective_decision};

/// A settlement under a valid lease.
struct OpenSettlement {
    /// Its place in the answers.
    index: usize,
    token: u64,
    item: SettleItem,
    /// A write before whose answer was lost.
    receipt: Option<u128>,
}

impl OpenSettlement {
    /// Whether it concerns only its delivery.
    fn is_plain(&self) -> bool {
        let SettleItem { decision, learned, .. } = &self.item;
        let is_plain = !matches!(decision, Decision::MarkGone | Decision::FallBack);
        is_plain && learned.strike.is_none() && learned.target.is_none()
    }

    fn id(&self) -> u128 {
        self.item.row.id
    }
}

/// Answers, each with its place.
type SettleAnswers = Vec<(usize, StoreResult<SettleResult>)>;

/// Shards whose settlements are written at the same time. Each write waits for a disk, and they share its answer.
const SHARDS_AT_ONCE: usize = 16;

impl<E: ShardEngine> ShardWorker<E> {
    pub(super) async fn settle(
        &self,
        settlements: Vec<Settlement>,
    ) -> Vec<StoreResult<SettleResult>> {
        let mut answers = vec![Ok(SettleResult::Fenced); settlements.len()];
        let mut first: HashMap<u64, usize> = HashMap::new();
        let mut repeats = Vec::new();
        let mut open = Vec::new();
        for (index, settlement) in settlements.into_iter().enumerate() {
            if let Some(before) = first.get(&settlement.token) {
                repeats.push((index, *before));
                continue;
            }
            first.insert(settlement.token, index);
            if self.state().index.settled_before.contains(settlement.token) {
                answers[index] = Ok(SettleResult::Done);
                continue;
            }
            open.extend(self.open(index, settlement));
        }
        let mut given = SettleAnswers::new();
        let open = self.skip_written(open, &mut given).await;
        let (plain, other): (Vec<_>, Vec<_>) = open.into_iter().partition(OpenSettlement::is_plain);
        let together = self.writes(plain).into_iter().map(|open| self.settle_together(open));
        let mut together = stream::iter(together).buffer_unordered(SHARDS_AT_ONCE);
        let mut alone = other;
        while let Some((left, some)) = together.next().await {
            alone.extend(left);
            given.extend(some);
        }
        // What is known of an address is in one shard: there, one after the other.
        let alone = by_shard(alone).into_values().map(|open| self.settle_in_turn(open));
        let mut alone = stream::iter(alone).buffer_unordered(SHARDS_AT_ONCE);
        while let Some(some) = alone.next().await {
            given.extend(some);
        }
        given.into_iter().for_each(|(index, answer)| answers[index] = answer);
        for (index, before) in repeats {
            answers[index] = answers[before].clone();
        }
        self.wake.notify_waiters();
        answers
    }

    fn open(&self, index: usize, settlement: Settlement) -> Option<OpenSettlement> {
        let Settlement { delivery, token, attempts, decision, learned } = settlement;
        let lease = self.state().index.begin_settling(delivery.0, token)?;
        let row = lease.row;
        let cancelled = row.mark.cancelled;
        let decision = effective_decision(&decision, cancelled, !row.alternatives.is_empty());
        let item = SettleItem { row, batch: lease.batch, decision, attempts, learned };
        Some(OpenSettlement { index, token, item, receipt: lease.receipt })
    }

    /// Some may have been written by a call whose answer was lost.
    async fn skip_written(
        &self,
        open: Vec<OpenSettlement>,
        answers: &mut SettleAnswers,
    ) -> Vec<OpenSettlement> {
        let doubtful: HashSet<_> = open.iter().filter_map(|each| each.receipt).collect();
        if doubtful.is_empty() {
            return open;
        }
        let doubtful: Vec<_> = doubtful.into_iter().collect();
        let written = match self.engine.receipts(&doubtful).await {
            Ok(written) => written,
            Err(error) => {
                self.give_up(&open, None, &error, answers);
                return Vec::new();
            }
        };
        let is_written =
            |each: &OpenSettlement| each.receipt.is_some_and(|receipt| written.contains(&receipt));
        let (done, open): (Vec<_>, Vec<_>) = open.into_iter().partition(is_written);
        for settlement in done {
            let place = plain_place(&settlement.item, self.now());
            self.close(&settlement, place, answers);
        }
        open
    }

    /// Which settlements are written together.
    fn writes(&self, plain: Vec<OpenSettlement>) -> Vec<Vec<OpenSettlement>> {
        if self.engine.writes_across_shards() {
            return vec![plain];
        }
        by_shard(plain).into_values().collect()
    }

    /// Answers those that have to be written one by one.
    async fn settle_together(
        &self,
        open: Vec<OpenSettlement>,
    ) -> (Vec<OpenSettlement>, SettleAnswers) {
        let mut answers = SettleAnswers::new();
        if open.is_empty() {
            return (open, answers);
        }
        let Some(order) = self.order(&open) else { return (open, answers) };
        match self.engine.settle(&order).await {
            Ok(true) => {
                for settlement in &open {
                    self.close(settlement, plain_place(&settlement.item, order.now), &mut answers);
                }
                self.pass_turns_on(&open).await;
                (Vec::new(), answers)
            }
            Ok(false) => {
                self.state().index.keep_ended_batches(order.ended_batches);
                (open, answers)
            }
            Err(error) => {
                self.state().index.keep_ended_batches(order.ended_batches);
                self.give_up(&open, Some(order.receipt), &error, &mut answers);
                (Vec::new(), answers)
            }
        }
    }

    async fn settle_in_turn(&self, open: Vec<OpenSettlement>) -> SettleAnswers {
        let mut answers = SettleAnswers::new();
        for settlement in open {
            self.settle_alone(settlement, &mut answers).await;
        }
        answers
    }

    /// `None` if a shard is not held any more.
    fn order(&self, open: &[OpenSettlement]) -> Option<SettleOrder> {
        let ids: Vec<_> = open.iter().map(OpenSettlement::id).collect();
        let mut state = self.state();
        let shards = state.shards_of(ids.iter().copied())?;
        let ended_batches = state.index.batches_ending_with(&ids);
        drop(state);
        Some(SettleOrder {
            shards,
            receipt: self.engine.new_receipt(),
            items: open.iter().map(|each| each.item.clone()).collect(),
            ended_batches,
            now: self.now(),
        })
    }

    async fn settle_alone(&self, settlement: OpenSettlement, answers: &mut SettleAnswers) {
        let open = [settlement];
        let Some(order) = self.order(&open) else {
            self.close(&open[0], SettledPlace::Fenced, answers);
            return;
        };
        match self.engine.settle_one(&order).await {
            Ok(place) => {
                self.close(&open[0], place, answers);
                self.pass_turns_on(&open).await;
            }
            Err(error) => {
                self.state().index.keep_ended_batches(order.ended_batches);
                self.give_up(&open, Some(order.receipt), &error, answers);
            }
        }
    }

    fn give_up(
        &self,
        open: &[OpenSettlement],
        receipt: Option<u128>,
        error: &StoreError,
        answers: &mut SettleAnswers,
    ) {
        let mut state = self.state();
        for settlement in open {
            state.index.undo_settling(settlement.id(), receipt.or(settlement.receipt));
            answers.push((settlement.index, Err(error.clone())));
        }
    }

    /// The settlement is written, or the lease was not valid any more.
    fn close(&self, settlement: &OpenSettlement, place: SettledPlace, answers: &mut SettleAnswers) {
        let (id, now) = (settlement.id(), self.now().0);
        let mut state = self.state();
        state.index.end_lease(id);
        let crashes = match place {
            SettledPlace::Waits { crashes, .. } => crashes,
            _ => 0,
        };
        state.index.suspects.set_crashes(id, crashes);
        if let SettledPlace::Waits { lane, due, .. } = place {
            state.index.add(lane, (due, id), settlement.item.row.expires, now);
        }
        let answer = match place {
            SettledPlace::Fenced => SettleResult::Fenced,
            _ => {
                state.index.settled_before.add(settlement.token);
                SettleResult::Done
            }
        };
        answers.push((settlement.index, Ok(answer)));
    }

    /// If one of them was the suspect in flight, the next one is due.
    async fn pass_turns_on(&self, open: &[OpenSettlement]) {
        for settlement in open {
            let id = settlement.id();
            if !self.state().index.suspects.end(id) {
                continue;
            }
            if let Err(error) = self.engine.end_turn(id).await {
                tracing::debug!(%error, "the turn of a suspect ends with its lease");
            }
            let now = self.now().0;
            self.state().index.pass_turn_on(now);
        }
    }
}

fn by_shard(open: Vec<OpenSettlement>) -> BTreeMap<ShardId, Vec<OpenSettlement>> {
    let mut by_shard: BTreeMap<ShardId, Vec<_>> = BTreeMap::new();
    for settlement in open {
        by_shard.entry(shard_of(settlement.id())).or_default().push(settlement);
    }
    by_shard
}

/// Where a plain settlement leaves its delivery.
fn plain_place(item: &SettleItem, now: Timestamp) -> SettledPlace {
    let progress = settled_progress(item, now);
    match progress.state.is_pending() {
        false => SettledPlace::Final,
        true => SettledPlace::Waits {
            lane: item.row.lane,
            due: progress.due.0,
            crashes: item.row.mark.settled(&item.decision).crashes,
        },
    }
}

/// A delivery's progress after its settlement.
pub(crate) fn settled_progress(item: &SettleItem, now: Timestamp) -> StoredProgress {
    item.row.progress.settled(&item.decision, &item.attempts, now)
}
