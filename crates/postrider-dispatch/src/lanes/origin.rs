//! One provider's origin: the calls under way to it and the gates that all its lanes share. Counts
//! and asks the policy; decides nothing by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::model::message::Priority;
use postrider_core::policy::breaker::{
    Breaker, BreakerCause, BreakerChange, BreakerPolicy, BreakerRefusal, BreakerState,
};
use postrider_core::policy::concurrency::Concurrency;
use postrider_core::policy::credential::CredentialBreaker;
use postrider_core::policy::fairness::places;
use postrider_core::policy::pace::Pace;
use postrider_core::policy::storm::Storm;
use postrider_core::policy::throttle::{Pause, ThrottleSpread, reach};
use postrider_core::{Gate, LaneState, Scope, Signal, TenantId, Timestamp};

use super::Refusal;

/// Tenants of one origin that something is remembered about, at most.
const TENANTS_MAX: usize = 4_096;

pub(crate) struct Origin {
    /// What [`Concurrency`] says, kept where it can be read without the lock.
    limit: AtomicUsize,
    in_flight: AtomicUsize,
    /// Those of them that are not urgent.
    others: AtomicUsize,
    /// Somebody had more to send than there was room for.
    wanted: AtomicBool,
    /// The dispatcher is about to hear of a few free places.
    gathering: AtomicBool,
    gates: Mutex<Gates>,
}

/// What stands between a lane and its provider, beside the room for calls.
pub(super) struct Gates {
    policy: BreakerPolicy,
    pub(super) pause: Pause,
    spread: ThrottleSpread,
    pub(super) breaker: Breaker,
    storm: Storm,
    concurrency: Concurrency,
    pub(super) pace: Pace,
    /// Those of whom something is known that does not hold for all.
    pub(super) tenants: HashMap<TenantId, TenantGates>,
}

pub(super) struct TenantGates {
    pub(super) pause: Pause,
    pub(super) credential: CredentialBreaker,
}

/// Under which openings of the breakers a call was permitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Epochs {
    breaker: u32,
    credential: Option<u32>,
}

/// What the end of a call taught.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lesson {
    pub(crate) signal: Signal,
    /// The address was called gone.
    pub(crate) gone: bool,
    /// How long, and how far around, the provider wants to be left alone.
    pub(crate) wait: Option<(Scope, Duration)>,
    pub(crate) latency_ms: u32,
    pub(crate) is_retry: bool,
    /// Stands for the address.
    pub(crate) target: u64,
    /// Whether the credential is the tenant's, not the address' own.
    pub(crate) tenant_credential: bool,
    /// Whether a failure is the provider's as a whole.
    pub(crate) counts_for_breaker: bool,
}

/// Whether the end of a call is a reason to lease again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// Nobody waits for it.
    Unwanted,
    /// Soon: a place or two are not worth a round of their own.
    Few,
    Enough,
}

/// Something worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEvent {
    BreakerOpened {
        until: Timestamp,
    },
    /// Retries without success: the breaker opened before they make it worse.
    RetryStorm {
        until: Timestamp,
    },
    BreakerClosed,
    CredentialRefused {
        until: Timestamp,
    },
    /// Too many of a credential's addresses at once are called gone: none is erased.
    MassGone {
        until: Timestamp,
    },
    CredentialAccepted,
    /// The provider asked to be left alone, for all lanes of the scope.
    LeftAlone {
        scope: Scope,
        until: Timestamp,
    },
}

/// What the end of a call leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Aftermath {
    pub(crate) event: Option<LaneEvent>,
    /// Lanes may go that could not before.
    pub(super) eased: bool,
    /// It failed because its provider fails as a whole.
    pub(crate) excused: bool,
    /// That its address is gone is not believed.
    pub(crate) doubted: bool,
}

impl Origin {
    pub(super) fn new(ceiling: usize, policy: BreakerPolicy) -> Self {
        let concurrency = Concurrency::new(ceiling);
        Self {
            limit: AtomicUsize::new(concurrency.limit()),
            in_flight: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            gathering: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            gates: Mutex::new(Gates {
                policy,
                pause: Pause::default(),
                spread: ThrottleSpread::default(),
                breaker: Breaker::new(policy),
                storm: Storm::new(&policy),
                concurrency,
                pace: Pace::default(),
                tenants: HashMap::new(),
            }),
        }
    }

    /// Other limits from now on.
    pub(super) fn adopt(&self, ceiling: usize, policy: BreakerPolicy) {
        let mut gates = self.gates();
        gates.policy = policy;
        gates.breaker.adopt(policy);
        gates.storm.adopt(&policy);
        gates.tenants.values_mut().for_each(|own| own.credential.adopt(policy));
        gates.concurrency.adopt(ceiling);
        self.limit.store(gates.concurrency.limit(), Ordering::Release);
    }

    pub(super) fn gates(&self) -> MutexGuard<'_, Gates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Acquire)
    }

    /// How many more calls of this priority there is room for.
    pub(super) fn places(&self, priority: Priority) -> usize {
        let limit = self.limit();
        let free = limit.saturating_sub(self.in_flight());
        places(free, limit, self.others.load(Ordering::Acquire), priority)
    }

    pub(super) fn take(&self, calls: usize, priority: Priority) {
        self.in_flight.fetch_add(calls, Ordering::AcqRel);
        if priority != Priority::High {
            self.others.fetch_add(calls, Ordering::AcqRel);
        }
    }

    /// Notes that more could be sent as soon as there is room.
    pub(super) fn want_more(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// A call has ended. It is worth leasing again when a quarter of the room is free, not for
    /// every single call, because leasing in batches is what keeps a delivery cheap.
    pub(super) fn call_ended(&self, priority: Priority) -> Freed {
        if priority != Priority::High {
            self.others.fetch_sub(1, Ordering::AcqRel);
        }
        let left = self.in_flight.fetch_sub(1, Ordering::AcqRel) - 1;
        let limit = self.limit();
        let enough = left <= limit - limit.div_ceil(4);
        if enough && self.wanted.swap(false, Ordering::AcqRel) {
            return Freed::Enough;
        }
        let wanted = self.wanted.load(Ordering::Acquire);
        match wanted && !self.gathering.swap(true, Ordering::AcqRel) {
            true => Freed::Few,
            false => Freed::Unwanted,
        }
    }

    /// The dispatcher has been told of the few.
    pub(super) fn gathered(&self) {
        self.gathering.store(false, Ordering::Release);
    }

    /// Why there is nothing for a lane of the tenant when there is no place.
    pub(super) fn full(&self, tenant: &TenantId, now: Timestamp) -> Refusal {
        let gates = self.gates();
        match gates.state(Some(tenant), now) {
            LaneState::Ready => {
                let state = LaneState::Blocked { on: Gate::Concurrency };
                Refusal { state, of_provider: true }
            }
            state => gates.refusal(state, now),
        }
    }

    pub(super) fn admit(
        &self,
        tenant: &TenantId,
        want: usize,
        now: Timestamp,
    ) -> Result<(usize, Epochs), Refusal> {
        let mut gates = self.gates();
        let admitted = gates.admit(tenant, want, now);
        admitted.map_err(|state| gates.refusal(state, now))
    }

    /// Learns from the end of a call, which is still counted as under way.
    pub(super) fn learn(
        &self,
        tenant: &TenantId,
        lesson: &Lesson,
        epochs: Epochs,
        now: Timestamp,
        random: f64,
    ) -> Aftermath {
        let mut gates = self.gates();
        let before = gates.concurrency.limit();
        gates.concurrency.report(lesson.signal, lesson.latency_ms, self.in_flight(), now);
        let limit = gates.concurrency.limit();
        if limit != before {
            self.limit.store(limit, Ordering::Release);
        }
        gates.learn(tenant, lesson, epochs, now, random)
    }

    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let gates = self.gates();
        let knows = gates.pace.per_s().is_some() || gates.state(None, now) != LaneState::Ready;
        self.in_flight() == 0 && !knows
    }
}

impl Gates {
    /// Asks all gates for `want` calls, all or none.
    pub(super) fn admit(
        &mut self,
        tenant: &TenantId,
        want: usize,
        now: Timestamp,
    ) -> Result<(usize, Epochs), LaneState> {
        match self.state(Some(tenant), now) {
            LaneState::Ready => {}
            held => return Err(held),
        }
        let bar = |on| move |barred| held_by(on, barred);
        let mut epochs = Epochs::default();
        let mut calls = want;
        if let Some(own) = self.tenants.get_mut(tenant) {
            let permit = own.credential.admit(calls, now).map_err(bar(own.gate()))?;
            (calls, epochs.credential) = (permit.calls, Some(permit.epoch));
        }
        match self.breaker.admit(calls, now) {
            Ok(permit) => {
                epochs.breaker = permit.epoch;
                self.credential_back(tenant, calls - permit.calls, epochs);
                self.keep_pace(tenant, permit.calls, epochs, now)
            }
            Err(barred) => {
                self.credential_back(tenant, calls, epochs);
                Err(held_by(Gate::Breaker, barred))
            }
        }
    }

    fn keep_pace(
        &mut self,
        tenant: &TenantId,
        want: usize,
        epochs: Epochs,
        now: Timestamp,
    ) -> Result<(usize, Epochs), LaneState> {
        let available = self.pace.available(want, now);
        let calls = available.unwrap_or(0);
        self.pace.take(calls, now);
        self.permits_back(tenant, want - calls, epochs);
        match available {
            Ok(calls) => Ok((calls, epochs)),
            Err(until) => Err(LaneState::Waiting { on: Gate::Pace, until }),
        }
    }

    /// What holds a lane up, gate by gate in order. Changes nothing.
    pub(super) fn state(&self, tenant: Option<&TenantId>, now: Timestamp) -> LaneState {
        let own = tenant.and_then(|tenant| self.tenants.get(tenant));
        let until = self.pause.until(now).max(own.and_then(|own| own.pause.until(now)));
        if let Some(until) = until {
            return LaneState::Waiting { on: Gate::RetryAfter, until };
        }
        if let Err(barred) = self.breaker.may_pass(now) {
            return held_by(Gate::Breaker, barred);
        }
        match own.map(|own| (own.gate(), own.credential.may_pass(now))) {
            Some((gate, Err(barred))) => held_by(gate, barred),
            _ => LaneState::Ready,
        }
    }

    /// Whether not one lane of the origin may go, or only this one may not.
    fn refusal(&self, state: LaneState, now: Timestamp) -> Refusal {
        let paced = matches!(state, LaneState::Waiting { on: Gate::Pace, .. });
        Refusal { state, of_provider: paced || self.state(None, now) != LaneState::Ready }
    }

    /// Calls that were permitted `at` that time and not made.
    pub(super) fn hand_back(
        &mut self,
        tenant: &TenantId,
        calls: usize,
        epochs: Epochs,
        at: Timestamp,
    ) {
        self.pace.refund(calls, at);
        self.permits_back(tenant, calls, epochs);
    }

    fn permits_back(&mut self, tenant: &TenantId, calls: usize, epochs: Epochs) {
        self.breaker.hand_back(calls, epochs.breaker);
        self.credential_back(tenant, calls, epochs);
    }

    fn credential_back(&mut self, tenant: &TenantId, calls: usize, epochs: Epochs) {
        if let (Some(epoch), Some(own)) = (epochs.credential, self.tenants.get_mut(tenant)) {
            own.credential.hand_back(calls, epoch);
        }
    }

    /// What the end of a call means for the breakers and pauses.
    fn learn(
        &mut self,
        tenant: &TenantId,
        lesson: &Lesson,
        epochs: Epochs,
        now: Timestamp,
        random: f64,
    ) -> Aftermath {
        let signal = if lesson.counts_for_breaker { lesson.signal } else { Signal::Nothing };
        let mut turn = self.breaker.report(signal, epochs.breaker, now, random);
        let storms = self.storm.count(signal, lesson.is_retry, now);
        if storms && self.breaker.state() == BreakerState::Closed {
            turn = Some(self.breaker.open(BreakerCause::Storm, now, random));
        }
        let mut after = Aftermath {
            event: self.breaker_event(turn),
            eased: is_easing(turn),
            excused: self.breaker.excuses(signal),
            doubted: false,
        };
        self.spread.count(lesson.signal, now);
        let repeats = lesson.signal == Signal::Busy && self.spread.repeats(lesson.target, now);
        // Who does not say how far the complaint reaches speaks for all.
        let mut of_one = !repeats && lesson.wait.is_some();
        let may_widen = lesson.signal == Signal::Busy;
        if let Some((scope, wait)) = lesson.wait.filter(|(s, _)| may_widen || *s != Scope::Target) {
            let (scope, event) = self.leave_alone(tenant, scope, wait, lesson.target, now);
            of_one &= scope == Scope::Target;
            after.event = after.event.or(event);
        }
        self.pace.report(signal, of_one, now);
        let suspect = lesson.gone || lesson.signal == Signal::Credential;
        if epochs.credential.is_some() || (suspect && lesson.tenant_credential) {
            let own = &mut self.tenant(tenant, now).credential;
            let epoch = epochs.credential.unwrap_or(0);
            let turn = own.report(lesson.signal, lesson.gone, epoch, now, random);
            after.eased |= is_easing(turn);
            after.doubted = lesson.gone && own.doubts_gone();
            let event = credential_event(own, turn);
            after.event = after.event.or(event);
        }
        after
    }

    fn breaker_event(&mut self, turn: Option<BreakerChange>) -> Option<LaneEvent> {
        match turn? {
            BreakerChange::Opened { until } => {
                self.storm.clear();
                Some(match self.breaker.cause() {
                    BreakerCause::Storm => LaneEvent::RetryStorm { until },
                    _ => LaneEvent::BreakerOpened { until },
                })
            }
            BreakerChange::Closed => Some(LaneEvent::BreakerClosed),
            BreakerChange::Eased => None,
        }
    }

    /// Says how far the wish turned out to reach.
    fn leave_alone(
        &mut self,
        tenant: &TenantId,
        scope: Scope,
        after: Duration,
        target: u64,
        now: Timestamp,
    ) -> (Scope, Option<LaneEvent>) {
        let (scope, after) = reach(scope, after, target, &mut self.spread, now);
        let until = now + after;
        let pause = match scope {
            Scope::Target => return (scope, None),
            Scope::Credential => &mut self.tenant(tenant, now).pause,
            Scope::Host => &mut self.pause,
        };
        let is_news = pause.until(now).is_none();
        pause.extend(until);
        (scope, is_news.then_some(LaneEvent::LeftAlone { scope, until }))
    }

    fn tenant(&mut self, tenant: &TenantId, now: Timestamp) -> &mut TenantGates {
        if self.tenants.len() >= TENANTS_MAX && !self.tenants.contains_key(tenant) {
            self.tenants.retain(|_, own| !own.is_forgettable(now));
            if self.tenants.len() >= TENANTS_MAX {
                // Forgetting costs a few calls that are refused again; no bound would cost memory.
                self.tenants.clear();
            }
        }
        let (policy, breaker) = (self.policy, self.breaker.state());
        self.tenants.entry(tenant.clone()).or_insert_with(|| {
            let mut credential = CredentialBreaker::new(policy);
            credential.believe_gone(breaker == BreakerState::ForcedClosed);
            TenantGates { pause: Pause::default(), credential }
        })
    }
}

impl TenantGates {
    /// What a closed door of the credential is called.
    pub(super) fn gate(&self) -> Gate {
        match self.credential.cause() {
            BreakerCause::MassGone => Gate::MassGone,
            _ => Gate::Credential,
        }
    }

    fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.pause.until(now).is_none() && self.credential.is_forgettable(now)
    }
}

fn is_easing(turn: Option<BreakerChange>) -> bool {
    matches!(turn, Some(BreakerChange::Eased | BreakerChange::Closed))
}

fn credential_event(own: &CredentialBreaker, turn: Option<BreakerChange>) -> Option<LaneEvent> {
    match turn? {
        BreakerChange::Opened { until } if own.cause() == BreakerCause::MassGone => {
            Some(LaneEvent::MassGone { until })
        }
        BreakerChange::Opened { until } => Some(LaneEvent::CredentialRefused { until }),
        BreakerChange::Closed => Some(LaneEvent::CredentialAccepted),
        BreakerChange::Eased => None,
    }
}

fn held_by(on: Gate, barred: BreakerRefusal) -> LaneState {
    match barred {
        BreakerRefusal::Until(until) => LaneState::Waiting { on, until },
        BreakerRefusal::Probing | BreakerRefusal::Forced => LaneState::Blocked { on },
    }
}
