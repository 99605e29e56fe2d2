//! Looks for problems every five seconds. Of several workers, the one that leads does it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::problems::signs::FAILURE_KINDS;
use postrider_core::policy::problems::{
    DepthBaseline, HeldMemory, KnownFailures, MinuteRow, Observations, ProblemBook, ProblemChange,
    ProblemKey, ProblemKind, ProblemRecord, ProblemSeverity, signs,
};
use postrider_core::policy::rollup::RollupKind;
use postrider_core::ports::store::{
    Consumer, DocumentVersion, RollupFilter, RollupOwner, RollupSpan, StoreResult,
};
use postrider_core::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::figures;
use super::kept::{self, ProblemNews, kept_problems};
use crate::alerts;
use crate::api::SharedState;
use crate::documents::overwrite;
use crate::events::LoggedEvent;
use crate::rollups::points;

const EVERY: Duration = Duration::from_secs(5);
/// Minutes of the history that a look reads, and that depths are kept for.
const MINUTES: i64 = 15;
/// Minutes in which tenants are looked for.
const TENANT_MINUTES: i64 = 2;
/// Rows that a look reads. More say no more.
const ROWS_MAX: usize = 100_000;
/// Problems that are kept. The oldest of the resolved ones go first.
const KEPT_MAX: usize = 500;
const MEMORY: &str = "problems/memory";
const MEMORY_EVERY: Duration = Duration::from_secs(600);

/// A server that sends nothing does it only if it has its store alone.
pub(crate) async fn watch(app: SharedState, consumer: Option<Arc<dyn Consumer>>, is_shared: bool) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut monitor = None;
    loop {
        every.tick().await;
        if consumer.as_ref().map_or(is_shared, |consumer| !consumer.leads()) {
            monitor = None;
            continue;
        }
        let looked = match &mut monitor {
            Some(monitor) => ProblemMonitor::look(monitor, &app).await,
            None => ProblemMonitor::new(&app).await.map(|new| monitor = Some(new)),
        };
        if let Err(error) = looked {
            tracing::warn!(%error, "problems could not be looked for");
        }
    }
}

/// What is remembered across restarts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ProblemMemory {
    depth: DepthBaseline,
    failures: KnownFailures,
}

struct ProblemMonitor {
    book: ProblemBook,
    held: HeldMemory,
    memory: ProblemMemory,
    memory_written: Timestamp,
    /// The depth of each of the last minutes.
    depths: VecDeque<(Timestamp, u64)>,
}

/// Rows of the server, and of tenants.
type HistoryRows = (Vec<MinuteRow>, Vec<(TenantId, MinuteRow)>);

impl ProblemMonitor {
    async fn new(app: &SharedState) -> StoreResult<Self> {
        let documents = app.store.documents(MEMORY).await?;
        let text = documents.first().and_then(|document| document.json.as_deref());
        let memory = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Ok(Self {
            book: ProblemBook::default(),
            held: HeldMemory::default(),
            memory,
            memory_written: app.clock.now(),
            depths: VecDeque::new(),
        })
    }

    async fn look(&mut self, app: &SharedState) -> StoreResult<()> {
        let now = app.clock.now();
        let history = rows(app, now).await;
        let is_history_known = history.is_ok();
        let (rows, of_tenants) = history.unwrap_or_else(|error| {
            tracing::debug!(%error, "problems are looked for without the history");
            HistoryRows::default()
        });
        let limits = app.config().problems.limits();
        let tenants: BTreeSet<_> = of_tenants.iter().map(|(tenant, _)| tenant.clone()).collect();
        let mut server = figures::of_server(app, &tenants, limits.fill);
        server.depth_unusual_from = self.memory.depth.unusual_from();
        server.depth_lowest = self.note_depth(server.depth, now);
        let has_learned = self.note_failures(&rows, now);
        let seen = Observations {
            now,
            rows: &rows,
            of_tenants: &of_tenants,
            server: &server,
            known: &self.memory.failures,
        };
        let signs = signs(&limits, &seen, &mut self.held);
        let kept = kept_problems(&*app.store).await?;
        let versions: HashMap<String, DocumentVersion> =
            kept.iter().map(|kept| (kept.record.id.clone(), kept.version)).collect();
        let mut records: BTreeMap<_, _> =
            kept.into_iter().map(|kept| (kept.record.id.clone(), kept.record)).collect();
        let unknown = |key: &ProblemKey| !is_history_known && is_of_history(key);
        let times = app.config().problems.times();
        let changes = self.book.look(&mut records, signs, unknown, &times, now);
        for (id, change) in changes {
            let Some(record) = records.get(&id) else { continue };
            let expected = versions.get(&id).copied().unwrap_or(DocumentVersion::NONE);
            // Before it is written: after a crash it is told again.
            app.events.note(LoggedEvent::of_problem(&change, record)).await;
            // What somebody else changed meanwhile is looked at again in five seconds.
            if kept::write(&*app.store, record, expected).await? {
                report(app, ProblemNews { change, record: record.clone() });
            }
        }
        self.forget_old(app, &records).await?;
        show(app, &records, now);
        // As they are kept: what was not written is not told.
        let kept = kept_problems(&*app.store).await?.into_iter().map(|kept| kept.record);
        let kept: Vec<_> = kept.collect();
        if kept.iter().any(|record| record.alert_due.is_some()) {
            alerts::send_due(app, &kept).await?;
        }
        alerts::follow_up(app).await?;
        if has_learned || now.since(self.memory_written) >= MEMORY_EVERY {
            self.memory_written = now;
            let json = serde_json::to_string(&self.memory).unwrap_or_default();
            overwrite(&*app.store, MEMORY, Some(&json)).await?;
        }
        Ok(())
    }

    /// One sample per minute. Answers the lowest of the last quarter of an hour.
    fn note_depth(&mut self, depth: u64, now: Timestamp) -> Option<u64> {
        let minute = RollupSpan::Minute.begin(now);
        if self.depths.back().is_none_or(|(at, _)| *at < minute) {
            self.memory.depth.learn(depth);
            self.depths.push_back((minute, depth));
        }
        let oldest = Timestamp(minute.0 - MINUTES * RollupSpan::Minute.ms());
        self.depths.retain(|(at, _)| *at > oldest);
        let is_long_enough = self.depths.len() >= MINUTES as usize;
        self.depths.iter().map(|(_, depth)| *depth).min().filter(|_| is_long_enough)
    }

    fn note_failures(&mut self, rows: &[MinuteRow], now: Timestamp) -> bool {
        let mut has_learned = false;
        for row in rows {
            let is_failure = FAILURE_KINDS.contains(&&*row.key.outcome);
            if row.key.kind == RollupKind::Attempts && is_failure {
                has_learned |= self.memory.failures.note(&row.key.channel, &row.key.outcome, now);
            }
        }
        has_learned
    }

    async fn forget_old(
        &self,
        app: &SharedState,
        records: &BTreeMap<String, ProblemRecord>,
    ) -> StoreResult<()> {
        let mut resolved: Vec<_> = records.values().filter(|record| !record.is_open()).collect();
        resolved.sort_by_key(|record| record.resolved_at);
        let excess = records.len().saturating_sub(KEPT_MAX);
        for record in resolved.into_iter().take(excess) {
            kept::delete(&*app.store, &record.id).await?;
        }
        Ok(())
    }
}

/// Whether it is judged by the history.
fn is_of_history(key: &ProblemKey) -> bool {
    use ProblemKind::{Capacity, CredentialExpiring, DepthUnusual, Lag, Store};
    !matches!(key.kind, Capacity | CredentialExpiring | DepthUnusual | Lag | Store)
}

async fn rows(app: &SharedState, now: Timestamp) -> StoreResult<HistoryRows> {
    let (mut of_server, mut of_tenants) = HistoryRows::default();
    let minute = RollupSpan::Minute.begin(now);
    let filter = |minutes: i64, of| RollupFilter {
        span: RollupSpan::Minute,
        from: Timestamp(minute.0 - minutes * RollupSpan::Minute.ms()),
        until: Timestamp(minute.0 + RollupSpan::Minute.ms()),
        of,
    };
    points(&*app.store, filter(MINUTES, RollupOwner::Server), now, |point| {
        let (at, key, figures) = (point.at, point.key.clone(), *point.figures);
        of_server.push(MinuteRow { at, key, figures });
        of_server.len() < ROWS_MAX
    })
    .await?;
    points(&*app.store, filter(TENANT_MINUTES - 1, RollupOwner::Everybody), now, |point| {
        if let Some(tenant) = point.tenant {
            let (at, key, figures) = (point.at, point.key.clone(), *point.figures);
            of_tenants.push((tenant.clone(), MinuteRow { at, key, figures }));
        }
        of_tenants.len() < ROWS_MAX
    })
    .await?;
    Ok((of_server, of_tenants))
}

/// Tells logs and metrics of a change.
fn report(app: &SharedState, news: ProblemNews) {
    let ProblemNews { change, record } = &news;
    let (problem, kind, what) = (&record.id, record.key.kind.name(), &record.what);
    match change {
        ProblemChange::Opened | ProblemChange::Reopened => {
            app.metrics.problem_opened(record.key.kind.name());
            tracing::warn!(problem, kind, what, "a problem opened");
        }
        ProblemChange::Resolved => {
            tracing::info!(problem, kind, what, "a problem is resolved");
        }
        ProblemChange::Updated => {}
    }
}

/// Sets the metrics of open problems.
fn show(app: &SharedState, records: &BTreeMap<String, ProblemRecord>, now: Timestamp) {
    let open = records.values().filter(|record| record.is_open() && !record.is_muted(now));
    let mut counts: HashMap<ProblemSeverity, i64> = HashMap::new();
    open.for_each(|record| *counts.entry(record.severity).or_default() += 1);
    for severity in ProblemSeverity::ALL {
        let count = counts.get(&severity).copied().unwrap_or(0);
        app.metrics.problems_open(severity.name(), count);
    }
}
