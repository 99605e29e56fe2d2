//! Checks each call of a channel and its result.

use postrider_core::policy::call_places::CallPlaces;
use postrider_core::{Attempt, Outcome, Report, Scope, Signal, State, Timestamp};

use super::{CheckResult, DeliveryRecord, EventTime, HeldLease, Oracle, check};

const NO_LATE_SEND: &str = "no send at or after expiry";

/// A call to a simulated provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimCall {
    pub provider: usize,
    pub delivery: usize,
    /// Its number among the calls under the same lease.
    pub nth: u32,
    /// When the lease of this call was asked for.
    asked: EventTime,
    is_retry: bool,
    /// Replays of the delivery before this call.
    replays: u32,
}

impl Oracle {
    pub(crate) fn call_began(
        &mut self,
        attempt: &Attempt,
        now: Timestamp,
    ) -> (CheckResult, Option<SimCall>) {
        let Some(delivery) = self.find(attempt.delivery) else {
            let unknown = || "an unknown delivery".into();
            return (check(false, "only what was accepted is sent", unknown), None);
        };
        let record = &mut self.deliveries[delivery];
        let Some(held) = record.held.as_mut() else {
            let no_lease = || format!("called while {}, without a lease", record.state);
            let invariant = match record.state {
                State::Sent => "no second send after a recorded acceptance",
                _ => "nothing is sent without a lease",
            };
            return (check(false, invariant, no_lease), None);
        };
        held.calls += 1;
        let (held, provider, replays) = (*held, record.provider, record.replays);
        let HeldLease { calls: nth, asked, is_retry, since, .. } = held;
        let call = SimCall { provider, delivery, nth, asked, is_retry, replays };
        self.in_flight += 1;
        self.gates[provider].in_flight += 1;
        let result = self.check_call(attempt, call, since, now);
        (result, Some(call))
    }

    fn check_call(
        &mut self,
        attempt: &Attempt,
        call: SimCall,
        leased: Timestamp,
        now: Timestamp,
    ) -> CheckResult {
        let late = attempt.expires_at.max(self.deliveries[call.delivery].expires);
        check(now < late && attempt.now < attempt.expires_at, NO_LATE_SEND, || {
            format!("it expired at {late}, it is handed over at {now}")
        })?;
        self.check_concurrency(call)?;
        // An immediate replay uses the permission of the first call.
        if call.nth > 1 {
            return Ok(());
        }
        let record = &self.deliveries[call.delivery];
        let (tenant, class) = (record.tenant, record.class);
        let once = self.classes[class].sends_at_most_once();
        check(!(once && record.in_doubt), "a class that forbids repeats sends once", || {
            format!("delivery {} may have arrived before", call.delivery)
        })?;
        let gone = self.gone.get(&(tenant, call.provider, record.address));
        check(
            gone.is_none_or(|since| *since > call.asked.seq),
            "nothing is sent to a gone address",
            || format!("delivery {}", call.delivery),
        )?;
        self.gates[call.provider].passed(tenant, class, call.asked)?;
        self.rates.counted(tenant, call.provider, call.asked)?;
        self.fairness.called(record, call.asked.at)?;
        let lane = (tenant, call.provider, class);
        let ahead = || self.deliveries.iter().filter(|record| is_ahead(record, lane)).count();
        self.budget.called(lane, call.is_retry, leased, ahead)
    }

    fn check_concurrency(&self, call: SimCall) -> CheckResult {
        let at_once = self.rates.at_once(call.provider);
        let long = CallPlaces::long_places(at_once, at_once, false);
        let (now, most) = (self.gates[call.provider].in_flight, at_once + long);
        check(now <= most, "no more calls at once than allowed", || {
            format!("{now} to provider {}, {most} are allowed", call.provider)
        })?;
        let most = self.limits.concurrency.max(1);
        check(self.in_flight <= most, "no more calls at once than allowed", || {
            format!("{} in all, {most} are allowed", self.in_flight)
        })
    }

    /// The request left: from now on the provider may have it.
    pub(crate) fn reached(&mut self, call: SimCall) {
        self.deliveries[call.delivery].reached += 1;
    }

    pub(crate) fn taken(&mut self, call: SimCall) {
        self.deliveries[call.delivery].taken += 1;
    }

    /// The channel reports the result of a call.
    pub(crate) fn answered(&mut self, call: SimCall, report: &Report, now: Timestamp) {
        let event_time = self.next_event(now);
        let record = &mut self.deliveries[call.delivery];
        record.in_doubt |= report.outcome == Outcome::Ambiguous && record.replays == call.replays;
        if let Some(held) = record.held.as_mut().filter(|held| held.asked == call.asked) {
            held.accepted |= report.outcome == Outcome::Accepted;
        }
        let lane = (record.tenant, record.provider, record.class);
        let signal = Signal::of(&report.outcome, report.status);
        self.gates[call.provider].learned(lane.0, call.asked, signal);
        if let Outcome::RetryAfter { after, scope } = report.outcome
            && scope != Scope::Target
        {
            self.gates[call.provider].retry_after_received(lane.0, scope, after, event_time);
        }
        if call.is_retry && signal == Signal::Well {
            self.budget.earned(lane, now);
        }
    }

    /// A call ended, with an answer or because its task was dropped.
    pub(crate) fn call_ended(&mut self, call: SimCall, answered: bool) {
        let record = &mut self.deliveries[call.delivery];
        // A replay since then accepted the doubt.
        record.in_doubt |= !answered && record.replays == call.replays;
        self.in_flight = self.in_flight.saturating_sub(1);
        let gates = &mut self.gates[call.provider];
        gates.in_flight = gates.in_flight.saturating_sub(1);
        gates.call_ended(record.tenant, call.asked);
    }
}

/// A first attempt of the lane that is leased and not yet called.
fn is_ahead(record: &DeliveryRecord, lane: (usize, usize, usize)) -> bool {
    (record.tenant, record.provider, record.class) == lane
        && record.held.is_some_and(|held| !held.is_retry && held.calls == 0)
}
