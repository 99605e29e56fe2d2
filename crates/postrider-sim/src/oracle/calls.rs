//! What is handed to a channel, and what comes of it.

use postrider_core::{Attempt, Outcome, Report, Scope, Signal, State, Timestamp};

use super::{Held, Judged, Known, Moment, Oracle, promise};

const NO_LATE_SEND: &str = "no send at or after expiry";

/// A call that began: where, and for which delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handed {
    pub provider: usize,
    pub delivery: usize,
    /// Which of the delivery's calls under its lease it is.
    pub nth: u32,
    /// The lease that it was made under.
    asked: Moment,
    is_retry: bool,
    /// Of the delivery until then.
    replays: u32,
}

impl Oracle {
    pub(crate) fn handed_over(
        &mut self,
        attempt: &Attempt,
        now: Timestamp,
    ) -> (Judged, Option<Handed>) {
        let Some(delivery) = self.find(attempt.delivery) else {
            let unknown = || "an unknown delivery".into();
            return (promise(false, "only what was accepted is sent", unknown), None);
        };
        let known = &mut self.deliveries[delivery];
        let Some(held) = known.held.as_mut() else {
            let no_lease = || format!("called while {}, held by nobody", known.state);
            let invariant = match known.state {
                State::Sent => "no second send after a recorded acceptance",
                _ => "nothing is sent without a lease",
            };
            return (promise(false, invariant, no_lease), None);
        };
        held.calls += 1;
        let (held, provider, replays) = (*held, known.provider, known.replays);
        let Held { calls: nth, asked, is_retry, since, .. } = held;
        let handed = Handed { provider, delivery, nth, asked, is_retry, replays };
        self.in_flight += 1;
        self.gates[provider].in_flight += 1;
        let judged = self.judge_call(attempt, handed, since, now);
        (judged, Some(handed))
    }

    fn judge_call(
        &mut self,
        attempt: &Attempt,
        call: Handed,
        leased: Timestamp,
        now: Timestamp,
    ) -> Judged {
        let late = attempt.expires_at.max(self.deliveries[call.delivery].expires);
        promise(now < late && attempt.now < attempt.expires_at, NO_LATE_SEND, || {
            format!("it expired at {late}, it is handed over at {now}")
        })?;
        self.judge_room(call)?;
        // What goes again at once does so under the permission of its first call.
        if call.nth > 1 {
            return Ok(());
        }
        let known = &self.deliveries[call.delivery];
        let (tenant, class) = (known.tenant, known.class);
        let once = self.classes[class].sends_at_most_once();
        promise(!(once && known.in_doubt), "what must not be sent twice is sent once", || {
            format!("delivery {} may have arrived before", call.delivery)
        })?;
        let gone = self.gone.get(&(tenant, call.provider, known.address));
        promise(
            gone.is_none_or(|since| *since > call.asked.seq),
            "nothing is sent to who is gone",
            || format!("delivery {}", call.delivery),
        )?;
        self.gates[call.provider].passed(tenant, class, call.asked)?;
        self.pace.counted(tenant, call.provider, call.asked.at)?;
        self.fairness.called(known, call.asked.at)?;
        let lane = (tenant, call.provider, class);
        let ahead = || self.deliveries.iter().filter(|known| is_ahead(known, lane)).count();
        self.budgets.called(lane, call.is_retry, leased, ahead)
    }

    fn judge_room(&self, call: Handed) -> Judged {
        let (now, most) = (self.gates[call.provider].in_flight, self.pace.at_once(call.provider));
        promise(now <= most, "no more calls at once than allowed", || {
            format!("{now} to provider {}, {most} are allowed", call.provider)
        })?;
        let most = self.limits.concurrency.max(1) + self.limits.settle_batch;
        promise(self.in_flight <= most, "no more calls at once than allowed", || {
            format!("{} in all, {most} are allowed", self.in_flight)
        })
    }

    /// The request left: from here on the provider may have it.
    pub(crate) fn reached(&mut self, call: Handed) {
        self.deliveries[call.delivery].reached += 1;
    }

    pub(crate) fn taken(&mut self, call: Handed) {
        self.deliveries[call.delivery].taken += 1;
    }

    /// The channel reports an end of its call.
    pub(crate) fn answered(&mut self, call: Handed, report: &Report, now: Timestamp) {
        let moment = self.moment(now);
        let known = &mut self.deliveries[call.delivery];
        known.in_doubt |= report.outcome == Outcome::Ambiguous && known.replays == call.replays;
        if let Some(held) = known.held.as_mut().filter(|held| held.asked == call.asked) {
            held.accepted |= report.outcome == Outcome::Accepted;
        }
        let lane = (known.tenant, known.provider, known.class);
        let signal = Signal::of(&report.outcome, report.status);
        self.gates[call.provider].learned(call.asked, signal);
        if let Outcome::RetryAfter { after, scope } = report.outcome
            && scope != Scope::Target
        {
            self.gates[call.provider].asked_for_rest(lane.0, scope, after, moment);
        }
        if call.is_retry && signal == Signal::Well {
            self.budgets.earned(lane, now);
        }
    }

    /// A call is over, by an answer or because whoever made it is gone.
    pub(crate) fn call_ended(&mut self, call: Handed, answered: bool) {
        let known = &mut self.deliveries[call.delivery];
        // What was replayed since was so in full knowledge of the doubt.
        known.in_doubt |= !answered && known.replays == call.replays;
        self.in_flight = self.in_flight.saturating_sub(1);
        let gates = &mut self.gates[call.provider];
        gates.in_flight = gates.in_flight.saturating_sub(1);
        gates.call_ended(call.asked);
    }
}

/// A first attempt of that lane that is leased and not yet called.
fn is_ahead(known: &Known, lane: (usize, usize, usize)) -> bool {
    (known.tenant, known.provider, known.class) == lane
        && known.held.is_some_and(|held| !held.is_retry && held.calls == 0)
}
