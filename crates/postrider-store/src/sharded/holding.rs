//! Which shards a worker holds: heartbeats, its fair share, hand-overs, and notes of what others changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::ports::store::StoreResult;

use super::consumer::{ShardWorker, WorkerState};
use super::worker_name::WorkerName;
use super::{
    COMMON_SHARDS, HEARTBEAT, HeartbeatReport, HeldShard, NoteKind, POLL, QueueNote, REGION_SHARDS,
    SHARDS, ShardEngine, ShardId, region_of,
};

/// A shard is handed over so long after it was chosen, even if some of it is still leased.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);
/// So often in a row notes are read.
const NOTE_READS: usize = 8;
/// Fewer notes than this are all that there were: an engine answers at least so many of each shard.
const NOTES_MIN: usize = 16;

impl<E: ShardEngine> ShardWorker<E> {
    pub(super) async fn keep_beating(self: Arc<Self>) {
        while !self.is_closed() {
            let wake = self.wake.clone();
            let woken = wake.notified();
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(POLL) => {}
            }
            // Unless it is due, the heartbeat waits. Notes may have come without a word.
            let worker = self.clone();
            let done = worker.run(|worker| async move {
                if worker.is_beat_due() {
                    worker.beat().await?;
                }
                worker.read_notes().await
            });
            if let Err(error) = done.await {
                tracing::debug!(%error, "no heartbeat");
            }
        }
    }

    pub(super) fn is_beat_due(&self) -> bool {
        let (now, last) = (self.now(), self.state().last_beat);
        // A clock that went back counts as a reason, too.
        last.is_none_or(|last| now.since(last) >= HEARTBEAT || now < last)
    }

    pub(super) fn has_news(&self) -> bool {
        self.seen.load(Ordering::Acquire) != self.engine.news().count()
    }

    pub(super) async fn tick(&self, reads_news: bool) -> StoreResult<()> {
        if self.is_beat_due() {
            self.beat().await?;
        }
        match reads_news {
            true => self.read_notes().await,
            false => Ok(()),
        }
    }

    pub(super) async fn beat(&self) -> StoreResult<()> {
        let _alone = self.beating.lock().await;
        if self.is_closed() || !self.is_beat_due() {
            return Ok(());
        }
        let now = self.now();
        let report = self.engine.heartbeat(&self.node, self.number).await?;
        let Some(held) = report.held.clone() else {
            tracing::info!(node = &*self.node, "another worker with this name took over");
            self.closed.store(true, Ordering::Release);
            self.forget_all();
            return Ok(());
        };
        if report.lost_leases {
            self.write_leases_again(&held).await?;
        }
        let unknown = self.keep(&held, now);
        self.load(unknown).await?;
        self.take_some(&report, &held).await?;
        self.drain(&report, now).await?;
        self.look_at_turn(&report, now);
        Ok(())
    }

    fn forget_all(&self) {
        let mut state = self.state();
        state.held.clear();
        state.draining.clear();
        state.index.forget(|_| false);
    }

    /// Forgets what is not held any more. Answers what is held and not known here yet.
    fn keep(&self, held: &[HeldShard], now: Timestamp) -> Vec<HeldShard> {
        let mut state = self.state();
        state.last_beat = Some(now);
        let is_same = |known: &HeldShard| {
            held.iter().any(|held| held.shard == known.shard && held.nonce == known.nonce)
        };
        let lost: BTreeSet<_> =
            state.held.values().filter(|known| !is_same(known)).map(|known| known.shard).collect();
        if !lost.is_empty() {
            tracing::warn!(shards = ?lost, "shards were lost");
            state.forget_shards(&lost);
        }
        let mut unknown = Vec::new();
        for shard in held {
            match state.held.get_mut(&shard.shard) {
                Some(known) => known.acts = shard.acts,
                None => unknown.push(*shard),
            }
        }
        unknown
    }

    /// Reads what new shards have.
    async fn load(&self, shards: Vec<HeldShard>) -> StoreResult<()> {
        if shards.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = shards.iter().map(|held| held.shard).collect();
        let content = self.engine.content(&ids).await?;
        let lanes: Vec<_> = content.lanes.iter().map(|(lane, _)| *lane).collect();
        self.engine.learn_lanes(&lanes).await?;
        let now = self.now().0;
        {
            let mut state = self.state();
            state.held.extend(shards.iter().map(|held| (held.shard, *held)));
            state.index.load(&content, now);
        }
        self.wake.notify_waiters();
        Ok(())
    }

    /// Takes free shards, up to a fair share of each kind.
    async fn take_some(&self, report: &HeartbeatReport, held: &[HeldShard]) -> StoreResult<()> {
        let mut some = Vec::new();
        for kind in ShardKind::ALL {
            let is_of = |shard: &ShardId| self.kind(*shard) == kind;
            let has = held.iter().filter(|held| is_of(&held.shard)).count();
            let room = self.fair_share(kind, &report.workers).saturating_sub(has);
            some.extend(report.free.iter().copied().filter(is_of).take(room));
        }
        if some.is_empty() {
            return Ok(());
        }
        let taken = self.engine.take(&self.node, self.number, &some).await?;
        self.load(taken).await
    }

    /// Gives up what is more than a fair share, once nothing of it is leased.
    async fn drain(&self, report: &HeartbeatReport, now: Timestamp) -> StoreResult<()> {
        let drained = {
            let mut state = self.state();
            for kind in ShardKind::ALL {
                let fair = self.fair_share(kind, &report.workers);
                state.choose_surplus(|shard| self.kind(shard) == kind, fair, now);
            }
            state.drained(now)
        };
        if drained.is_empty() {
            return Ok(());
        }
        self.engine.hand_over(&drained).await?;
        let shards = drained.iter().map(|held| held.shard).collect();
        self.state().forget_shards(&shards);
        Ok(())
    }

    fn kind(&self, shard: ShardId) -> ShardKind {
        let regions = self.regions.load(Ordering::Acquire);
        match region_of(shard, regions) {
            None if shard < COMMON_SHARDS => ShardKind::Common,
            None => ShardKind::Spare,
            region if region == self.region => ShardKind::Own,
            Some(_) => ShardKind::Foreign,
        }
    }

    /// How many shards of a kind this worker holds at most.
    fn fair_share(&self, kind: ShardKind, workers: &[String]) -> usize {
        let of_region = |name: &&String| WorkerName::read(name).region == self.region;
        let neighbours = workers.iter().filter(of_region).count();
        let shards = |count: u16| usize::from(count);
        match kind {
            ShardKind::Common => fair_share(shards(COMMON_SHARDS), workers.len()),
            ShardKind::Spare => fair_share(shards(SHARDS - COMMON_SHARDS), workers.len()),
            ShardKind::Own => fair_share(shards(REGION_SHARDS), neighbours),
            ShardKind::Foreign => 0,
        }
    }

    fn look_at_turn(&self, report: &HeartbeatReport, now: Timestamp) {
        let is_free = report.suspect_until.is_none_or(|until| until <= now.0);
        let mut state = self.state();
        if is_free && state.index.suspects.has_waiting() {
            state.index.pass_turn_on(now.0);
        }
    }

    async fn write_leases_again(&self, held: &[HeldShard]) -> StoreResult<()> {
        let nonce_of =
            |shard: ShardId| held.iter().find(|held| held.shard == shard).map(|held| held.nonce);
        let leases = self.state().index.lease_records(nonce_of);
        self.engine.write_again(held, &leases).await
    }

    /// A lease was refused: somebody acted on its shards, or they are lost.
    pub(super) async fn look_at(&self, shards: &[HeldShard]) -> StoreResult<()> {
        let present = self.engine.still_held(shards).await?;
        let mut state = self.state();
        let mut lost = BTreeSet::new();
        for asked in shards {
            let found = present.iter().find(|held| held.shard == asked.shard);
            match found {
                Some(held) => {
                    if let Some(known) = state.held.get_mut(&held.shard) {
                        known.acts = held.acts;
                    }
                }
                None => drop(lost.insert(asked.shard)),
            }
        }
        if !lost.is_empty() {
            tracing::warn!(shards = ?lost, "shards were lost");
            state.forget_shards(&lost);
        }
        Ok(())
    }

    /// Reads what others changed in the queue. If there is much of it, some is left for the next time: heartbeats and
    /// leases must not wait for an end that may not come.
    pub(super) async fn read_notes(&self) -> StoreResult<()> {
        let _alone = self.beating.lock().await;
        for _ in 0..NOTE_READS {
            let (count, shards) = (self.engine.news().count(), self.state().shards());
            if self.is_closed() || shards.is_empty() {
                return Ok(());
            }
            let notes = self.engine.notes(&shards).await?;
            if notes.is_empty() {
                self.seen.store(count, Ordering::Release);
                return Ok(());
            }
            let mut lanes: Vec<_> =
                notes.iter().flat_map(|note| note.entries.iter().map(|entry| entry.lane)).collect();
            lanes.sort_unstable();
            lanes.dedup();
            self.engine.learn_lanes(&lanes).await?;
            self.apply(&notes);
            self.engine.confirm(&shards, &notes).await?;
            if notes.len() < NOTES_MIN {
                // What came meanwhile is read before the next lease: where work arrives all the time, there is no end.
                self.seen.store(count, Ordering::Release);
                return Ok(());
            }
        }
        Ok(())
    }

    fn apply(&self, notes: &[QueueNote]) {
        let now = self.now().0;
        {
            let mut state = self.state();
            for note in notes {
                for entry in &note.entries {
                    let place = (entry.due, entry.id);
                    match note.kind {
                        NoteKind::Removed => state.index.remove(entry.lane, place, now),
                        _ => state.index.add(entry.lane, place, entry.expires, now),
                    }
                }
            }
        }
        self.wake.notify_waiters();
    }

    pub(super) async fn hand_everything_over(&self) -> StoreResult<()> {
        let _alone = self.beating.lock().await;
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let held: Vec<_> = self.state().held.values().copied().collect();
        let handed_over = self.engine.hand_over(&held).await;
        self.forget_all();
        handed_over?;
        self.engine.leave(&self.node, self.number).await?;
        self.engine.news().tell();
        Ok(())
    }
}

impl WorkerState {
    fn forget_shards(&mut self, shards: &BTreeSet<ShardId>) {
        for shard in shards {
            self.held.remove(shard);
            self.draining.remove(shard);
        }
        self.index.forget(|shard| !shards.contains(&shard));
    }

    /// The last ones go first, so that the chores stay where they are.
    fn choose_surplus(&mut self, is_of: impl Fn(ShardId) -> bool, fair: usize, now: Timestamp) {
        let is_kept = |shard: &&ShardId| is_of(**shard) && !self.draining.contains_key(shard);
        let surplus = self.held.keys().filter(is_kept).count().saturating_sub(fair);
        if surplus == 0 {
            return;
        }
        let last = self.held.keys().rev().filter(is_kept);
        let chosen: Vec<_> = last.take(surplus).copied().collect();
        self.draining.extend(chosen.into_iter().map(|shard| (shard, now.0)));
        let draining = &self.draining;
        self.index.stop_leasing(|shard| !draining.contains_key(&shard));
    }

    fn drained(&self, now: Timestamp) -> Vec<HeldShard> {
        let is_drained = |(shard, since): &(&ShardId, &i64)| {
            !self.index.has_leases(**shard) || now.since(Timestamp(**since)) >= DRAINED_WITHIN
        };
        let drained = self.draining.iter().filter(is_drained);
        drained.filter_map(|(shard, _)| self.held.get(shard).copied()).collect()
    }
}

/// Shards differ by who may hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardKind {
    /// All workers.
    Common,
    /// All workers, until there is a region that has it. Deliveries of older versions are there.
    Spare,
    /// Workers of this worker's region.
    Own,
    /// Workers of another region.
    Foreign,
}

impl ShardKind {
    const ALL: [Self; 4] = [Self::Common, Self::Spare, Self::Own, Self::Foreign];
}

/// How many of these shards each of so many workers holds at most.
fn fair_share(shards: usize, workers: usize) -> usize {
    shards.div_ceil(workers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_shards() {
        for workers in 1..=100 {
            assert!(fair_share(48, workers) * workers >= 48);
        }
        assert_eq!((fair_share(48, 0), fair_share(48, 1), fair_share(48, 3)), (48, 48, 16));
        assert_eq!((fair_share(4, 1), fair_share(4, 3), fair_share(4, 9)), (4, 2, 1));
    }
}
