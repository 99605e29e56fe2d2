//! The checks that a lane passes before anything is leased from it, in one ordered list. Admission,
//! `explain` and the table in `docs/lanes.md` follow [`CHECKS`]. Leases nothing and sends nothing.

mod breaker;
mod concurrency;
mod credential;
mod pace;
mod paused;
mod rate_limits;
mod retry_after;
mod retry_budget;

use std::sync::MutexGuard;

use postrider_core::model::message::Priority;
use postrider_core::policy::breaker::BreakerRefusal;
use postrider_core::policy::call_limit::CallToken;
use postrider_core::policy::call_places::CallPlace;
use postrider_core::policy::fairness::WeightPart;
use postrider_core::{Gate, LaneKey, LaneState, Timestamp};

use super::call::{CallEffect, CallResult, LaneEvent};
use super::global::OwnPlaces;
use super::provider::{BreakerEpochs, FreedPlaces, LaneProvider, ProviderGates, number};
use super::report::GateVerdict;
use super::{LaneRefusal, Lanes};

/// Every check, in the order in which they are asked. The first that says no names the gate.
const CHECKS: &[&dyn LaneCheck] = &[
    &paused::PausedCheck,
    &retry_after::RetryAfterCheck,
    &breaker::BreakerCheck,
    &credential::CredentialCheck,
    &pace::PaceCheck,
    &rate_limits::RateLimitsCheck,
    &retry_budget::RetryBudgetCheck,
    &concurrency::ConcurrencyCheck,
];

/// Every gate, in the order in which they are asked.
pub fn gates() -> impl Iterator<Item = Gate> {
    CHECKS.iter().flat_map(|check| check.gates()).copied()
}

/// One reason why a lane may have to wait.
trait LaneCheck: Sync {
    /// The gates that users see for it.
    fn gates(&self) -> &'static [Gate];

    /// What each of its gates says at this moment, in words. Changes nothing.
    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict>;

    /// How many of `want` calls could pass, or what holds the lane. Changes nothing.
    fn room(&self, _lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        Ok(want)
    }

    /// Takes up to `want` calls, or says what holds the lane and takes none.
    fn take(&self, _lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        Ok(want)
    }

    /// Takes back calls that were permitted and not made.
    fn give_back(&self, _lane: &mut LaneContext<'_>, _calls: usize) {}

    /// Learns from the end of a call, which still counts as under way.
    fn learn(&self, _lane: &mut LaneContext<'_>, _call: &CallResult, _effect: &mut CallEffect) {}
}

/// One lane at one moment, as the checks see it. Holds the lock of its provider's gates.
pub(super) struct LaneContext<'a> {
    lanes: &'a Lanes,
    lane: &'a LaneKey,
    provider: &'a LaneProvider,
    gates: MutexGuard<'a, ProviderGates>,
    now: Timestamp,
    /// Calls of the lane's priority that the provider has a free place for.
    free_places: usize,
    /// There are free places, and they are for other tenants that wait.
    holds_part: bool,
    /// Calls that our own places allow the tenant, and which places it waits for if it is none.
    own_room: usize,
    pub(super) own_wait: Option<OwnPlaces>,
    /// The limit's token of the call that ended.
    token: Option<CallToken>,
    /// Under which openings of the breakers the calls are permitted.
    pub(super) epochs: BreakerEpochs,
    /// The calls were begun: what they took of a rate stays taken.
    pub(super) begun: bool,
    /// A random number in `0.0..1.0`.
    pub(super) random: f64,
}

impl<'a> LaneContext<'a> {
    pub(super) fn new(
        lanes: &'a Lanes,
        lane: &'a LaneKey,
        provider: &'a LaneProvider,
        now: Timestamp,
    ) -> Self {
        let gates = provider.gates();
        let epochs = BreakerEpochs::default();
        Self {
            lanes,
            lane,
            provider,
            gates,
            now,
            free_places: 0,
            holds_part: false,
            own_room: 0,
            own_wait: None,
            token: None,
            epochs,
            begun: false,
            random: 0.0,
        }
    }

    /// Asks every check for up to `want` calls. What a later check does not let through goes back to
    /// the earlier ones.
    pub(super) fn admit(&mut self, want: usize) -> Result<(usize, BreakerEpochs), LaneRefusal> {
        let calls = CHECKS.iter().try_fold(want, |calls, check| check.room(self, calls));
        let mut calls = calls.map_err(|state| self.refusal(state))?;
        for (nth, check) in CHECKS.iter().enumerate() {
            let taken = check.take(self, calls);
            let surplus = calls - taken.unwrap_or(0);
            if surplus > 0 {
                CHECKS[..nth].iter().for_each(|earlier| earlier.give_back(self, surplus));
            }
            calls = taken.map_err(|state| self.refusal(state))?;
        }
        Ok((calls, self.epochs))
    }

    /// An event that no call's end caused.
    fn note_event(&self, event: Option<LaneEvent>) {
        event.into_iter().for_each(|event| self.lanes.note_event(self.lane, event));
    }

    /// Whether no lane of the provider may go.
    pub(super) fn is_held_for_all(&self) -> bool {
        self.gates.holds_every_lane(self.now)
    }

    /// What holds the lane at this provider, apart from a lack of room.
    pub(super) fn provider_refusal(&self) -> Option<LaneState> {
        let checks: [&dyn LaneCheck; 3] =
            [&retry_after::RetryAfterCheck, &breaker::BreakerCheck, &credential::CredentialCheck];
        let paused = self.lanes.operator.provider_pause_state(self.provider.key(), self.now);
        paused.or_else(|| checks.iter().find_map(|check| check.room(self, 1).err()))
    }

    pub(super) fn give_back(&mut self, calls: usize) {
        CHECKS.iter().for_each(|check| check.give_back(self, calls));
    }

    /// Moves calls that take long to places of their own.
    pub(super) fn advance(&mut self) {
        let (global, origin) = (&self.lanes.global, self.provider.number());
        let overdue = self.gates.advance(self.now).into_iter();
        overdue.for_each(|tenant| global.becomes_apart(tenant, origin));
    }

    /// Notes how many places are free, and that more are wanted if these are too few. The tenant gets its part of
    /// them while others wait.
    pub(super) fn count_free_places(&mut self, priority: Priority, want: usize, part: WeightPart) {
        let global = &self.lanes.global;
        let origin = self.provider.number();
        let tenant = &self.lane.tenant;
        let number = number(tenant);
        self.free_places = self.gates.free_places(priority, self.now);
        self.gates.wanted |= self.free_places < want;
        // Probes are few, and those of one round go together.
        let part = if self.gates.is_probed_by(tenant) { WeightPart::WHOLE } else { part };
        let part = part.of(self.gates.limit.limit(self.now));
        let room = part.saturating_sub(self.gates.held_by_tenant(tenant, priority, self.now));
        self.holds_part = self.free_places > 0 && room == 0;
        self.gates.wanted |= self.holds_part;
        self.free_places = self.free_places.min(room);
        let all = self.lanes.policies.now().limits.concurrency;
        self.own_room = global.room(all, number, origin, priority);
        self.own_wait = (self.own_room == 0).then_some(OwnPlaces::Any);
        let apart = match self.gates.limit.is_proven(self.now) {
            _ if self.gates.is_crowded_by(number, self.now) => 0,
            true => usize::MAX,
            false => global.room_apart(all, number, origin, self.gates.is_silent(tenant)),
        };
        if apart == 0 {
            self.own_wait = Some(OwnPlaces::Apart);
        }
        self.own_room = self.own_room.min(apart);
    }

    pub(super) fn in_flight_and_limit(&self) -> (usize, usize) {
        (self.gates.places.in_flight(), self.gates.limit.limit(self.now))
    }

    pub(super) fn free_place(
        &mut self,
        place: CallPlace,
        target: u64,
        is_told: bool,
    ) -> (FreedPlaces, bool) {
        self.gates.free_place(&self.lane.tenant, place, target, is_told, self.now)
    }

    pub(super) fn learn(&mut self, call: &CallResult, token: CallToken) -> CallEffect {
        self.token = Some(token);
        let mut effect = CallEffect::default();
        let was_proven = self.gates.limit.is_proven(self.now);
        CHECKS.iter().for_each(|check| check.learn(self, call, &mut effect));
        effect.eased |= !was_proven && self.gates.limit.is_proven(self.now);
        effect
    }

    /// What every gate says, in order.
    pub(super) fn verdicts(&self) -> Vec<GateVerdict> {
        CHECKS.iter().flat_map(|check| check.verdicts(self)).collect()
    }

    fn refusal(&self, state: LaneState) -> LaneRefusal {
        let of_provider = match state.gate() {
            Some(Gate::RateLimit) => true,
            Some(Gate::Concurrency) => self.own_room > 0,
            Some(Gate::RetryAfter | Gate::Breaker | Gate::Credential | Gate::MassGone) => {
                self.gates.holds_every_lane(self.now)
            }
            _ => false,
        };
        let holds_part = self.holds_part && of_provider && state.gate() == Some(Gate::Concurrency);
        LaneRefusal { state, of_provider, holds_part }
    }
}

fn held_by(on: Gate, refusal: BreakerRefusal) -> LaneState {
    match refusal {
        BreakerRefusal::Until(until) => LaneState::Waiting { on, until },
        BreakerRefusal::Probing | BreakerRefusal::Forced => LaneState::Blocked { on },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gates_are_those_of_the_core_in_the_same_order() {
        assert_eq!(gates().collect::<Vec<_>>(), Gate::ALL);
    }

    #[test]
    fn the_table_in_the_docs_lists_every_gate_in_the_order_in_which_they_are_asked() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lanes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table = page.lines().skip_while(|line| !line.starts_with("| gate |")).skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let named: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        assert_eq!(named, gates().map(Gate::name).collect::<Vec<_>>());
    }
}
