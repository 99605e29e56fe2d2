//! What holds at every moment of the run with sickness, in each world: seen from outside, by the calls on
//! the simulated network and by what the lanes report. Samples the lanes; changes nothing.

mod facts;
mod free_attempts;
mod idle_places;
mod limit_cuts;
mod limit_floor;
mod neighbours;
mod openings;
mod probes;
mod recovery;
mod shares;
mod sick_calls;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::LaneKey;
use postrider_dispatch::Lanes;
use postrider_dispatch::lanes::{BreakerScope, LaneEvent, LaneReport};
use tokio::time::sleep;

use super::bounds::BrokenBound;
use super::network::{SimNetwork, WireCall};
use super::plan::HarmPlan;
use super::run::lane_of;
use super::traffic::Arrival;
use facts::PlanFacts;
pub(crate) use free_attempts::CountedFailures;
use idle_places::IdlePlaces;
pub(crate) use limit_cuts::CUT_UNDONE;
use limit_cuts::LimitCuts;
use probes::{OpenBreakers, ProbedAddresses};
pub(crate) use shares::BRISK_MS;
use shares::{OriginShare, PlaceShares};

/// How often the lanes are looked at.
const LOOK_MS: i64 = 125;
/// Lanes looked at each time, and how often those that need not wait are.
const LANES_AT_ONCE: usize = 8;
const CALM_LOOK_MS: i64 = 1_000;
const CAUSES_SHOWN: usize = 3;

pub(crate) struct InvariantWatch {
    plan: Arc<HarmPlan>,
    facts: PlanFacts,
    lanes: Arc<Lanes>,
    network: Arc<SimNetwork>,
    state: Mutex<InvariantState>,
}

#[derive(Default)]
struct InvariantState {
    broken: Vec<BrokenBound>,
    idle_places: IdlePlaces,
    limit_cuts: LimitCuts,
    shares: PlaceShares,
    open_breakers: OpenBreakers,
    /// Origins that were found down and well again.
    were_down: HashSet<u32>,
    /// Why healthy deliveries waited, by how often they were found so.
    held_by: HashMap<String, usize>,
    /// Healthy arrivals that are due and not written yet.
    waiting: Vec<u32>,
    /// The arrivals before this one are due.
    due: usize,
    /// Which lanes are looked at next.
    next: usize,
    /// Recoveries that were looked at.
    recovered: usize,
}

impl InvariantWatch {
    pub(crate) fn new(
        plan: Arc<HarmPlan>,
        lanes: Arc<Lanes>,
        network: Arc<SimNetwork>,
    ) -> Arc<Self> {
        let facts = PlanFacts::of(&plan);
        Arc::new(Self { plan, facts, lanes, network, state: Mutex::default() })
    }

    /// The run has to go on until then.
    pub(crate) fn ends_at(&self) -> i64 {
        self.facts.recoveries.last().map_or(0, |(at, _)| at + LOOK_MS)
    }

    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            sleep(Duration::from_millis(LOOK_MS as u64)).await;
            self.look();
        }
    }

    pub(crate) fn lane_event(&self, lane: &LaneKey, event: LaneEvent) {
        let is_quiet = |name: &str| self.facts.is_of_one_tenant(name);
        self.note(neighbours::event(&lane.provider, event, is_quiet));
        if let LaneEvent::BreakerClosed { scope: BreakerScope::Provider } = event {
            let is_meant = |a: &&Arrival| self.plan.origin_name(a.origin).1 == *lane.provider;
            let origin = self.plan.arrivals.iter().find(is_meant).map(|arrival| arrival.origin);
            self.state().were_down.extend(origin);
        }
        let now = self.network.clock.elapsed();
        let again = self.state().open_breakers.opens_again(lane, event, now);
        let Some((scope, since)) = again else { return };
        let is_probed = |arrival: &Arrival| {
            let is_own = self.plan.tenant_name(arrival.tenant) == *lane.tenant.to_string();
            self.plan.origin_name(arrival.origin).1 == *lane.provider
                && (is_own || scope == BreakerScope::Provider)
        };
        let round = self.network.addresses_called(since + probes::UNDER_WAY_MS, is_probed);
        let tried = self.state().open_breakers.probed(lane, scope, round.clone());
        self.note(self.better_probe(lane, scope, &round, &tried));
    }

    /// A delivery that would have succeeded as a probe and was no worse choice than one of these addresses, which
    /// all failed. `tried` are those of the rounds before.
    fn better_probe(
        &self,
        lane: &LaneKey,
        scope: BreakerScope,
        round: &ProbedAddresses,
        tried: &ProbedAddresses,
    ) -> Option<BrokenBound> {
        let now = self.network.clock.elapsed();
        let mut due =
            probes::would_succeed(&self.facts.healing, lane, scope, now - self.facts.probe_ms);
        let id = due.find(|id| {
            let arrival = &self.plan.arrivals[*id as usize];
            let address = (arrival.tenant, arrival.address);
            let is_new = !round.contains(&address) && !tried.contains(&address);
            is_new && !self.network.is_written(*id) && self.network.has_served(arrival)
        })?;
        let Arrival { tenant, origin, address, .. } = self.plan.arrivals[id as usize];
        let is_worse = |probe: &(u32, u32)| {
            tried.contains(probe) || !self.network.has_served_at(origin, *probe)
        };
        if round.len() >= probes::PROBES && !round.iter().any(is_worse) {
            return None;
        }
        let whose = scope.name();
        let detail = format!(
            "{whose}'s breaker at o{origin} opens again at {now} ms; t{tenant}, address {address} is well"
        );
        Some(BrokenBound { bound: "probes can succeed", detail })
    }

    /// What was broken, with what the calls tell afterwards.
    pub(crate) fn broken(&self, calls: &[WireCall], counted: &CountedFailures) -> Vec<BrokenBound> {
        self.note(free_attempts::check(&self.plan, calls, counted));
        self.note(openings::check(&self.plan, calls, &self.network.failed_openings()));
        sick_calls::check(&self.plan, calls).into_iter().for_each(|broken| self.note(Some(broken)));
        std::mem::take(&mut self.state().broken)
    }

    /// What held healthy deliveries most often.
    pub(crate) fn held_by(&self) -> Vec<(String, usize)> {
        let mut causes: Vec<_> = self.state().held_by.drain().collect();
        causes.sort_by(|(a, n), (b, m)| m.cmp(n).then(a.cmp(b)));
        causes.truncate(CAUSES_SHOWN);
        causes
    }

    fn state(&self) -> MutexGuard<'_, InvariantState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first of each kind.
    fn note(&self, broken: Option<BrokenBound>) {
        let mut state = self.state();
        let is_new = |b: &BrokenBound| state.broken.iter().all(|known| known.bound != b.bound);
        if let Some(broken) = broken.filter(is_new) {
            state.broken.push(broken);
        }
    }

    fn report(&self, arrival: &Arrival) -> LaneReport {
        self.lanes.report(&lane_of(&self.plan, arrival))
    }

    fn look(&self) {
        let now = self.network.clock.elapsed();
        self.look_at_waiting(now);
        self.look_at_shares(now);
        if now % CALM_LOOK_MS < LOOK_MS {
            self.look_at_lanes(now);
            self.look_at_limits(now);
        }
        self.look_at_recoveries(now);
    }

    /// Healthy deliveries that wait: the oldest, and the oldest of those that nothing sick concerns.
    fn look_at_waiting(&self, now: i64) {
        let (oldest, apart) = {
            let mut state = self.state();
            while let Some(arrival) = self.plan.arrivals.get(state.due) {
                if arrival.at_ms > now {
                    break;
                }
                state.due += 1;
                if !arrival.sick {
                    state.waiting.push(arrival.id);
                }
            }
            state.waiting.retain(|id| !self.network.is_written(*id));
            let late = |id: &&u32| now - self.plan.arrivals[**id as usize].at_ms >= 2 * LOOK_MS;
            let late = || state.waiting.iter().filter(late).copied();
            let is_apart =
                |id: &u32| self.facts.is_apart_from_sick(&self.plan.arrivals[*id as usize]);
            let oldest: Vec<_> = late().take(LANES_AT_ONCE).collect();
            (oldest, late().filter(is_apart).take(LANES_AT_ONCE).collect::<Vec<_>>())
        };
        for id in oldest {
            let cause = wait_cause(&self.report(&self.plan.arrivals[id as usize]));
            *self.state().held_by.entry(cause).or_default() += 1;
        }
        for id in apart {
            let arrival = &self.plan.arrivals[id as usize];
            let report = self.report(arrival);
            let seen = self.network.origin_seen(arrival.origin);
            let given_back = self.network.given_back(id);
            let rests = given_back.is_some_and(|at| now - at < idle_places::REST_MS);
            let (standing, places) = (self.network.standing(), self.plan.places());
            let is_free = !rests && idle_places::is_free(&seen, &report, standing, places);
            let broken = self.state().idle_places.waits(arrival, is_free, &report, now);
            self.note(broken);
        }
    }

    /// Lanes of healthy work, some each time.
    fn look_at_lanes(&self, now: i64) {
        let lanes = &self.facts.healthy_lanes;
        let from = {
            let mut state = self.state();
            state.next += LANES_AT_ONCE;
            state.next - LANES_AT_ONCE
        };
        for nth in from..from + LANES_AT_ONCE.min(lanes.len()) {
            let arrival = &self.plan.arrivals[lanes[nth % lanes.len()] as usize];
            if arrival.at_ms > now {
                continue;
            }
            let report = self.report(arrival);
            let seen = self.network.origin_seen(arrival.origin);
            let was_down = self.state().were_down.contains(&arrival.origin);
            self.note(limit_floor::check(&seen, was_down, &report, now));
            if self.facts.is_apart_from_sick(arrival) {
                self.note(neighbours::check(arrival, &report, now));
            }
        }
    }

    /// The oldest healthy delivery of some lanes that wait.
    fn look_at_shares(&self, now: i64) {
        let arrival = |id: &u32| &self.plan.arrivals[*id as usize];
        let waiting: Vec<_> = self.state().waiting.iter().map(arrival).collect();
        let mut lanes = HashSet::new();
        let late = waiting.iter().filter(|a| now - a.at_ms >= 2 * LOOK_MS);
        let apart = late.filter(|a| self.facts.is_shared_and_apart(a));
        let oldest = apart.filter(|a| lanes.insert((a.tenant, a.origin, a.class)));
        for arrival in oldest.take(LANES_AT_ONCE) {
            let is_beside = |a: &&&Arrival| (a.origin, a.class) == (arrival.origin, arrival.class);
            let tenants = waiting.iter().filter(is_beside).map(|a| a.tenant).collect();
            let report = self.report(arrival);
            let rests = self.network.given_back(arrival.id);
            let rests = rests.is_some_and(|at| now - at < idle_places::REST_MS);
            let has_connection = self.network.origin_seen(arrival.origin).has_connection;
            let has_place = self.network.standing() * 5 < self.plan.places();
            let share = OriginShare {
                plan: &self.plan,
                waiting: &tenants,
                tenants: self.facts.tenants_at(arrival.origin),
                standing: &self.network.standing_at(arrival.origin),
                now,
            };
            let has_room = has_place && has_connection && !rests;
            let broken = self.state().shares.waits(arrival, has_room, &report, &share);
            self.note(broken);
        }
    }

    /// Origins where nothing depends on our load.
    fn look_at_limits(&self, now: i64) {
        for steady in &self.facts.steady {
            let report = self.report(&self.plan.arrivals[steady.arrival as usize]);
            let accepted_at = self.network.origin_seen(steady.origin).accepted_at;
            let broken = self.state().limit_cuts.look(*steady, &report, accepted_at, now);
            self.note(broken);
        }
    }

    /// What should be well again by now.
    fn look_at_recoveries(&self, now: i64) {
        let due = {
            let mut state = self.state();
            let from = state.recovered;
            let is_due = |(at, _): &&(i64, u32)| *at <= now;
            state.recovered += self.facts.recoveries[from..].iter().take_while(is_due).count();
            &self.facts.recoveries[from..state.recovered]
        };
        for (_, id) in due {
            let arrival = &self.plan.arrivals[*id as usize];
            let is_due = !self.network.is_written(*id) && self.network.has_served(arrival);
            self.note(recovery::check(arrival, is_due, &self.report(arrival), now));
        }
    }
}

/// What holds a lane, in words without numbers.
fn wait_cause(report: &LaneReport) -> String {
    let Some(verdict) = report.held_by() else { return "nothing".into() };
    let detail = verdict.detail.split(|c: char| c.is_ascii_digit()).filter(|part| part.len() > 1);
    format!("{}: {}", verdict.gate.name(), detail.collect::<Vec<_>>().join("#"))
}

#[cfg(test)]
mod tests;
