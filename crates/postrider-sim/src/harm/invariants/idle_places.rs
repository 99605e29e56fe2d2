//! No healthy delivery that is due waits while there is room for its call: a place in all, a place at its
//! origin, and a connection. Looks at first attempts only: from outside, nobody knows when a retry is due.

use std::collections::HashMap;

use postrider_core::Gate;
use postrider_dispatch::lanes::LaneReport;

use super::LOOK_MS;
use crate::harm::bounds::BrokenBound;
use crate::harm::network::OriginSeen;
use crate::harm::traffic::Arrival;

/// How long it may wait.
const WAIT_MS: i64 = 250;
/// A delivery that found no connection rests so long, even if there is one meanwhile.
pub(super) const REST_MS: i64 = 1_000;

/// Since when each waiting delivery was found with room for it.
#[derive(Default)]
pub(super) struct IdlePlaces(HashMap<u32, i64>);

/// Whether there is room, and some to spare: shares of the places are kept for urgent work and for calls
/// whose length nobody knows.
pub(super) fn is_free(
    seen: &OriginSeen,
    report: &LaneReport,
    standing: usize,
    places: usize,
) -> bool {
    seen.has_connection
        && (seen.standing.max(report.provider_in_flight) + 1) * 4 < report.provider_limit * 3
        && standing * 5 < places
}

impl IdlePlaces {
    pub(super) fn waits(
        &mut self,
        arrival: &Arrival,
        is_free: bool,
        report: &LaneReport,
        now: i64,
    ) -> Option<BrokenBound> {
        if !is_free {
            self.0.remove(&arrival.id);
            return None;
        }
        let since = *self.0.entry(arrival.id).or_insert(now);
        if now - since < WAIT_MS + LOOK_MS {
            return None;
        }
        let places = report.gates.iter().find(|verdict| verdict.gate == Gate::Concurrency);
        let held = report.held_by().map_or("nothing", |verdict| verdict.gate.name());
        let why = report.held_by().or(places).map_or("", |verdict| &verdict.detail);
        let Arrival { tenant, origin, at_ms, .. } = arrival;
        let detail =
            format!("t{tenant} at o{origin} from {at_ms} to {now} ms; held by {held}: {why}");
        Some(BrokenBound { bound: "no healthy work waits beside free places", detail })
    }
}
