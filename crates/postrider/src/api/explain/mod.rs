//! Explains a delivery: every gate with its verdict, what the delivery waits for and until when, and what
//! an operator can do. Pure.

mod address;
mod remedies;
mod sentences;

use postrider_core::ports::store::LaneDepth;
use postrider_core::{Class, DeadReason, Delivery, State, Strike, Timestamp};
use postrider_dispatch::lanes::{
    AddressRest, LaneReport, LongPlaceHolder, OwnPlaceWait, OwnShortage,
};

use super::lanes::LaneBody;
use super::prelude::*;
use super::views::DeliveryBody;
pub(crate) use address::WaitingCount;

/// Why a delivery is in its state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplanationBody {
    pub id: String,
    pub state: &'static str,
    /// A short text for a person.
    pub summary: String,
    /// What it waits for; absent if it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Until when it waits, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Seconds until it expires; 0 if it expired or is final.
    pub ttl_left_s: u64,
    /// Every gate that it has to pass, in order.
    pub gates: Vec<GateBody>,
    /// What can be done about it.
    pub can_do: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneBody>,
    pub delivery: DeliveryBody,
}

/// The verdict of one gate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GateVerdict)]
pub(crate) struct GateBody {
    pub gate: &'static str,
    /// `open`, `waiting` or `closed`.
    pub verdict: &'static str,
    pub detail: String,
}

/// The facts behind an explanation.
pub(crate) struct ExplainContext<'a> {
    pub delivery: &'a Delivery,
    /// The strikes against its address since it last worked.
    pub strikes: &'a [Strike],
    /// Its lane, if anything is pending there.
    pub lane: Option<&'a LaneDepth>,
    pub standing: &'a LaneReport,
    /// Why calls to its address are put off.
    pub address_rest: Option<AddressRest>,
    /// The other deliveries that wait for that, where it is known.
    pub waiting_with: Option<WaitingCount>,
    /// Calls to one address have a rate limit.
    pub has_address_rate: bool,
    /// Which of the server's own places its lane waits for.
    pub own_place_wait: Option<OwnPlaceWait>,
    /// Who holds the most of the server's long places, if it waits for one and the caller may know other tenants.
    pub long_place_holder: Option<&'a LongPlaceHolder>,
    /// Its recipient has quiet hours now.
    pub in_quiet_hours: bool,
    /// What the server itself ran out of within the last moments.
    pub shortage: Option<&'a OwnShortage>,
    /// Its class, with the retry policy of this delivery.
    pub class: Option<&'a Class>,
    /// Whether this server sends.
    pub server_sends: bool,
    /// The region that its tenant is pinned to, if no worker runs there.
    pub unserved_region: Option<&'a str>,
    pub now: Timestamp,
}

impl ExplainContext<'_> {
    fn is_pending(&self) -> bool {
        self.delivery.state.is_pending()
    }

    /// Due, and not being sent at this moment.
    fn is_due(&self) -> bool {
        let waits = self.is_pending() && self.delivery.state != State::Sending;
        waits && self.delivery.due_at.is_none_or(|due| due <= self.now)
    }

    /// The gate of its lane that holds it up. None before it is due: then only the due time matters.
    fn held(&self) -> Option<&postrider_dispatch::lanes::GateVerdict> {
        self.standing.held_by().filter(|_| self.server_sends && self.is_due())
    }
}

pub(crate) fn explain(context: &ExplainContext<'_>) -> ExplanationBody {
    let delivery = context.delivery;
    let pending = context.is_pending();
    let due = delivery.due_at.filter(|due| pending && *due > context.now);
    let held = context.held();
    ExplanationBody {
        id: delivery.id.to_string(),
        state: delivery.state.name(),
        summary: sentences::summary(context),
        waits_for: sentences::waits_for(context),
        until: due.max(held.and_then(|verdict| verdict.until)).map(Into::into),
        ttl_left_s: if pending { delivery.expires_at.since(context.now).as_secs() } else { 0 },
        gates: gates(context),
        can_do: remedies::can_do(context),
        lane: context.lane.map(|lane| LaneBody::new(lane.clone(), context.standing)),
        // Explanations are passed around: they do not name the recipient.
        delivery: Delivery { recipient: None, ..delivery.clone() }.into(),
    }
}

fn gates(context: &ExplainContext<'_>) -> Vec<GateBody> {
    let ExplainContext { delivery, now, .. } = *context;
    let pending = context.is_pending();
    let dead_by = |reason| delivery.state == State::Failed && delivery.reason == Some(reason);
    let gate = |gate, holds: bool, detail: String| GateBody {
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
        gate("address alive", delivery.state != State::Gone, sentences::address(context)),
    ];
    if let Some(class) = context.class {
        let allowed = class.retry.retries + 1;
        let detail = format!("{} used; its policy allows {allowed}", delivery.attempts);
        let left =
            !dead_by(DeadReason::RetriesExhausted) && (!pending || delivery.attempts < allowed);
        gates.push(gate("attempts left", left, detail));
    }
    if !pending {
        return gates;
    }
    if !context.server_sends {
        let detail = "this server does not send (server.role = \"api\")".to_owned();
        gates.push(gate("dispatcher", false, detail));
    }
    if let Some(region) = context.unserved_region {
        let detail = format!("pinned to {region}, where no worker runs");
        gates.push(gate("worker of its region", false, detail));
    }
    if delivery.held {
        gates.push(gate("released", false, "held since the store was restored".to_owned()));
    }
    if let Some(due) = delivery.due_at {
        let verdict = if due > now { "waiting" } else { "open" };
        gates.push(GateBody { gate: "due", verdict, detail: format!("due at {due}") });
    }
    if let Some(lane) = context.lane {
        let detail = format!("{} pending, {} in flight", lane.pending, lane.in_flight);
        gates.push(gate("lane", true, detail));
    }
    gates.extend(context.standing.gates.iter().map(Into::into));
    gates
}
