//! Leases and settlements, as the store answered them.

use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::policy::decide::CRASHES_MAX;
use postrider_core::ports::store::{Leased, Settled, Settlement};
use postrider_core::{DeadReason, DeliveryId, State, Timestamp};

use super::{Held, Judged, Known, Moment, Oracle, promise};

const NO_SECOND_SEND: &str = "no second send after a recorded acceptance";
const ONE_HOLDER: &str = "a delivery has one holder at a time";
const NOTHING_FORGOTTEN: &str = "the store forgets no attempt";
const FENCED: &str = "a settlement with an old token is refused";
const NO_BURNED_ATTEMPT: &str = "no attempt is burned by waiting";
const WITHIN_POLICY: &str = "no more attempts than the policy allows";
const TRUE_TO_ANSWER: &str = "what is written is what the provider answered";
const MONOTONE: &str = "a final state stays";

impl Oracle {
    pub(crate) fn leased(
        &mut self,
        leased: &[Leased],
        lasts: Duration,
        asked: Moment,
        now: Timestamp,
    ) -> Judged {
        leased.iter().try_for_each(|one| self.leased_one(one, lasts, asked, now))
    }

    fn leased_one(
        &mut self,
        leased: &Leased,
        lasts: Duration,
        asked: Moment,
        now: Timestamp,
    ) -> Judged {
        let found = self.find(leased.delivery);
        promise(found.is_some(), "only what was accepted is sent", || {
            "an unknown delivery".into()
        })?;
        let Some(known) = found.and_then(|index| self.deliveries.get_mut(index)) else {
            return Ok(());
        };
        let invariant = if known.state == State::Sent { NO_SECOND_SEND } else { MONOTONE };
        promise(known.state.is_pending(), invariant, || format!("leased while {}", known.state))?;
        let is_held = known.held.is_some_and(|held| now < held.until);
        promise(!is_held, ONE_HOLDER, || "leased again before the lease ended".into())?;
        promise(
            known.due <= now || known.held.is_some() || leased.expires_at <= now,
            "nothing is sent before its time",
            || format!("due at {}, leased at {now}", known.due),
        )?;
        let (told, book) = ((leased.attempts, leased.tries), (known.attempts, known.tries));
        promise(told == book, NOTHING_FORGOTTEN, || {
            format!("(counted, all) attempts are {book:?}, the lease says {told:?}")
        })?;
        promise(leased.expires_at == known.expires, "the deadline never moves", || {
            format!("it was {}, the lease says {}", known.expires, leased.expires_at)
        })?;
        promise(leased.crashes <= known.crashes, "only crashes count as crashes", || {
            format!("{} happened, the lease says {}", known.crashes, leased.crashes)
        })?;
        promise(!leased.started || known.started, "only what was begun is called so", String::new)?;
        known.in_doubt |= leased.started || known.held.is_some_and(|held| held.calls > 0);
        known.held = Some(Held {
            token: leased.token,
            since: now,
            until: now + lasts,
            asked,
            is_retry: leased.tries > 0,
            started: leased.started,
            calls: 0,
            accepted: false,
        });
        Ok(())
    }

    /// Of which the store durably noted that an attempt is about to leave.
    pub(crate) fn started(&mut self, asked: &[(DeliveryId, u64)], answers: &[bool]) -> Judged {
        for ((delivery, token), answer) in asked.iter().zip(answers) {
            let Some(index) = self.find(*delivery) else { continue };
            let known = &mut self.deliveries[index];
            let is_holder = known.held.is_some_and(|held| held.token == *token);
            promise(is_holder || !answer, FENCED, || {
                "an attempt may start by an old token".into()
            })?;
            known.started |= answer;
        }
        Ok(())
    }

    /// What the store durably wrote, or refused to.
    pub(crate) fn settled(
        &mut self,
        asked: &[Settlement],
        answers: &[Settled],
        now: Timestamp,
    ) -> Judged {
        promise(asked.len() == answers.len(), "every settlement gets its answer", || {
            format!("{} settlements, {} answers", asked.len(), answers.len())
        })?;
        asked.iter().zip(answers).try_for_each(|(one, answer)| self.settled_one(one, *answer, now))
    }

    fn settled_one(&mut self, asked: &Settlement, answer: Settled, now: Timestamp) -> Judged {
        let Some(index) = self.find(asked.delivery) else { return Ok(()) };
        let known = &mut self.deliveries[index];
        let held = known.held.filter(|held| held.token == asked.token);
        let Some(held) = held else {
            return promise(answer == Settled::Fenced, FENCED, || {
                let holder = known.held.map_or("nobody", |_| "somebody else");
                format!("{holder} holds it; {} was written all the same", name(&asked.decision))
            });
        };
        promise(answer == Settled::Done, "a settlement by the holder is written", || {
            format!("{} was refused", name(&asked.decision))
        })?;
        judge(known, held, asked, self.classes[known.class].retry.retries)?;
        known.held = None;
        known.in_doubt |= held.calls as usize > asked.attempts.len();
        known.tries += asked.attempts.len() as u32;
        let settled = apply(known, &asked.decision, now);
        if !matches!(asked.decision, Decision::Park { .. } | Decision::Release) {
            known.crashes = 0;
        }
        (known.cancelled, known.started) = (false, false);
        if asked.decision == Decision::MarkGone {
            let address = (known.tenant, known.provider, known.address);
            let since = self.moment(now).seq;
            self.gone.entry(address).or_insert(since);
        }
        settled
    }
}

/// Whether the holder may write this.
fn judge(known: &mut Known, held: Held, asked: &Settlement, retries: u32) -> Judged {
    let made = held.calls as usize + usize::from(held.started);
    promise(asked.attempts.len() <= made, NO_BURNED_ATTEMPT, || {
        format!("{} attempts are written down, {made} calls were made", asked.attempts.len())
    })?;
    known.attempts += asked.attempts.iter().filter(|attempt| attempt.counted).count() as u32;
    promise(known.attempts <= retries.saturating_add(1), WITHIN_POLICY, || {
        format!("{} attempts count, {retries} retries are allowed", known.attempts)
    })?;
    let poison = asked.decision == Decision::DeadLetter(DeadReason::Poison);
    promise(
        !poison || known.crashes >= CRASHES_MAX,
        "only what was there at crashes is poison",
        || format!("it was under way at {} crashes", known.crashes),
    )?;
    let says_sent = asked.decision == Decision::Done;
    promise(says_sent == held.accepted, TRUE_TO_ANSWER, || {
        let answer = if held.accepted { "accepted it" } else { "did not accept it" };
        format!("the provider {answer}; written is {}", name(&asked.decision))
    })
}

fn apply(known: &mut Known, decision: &Decision, now: Timestamp) -> Judged {
    known.reason = decision.dead_reason().or(known.reason);
    let next = match decision {
        Decision::Retry { after, .. } => {
            known.due = now + *after;
            State::Retrying
        }
        Decision::Park { after } => {
            known.due = now + *after;
            State::Parked
        }
        Decision::Release | Decision::Again { .. } => known.state,
        Decision::FallBack => {
            promise(
                !known.alternatives.is_empty(),
                "it goes elsewhere where there is one",
                || "redirected without an alternative".into(),
            )?;
            (known.provider, known.address) = known.alternatives.remove(0);
            known.due = now;
            known.attempts = 0;
            State::Queued
        }
        ended => ended.final_state().unwrap_or(known.state),
    };
    let next = if known.cancelled && next.is_pending() { State::Cancelled } else { next };
    let from = std::mem::replace(&mut known.state, next);
    promise(from.can_become(next), MONOTONE, || format!("{from} became {next}"))
}

pub(crate) fn name(decision: &Decision) -> &'static str {
    let reason = decision.dead_reason().map(DeadReason::name);
    let state = decision.final_state().map(State::name);
    reason.or(state).unwrap_or_else(|| decision.name())
}
