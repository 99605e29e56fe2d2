//! What a provider's gates must keep back: wishes to be left alone, breakers, refused credentials, an
//! operator's word. Learns of them from the answers and from what the lanes tell, not by asking them.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::policy::classify::longest_retry_after;
use postrider_core::{Scope, Signal, Timestamp};
use postrider_dispatch::LaneEvent;

use super::{Judged, Moment, Oracle, promise};

/// Nothing that asks later may pass before its time.
#[derive(Debug, Clone, Copy)]
struct Bar {
    since: u64,
    until: Timestamp,
}

impl Bar {
    fn holds(self, asked: Moment) -> bool {
        asked.seq > self.since && asked.at < self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    bar: Bar,
    /// Calls under way that were let through since.
    probes: usize,
    /// One of them went well, or at least not badly.
    eased: bool,
}

#[derive(Debug, Default)]
pub(crate) struct OriginGates {
    pub(super) in_flight: usize,
    rest: Option<Bar>,
    opened: Option<Opened>,
    forced: Option<(u64, BreakerOverride)>,
    tenants: BTreeMap<usize, TenantGates>,
    /// Lanes (tenant, class) that are paused, and since when.
    paused: BTreeMap<(usize, usize), u64>,
}

#[derive(Debug, Default)]
struct TenantGates {
    rest: Option<Bar>,
    refused: Option<Bar>,
}

impl OriginGates {
    /// Judges a call whose gates were asked at that moment.
    pub(super) fn passed(&mut self, tenant: usize, class: usize, asked: Moment) -> Judged {
        let paused = self.paused.get(&(tenant, class)).is_some_and(|since| asked.seq > *since);
        promise(!paused, "nothing is sent from a paused lane", || format!("tenant {tenant}"))?;
        let shut =
            self.forced.is_some_and(|(since, f)| f == BreakerOverride::Open && asked.seq > since);
        promise(!shut, "no call through a breaker that was forced open", String::new)?;
        let own = self.tenants.get(&tenant);
        let rest =
            self.rest.into_iter().chain(own.and_then(|own| own.rest)).find(|b| b.holds(asked));
        promise(rest.is_none(), "Retry-After holds for its whole scope", || {
            let until = rest.map(|bar| bar.until).unwrap_or_default();
            format!("to be left alone until {until}, called at {} for tenant {tenant}", asked.at)
        })?;
        let refused = own.and_then(|own| own.refused).filter(|bar| bar.holds(asked));
        promise(refused.is_none(), "no call with a refused credential before its time", || {
            format!("tenant {tenant} at {}", asked.at)
        })?;
        if let Some(own) = self.tenants.get_mut(&tenant) {
            own.refused = own.refused.filter(|bar| asked.seq < bar.since);
        }
        self.probe(asked)
    }

    fn probe(&mut self, asked: Moment) -> Judged {
        let overruled = self.forced.is_some_and(|(_, forced)| forced == BreakerOverride::Closed);
        let Some(opened) = self.opened.as_mut().filter(|o| asked.seq > o.bar.since && !overruled)
        else {
            return Ok(());
        };
        promise(!opened.bar.holds(asked), "no call through an open breaker", || {
            format!("open until {}, called at {}", opened.bar.until, asked.at)
        })?;
        // Once it is being probed, its time is over, whatever becomes of the clock.
        opened.bar.until = Timestamp::default();
        opened.probes += 1;
        promise(opened.eased || opened.probes <= 1, "one probe at a time", || {
            format!("{} calls at once to a provider that has not answered yet", opened.probes)
        })
    }

    pub(super) fn learned(&mut self, asked: Moment, signal: Signal) {
        if let Some(opened) = self.opened.as_mut().filter(|o| asked.seq > o.bar.since) {
            opened.eased |= !signal.is_failure();
        }
    }

    pub(super) fn call_ended(&mut self, asked: Moment) {
        if let Some(opened) = self.opened.as_mut().filter(|o| asked.seq > o.bar.since) {
            opened.probes = opened.probes.saturating_sub(1);
        }
    }

    pub(super) fn asked_for_rest(
        &mut self,
        tenant: usize,
        scope: Scope,
        after: Duration,
        at: Moment,
    ) {
        let until = at.at + after.min(longest_retry_after(scope));
        let rest = match scope {
            Scope::Host => &mut self.rest,
            _ => &mut self.tenants.entry(tenant).or_default().rest,
        };
        // The longest wish stands; one that has passed by the clock of then is of no interest.
        if rest.is_none_or(|bar| bar.until < until) {
            *rest = Some(Bar { since: at.seq, until });
        }
    }
}

impl Oracle {
    /// What a lane told about its provider or credential.
    pub(crate) fn lane_told(
        &mut self,
        tenant: usize,
        provider: usize,
        event: LaneEvent,
        now: Timestamp,
    ) {
        let moment = self.moment(now);
        let gates = &mut self.gates[provider];
        let bar = |until| Bar { since: moment.seq, until };
        match event {
            LaneEvent::BreakerOpened { until } | LaneEvent::RetryStorm { until } => {
                gates.opened = Some(Opened { bar: bar(until), probes: 0, eased: false });
            }
            LaneEvent::BreakerClosed => gates.opened = None,
            LaneEvent::CredentialRefused { until } | LaneEvent::MassGone { until } => {
                gates.tenants.entry(tenant).or_default().refused = Some(bar(until));
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
        let moment = self.moment(now);
        let gates = &mut self.gates[provider];
        if gates.forced.is_some_and(|(_, was)| was == BreakerOverride::Closed) {
            gates.opened = None;
        }
        gates.forced = forced.map(|forced| (moment.seq, forced));
        if forced == Some(BreakerOverride::Closed) {
            gates.rest = None;
            gates.tenants.values_mut().for_each(|own| own.rest = None);
        }
    }

    pub(crate) fn renewed(&mut self, tenant: usize) {
        for gates in &mut self.gates {
            gates.tenants.entry(tenant).or_default().refused = None;
        }
    }

    pub(crate) fn paused(&mut self, tenant: usize, provider: usize, class: usize, now: Timestamp) {
        let moment = self.moment(now);
        self.gates[provider].paused.insert((tenant, class), moment.seq);
    }

    pub(crate) fn resumed(&mut self, tenant: usize) {
        for gates in &mut self.gates {
            gates.paused.retain(|(of, _), _| *of != tenant);
        }
    }
}
