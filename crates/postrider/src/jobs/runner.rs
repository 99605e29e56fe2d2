//! Runs jobs. Of several workers, the one that leads does it; a server that sends nothing does it only if it has its
//! store alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{
    Consumer, DeliveryFilter, Replay, Selection, StoreError, StoreResult,
};
use postrider_core::{Delivery, DeliveryId, TenantId};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::counting::{PAGE, count, end_of_scope, narrowed, page};
use super::kept::{self, JobWrite, KeptJob};
use super::record::{JobKind, JobState, JobStep};
use crate::api::SharedState;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Jobs that run at the same time. The others wait for their turn, the oldest first.
const AT_ONCE: usize = 16;
/// What a step does is what the rate allows in this time.
const STEP: Duration = Duration::from_millis(250);
/// Pages of a count. What there is beyond is not counted.
const COUNT_PAGES: usize = 2_000;
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);
/// After so many errors in a row, a job fails.
const ERRORS_MAX: u32 = 60;

/// Whether this server runs jobs.
#[derive(Clone)]
struct Leadership {
    consumer: Option<Arc<dyn Consumer>>,
    is_shared: bool,
}

impl Leadership {
    fn holds(&self) -> bool {
        self.consumer.as_ref().map_or(!self.is_shared, |consumer| consumer.leads())
    }
}

pub(crate) async fn run_jobs(
    app: SharedState,
    consumer: Option<Arc<dyn Consumer>>,
    is_shared: bool,
) {
    let leadership = Leadership { consumer, is_shared };
    let mut running = RunningJobs(HashMap::new());
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = app.jobs_wake.notified() => {}
        }
        running.0.retain(|_, task| !task.is_finished());
        if !leadership.holds() {
            continue;
        }
        match kept::jobs(&*app.store, None).await {
            Ok(all) => running.start(&app, &leadership, all),
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "jobs could not be read"),
        }
    }
}

/// Ends with its owner: nothing goes on behind a server that is stopped.
struct RunningJobs(HashMap<String, JoinHandle<()>>);

impl Drop for RunningJobs {
    fn drop(&mut self) {
        self.0.values().for_each(JoinHandle::abort);
    }
}

impl RunningJobs {
    fn start(&mut self, app: &SharedState, leadership: &Leadership, all: Vec<KeptJob>) {
        for state in JobState::ALL {
            let jobs = all.iter().filter(|kept| kept.record.state == *state).count();
            app.metrics.jobs(state.name(), jobs as i64);
        }
        // Oldest first.
        for kept in all.into_iter().rev().filter(|kept| kept::is_runnable(&kept.record)) {
            if self.0.len() >= AT_ONCE {
                break;
            }
            self.0.entry(kept.record.id.clone()).or_insert_with(|| {
                let (app, leadership) = (app.clone(), leadership.clone());
                tokio::spawn(JobRun { app, leadership, kept, errors: 0 }.run())
            });
        }
    }
}

/// Why a run ends before its job does.
#[derive(Debug)]
enum RunEnd {
    /// The job ended, was paused, or another server has it.
    Over,
    Store(StoreError),
}

impl From<StoreError> for RunEnd {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One job that this server works on.
struct JobRun {
    app: SharedState,
    leadership: Leadership,
    kept: KeptJob,
    errors: u32,
}

impl JobRun {
    async fn run(mut self) {
        loop {
            match self.work().await {
                Ok(()) | Err(RunEnd::Over | RunEnd::Store(StoreError::Closed)) => return,
                Err(RunEnd::Store(error)) => {
                    self.errors += 1;
                    let job = &self.kept.record.id;
                    tracing::warn!(job, %error, "a step of a job failed; it is tried again");
                    if self.errors >= ERRORS_MAX {
                        let _ = self.fail(error.to_string()).await;
                        return;
                    }
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }

    async fn fail(&mut self, error: String) -> Result<(), RunEnd> {
        self.kept.record.error = Some(error);
        self.kept.record.end(JobState::Failed, self.app.clock.now());
        self.save().await
    }

    /// Works until the job ends.
    async fn work(&mut self) -> Result<(), RunEnd> {
        self.begin().await?;
        let record = &self.kept.record;
        let (kind, made, tenant) = (record.kind, record.created_at, record.tenant.clone());
        let filter = match record.filter.clone().read(&self.app, tenant.clone()).await {
            Ok(Some(filter)) => narrowed(filter, kind, made),
            Ok(None) => return self.finish().await,
            Err(problem) => return self.fail(problem.detail.clone()).await,
        };
        if kind == JobKind::Export {
            return self.count_export(&filter).await;
        }
        let Some(tenant) = tenant else {
            return self.fail("the job names no tenant".to_owned()).await;
        };
        self.repeat_step(&filter, &tenant).await?;
        if self.kept.record.progress.total.is_none() {
            let found = count(&self.app, kind, &filter, COUNT_PAGES, 0).await?;
            self.kept.record.progress.total = Some(found.count + self.kept.record.progress.done);
            self.save().await?;
        }
        let mut pace = JobPace::new();
        loop {
            if !self.leadership.holds() {
                return Err(RunEnd::Over);
            }
            let limit = match pace.next(self.kept.record.rate_per_s) {
                Ok(limit) => limit,
                Err(wait) => {
                    tokio::time::sleep(wait.min(LOOK_EVERY)).await;
                    if wait >= LOOK_EVERY {
                        self.look_for_orders().await?;
                    }
                    continue;
                }
            };
            let cursor = self.kept.record.progress.cursor;
            let page = page(&self.app, kind, &filter, cursor, limit).await?;
            let ids: Vec<_> = page.items.iter().map(|delivery| delivery.id).collect();
            if ids.is_empty() && page.next.is_some() {
                // Nothing matched among those that one call looks at.
                self.kept.record.progress.cursor = page.next;
                continue;
            }
            pace.used(ids.len());
            let step = JobStep { next: page.next, count: ids.len() as u64 };
            self.kept.record.progress.step = Some(step);
            self.save().await?;
            let done = self.act(&tenant, ids.clone()).await?;
            self.errors = 0;
            let progress = &mut self.kept.record.progress;
            progress.done += done;
            progress.failed += (ids.len() as u64).saturating_sub(done);
            progress.cursor = page.next;
            progress.step = None;
            self.app.metrics.job_items(kind.name(), done);
            if page.next.is_none() {
                return self.finish().await;
            }
        }
    }

    /// Takes the job over. Whoever ran it before stops when it finds that.
    async fn begin(&mut self) -> Result<(), RunEnd> {
        let record = &mut self.kept.record;
        record.state = JobState::Running;
        record.ended_at = None;
        record.started_at = record.started_at.or(Some(self.app.clock.now()));
        let mut run = [0; 8];
        aws_lc_rs::rand::fill(&mut run).map_err(|_| RunEnd::Over)?;
        record.progress.run = u64::from_le_bytes(run);
        match kept::write(&*self.app.store, &mut self.kept).await? {
            JobWrite::Written => Ok(()),
            // It is looked at again with the next list.
            JobWrite::Changed(_) => Err(RunEnd::Over),
        }
    }

    /// A run before this one noted a step, and may not have done all of it.
    async fn repeat_step(
        &mut self,
        filter: &DeliveryFilter,
        tenant: &TenantId,
    ) -> Result<(), RunEnd> {
        let Some(step) = self.kept.record.progress.step.clone() else { return Ok(()) };
        let kind = self.kept.record.kind;
        let mut cursor = self.kept.record.progress.cursor;
        loop {
            let page = page(&self.app, kind, filter, cursor, PAGE).await?;
            let is_of_step =
                |delivery: &&Delivery| step.next.is_none_or(|next| delivery.id >= next);
            let ids: Vec<_> = page.items.iter().filter(is_of_step).map(|found| found.id).collect();
            let is_end = ids.len() < page.items.len();
            self.act(tenant, ids).await?;
            cursor = page.next;
            let is_behind = cursor.is_none_or(|at| step.next.is_some_and(|next| at <= next));
            if is_end || is_behind {
                break;
            }
        }
        let progress = &mut self.kept.record.progress;
        progress.done += step.count;
        progress.cursor = step.next;
        progress.step = None;
        match step.next {
            Some(_) => self.save().await,
            None => {
                self.finish().await?;
                Err(RunEnd::Over)
            }
        }
    }

    /// Acts on some deliveries. What is done already is not done again.
    async fn act(&self, tenant: &TenantId, ids: Vec<DeliveryId>) -> StoreResult<u64> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (store, record) = (&self.app.store, &self.kept.record);
        match record.kind {
            JobKind::Replay => {
                let how = Replay {
                    ttl_s: record.ttl_s,
                    rate_per_s: None,
                    retry: record.retry.clone(),
                    dead_before: Some(end_of_scope(record.created_at)),
                };
                store.replay(Some(tenant), Selection::Ids(ids), how).await
            }
            JobKind::Discard => store.discard(Some(tenant), Selection::Ids(ids)).await,
            JobKind::Cancel => {
                let done = store.cancel_deliveries(Some(tenant), ids).await?;
                Ok(done.cancelled + done.in_flight)
            }
            JobKind::Export => Ok(0),
        }
    }

    /// An export is read when it is downloaded; the job says how much it is.
    async fn count_export(&mut self, filter: &DeliveryFilter) -> Result<(), RunEnd> {
        let found = count(&self.app, JobKind::Export, filter, COUNT_PAGES * 10, 0).await?;
        let progress = &mut self.kept.record.progress;
        (progress.done, progress.total) = (found.count, Some(found.count));
        self.app.metrics.job_items(JobKind::Export.name(), found.count);
        self.finish().await
    }

    async fn finish(&mut self) -> Result<(), RunEnd> {
        self.kept.record.end(JobState::Done, self.app.clock.now());
        let job = &self.kept.record.id;
        tracing::info!(job, done = self.kept.record.progress.done, "a job is done");
        self.save().await
    }

    /// Writes the job. What others ordered meanwhile is obeyed.
    async fn save(&mut self) -> Result<(), RunEnd> {
        loop {
            match kept::write(&*self.app.store, &mut self.kept).await? {
                JobWrite::Written => return Ok(()),
                JobWrite::Changed(None) => return Err(RunEnd::Over),
                JobWrite::Changed(Some(present)) => self.obey(*present).await?,
            }
        }
    }

    /// While it waits for its pace.
    async fn look_for_orders(&mut self) -> Result<(), RunEnd> {
        let (tenant, id) = (self.kept.record.tenant.clone(), self.kept.record.id.clone());
        match kept::job(&*self.app.store, tenant.as_ref(), &id).await? {
            None => Err(RunEnd::Over),
            Some(present) if present.version == self.kept.version => Ok(()),
            Some(present) => self.obey(present).await,
        }
    }

    async fn obey(&mut self, present: KeptJob) -> Result<(), RunEnd> {
        if present.record.progress.run != self.kept.record.progress.run {
            return Err(RunEnd::Over);
        }
        self.kept.version = present.version;
        self.kept.record.rate_per_s = present.record.rate_per_s;
        if kept::is_runnable(&present.record) || self.kept.record.state.is_ended() {
            return Ok(());
        }
        let stopped = &mut self.kept.record;
        stopped.state = present.record.state;
        stopped.ended_at = present.record.ended_at;
        // It is noted, but was not begun.
        stopped.progress.step = None;
        kept::write(&*self.app.store, &mut self.kept).await?;
        Err(RunEnd::Over)
    }
}

/// How many may be done now.
struct JobPace {
    allowed: f64,
    at: Instant,
}

impl JobPace {
    fn new() -> Self {
        Self { allowed: 0.0, at: Instant::now() }
    }

    /// How many the next step may have, or how long it has to wait.
    fn next(&mut self, rate_per_s: f64) -> Result<usize, Duration> {
        let wanted = (rate_per_s * STEP.as_secs_f64()).clamp(1.0, PAGE as f64);
        let now = Instant::now();
        self.allowed += rate_per_s * now.duration_since(self.at).as_secs_f64();
        // What was not used is not made up for.
        self.allowed = self.allowed.min(wanted * 2.0);
        self.at = now;
        if self.allowed >= wanted {
            return Ok((self.allowed as usize).min(PAGE));
        }
        let wait = (wanted - self.allowed) / rate_per_s.max(0.001);
        Err(Duration::from_secs_f64(wait.clamp(0.001, 3_600.0)))
    }

    fn used(&mut self, count: usize) {
        self.allowed -= count as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_and_what_was_not_used_is_not_made_up_for() {
        let mut pace = JobPace::new();
        let (mut done, end) = (0, Instant::now() + Duration::from_secs(10));
        while Instant::now() < end {
            match pace.next(100.0) {
                Ok(count) => {
                    pace.used(count);
                    done += count;
                }
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
        assert!((950..=1_050).contains(&done), "{done} in ten seconds");
        tokio::time::advance(Duration::from_secs(3_600)).await;
        let at_once = pace.next(100.0).unwrap_or_default();
        assert!((1..=50).contains(&at_once), "{at_once} after an hour");
        let mut slow = JobPace::new();
        assert!(slow.next(0.1).is_err_and(|wait| wait > Duration::from_secs(9)));
    }
}
