//! Opens problems when their signs last, and resolves them when their signs are gone for long enough. So a sign that
//! comes and goes makes one problem, not many.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::record::{ProblemKey, ProblemRecord, ProblemSign};
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// A resolved problem waits longer each time it opens again: at most so many doublings.
const DOUBLINGS_MAX: u32 = 4;
/// Problems that are open at once. Further signs wait.
const OPEN_MAX: usize = 200;
/// Those of one tenant alone: a tenant with many broken hosts hides nobody else's problems, and is one of few alerts.
const OPEN_OF_TENANT_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemTimes {
    /// A problem is resolved when its sign was not seen for so long.
    pub resolves_after: Duration,
    /// A problem that was resolved so recently is opened again instead of a new one.
    pub reopens_within: Duration,
    /// The count of an open problem is written this often.
    pub writes_every: Duration,
}

impl Default for ProblemTimes {
    fn default() -> Self {
        Self {
            resolves_after: Duration::from_secs(120),
            reopens_within: Duration::from_secs(3600),
            writes_every: Duration::from_secs(30),
        }
    }
}

/// What happened to a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemChange {
    Opened,
    /// It was resolved a short time ago.
    Reopened,
    /// Only its figures changed.
    Updated,
    Resolved,
}

/// What is remembered from one look to the next. Losing it delays a problem by a moment, and nothing else.
#[derive(Debug, Default)]
pub struct ProblemBook {
    /// Since when signs without an open problem are seen.
    pending: HashMap<ProblemKey, Timestamp>,
    /// When the signs of open problems were last seen.
    seen: HashMap<ProblemKey, Timestamp>,
}

impl ProblemBook {
    /// Applies the signs of this moment to all problems that are kept, and says which changed. A sign that cannot be
    /// judged now (its key is in `unknown`) counts as neither there nor gone.
    pub fn look(
        &mut self,
        records: &mut BTreeMap<String, ProblemRecord>,
        signs: Vec<ProblemSign>,
        unknown: impl Fn(&ProblemKey) -> bool,
        times: &ProblemTimes,
        now: Timestamp,
    ) -> Vec<(String, ProblemChange)> {
        let mut changes = Vec::new();
        let there: HashSet<ProblemKey> = signs.iter().map(|sign| sign.key.clone()).collect();
        self.pending.retain(|key, _| there.contains(key));
        let mut open = OpenCounts::of(records);
        for sign in signs {
            if let Some(record) = records.values_mut().find(|r| r.is_open() && r.key == sign.key) {
                self.seen.insert(sign.key.clone(), now);
                changes.extend(update(record, &sign, times, now));
                continue;
            }
            let since = *self.pending.entry(sign.key.clone()).or_insert(now);
            if now.since(since) < sign.key.kind.opens_after() || !open.take(&sign) {
                continue;
            }
            self.pending.remove(&sign.key);
            self.seen.insert(sign.key.clone(), now);
            changes.push(open_problem(records, &sign, since, times, now));
        }
        for record in records.values_mut().filter(|r| r.is_open() && !there.contains(&r.key)) {
            if unknown(&record.key) {
                self.seen.insert(record.key.clone(), now);
                continue;
            }
            // After a restart, what the record says counts.
            let seen = self.seen.get(&record.key).copied().unwrap_or(record.seen_at);
            if now.since(seen.max(record.seen_at)) >= resolves_after(record, times) {
                record.resolve(now);
                self.seen.remove(&record.key);
                changes.push((record.id.clone(), ProblemChange::Resolved));
            }
        }
        changes
    }
}

/// How many problems are open.
struct OpenCounts {
    all: usize,
    of_tenants: HashMap<TenantId, usize>,
}

impl OpenCounts {
    fn of(records: &BTreeMap<String, ProblemRecord>) -> Self {
        let mut counts = Self { all: 0, of_tenants: HashMap::new() };
        for record in records.values().filter(|record| record.is_open()) {
            counts.all += 1;
            if let Some(tenant) = record.only_tenant() {
                *counts.of_tenants.entry(tenant.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// Counts one more problem. False if there is no room for it.
    fn take(&mut self, sign: &ProblemSign) -> bool {
        if self.all >= OPEN_MAX {
            return false;
        }
        if sign.tenants.len() == 1
            && let Some(tenant) = sign.tenants.keys().next()
        {
            let own = self.of_tenants.entry(tenant.clone()).or_default();
            if *own >= OPEN_OF_TENANT_MAX {
                return false;
            }
            *own += 1;
        }
        self.all += 1;
        true
    }
}

/// Longer for a problem that came back.
fn resolves_after(record: &ProblemRecord, times: &ProblemTimes) -> Duration {
    times.resolves_after * (1 << record.reopened.min(DOUBLINGS_MAX))
}

fn update(
    record: &mut ProblemRecord,
    sign: &ProblemSign,
    times: &ProblemTimes,
    now: Timestamp,
) -> Option<(String, ProblemChange)> {
    let is_worse = sign.severity > record.severity;
    let is_new_tenant = sign.tenants.keys().any(|tenant| !record.tenants.contains_key(tenant))
        && record.tenants.len() < super::record::TENANTS_MAX;
    let is_due = now.since(record.seen_at) >= times.writes_every;
    if !is_worse && !is_new_tenant && !is_due {
        return None;
    }
    record.take_over(sign, now);
    Some((record.id.clone(), ProblemChange::Updated))
}

fn open_problem(
    records: &mut BTreeMap<String, ProblemRecord>,
    sign: &ProblemSign,
    since: Timestamp,
    times: &ProblemTimes,
    now: Timestamp,
) -> (String, ProblemChange) {
    let is_recent = |record: &&mut ProblemRecord| {
        let is_soon = |at: Timestamp| now.since(at) < times.reopens_within;
        record.key == sign.key && record.resolved_at.is_some_and(is_soon)
    };
    let recent = records.values_mut().filter(is_recent).max_by_key(|record| record.resolved_at);
    if let Some(record) = recent {
        record.reopen(sign, now);
        return (record.id.clone(), ProblemChange::Reopened);
    }
    let record = ProblemRecord::new(sign, since, now);
    let id = record.id.clone();
    records.insert(id.clone(), record);
    (id, ProblemChange::Opened)
}
