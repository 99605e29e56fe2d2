//! A lane as people are shown it: every gate's verdict at this moment, in words. Changes nothing.

use std::sync::Arc;

use postrider_core::policy::account::{AccountHold, AccountOffer};
use postrider_core::policy::breaker::BreakerState;
use postrider_core::policy::fairness::WeightPart;
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, TenantId, Timestamp};

use super::checks::LaneContext;
use super::own_places::OwnPlaceWait;
use super::provider::number;
use super::{LaneProvider, Lanes, ProviderKey};

/// What one gate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateVerdict {
    pub gate: Gate,
    pub open: bool,
    pub until: Option<Timestamp>,
    pub detail: String,
}

/// The state of a lane and of its gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    pub state: LaneState,
    /// In the order in which they are asked.
    pub gates: Vec<GateVerdict>,
    pub breaker: BreakerState,
    /// Calls under way to the lane's provider, of all its lanes.
    pub provider_in_flight: usize,
    pub provider_limit: usize,
}

/// Who holds the most of this server's places for calls that may take long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongPlaceHolder {
    pub tenant: TenantId,
    pub places: usize,
}

/// One provider or account at one moment, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderFigures {
    pub channel: ChannelKind,
    pub provider: Arc<str>,
    /// Calls under way.
    pub in_flight: usize,
    /// Calls that may be under way, as far as was learned.
    pub limit: usize,
    pub breaker: BreakerState,
    /// Tenants whose own breaker there is not closed.
    pub tenants_held: usize,
}

impl GateVerdict {
    /// Closed until that time, or open if there is none.
    pub(super) fn until(gate: Gate, until: Option<Timestamp>, detail: String) -> Self {
        Self { gate, open: until.is_none(), until, detail }
    }

    /// Closed if it holds the lane.
    pub(super) fn of(gate: Gate, held: Option<LaneState>, detail: String) -> Self {
        let until = match held {
            Some(LaneState::Waiting { until, .. }) => Some(until),
            _ => None,
        };
        Self { gate, open: held.is_none(), until, detail }
    }

    fn state(&self) -> LaneState {
        match (self.open, self.until) {
            (true, _) => LaneState::Ready,
            (false, Some(until)) => LaneState::Waiting { on: self.gate, until },
            (false, None) => LaneState::Blocked { on: self.gate },
        }
    }
}

impl LaneReport {
    /// The first gate that does not let the lane pass.
    pub fn held_by(&self) -> Option<&GateVerdict> {
        self.gates.iter().find(|verdict| !verdict.open)
    }

    /// Closes the gate that holds the account.
    fn hold(&mut self, held: Option<AccountHold>) {
        let Some(AccountHold { by, until }) = held else { return };
        let detail = match by {
            Gate::Credential => format!("its credential is refused until {until}"),
            Gate::RateLimit => format!("its quota is used up until {until}"),
            Gate::ProviderPaused => "paused by an operator".to_owned(),
            _ => format!("the provider asked to be left alone until {until}"),
        };
        let verdict = GateVerdict { gate: by, open: false, until: Some(until), detail };
        match self.gates.iter_mut().find(|known| known.gate == by) {
            Some(known) if known.open => *known = verdict,
            Some(_) => {}
            None => {
                let order = |gate| Gate::ALL.iter().position(|known| *known == gate);
                let at = self.gates.partition_point(|known| order(known.gate) < order(by));
                self.gates.insert(at, verdict);
            }
        }
        self.state = state_of(&self.gates);
    }

    /// Says which account is held.
    fn name_account(&mut self, account: &str) {
        for verdict in self.gates.iter_mut().filter(|v| !v.open && is_of_account(v.gate)) {
            verdict.detail = format!("account {account}: {}", verdict.detail);
        }
    }

    /// Says that an account which comes first is not used, and why.
    fn add_left_out(&mut self, account: &str, its: &Self) {
        let why = its.gates.iter().find(|v| !v.open && is_of_account(v.gate));
        let here = self.gates.iter_mut().find(|verdict| verdict.gate == Gate::Breaker);
        if let Some((why, here)) = why.zip(here) {
            here.detail.push_str(&format!("; account {account} is left out: {}", why.detail));
        }
    }
}

/// Whether another account may be well while this gate is closed.
fn is_of_account(gate: Gate) -> bool {
    use Gate::{
        Breaker, Concurrency, Credential, MassGone, Pace, ProviderPaused, RateLimit, RetryAfter,
    };
    matches!(
        gate,
        ProviderPaused
            | RetryAfter
            | Breaker
            | Credential
            | MassGone
            | Pace
            | RateLimit
            | Concurrency
    )
}

fn state_of(gates: &[GateVerdict]) -> LaneState {
    let held = gates.iter().find(|verdict| !verdict.open);
    held.map_or(LaneState::Ready, GateVerdict::state)
}

impl Lanes {
    /// If the lane has accounts, of the one that its next calls go through or wait for.
    pub fn report(&self, lane: &LaneKey) -> LaneReport {
        let route = self.route(lane);
        let mut report = self.report_at(lane, &route.provider);
        let Some(used) = &route.account else { return report };
        for AccountOffer { name, held } in self.offers(lane) {
            if name == *used {
                report.hold(held);
                report.name_account(&name);
                break;
            }
            let mut other = self.report_at(lane, &(lane.channel, name.clone()));
            other.hold(held);
            report.add_left_out(&name, &other);
        }
        report
    }

    /// The tenant that holds the most of this server's places for calls that may take long. Looks at all of them: not
    /// for the path of a delivery.
    pub fn long_place_holder(&self) -> Option<LongPlaceHolder> {
        let all = self.policies.now().limits.concurrency;
        let (tenant, places, origin) = self.global.longest_holder(all)?;
        let known: Vec<_> = self.providers().values().cloned().collect();
        let provider = known.into_iter().find(|provider| provider.number() == origin)?;
        let gates = provider.gates();
        let tenant = gates.tenants.keys().find(|known| number(*known) == tenant)?.clone();
        Some(LongPlaceHolder { tenant, places })
    }

    /// What holds all calls through an account, and until when if that is known.
    pub fn account_hold(
        &self,
        channel: ChannelKind,
        account: &Arc<str>,
    ) -> Option<(Gate, Option<Timestamp>)> {
        let provider = self.providers().get(&(channel, account.clone())).cloned()?;
        provider.gates().held_by(self.clock.now())
    }

    /// Which of this server's own places the lane waits for, if nothing before that holds it.
    pub fn own_place_wait(&self, lane: &LaneKey) -> Option<OwnPlaceWait> {
        let provider = self.reported_provider(&self.route(lane).provider);
        self.reported_context(lane, &provider).own_place_wait()
    }

    /// A provider that nobody has called yet is reported as a new one.
    fn reported_provider(&self, origin: &ProviderKey) -> Arc<LaneProvider> {
        let known = self.providers().get(origin).cloned();
        known.unwrap_or_else(|| self.new_provider(origin))
    }

    fn reported_context<'a>(
        &'a self,
        lane: &'a LaneKey,
        provider: &'a LaneProvider,
    ) -> LaneContext<'a> {
        let priority = self.policies.now().class_or_default(&lane.class).priority;
        let mut context = LaneContext::new(self, lane, provider, self.clock.now());
        context.count_free_places(priority, 0, WeightPart::WHOLE);
        context
    }

    fn report_at(&self, lane: &LaneKey, origin: &ProviderKey) -> LaneReport {
        let provider = self.reported_provider(origin);
        let context = self.reported_context(lane, &provider);
        let gates = context.verdicts();
        let (provider_in_flight, provider_limit) = context.in_flight_and_limit();
        drop(context);
        let breaker = breaker_state(&provider, lane);
        let state = state_of(&gates);
        LaneReport { state, gates, breaker, provider_in_flight, provider_limit }
    }

    /// Every provider and account that is remembered. Looks at all of them: not for the path of a delivery.
    pub fn provider_figures(&self) -> Vec<ProviderFigures> {
        let now = self.clock.now();
        let known: Vec<_> = self.providers().values().cloned().collect();
        let figures = |provider: Arc<LaneProvider>| {
            let gates = provider.gates();
            let troubles = gates.tenants.values().filter_map(|own| own.trouble.as_deref());
            let (channel, name) = provider.key();
            ProviderFigures {
                channel: *channel,
                provider: name.clone(),
                in_flight: gates.places.in_flight(),
                limit: gates.limit.limit(now),
                breaker: gates.breaker.state(),
                tenants_held: troubles.filter(|own| own.breaker.is_probing()).count(),
            }
        };
        known.into_iter().map(figures).collect()
    }

    /// What providers seem to take per second of one tenant, where they ever complained: the slowest.
    pub fn paces(&self) -> Vec<(ChannelKind, Arc<str>, f64)> {
        let learned = |(key, provider): (&ProviderKey, &Arc<LaneProvider>)| {
            let gates = provider.gates();
            let troubles = gates.tenants.values().filter_map(|own| own.trouble.as_deref());
            let slowest = troubles.filter_map(|own| own.pace.per_s()).min_by(f64::total_cmp)?;
            Some((key.0, key.1.clone(), slowest))
        };
        self.providers().iter().filter_map(learned).collect()
    }
}

/// The breaker of the provider, or of the lane's tenant there.
fn breaker_state(provider: &LaneProvider, lane: &LaneKey) -> BreakerState {
    let gates = provider.gates();
    let own = gates.known_trouble(&lane.tenant).map(|own| own.breaker.state());
    match gates.breaker.state() {
        BreakerState::Closed => own.unwrap_or(BreakerState::Closed),
        state => state,
    }
}
