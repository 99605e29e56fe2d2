//! Why a delivery is where it is: every gate with its verdict, what it waits for and until when,
//! and what an operator can do. Says only what is known; pure.

mod remedies;
mod words;

use postrider_core::ports::store::LaneDepth;
use postrider_core::{Class, DeadReason, Delivery, State, Strike, Timestamp};
use postrider_dispatch::lanes::Standing;
use serde::Serialize;
use utoipa::ToSchema;

use super::lanes::LaneBody;
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

/// All that an explanation is made from.
pub(crate) struct Known<'a> {
    pub delivery: &'a Delivery,
    /// What its address was blamed for since it last worked.
    pub strikes: &'a [Strike],
    /// Its lane, while something is pending there.
    pub lane: Option<&'a LaneDepth>,
    pub standing: &'a Standing,
    /// With the retry policy that holds for this delivery.
    pub class: Option<&'a Class>,
    /// Whether this server sends at all.
    pub dispatches: bool,
    pub now: Timestamp,
}

impl Known<'_> {
    fn is_pending(&self) -> bool {
        self.delivery.state.is_pending()
    }

    /// Due, and not being sent at this moment.
    fn is_due(&self) -> bool {
        let waits = self.is_pending() && self.delivery.state != State::Sending;
        waits && self.delivery.due_at.is_none_or(|due| due <= self.now)
    }

    /// The gate of its lane that keeps it waiting. Matters once it is due; before that, it is due
    /// later anyway.
    fn held(&self) -> Option<&postrider_dispatch::lanes::Verdict> {
        self.standing.held_by().filter(|_| self.dispatches && self.is_due())
    }
}

pub(crate) fn explain(known: &Known<'_>) -> Explanation {
    let delivery = known.delivery;
    let pending = known.is_pending();
    let due = delivery.due_at.filter(|due| pending && *due > known.now);
    let held = known.held();
    Explanation {
        id: delivery.id.to_string(),
        state: delivery.state.name(),
        summary: words::summary(known),
        waits_for: words::waits_for(known),
        until: due.max(held.and_then(|verdict| verdict.until)).map(Into::into),
        ttl_left_s: if pending { delivery.expires_at.since(known.now).as_secs() } else { 0 },
        gates: gates(known),
        can_do: remedies::can_do(known),
        lane: known.lane.map(|lane| LaneBody::new(lane.clone(), known.standing)),
        delivery: delivery.clone().into(),
    }
}

fn gates(known: &Known<'_>) -> Vec<GateVerdict> {
    let Known { delivery, now, .. } = *known;
    let pending = known.is_pending();
    let dead_by = |reason| delivery.state == State::Failed && delivery.reason == Some(reason);
    let gate = |gate, holds: bool, detail: String| GateVerdict {
        gate,
        verdict: if holds { "open" } else { "closed" },
        detail,
    };
    let not_expired = delivery.state != State::Expired
        && !dead_by(DeadReason::Ttl)
        && (!pending || now < delivery.expires_at);
    let is_cancelled = delivery.state == State::Cancelled;
    let mut gates = vec![
        gate("not cancelled", !is_cancelled, format!("state {}", delivery.state)),
        gate("not expired", not_expired, format!("expires at {}", delivery.expires_at)),
        gate("address alive", delivery.state != State::Gone, words::address(known)),
    ];
    if let Some(class) = known.class {
        let allowed = class.retry.retries + 1;
        let detail = format!("{} used; its policy allows {allowed}", delivery.attempts);
        let left =
            !dead_by(DeadReason::RetriesExhausted) && (!pending || delivery.attempts < allowed);
        gates.push(gate("attempts left", left, detail));
    }
    if !pending {
        return gates;
    }
    if !known.dispatches {
        let detail = "this server accepts and shows only (server.role = \"api\")".to_owned();
        gates.push(gate("dispatcher", false, detail));
    }
    if let Some(due) = delivery.due_at {
        let verdict = if due > now { "waiting" } else { "open" };
        gates.push(GateVerdict { gate: "due", verdict, detail: format!("due at {due}") });
    }
    if let Some(lane) = known.lane {
        let detail = format!("{} pending, {} in flight", lane.pending, lane.in_flight);
        gates.push(gate("lane", true, detail));
    }
    gates.extend(known.standing.gates.iter().map(Into::into));
    gates
}
