//! Checks leases and settlements as the store answered them.

use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::policy::decide::CRASHES_MAX;
use postrider_core::ports::store::{LeasedDelivery, SettleResult, Settlement};
use postrider_core::{DeadReason, DeliveryId, State, Timestamp};

use super::{CheckResult, DeliveryRecord, EventTime, HeldLease, Oracle, check};

const NO_SECOND_SEND: &str = "no second send after a recorded acceptance";
const ONE_HOLDER: &str = "a delivery has one holder at a time";
const NOTHING_FORGOTTEN: &str = "the store forgets no attempt";
const REPEATED: &str = "a repeated settlement is answered as the first one";
const FENCED: &str = "a settlement with an old token is refused";
const NO_BURNED_ATTEMPT: &str = "no attempt is burned by waiting";
const WITHIN_POLICY: &str = "no more attempts than the policy allows";
const TRUE_TO_ANSWER: &str = "a settlement agrees with the answer of the provider";
const MONOTONE: &str = "a final state stays";

impl Oracle {
    pub(crate) fn leased(
        &mut self,
        leased: &[LeasedDelivery],
        lasts: Duration,
        asked: EventTime,
        now: Timestamp,
    ) -> CheckResult {
        leased.iter().try_for_each(|one| self.leased_one(one, lasts, asked, now))
    }

    fn leased_one(
        &mut self,
        leased: &LeasedDelivery,
        lasts: Duration,
        asked: EventTime,
        now: Timestamp,
    ) -> CheckResult {
        let found = self.find(leased.delivery);
        check(found.is_some(), "only what was accepted is sent", || "an unknown delivery".into())?;
        let Some(record) = found.and_then(|index| self.deliveries.get_mut(index)) else {
            return Ok(());
        };
        let invariant = if record.state == State::Sent { NO_SECOND_SEND } else { MONOTONE };
        check(record.state.is_pending(), invariant, || format!("leased while {}", record.state))?;
        let is_held = record.held.is_some_and(|held| now < held.until);
        check(!is_held, ONE_HOLDER, || "leased again before the lease ended".into())?;
        check(
            record.due <= now || record.held.is_some() || leased.expires_at <= now,
            "nothing is sent before its time",
            || format!("due at {}, leased at {now}", record.due),
        )?;
        let (found, expected) = ((leased.attempts, leased.tries), (record.attempts, record.tries));
        check(found == expected, NOTHING_FORGOTTEN, || {
            format!("(counted, all) attempts are {expected:?}, the lease says {found:?}")
        })?;
        check(leased.expires_at == record.expires, "the deadline never moves", || {
            format!("it was {}, the lease says {}", record.expires, leased.expires_at)
        })?;
        check(leased.crashes <= record.crashes, "only crashes count as crashes", || {
            format!("{} happened, the lease says {}", record.crashes, leased.crashes)
        })?;
        check(
            !leased.started || record.started,
            "only started attempts are reported as started",
            String::new,
        )?;
        record.in_doubt |= leased.started || record.held.is_some_and(|held| held.calls > 0);
        record.held = Some(HeldLease {
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

    /// The store durably noted that attempts are about to start.
    pub(crate) fn started(&mut self, asked: &[(DeliveryId, u64)], answers: &[bool]) -> CheckResult {
        for ((delivery, token), answer) in asked.iter().zip(answers) {
            let Some(index) = self.find(*delivery) else { continue };
            let record = &mut self.deliveries[index];
            let is_holder = record.held.is_some_and(|held| held.token == *token);
            check(is_holder || !answer, FENCED, || "an attempt may start by an old token".into())?;
            record.started |= answer;
        }
        Ok(())
    }

    /// The store wrote settlements, or refused them.
    pub(crate) fn settled(
        &mut self,
        asked: &[Settlement],
        answers: &[SettleResult],
        now: Timestamp,
    ) -> CheckResult {
        check(asked.len() == answers.len(), "every settlement gets its answer", || {
            format!("{} settlements, {} answers", asked.len(), answers.len())
        })?;
        asked.iter().zip(answers).try_for_each(|(one, answer)| self.settled_one(one, *answer, now))
    }

    fn settled_one(
        &mut self,
        asked: &Settlement,
        answer: SettleResult,
        now: Timestamp,
    ) -> CheckResult {
        let Some(index) = self.find(asked.delivery) else { return Ok(()) };
        let record = &mut self.deliveries[index];
        if record.settled_by == Some(asked.token) {
            return check(answer == SettleResult::Done, REPEATED, String::new);
        }
        let held = record.held.filter(|held| held.token == asked.token);
        let Some(held) = held else {
            return check(answer == SettleResult::Fenced, FENCED, || {
                let holder = record.held.map_or("nobody", |_| "somebody else");
                format!("{holder} holds it; {} was written all the same", name(&asked.decision))
            });
        };
        check(answer == SettleResult::Done, "a settlement by the holder is written", || {
            format!("{} was refused", name(&asked.decision))
        })?;
        check_settlement(record, held, asked, self.classes[record.class].retry.retries)?;
        record.held = None;
        record.settled_by = Some(asked.token);
        record.in_doubt |= held.calls as usize > asked.attempts.len();
        record.tries += asked.attempts.len() as u32;
        let settled = apply(record, &asked.decision, now);
        if !matches!(asked.decision, Decision::Park { .. } | Decision::Release) {
            record.crashes = 0;
        }
        (record.cancelled, record.started) = (false, false);
        if asked.decision == Decision::MarkGone {
            let address = (record.tenant, record.provider, record.address);
            let since = self.next_event(now).seq;
            self.gone.entry(address).or_insert(since);
        }
        settled
    }
}

/// Checks that the holder may write this settlement.
fn check_settlement(
    record: &mut DeliveryRecord,
    held: HeldLease,
    asked: &Settlement,
    retries: u32,
) -> CheckResult {
    let made = held.calls as usize + usize::from(held.started);
    check(asked.attempts.len() <= made, NO_BURNED_ATTEMPT, || {
        format!("{} attempts are written down, {made} calls were made", asked.attempts.len())
    })?;
    record.attempts += asked.attempts.iter().filter(|attempt| attempt.counted).count() as u32;
    check(record.attempts <= retries.saturating_add(1), WITHIN_POLICY, || {
        format!("{} attempts count, {retries} retries are allowed", record.attempts)
    })?;
    let poison = asked.decision == Decision::DeadLetter(DeadReason::Poison);
    check(
        !poison || record.crashes >= CRASHES_MAX,
        "only deliveries in flight at crashes are poison",
        || format!("it was in flight at {} crashes", record.crashes),
    )?;
    let says_sent = asked.decision == Decision::Done;
    check(says_sent == held.accepted, TRUE_TO_ANSWER, || {
        let answer = if held.accepted { "accepted it" } else { "did not accept it" };
        format!("the provider {answer}; settled as {}", name(&asked.decision))
    })
}

fn apply(record: &mut DeliveryRecord, decision: &Decision, now: Timestamp) -> CheckResult {
    record.reason = decision.dead_reason().or(record.reason);
    let next = match decision {
        Decision::Retry { after, .. } => {
            record.due = now + *after;
            State::Retrying
        }
        Decision::Park { after } => {
            record.due = now + *after;
            State::Parked
        }
        Decision::Release | Decision::Again { .. } => record.state,
        Decision::FallBack => {
            check(!record.alternatives.is_empty(), "a redirect needs an alternative", || {
                "redirected without an alternative".into()
            })?;
            (record.provider, record.address) = record.alternatives.remove(0);
            record.due = now;
            record.attempts = 0;
            State::Queued
        }
        ended => ended.final_state().unwrap_or(record.state),
    };
    let next = if record.cancelled && next.is_pending() { State::Cancelled } else { next };
    let from = std::mem::replace(&mut record.state, next);
    check(from.can_become(next), MONOTONE, || format!("{from} became {next}"))
}

pub(crate) fn name(decision: &Decision) -> &'static str {
    let reason = decision.dead_reason().map(DeadReason::name);
    let state = decision.final_state().map(State::name);
    reason.or(state).unwrap_or_else(|| decision.name())
}
