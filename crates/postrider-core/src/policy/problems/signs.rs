//! Turns figures into signs of trouble. A provider that is known to fail explains what fails there, so it makes one
//! sign.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{
    AccountTroubleKind, ExcusedMinutes, HeldMemory, MINUTE_MS, MinuteRow, Observations, Place,
    place,
};
use super::kind::{ProblemKind, ProblemSeverity};
use super::record::{ProblemKey, ProblemSign};
use crate::model::delivery::DeadReason;
use crate::model::time::Timestamp;
use crate::policy::rollup::{RollupFigures, RollupKind};

/// Outcomes of attempts that are failures of the provider or of ours.
const FAILURES: [&str; 4] = ["retry_backoff", "drop_message", "config", "ambiguous"];
/// Those and outcomes that are part of daily life, but may be new.
pub const FAILURE_KINDS: [&str; 6] =
    ["retry_backoff", "drop_message", "config", "ambiguous", "gone", "retry_after"];
/// Below so many, a share says nothing.
const SAMPLE_MIN: u64 = 100;

/// From when on something is a problem. 0 turns a limit off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProblemLimits {
    /// The used share of the capacity.
    pub fill: f64,
    /// New dead letters in a minute.
    pub dead_letters_per_min: u64,
    /// Failures of one kind at one provider in ten minutes.
    pub failures: u64,
    /// They are also at least this share of the attempts there.
    pub failures_share: f64,
    /// Answers with status 400 from one provider in ten minutes.
    pub bad_requests: u64,
    /// Deliveries to one provider that used up their attempts in ten minutes.
    pub exhausted: u64,
    /// An unusual depth is no problem below this.
    pub depth_unusual: u64,
    pub lag_s: f64,
    /// Objective: the share of retries that succeed.
    pub retry_success: f64,
    /// Objective: the depth at rest.
    pub depth_at_rest: u64,
    /// Objective: 95 % of the deliveries are taken up in this time.
    pub overhead_p95_ms: u64,
    /// Objective: the share of deliveries that fail for good.
    pub permanent_share: f64,
}

impl Default for ProblemLimits {
    fn default() -> Self {
        Self {
            fill: 0.8,
            dead_letters_per_min: 5,
            failures: 100,
            failures_share: 0.02,
            bad_requests: 5,
            exhausted: 10,
            depth_unusual: 1_000,
            lag_s: 30.0,
            retry_success: 0.65,
            depth_at_rest: 10_000,
            overhead_p95_ms: 500,
            permanent_share: 0.05,
        }
    }
}

/// All signs of this moment, by key.
pub fn signs(
    limits: &ProblemLimits,
    seen: &Observations<'_>,
    held: &mut HeldMemory,
) -> Vec<ProblemSign> {
    let excused = ExcusedMinutes::of(seen.rows);
    let mut all = causes(seen, held);
    let known: BTreeSet<Place> =
        all.iter().map(|sign| (sign.key.channel.clone(), sign.key.provider.clone())).collect();
    let is_explained = |at: &Place| {
        // An account that fails explains what fails in its channel.
        known.contains(at) || (at.0 == at.1 && known.iter().any(|cause| cause.0 == at.0))
    };
    let rows: Vec<&MinuteRow> = seen
        .rows
        .iter()
        .filter(|row| !excused.has(row) && !is_explained(&place(&row.key)))
        .collect();
    all.extend(at_providers(limits, seen, &rows));
    all.extend(of_server(limits, seen));
    all.extend(objectives(limits, seen, &rows));
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all.dedup_by(|a, b| a.key == b.key);
    all.iter_mut().for_each(|sign| name_tenants(sign, seen));
    all
}

/// Credentials and breakers. Of one provider, the first kind counts.
fn causes(seen: &Observations<'_>, held: &mut HeldMemory) -> Vec<ProblemSign> {
    let mut found: BTreeMap<Place, (ProblemKind, String)> = BTreeMap::new();
    let mut add = |at: Place, kind: ProblemKind, what: String| {
        let known = found.entry(at).or_insert_with(|| (kind, what.clone()));
        if kind < known.0 {
            *known = (kind, what);
        }
    };
    for (at, checks) in held.look(seen.rows, seen.now) {
        for check in checks {
            let (kind, what) = match check.as_str() {
                "credential" => (ProblemKind::CredentialFailing, "it refuses the credential"),
                "mass_gone" => (ProblemKind::MassGone, "it calls too many addresses gone"),
                "retry_storm" => (ProblemKind::RetryStorm, "hardly any retry succeeds there"),
                _ => (ProblemKind::BreakerOpen, "it fails, so its breaker is open"),
            };
            add(at.clone(), kind, format!("{}: {what}", at.1));
        }
    }
    let mut of_channel = BTreeSet::new();
    for trouble in &seen.server.accounts {
        let kind = match trouble.trouble {
            AccountTroubleKind::CredentialFails => ProblemKind::CredentialFailing,
            AccountTroubleKind::BreakerOpen => ProblemKind::BreakerOpen,
            AccountTroubleKind::CredentialEnds => continue,
        };
        of_channel.insert((trouble.channel.clone(), trouble.channel.clone()));
        add((trouble.channel.clone(), trouble.account.clone()), kind, trouble.what.clone());
    }
    // What holds a lane of a channel with accounts is told of the account.
    found.retain(|at, _| !of_channel.contains(at));
    let sign = |(at, (kind, what)): (Place, (ProblemKind, String))| {
        let (failed, retries) = failures_at(seen, &at);
        let key = ProblemKey { kind, channel: at.0, provider: at.1, outcome: String::new() };
        let attempts = match (failed, retries) {
            (0, _) => String::new(),
            (some, 0) => format!("; {some} attempts failed in the last quarter of an hour"),
            (some, retries) => format!(
                "; {some} attempts failed in the last quarter of an hour, {retries} of them retries"
            ),
        };
        ProblemSign::new(key, failed, format!("{what}{attempts}"))
    };
    found.into_iter().map(sign).collect()
}

/// Failed attempts at a provider, and how many of them were retries.
fn failures_at(seen: &Observations<'_>, at: &Place) -> (u64, u64) {
    let is_there = |row: &&MinuteRow| {
        let own = place(&row.key);
        row.key.kind == RollupKind::Attempts
            && FAILURES.contains(&&*row.key.outcome)
            && (own == *at || (own.0 == at.0 && own.0 == own.1))
    };
    let failed = seen.rows.iter().filter(is_there);
    failed.fold((0, 0), |(all, retries), row| {
        (all + row.figures.count, retries + row.figures.repeats)
    })
}

/// Sums of rows of one kind after a time, by provider and outcome.
fn sums(
    rows: &[&MinuteRow],
    kind: RollupKind,
    after: Timestamp,
) -> BTreeMap<(Place, String), RollupFigures> {
    let mut sums: BTreeMap<_, RollupFigures> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.key.kind == kind && row.at > after) {
        let name = (place(&row.key), row.key.outcome.to_string());
        sums.entry(name).or_default().add(&row.figures);
    }
    sums
}

fn minutes_ago(now: Timestamp, minutes: i64) -> Timestamp {
    Timestamp(now.0 - minutes * MINUTE_MS)
}

/// Failures at providers without a known cause. Of one provider, the first kind counts.
fn at_providers(
    limits: &ProblemLimits,
    seen: &Observations<'_>,
    rows: &[&MinuteRow],
) -> Vec<ProblemSign> {
    let ten_minutes = minutes_ago(seen.now, 10);
    let mut found = dead_letters(limits, seen, rows);
    let mut add = |kind: ProblemKind, at: &Place, outcome: &str, count: u64, what: String| {
        let (channel, provider) = at.clone();
        let key = ProblemKey { kind, channel, provider, outcome: outcome.to_owned() };
        found.push(ProblemSign::new(key, count, what));
    };
    for ((at, outcome), figures) in sums(rows, RollupKind::Deliveries, ten_minutes) {
        let count = figures.count;
        let is_exhausted = outcome == DeadReason::RetriesExhausted.name();
        if is_exhausted && limits.exhausted > 0 && count >= limits.exhausted {
            let what =
                format!("{count} deliveries to {} used up their attempts in ten minutes", at.1);
            add(ProblemKind::RetriesExhausted, &at, &outcome, count, what);
        }
    }
    let attempts = sums(rows, RollupKind::Attempts, ten_minutes);
    let mut totals: BTreeMap<&Place, u64> = BTreeMap::new();
    for ((at, _), figures) in &attempts {
        *totals.entry(at).or_default() += figures.count;
    }
    for ((at, outcome), figures) in &attempts {
        let (count, bad) = (figures.count, figures.bad_requests);
        if limits.bad_requests > 0 && bad >= limits.bad_requests {
            let what = format!("{} answered {bad} attempts with status 400 in ten minutes", at.1);
            add(ProblemKind::BadRequests, at, "status_400", bad, what);
        }
        let share = count as f64 / totals.get(at).copied().unwrap_or(1).max(1) as f64;
        let is_many = limits.failures > 0 && count > limits.failures;
        if FAILURES.contains(&outcome.as_str()) && is_many && share >= limits.failures_share {
            let percent = share * 100.0;
            let what = format!(
                "{count} attempts at {} ended as {outcome} in ten minutes, {percent:.0} % of all",
                at.1
            );
            add(ProblemKind::ManyFailures, at, outcome, count, what);
        }
        let is_kind = FAILURE_KINDS.contains(&outcome.as_str());
        if is_kind && seen.known.is_new(&at.0, outcome, seen.now) {
            let what =
                format!("{} attempts of {} ended as {outcome}, for the first time", count, at.0);
            add(ProblemKind::NewFailure, at, outcome, count, what);
        }
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    let mut explained = BTreeSet::new();
    found.retain(|sign| {
        let at = (sign.key.channel.clone(), sign.key.provider.clone());
        at.0.is_empty() || explained.insert(at)
    });
    found
}

/// Each provider with many, or the whole server if they come from many providers.
fn dead_letters(
    limits: &ProblemLimits,
    seen: &Observations<'_>,
    rows: &[&MinuteRow],
) -> Vec<ProblemSign> {
    let most = limits.dead_letters_per_min;
    if most == 0 {
        return Vec::new();
    }
    let mut worst: BTreeMap<Place, u64> = BTreeMap::new();
    let mut in_all = 0;
    for back in [0, 1] {
        let minute = minutes_ago(seen.now, back).0.div_euclid(MINUTE_MS);
        let mut counts: BTreeMap<Place, u64> = BTreeMap::new();
        for row in rows {
            let is_dead = row.key.kind == RollupKind::Deliveries
                && DeadReason::ALL.iter().any(|reason| reason.name() == &*row.key.outcome);
            if is_dead && row.at.0.div_euclid(MINUTE_MS) == minute {
                *counts.entry(place(&row.key)).or_default() += row.figures.count;
            }
        }
        in_all = in_all.max(counts.values().sum::<u64>());
        for (at, count) in counts {
            let known = worst.entry(at).or_default();
            *known = (*known).max(count);
        }
    }
    let many: Vec<_> = worst.into_iter().filter(|(_, count)| *count > most).collect();
    if many.is_empty() && in_all > most {
        let key = ProblemKey::of_server(ProblemKind::DeadLetters, "");
        let what = format!("{in_all} new dead letters in a minute, of several providers");
        return vec![ProblemSign::new(key, in_all, what)];
    }
    let sign = |(at, count): (Place, u64)| {
        let what = format!("{count} new dead letters in a minute, from {}", at.1);
        let outcome = String::new();
        let key =
            ProblemKey { kind: ProblemKind::DeadLetters, channel: at.0, provider: at.1, outcome };
        ProblemSign::new(key, count, what)
    };
    many.into_iter().map(sign).collect()
}

fn of_server(limits: &ProblemLimits, seen: &Observations<'_>) -> Vec<ProblemSign> {
    let server = seen.server;
    let mut found = Vec::new();
    let mut add = |kind, outcome: &str, count: u64, what: String| {
        found.push(ProblemSign::new(ProblemKey::of_server(kind, outcome), count, what));
    };
    let percent = |share: f64| share * 100.0;
    if limits.fill > 0.0 && server.fill > limits.fill {
        let what = format!("{:.0} % of the capacity are used", percent(server.fill));
        add(ProblemKind::Capacity, "", server.depth, what);
    }
    let unusual = server.depth_unusual_from.filter(|from| server.depth as f64 > *from);
    if let Some(from) = unusual.filter(|_| limits.depth_unusual > 0)
        && server.depth > limits.depth_unusual
    {
        let what =
            format!("{} deliveries are pending; more than {from:.0} are unusual", server.depth);
        add(ProblemKind::DepthUnusual, "", server.depth, what);
    }
    if limits.lag_s > 0.0 && server.lag_s > limits.lag_s {
        let what = format!("deliveries are taken up {:.0} s late", server.lag_s);
        add(ProblemKind::Lag, "", server.lag_s as u64, what);
    }
    for (code, what) in &server.store {
        add(ProblemKind::Store, code, 1, what.clone());
    }
    for (tenant, fill) in &server.full_tenants {
        let key = ProblemKey::of_server(ProblemKind::Capacity, tenant.as_str());
        let what = format!("{tenant} uses {:.0} % of its capacity", percent(*fill));
        let mut sign = ProblemSign::new(key, 1, what);
        sign.severity = ProblemSeverity::Warning;
        sign.tenants.insert(tenant.clone(), 1);
        found.push(sign);
    }
    for trouble in &server.accounts {
        if trouble.trouble == AccountTroubleKind::CredentialEnds {
            let key = ProblemKey {
                kind: ProblemKind::CredentialExpiring,
                channel: trouble.channel.clone(),
                provider: trouble.account.clone(),
                outcome: String::new(),
            };
            found.push(ProblemSign::new(key, 1, trouble.what.clone()));
        }
    }
    found
}

fn objectives(
    limits: &ProblemLimits,
    seen: &Observations<'_>,
    rows: &[&MinuteRow],
) -> Vec<ProblemSign> {
    let mut found = Vec::new();
    let mut missed = |name: &str, count: u64, what: String| {
        let key = ProblemKey::of_server(ProblemKind::Objective, name);
        found.push(ProblemSign::new(key, count, what));
    };
    let (mut retries, mut retried) = (0, 0);
    let (mut ends, mut permanent) = (0, 0);
    for row in rows {
        let outcome = &*row.key.outcome;
        match row.key.kind {
            RollupKind::Attempts => {
                retries += row.figures.repeats;
                retried += if outcome == "accepted" { row.figures.repeats } else { 0 };
            }
            RollupKind::Deliveries => {
                ends += row.figures.count;
                let is_permanent = outcome == DeadReason::Permanent.name();
                permanent += if is_permanent { row.figures.count } else { 0 };
            }
            _ => {}
        }
    }
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let success = share(retried, retries);
    if limits.retry_success > 0.0 && retries >= SAMPLE_MIN && success < limits.retry_success {
        let what = format!("{:.0} % of {retries} retries succeeded", success * 100.0);
        missed("retry_success", retries - retried, what);
    }
    let failing = share(permanent, ends);
    if limits.permanent_share > 0.0 && ends >= SAMPLE_MIN && failing > limits.permanent_share {
        let what = format!("{:.0} % of {ends} deliveries failed for good", failing * 100.0);
        missed("permanent_failures", permanent, what);
    }
    if let Some(depth) = seen.server.depth_lowest
        && limits.depth_at_rest > 0
        && depth >= limits.depth_at_rest
    {
        missed("depth", depth, format!("at least {depth} deliveries were pending for 15 minutes"));
    }
    let mut overhead = RollupFigures::default();
    let five_minutes = minutes_ago(seen.now, 5);
    let late = seen.rows.iter().filter(|row| row.key.kind == RollupKind::Overhead);
    late.filter(|row| row.at > five_minutes).for_each(|row| overhead.add(&row.figures));
    let in_time = share(overhead.times.at_most(limits.overhead_p95_ms), overhead.count);
    if limits.overhead_p95_ms > 0 && overhead.count >= SAMPLE_MIN && in_time < 0.95 {
        let what = format!(
            "only {:.0} % were taken up within {} ms",
            in_time * 100.0,
            limits.overhead_p95_ms
        );
        missed("overhead", overhead.count - overhead.times.at_most(limits.overhead_p95_ms), what);
    }
    found
}

/// Whom a sign at a provider concerns: the tenants that have such rows now.
fn name_tenants(sign: &mut ProblemSign, seen: &Observations<'_>) {
    if sign.key.channel.is_empty() {
        return;
    }
    let at = (sign.key.channel.clone(), sign.key.provider.clone());
    for (tenant, row) in seen.of_tenants {
        let own = place(&row.key);
        let is_there = own == at || (own.0 == at.0 && own.0 == own.1);
        let outcome = &*row.key.outcome;
        let is_bad = match row.key.kind {
            RollupKind::Held => true,
            RollupKind::Attempts => FAILURE_KINDS.contains(&outcome),
            RollupKind::Deliveries => DeadReason::ALL.iter().any(|reason| reason.name() == outcome),
            RollupKind::Overhead => false,
        };
        if is_there && is_bad {
            let count = if row.key.kind == RollupKind::Held { 0 } else { row.figures.count };
            *sign.tenants.entry(tenant.clone()).or_default() += count;
        }
    }
    for trouble in &seen.server.accounts {
        if let (true, Some(tenant)) = (trouble.account == at.1, &trouble.tenant) {
            sign.tenants.entry(tenant.clone()).or_default();
        }
    }
}
