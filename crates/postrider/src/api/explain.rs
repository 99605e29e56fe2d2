//! Why a delivery is where it is: every gate with its verdict, what it waits for and until when,
//! and what an operator can do. Says only what is known; pure.

use postrider_core::store::LaneDepth;
use postrider_core::{Class, DeadReason, Delivery, State, Timestamp};
use postrider_dispatch::lanes::Standing;
use serde::Serialize;
use utoipa::ToSchema;

use super::lanes::{self, LaneBody};
use super::views::{DeliveryBody, Time};

/// What is known about a delivery's position.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    pub id: String,
    pub state: &'static str,
    /// One sentence for a person.
    pub summary: String,
    /// What it waits for; absent if it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Until when it waits, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Seconds left until it expires; 0 if that has passed or no longer matters.
    pub ttl_left_s: u64,
    /// Every gate on its way, in order.
    pub gates: Vec<GateVerdict>,
    /// What can be done about it.
    pub can_do: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneBody>,
    pub delivery: DeliveryBody,
}

/// One gate and what it says.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GateVerdict {
    pub gate: &'static str,
    /// `open`, `waiting` or `closed`.
    pub verdict: &'static str,
    pub detail: String,
}

pub(crate) fn explain(
    delivery: Delivery,
    lane: Option<LaneDepth>,
    standing: &Standing,
    class: Option<&Class>,
    now: Timestamp,
) -> Explanation {
    let pending = delivery.state.is_pending();
    let left = if pending { delivery.expires_at.since(now).as_secs() } else { 0 };
    let due = delivery.due_at.filter(|due| pending && *due > now);
    // What holds its lane up matters once it is due; before that, it is due later anyway.
    let held = standing.held_by().filter(|_| is_due(&delivery, now));
    let waiting = due.max(held.and_then(|verdict| verdict.until));
    let mut can_do = can_do(&delivery);
    if let (Some(lane), true) = (&lane, held.is_some()) {
        can_do.extend(lanes::can_do(lane.id, standing));
    }
    Explanation {
        id: delivery.id.to_string(),
        state: delivery.state.name(),
        summary: summary(&delivery, class, now),
        waits_for: match held {
            Some(verdict) => Some(format!("its lane; {}: {}", verdict.gate.name(), verdict.detail)),
            None => waits_for(&delivery, lane.as_ref(), now),
        },
        until: waiting.map(Into::into),
        ttl_left_s: left,
        gates: gates(&delivery, lane.as_ref(), standing, class, now),
        can_do,
        lane: lane.map(|lane| LaneBody::new(lane, standing)),
        delivery: delivery.into(),
    }
}

fn is_due(delivery: &Delivery, now: Timestamp) -> bool {
    let waits = delivery.state.is_pending() && delivery.state != State::Sending;
    waits && delivery.due_at.is_none_or(|due| due <= now)
}

fn summary(delivery: &Delivery, class: Option<&Class>, now: Timestamp) -> String {
    let tries = delivery.log.len();
    let last = last_answer(delivery);
    let at = delivery.changed_at;
    match delivery.state {
        State::Queued if delivery.due_at.is_some_and(|due| due > now) => {
            "It is scheduled for later.".to_owned()
        }
        State::Queued => "It is due and waits for its turn in its lane.".to_owned(),
        State::Sending => "It is being sent at this moment.".to_owned(),
        State::Retrying => {
            let allowed = class.map_or(String::new(), |c| format!(" of {}", c.retry.retries + 1));
            format!(
                "Attempt {}{allowed} failed ({last}); it will be tried again.",
                delivery.attempts
            )
        }
        State::Parked => format!(
            "It waits without using up attempts, because something on our side or at the provider needs attention ({last})."
        ),
        State::Sent => format!("The provider accepted it at {at}, on attempt {tries}."),
        State::Delivered => format!("The far end reported its arrival at {at}."),
        State::Seen => format!("It was displayed at {at}."),
        State::Clicked => format!("It was clicked at {at}."),
        State::Dismissed => format!("It was dismissed at {at}."),
        State::Gone => format!("The address does not exist any more ({last}); known since {at}."),
        State::Expired => format!("Its time to live ended at {}.", delivery.expires_at),
        State::Failed => {
            let reason = delivery.reason.map_or("unknown", |r| r.name());
            format!("It is a dead letter since {at}, reason {reason} ({last}).")
        }
        State::Cancelled => format!("It was cancelled at {at}."),
        State::Suppressed => format!("It was suppressed at {at}."),
    }
}

/// The last attempt in a few words.
fn last_answer(delivery: &Delivery) -> String {
    let Some(attempt) = delivery.log.last() else { return "never attempted".to_owned() };
    let mut words = Vec::new();
    words.extend(attempt.status.map(|s| format!("status {s}")));
    words.extend(attempt.code.clone());
    if words.is_empty() {
        words.push(attempt.outcome.to_string());
    }
    words.extend(attempt.retry_after.as_ref().map(|r| format!("Retry-After {r}")));
    words.join(", ")
}

fn waits_for(delivery: &Delivery, lane: Option<&LaneDepth>, now: Timestamp) -> Option<String> {
    let due = delivery.due_at.filter(|_| delivery.state.is_pending())?;
    let ahead = lane.map_or(0, |l| l.pending);
    Some(match delivery.state {
        State::Sending => format!("the provider's answer; its lease ends at {due}"),
        State::Parked if due > now => format!("a working credential; looked at again at {due}"),
        State::Retrying if due > now => format!("its next attempt at {due}"),
        _ if due > now => format!("its time, {due}"),
        _ => format!("a free place to its provider; {ahead} pending in its lane"),
    })
}

fn gates(
    delivery: &Delivery,
    lane: Option<&LaneDepth>,
    standing: &Standing,
    class: Option<&Class>,
    now: Timestamp,
) -> Vec<GateVerdict> {
    let pending = delivery.state.is_pending();
    let dead_by = |reason| delivery.state == State::Failed && delivery.reason == Some(reason);
    let gate = |gate, holds: bool, detail: String| GateVerdict {
        gate,
        verdict: if holds { "open" } else { "closed" },
        detail,
    };
    let mut gates = vec![
        gate(
            "not cancelled",
            delivery.state != State::Cancelled,
            format!("state {}", delivery.state),
        ),
        gate(
            "not expired",
            delivery.state != State::Expired
                && !dead_by(DeadReason::Ttl)
                && (!pending || now < delivery.expires_at),
            format!("expires at {}", delivery.expires_at),
        ),
        gate(
            "address alive",
            delivery.state != State::Gone,
            format!("address hash {}", delivery.address_hash),
        ),
    ];
    if let Some(class) = class {
        let allowed = class.retry.retries + 1;
        let detail = format!("{} used; its policy allows {allowed}", delivery.attempts);
        let left =
            !dead_by(DeadReason::RetriesExhausted) && (!pending || delivery.attempts < allowed);
        gates.push(gate("attempts left", left, detail));
    }
    if let Some(due) = delivery.due_at.filter(|_| pending) {
        gates.push(GateVerdict {
            gate: "due",
            verdict: if due > now { "waiting" } else { "open" },
            detail: format!("due at {due}"),
        });
    }
    if let Some(lane) = lane.filter(|_| pending) {
        let detail = format!("{} pending, {} in flight", lane.pending, lane.in_flight);
        gates.push(GateVerdict { gate: "lane", verdict: "open", detail });
    }
    if pending {
        gates.extend(standing.gates.iter().map(Into::into));
    }
    gates
}

fn can_do(delivery: &Delivery) -> Vec<String> {
    let id = delivery.id;
    match delivery.state {
        State::Failed if delivery.discarded => Vec::new(),
        State::Failed => {
            vec![format!("postrider dead replay {id}"), format!("postrider dead discard {id}")]
        }
        State::Parked => vec![
            "check the credential or the VAPID key that the last attempt used".to_owned(),
            format!("postrider messages cancel {}", delivery.message),
        ],
        State::Queued | State::Retrying => {
            vec![format!("postrider messages cancel {}", delivery.message)]
        }
        State::Gone => vec!["let the client subscribe again and register the new address".into()],
        _ => Vec::new(),
    }
}
