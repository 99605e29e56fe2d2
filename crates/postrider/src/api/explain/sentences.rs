//! Sentences about a delivery, for a person.

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::audience::WithheldReason;
use postrider_core::{
    AttemptRecord, DeadReason, DecisionKind, Delivery, Gate, OutcomeKind, ReceiptKind, State,
    Strike, StrikeKind, Timestamp,
};

use postrider_dispatch::lanes::{AddressRest, OwnShortage};

use super::ExplainContext;
use super::address::{address_rest, holder, waiting_with};

pub(super) fn summary(context: &ExplainContext<'_>) -> String {
    let delivery = context.delivery;
    let last = last_answer(delivery);
    let at = delivery.changed_at;
    match delivery.state {
        State::Queued if is_later(context) => "It is scheduled for later.".to_owned(),
        State::Queued if !context.server_sends => {
            "It is due, but this server does not send. A server with the role \"all\" has to run on this store.".to_owned()
        }
        State::Queued if context.unserved_region.is_some() => {
            let region = context.unserved_region.unwrap_or_default();
            format!("It is due, but its tenant is pinned to the region {region}, where no worker runs.")
        }
        State::Queued => "It is due and waits for its turn in its lane.".to_owned(),
        State::Sending => "It is being sent at this moment.".to_owned(),
        State::Retrying => retrying(context, &last),
        State::Parked => parked(context, &last),
        State::Sent => format!(
            "The provider accepted it at {at}, on attempt {}. That is not yet proof of arrival.",
            delivery.log.len()
        ),
        State::Delivered => format!("The receiving side reported its arrival at {at}."),
        State::Seen => format!("It was displayed at {at}."),
        State::Clicked => format!("It was clicked at {at}."),
        State::Dismissed => format!("It was dismissed at {at}."),
        State::Gone if delivery.receipts.iter().any(|r| r.kind == ReceiptKind::Bounced) => {
            format!("The provider accepted it, and it came back at {at}.")
        }
        State::Gone => format!("The address does not exist any more ({last}); known since {at}."),
        State::Expired => {
            format!("Its time to live ended at {} ({last}).", delivery.expires_at)
        }
        State::Failed => dead(context, &last, at),
        State::Cancelled => format!("It was cancelled at {at} ({last})."),
        State::Suppressed if withheld(delivery).is_some() => format!(
            "It was not sent at {at}: {}.",
            withheld(delivery).map_or("", withheld_because)
        ),
        State::Suppressed => format!(
            "Its last attempt was sent and got no answer ({last}). It may have arrived, and its class drops it to avoid a duplicate."
        ),
    }
}

fn retrying(context: &ExplainContext<'_>, last: &str) -> String {
    let delivery = context.delivery;
    let counted = delivery.log.last().is_none_or(|attempt| attempt.counted);
    if !counted {
        return format!(
            "Its last attempt failed and does not count, because the provider is down or never took the request ({last}); it will be tried again."
        );
    }
    let allowed = context.class.map_or(String::new(), |c| format!(" of {}", c.retry.retries + 1));
    format!("Attempt {}{allowed} failed ({last}); it will be tried again.", delivery.attempts)
}

/// Why a delivery is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParkReason {
    /// It comes from a backup and waits for an operator.
    Backup,
    Credential,
    MassGone,
    /// Its class falls back to another address, but there is none.
    NoFallback,
    /// Its recipient has quiet hours.
    QuietHours,
    /// Its address is called rarely.
    Address(AddressRest),
    /// The server itself ran out of something.
    Shortage,
    /// Retries have taken their share.
    RetryBudget,
    /// The rate limit of its address is used up.
    AddressRate,
    /// What it waited for is over.
    Over,
}

impl ParkReason {
    pub(super) fn of(context: &ExplainContext<'_>) -> Self {
        let last =
            context.delivery.log.last().filter(|attempt| attempt.decision == DecisionKind::Park);
        let falls_back = context.class.is_some_and(|class| class.when_open == WhenOpen::FallBack);
        match last.map(|attempt| attempt.outcome) {
            _ if context.delivery.held => Self::Backup,
            _ if context.in_quiet_hours => Self::QuietHours,
            Some(OutcomeKind::Gone) => Self::MassGone,
            Some(_) => Self::Credential,
            None if falls_back && context.standing.held_by().is_some() => Self::NoFallback,
            None => match context.address_rest {
                Some(rest) => Self::Address(rest),
                None if context.shortage.is_some() => Self::Shortage,
                None if is_over_budget(context) => Self::RetryBudget,
                None if context.has_address_rate => Self::AddressRate,
                None => Self::Over,
            },
        }
    }
}

fn is_over_budget(context: &ExplainContext<'_>) -> bool {
    let mut gates = context.standing.gates.iter();
    let is_closed =
        gates.any(|verdict| verdict.gate == Gate::RetryBudget && verdict.until.is_some());
    is_closed && !context.delivery.log.is_empty()
}

fn parked(context: &ExplainContext<'_>, last: &str) -> String {
    match ParkReason::of(context) {
        ParkReason::Backup => "It was pending when this store was backed up, and may have been sent since. It is held until an operator releases it.".to_owned(),
        ParkReason::MassGone => format!(
            "The provider says that its address is gone ({last}), but it says so about too many addresses at once to be believed. The address is kept, and no attempt is used up."
        ),
        ParkReason::NoFallback => "Its provider's breaker is open. Its class falls back to another address, but the message has none, so it waits.".to_owned(),
        ParkReason::QuietHours => "Its recipient has quiet hours; it is sent when they are over.".to_owned(),
        ParkReason::Address(rest) => format!(
            "It is put off: {}{}.",
            address_rest(rest, context),
            waiting_with(context.waiting_with)
        ),
        ParkReason::Shortage => shortage(context),
        ParkReason::RetryBudget => "Retries have taken their share of the lane's traffic; first attempts go before it.".to_owned(),
        ParkReason::AddressRate => "The rate limit of its address is used up at this moment.".to_owned(),
        ParkReason::Over => "It was put off for a moment without using up an attempt; what it waited for is over.".to_owned(),
        ParkReason::Credential => format!(
            "It waits without using up attempts, because the provider does not accept our credential ({last})."
        ),
    }
}

fn is_of_connections(context: &ExplainContext<'_>) -> bool {
    const CODES: [&str; 5] = ["connections", "busy", "descriptors", "ports", "memory"];
    context.shortage.is_some_and(|shortage| CODES.contains(&&*shortage.code))
}

/// Nobody else is to blame. The details of other codes name what other tenants call.
fn shortage(context: &ExplainContext<'_>) -> String {
    let Some(OwnShortage { code, detail }) = context.shortage else { return String::new() };
    let what = match is_of_connections(context) {
        true => format!("waits for a connection of this server ({code}: {detail})"),
        false => format!("waits because the server itself ran out of something ({code})"),
    };
    format!("It {what}. Nobody was called, nobody else is to blame, and no attempt is used up.")
}

fn dead(context: &ExplainContext<'_>, last: &str, at: Timestamp) -> String {
    let why = match context.delivery.reason {
        Some(DeadReason::Permanent) => "the provider refused the message for good",
        Some(DeadReason::RetriesExhausted) => "every attempt that its policy allows was made",
        Some(DeadReason::Ttl) => "there was no time left for another attempt",
        Some(DeadReason::Poison) => {
            "it cannot be read, or the server crashed again and again while it was being sent"
        }
        Some(DeadReason::Ambiguous) => {
            "an attempt was sent, its answer is unknown, and its class does not risk a duplicate"
        }
        Some(DeadReason::Refused) => {
            "its provider's breaker was open, and its class does not wait for that"
        }
        None => "the reason is unknown",
    };
    let reason = context.delivery.reason.map_or("unknown", DeadReason::name);
    if context.delivery.discarded {
        return format!(
            "It was a dead letter, reason {reason}: {why} ({last}). An operator discarded it at {at}."
        );
    }
    format!("It has been a dead letter since {at}, reason {reason}: {why} ({last}).")
}

/// The address and the strikes against it. A failing receiver is left out until the address is suspect:
/// the attempts show it.
pub(super) fn address(context: &ExplainContext<'_>) -> String {
    let mut text = format!("address hash {}", context.delivery.address_hash);
    text.extend(context.address_rest.map(|rest| format!("; {}", address_rest(rest, context))));
    let is_shown = |strike: &&Strike| strike.suspect || strike.kind != StrikeKind::Failing;
    for strike in context.strikes.iter().filter(is_shown) {
        let Strike { kind, count, first_at, .. } = strike;
        let suspect = if strike.suspect { ", suspect" } else { "" };
        text.push_str(&format!("; blamed {count} × for {kind} since {first_at}{suspect}"));
    }
    text
}

/// The last attempt in a few words.
fn last_answer(delivery: &Delivery) -> String {
    delivery.log.last().map_or_else(|| "never attempted".to_owned(), shortly)
}

fn shortly(attempt: &AttemptRecord) -> String {
    let mut words = Vec::new();
    words.extend(attempt.status.map(|s| format!("status {s}")));
    words.extend(attempt.code.clone());
    if words.is_empty() {
        words.push(attempt.outcome.to_string());
    }
    words.extend(attempt.retry_after.as_ref().map(|r| format!("Retry-After {r}")));
    words.extend(attempt.strike.map(|kind| format!("strike against its address: {kind}")));
    words.join(", ")
}

fn is_later(context: &ExplainContext<'_>) -> bool {
    context.delivery.due_at.is_some_and(|due| due > context.now)
}

pub(super) fn waits_for(context: &ExplainContext<'_>) -> Option<String> {
    if context.delivery.held && context.is_pending() {
        return Some("an operator to release it".to_owned());
    }
    if let Some(verdict) = context.held() {
        let most = context.long_place_holder.filter(|_| verdict.gate == Gate::Concurrency);
        return Some(format!(
            "its lane; {}: {}{}",
            verdict.gate.name(),
            verdict.detail,
            holder(most)
        ));
    }
    let delivery = context.delivery;
    let due = delivery.due_at.filter(|_| context.is_pending())?;
    if !context.server_sends && !is_later(context) {
        return Some("a server that sends".to_owned());
    }
    if let Some(region) = context.unserved_region.filter(|_| context.is_due()) {
        return Some(format!("a worker of the region {region}"));
    }
    let ahead = context.lane.map_or(0, |l| l.pending);
    Some(match delivery.state {
        State::Sending => format!("the provider's answer; its lease ends at {due}"),
        State::Parked if is_later(context) => parked_for(context, due),
        State::Retrying if is_later(context) => format!("its next attempt at {due}"),
        _ if is_later(context) => format!("its scheduled time, {due}"),
        _ => format!("its turn; {ahead} pending in its lane"),
    })
}

fn parked_for(context: &ExplainContext<'_>, due: Timestamp) -> String {
    match ParkReason::of(context) {
        ParkReason::Backup => "an operator to release it".to_owned(),
        ParkReason::MassGone => format!("the doubt to be resolved; checked again at {due}"),
        ParkReason::NoFallback => format!("its provider to come back; checked again at {due}"),
        ParkReason::QuietHours => format!("the end of its recipient's quiet hours; sent at {due}"),
        ParkReason::Address(_) => format!("its address; tried again at {due}"),
        ParkReason::Shortage if is_of_connections(context) => {
            format!("a connection of this server; tried again at {due}")
        }
        ParkReason::Shortage => format!("something of this server's own; tried again at {due}"),
        ParkReason::RetryBudget => format!("its lane's retry budget; tried again at {due}"),
        ParkReason::AddressRate => format!("room in the address's rate limit at {due}"),
        ParkReason::Over => format!("its turn at {due}"),
        ParkReason::Credential => format!("a working credential; checked again at {due}"),
    }
}

/// Why nobody was called, if that is how it ended.
pub(super) fn withheld(delivery: &Delivery) -> Option<WithheldReason> {
    let last = delivery.log.last().filter(|last| last.outcome == OutcomeKind::Withheld)?;
    WithheldReason::parse(last.code.as_deref()?)
}

fn withheld_because(reason: WithheldReason) -> &'static str {
    match reason {
        WithheldReason::Undeliverable => "its address is suppressed as undeliverable",
        WithheldReason::Complaint => "the owner of its address complained or answered STOP",
        WithheldReason::Unsubscribed => "its address is unsubscribed from this",
        WithheldReason::Snoozed => "its recipient wants to be left alone for a while",
        WithheldReason::OptedOut => "its recipient said no to this",
        WithheldReason::NotOptedIn => "its recipient did not say yes to this category",
        WithheldReason::QuietHours => {
            "its recipient has quiet hours, and its class does not wait for their end"
        }
        WithheldReason::UnknownZone => "its recipient has quiet hours, and no time zone is known",
    }
}
