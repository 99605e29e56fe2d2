//! Checks the gates of each provider: `Retry-After`, breakers, refused credentials, orders of operators.
//! Learns their state from answers and lane events; never asks the lanes.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::policy::classify::RetryAfterMax;
use postrider_core::{Scope, Signal, Timestamp};
use postrider_dispatch::{BreakerScope, LaneEvent};

use super::{CheckResult, EventTime, Oracle, check};

/// Calls that may try at once whether a provider works again.
const PROBES_MAX: usize = 3;

/// Calls that ask after `since` must wait until `until`.
#[derive(Debug, Clone, Copy)]
struct GateClosure {
    since: u64,
    until: Timestamp,
}

impl GateClosure {
    fn holds(self, asked: EventTime) -> bool {
        asked.seq > self.since && asked.at < self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct OpenBreaker {
    closure: GateClosure,
    /// Running calls that passed since then.
    probes: usize,
    /// At least one of them did not fail.
    eased: bool,
}

impl OpenBreaker {
    fn new(closure: GateClosure) -> Self {
        Self { closure, probes: 0, eased: false }
    }

    /// Checks a call that was permitted at that time.
    fn passed(&mut self, asked: EventTime) -> CheckResult {
        if asked.seq <= self.closure.since {
            return Ok(());
        }
        check(!self.closure.holds(asked), "no call through an open breaker", || {
            format!("open until {}, called at {}", self.closure.until, asked.at)
        })?;
        // Once a probe passed, the time is over, even if the clock jumps.
        self.closure.until = Timestamp::default();
        self.probes += 1;
        check(self.eased || self.probes <= PROBES_MAX, "a few probes at a time", || {
            format!("{} calls at once to a provider that has not answered yet", self.probes)
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct ExpectedGates {
    pub(super) in_flight: usize,
    opened: Option<OpenBreaker>,
    forced: Option<(u64, BreakerOverride)>,
    tenants: BTreeMap<usize, ExpectedTenantGates>,
    /// Paused lanes (tenant, class), and since when.
    paused: BTreeMap<(usize, usize), u64>,
}

#[derive(Debug, Default)]
struct ExpectedTenantGates {
    opened: Option<OpenBreaker>,
    rest: Option<GateClosure>,
    refused: Option<GateClosure>,
}

impl ExpectedGates {
    /// Checks a call whose gates were asked at that time.
    pub(super) fn passed(&mut self, tenant: usize, class: usize, asked: EventTime) -> CheckResult {
        let paused = self.paused.get(&(tenant, class)).is_some_and(|since| asked.seq > *since);
        check(!paused, "nothing is sent from a paused lane", || format!("tenant {tenant}"))?;
        let shut =
            self.forced.is_some_and(|(since, f)| f == BreakerOverride::Open && asked.seq > since);
        check(!shut, "no call through a breaker that was forced open", String::new)?;
        let own = self.tenants.get(&tenant);
        let rest = own.and_then(|own| own.rest).filter(|closure| closure.holds(asked));
        check(rest.is_none(), "Retry-After holds for its whole scope", || {
            let until = rest.map(|closure| closure.until).unwrap_or_default();
            format!("Retry-After until {until}, called at {} for tenant {tenant}", asked.at)
        })?;
        let refused = own.and_then(|own| own.refused).filter(|closure| closure.holds(asked));
        check(refused.is_none(), "no call with a refused credential before its time", || {
            format!("tenant {tenant} at {}", asked.at)
        })?;
        if let Some(own) = self.tenants.get_mut(&tenant) {
            own.refused = own.refused.filter(|closure| asked.seq < closure.since);
        }
        self.probe(tenant, asked)
    }

    fn probe(&mut self, tenant: usize, asked: EventTime) -> CheckResult {
        if self.forced.is_some_and(|(_, forced)| forced == BreakerOverride::Closed) {
            return Ok(());
        }
        self.open_breakers(tenant).try_for_each(|opened| opened.passed(asked))
    }

    pub(super) fn learned(&mut self, tenant: usize, asked: EventTime, signal: Signal) {
        let opened = self.open_breakers(tenant).filter(|o| asked.seq > o.closure.since);
        opened.for_each(|opened| opened.eased |= !signal.is_failure());
    }

    pub(super) fn call_ended(&mut self, tenant: usize, asked: EventTime) {
        let opened = self.open_breakers(tenant).filter(|o| asked.seq > o.closure.since);
        opened.for_each(|opened| opened.probes = opened.probes.saturating_sub(1));
    }

    /// The breakers that concern a tenant's calls: the provider's and its own.
    fn open_breakers(&mut self, tenant: usize) -> impl Iterator<Item = &mut OpenBreaker> {
        let own = self.tenants.get_mut(&tenant).and_then(|own| own.opened.as_mut());
        self.opened.as_mut().into_iter().chain(own)
    }

    fn opened(&mut self, scope: BreakerScope, tenant: usize) -> &mut Option<OpenBreaker> {
        match scope {
            BreakerScope::Provider => &mut self.opened,
            BreakerScope::Tenant => &mut self.tenants.entry(tenant).or_default().opened,
        }
    }

    pub(super) fn retry_after_received(
        &mut self,
        tenant: usize,
        scope: Scope,
        after: Duration,
        at: EventTime,
    ) {
        let until = at.at + after.min(RetryAfterMax::default().of(scope));
        // What one tenant is told holds for others only if a second one is told so, too.
        let rest = &mut self.tenants.entry(tenant).or_default().rest;
        // The longest wait holds.
        if rest.is_none_or(|closure| closure.until < until) {
            *rest = Some(GateClosure { since: at.seq, until });
        }
    }
}

impl Oracle {
    /// A lane reported an event of its provider or credential.
    pub(crate) fn lane_reported(
        &mut self,
        tenant: usize,
        provider: usize,
        event: LaneEvent,
        now: Timestamp,
    ) {
        let event_time = self.next_event(now);
        let gates = &mut self.gates[provider];
        let closure = |until| GateClosure { since: event_time.seq, until };
        match event {
            LaneEvent::BreakerOpened { scope, until } => {
                *gates.opened(scope, tenant) = Some(OpenBreaker::new(closure(until)));
            }
            LaneEvent::RetryStorm { until } => {
                let opened = gates.opened(BreakerScope::Tenant, tenant);
                *opened = Some(OpenBreaker::new(closure(until)));
            }
            LaneEvent::BreakerClosed { scope } => *gates.opened(scope, tenant) = None,
            LaneEvent::CredentialRefused { until } | LaneEvent::MassGone { until } => {
                gates.tenants.entry(tenant).or_default().refused = Some(closure(until));
            }
            LaneEvent::CredentialAccepted => {
                gates.tenants.entry(tenant).or_default().refused = None;
            }
            LaneEvent::LeftAlone { .. } => {}
        }
    }

    pub(crate) fn forced(
        &mut self,
        provider: usize,
        forced: Option<BreakerOverride>,
        now: Timestamp,
    ) {
        let event_time = self.next_event(now);
        let gates = &mut self.gates[provider];
        if gates.forced.is_some_and(|(_, was)| was == BreakerOverride::Closed) {
            gates.opened = None;
            gates.tenants.values_mut().for_each(|own| own.opened = None);
        }
        gates.forced = forced.map(|forced| (event_time.seq, forced));
        if forced == Some(BreakerOverride::Closed) {
            gates.tenants.values_mut().for_each(|own| own.rest = None);
        }
    }

    pub(crate) fn renewed(&mut self, tenant: usize) {
        for gates in &mut self.gates {
            gates.tenants.entry(tenant).or_default().refused = None;
        }
    }

    pub(crate) fn paused(&mut self, tenant: usize, provider: usize, class: usize, now: Timestamp) {
        let event_time = self.next_event(now);
        self.gates[provider].paused.insert((tenant, class), event_time.seq);
    }

    pub(crate) fn resumed(&mut self, tenant: usize) {
        for gates in &mut self.gates {
            gates.paused.retain(|(of, _), _| *of != tenant);
        }
    }
}
