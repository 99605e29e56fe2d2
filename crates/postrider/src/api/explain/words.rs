//! What is known about a delivery, in sentences for a person.

use postrider_core::model::class::WhenOpen;
use postrider_core::{AttemptRecord, DeadReason, Delivery, State, Strike, StrikeKind, Timestamp};

use super::Known;

pub(super) fn summary(known: &Known<'_>) -> String {
    let delivery = known.delivery;
    let last = last_answer(delivery);
    let at = delivery.changed_at;
    match delivery.state {
        State::Queued if is_later(known) => "It is scheduled for later.".to_owned(),
        State::Queued if !known.dispatches => {
            "It is due, but this server accepts only: nothing is sent until one with the role \"all\" works on this store.".to_owned()
        }
        State::Queued => "It is due and waits for its turn in its lane.".to_owned(),
        State::Sending => "It is being sent at this moment.".to_owned(),
        State::Retrying => retrying(known, &last),
        State::Parked => parked(known, &last),
        State::Sent => format!(
            "The provider accepted it at {at}, on attempt {}. That is not yet proof of arrival.",
            delivery.log.len()
        ),
        State::Delivered => format!("The far end reported its arrival at {at}."),
        State::Seen => format!("It was displayed at {at}."),
        State::Clicked => format!("It was clicked at {at}."),
        State::Dismissed => format!("It was dismissed at {at}."),
        State::Gone => format!("The address does not exist any more ({last}); known since {at}."),
        State::Expired => {
            format!("Its time to live ended at {} ({last}).", delivery.expires_at)
        }
        State::Failed => dead(known, &last, at),
        State::Cancelled => format!("It was cancelled at {at} ({last})."),
        State::Suppressed => format!(
            "Its last attempt left and got no answer ({last}). Its class drops what may have arrived rather than send it twice."
        ),
    }
}

fn retrying(known: &Known<'_>, last: &str) -> String {
    let delivery = known.delivery;
    let counted = delivery.log.last().is_none_or(|attempt| attempt.counted);
    if !counted {
        return format!(
            "Its last attempt failed and does not count, because the provider fails as a whole or never took the request ({last}); it will be tried again."
        );
    }
    let allowed = known.class.map_or(String::new(), |c| format!(" of {}", c.retry.retries + 1));
    format!("Attempt {}{allowed} failed ({last}); it will be tried again.", delivery.attempts)
}

/// Why a delivery is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parked {
    Credential,
    MassGone,
    /// Its class falls back, and there is nowhere to go.
    NoFallback,
    /// Its address takes no more at this moment.
    AddressRate,
}

impl Parked {
    pub(super) fn of(known: &Known<'_>) -> Self {
        let last = known.delivery.log.last().filter(|attempt| &*attempt.decision == "park");
        let falls_back = known.class.is_some_and(|class| class.when_open == WhenOpen::FallBack);
        match last.map(|attempt| &*attempt.outcome) {
            Some("gone") => Self::MassGone,
            Some(_) => Self::Credential,
            None if falls_back && known.standing.held_by().is_some() => Self::NoFallback,
            None => Self::AddressRate,
        }
    }
}

fn parked(known: &Known<'_>, last: &str) -> String {
    match Parked::of(known) {
        Parked::MassGone => format!(
            "The provider calls its address gone ({last}), as it does with so many others at once that it is not believed. Address and attempts are kept."
        ),
        Parked::NoFallback => "It is to fall back while its provider's breaker is open, has no other address, and waits.".to_owned(),
        Parked::AddressRate => "Its address gets as much as it is to get at this moment.".to_owned(),
        Parked::Credential => format!(
            "It waits without using up attempts, because the provider does not accept our credential ({last})."
        ),
    }
}

fn dead(known: &Known<'_>, last: &str, at: Timestamp) -> String {
    let why = match known.delivery.reason {
        Some(DeadReason::Permanent) => "the provider refused the message for good",
        Some(DeadReason::RetriesExhausted) => "every attempt that its policy allows was made",
        Some(DeadReason::Ttl) => "there was no time left for another attempt",
        Some(DeadReason::Poison) => {
            "it cannot be read, or the server crashed again and again while it was being sent"
        }
        Some(DeadReason::Ambiguous) => {
            "an attempt left, no answer is known, and its class does not risk a duplicate"
        }
        Some(DeadReason::Refused) => {
            "its provider's breaker was open, and its class does not wait for that"
        }
        None => "nobody knows why",
    };
    let reason = known.delivery.reason.map_or("unknown", DeadReason::name);
    if known.delivery.discarded {
        return format!(
            "It was a dead letter, reason {reason}: {why} ({last}). A person gave it up for good at {at}."
        );
    }
    format!("It is a dead letter since {at}, reason {reason}: {why} ({last}).")
}

/// The address, and what it was blamed for. That a receiver fails is told by its attempts until it
/// matters.
pub(super) fn address(known: &Known<'_>) -> String {
    let mut text = format!("address hash {}", known.delivery.address_hash);
    let told = |strike: &&Strike| strike.suspect || strike.kind != StrikeKind::Failing;
    for strike in known.strikes.iter().filter(told) {
        let Strike { kind, count, first_at, .. } = strike;
        let suspect = if strike.suspect { ", suspect" } else { "" };
        text.push_str(&format!("; blamed {count} × for {kind} since {first_at}{suspect}"));
    }
    text
}

/// The last attempt in a few words.
fn last_answer(delivery: &Delivery) -> String {
    delivery.log.last().map_or_else(|| "never attempted".to_owned(), in_short)
}

fn in_short(attempt: &AttemptRecord) -> String {
    let mut words = Vec::new();
    words.extend(attempt.status.map(|s| format!("status {s}")));
    words.extend(attempt.code.clone());
    if words.is_empty() {
        words.push(attempt.outcome.to_string());
    }
    words.extend(attempt.retry_after.as_ref().map(|r| format!("Retry-After {r}")));
    words.extend(attempt.strike.map(|kind| format!("held against its address: {kind}")));
    words.join(", ")
}

fn is_later(known: &Known<'_>) -> bool {
    known.delivery.due_at.is_some_and(|due| due > known.now)
}

pub(super) fn waits_for(known: &Known<'_>) -> Option<String> {
    if let Some(verdict) = known.held() {
        return Some(format!("its lane; {}: {}", verdict.gate.name(), verdict.detail));
    }
    let delivery = known.delivery;
    let due = delivery.due_at.filter(|_| known.is_pending())?;
    if !known.dispatches && !is_later(known) {
        return Some("a server that sends".to_owned());
    }
    let ahead = known.lane.map_or(0, |l| l.pending);
    Some(match delivery.state {
        State::Sending => format!("the provider's answer; its lease ends at {due}"),
        State::Parked if is_later(known) => parked_for(known, due),
        State::Retrying if is_later(known) => format!("its next attempt at {due}"),
        _ if is_later(known) => format!("its time, {due}"),
        _ => format!("its turn; {ahead} pending in its lane"),
    })
}

fn parked_for(known: &Known<'_>, due: Timestamp) -> String {
    match Parked::of(known) {
        Parked::MassGone => format!("the doubt to be resolved; looked at again at {due}"),
        Parked::NoFallback => format!("its provider to come back; looked at again at {due}"),
        Parked::AddressRate => format!("room in the address's rate limit at {due}"),
        Parked::Credential => format!("a working credential; looked at again at {due}"),
    }
}
