//! Rules about places: ours, those of an origin, and those of long calls.

use super::{RuleChange, core, lanes, patch, rule};

pub(super) const PLACES: &[RuleChange] = &[
    rule(
        "crowds",
        "a tenant with more long calls than are left to the others waits",
        &[patch(
            core!("call_places.rs"),
            "own > all.saturating_sub(self.overdue_all)",
            "own == usize::MAX",
        )],
    ),
    rule(
        "part",
        "a tenant gets its part of an origin's places while others wait",
        &[patch(
            lanes!("checks/mod.rs"),
            "if self.gates.is_probed_by(tenant) { WeightPart::WHOLE } else { part };",
            "if self.now.0 > 0 { WeightPart::WHOLE } else { part };",
        )],
    ),
    rule(
        "told-least",
        "of the lanes that are told, one is of the tenant that holds the fewest places",
        &[patch(
            lanes!("global.rs"),
            "0 => queue.pop_least(|tenant| calls.held_by(tenant)),",
            "0 if calls.used == usize::MAX => queue.pop_least(|tenant| calls.held_by(tenant)),",
        )],
    ),
    rule(
        "told",
        "lanes that wait for a place of ours are told when a call ends",
        &[patch(lanes!("global.rs"), "const TOLD: usize = 2;", "const TOLD: usize = 0;")],
    ),
    rule(
        "slow",
        "slow addresses get long places from the start",
        &[
            patch(
                core!("sick_addresses.rs"),
                "const LONG_MIN: u32 = 2;",
                "const LONG_MIN: u32 = u32::MAX;",
            ),
            patch(
                core!("address_turns.rs"),
                "const SLOW_FROM: usize = 2;",
                "const SLOW_FROM: usize = usize::MAX;",
            ),
        ],
    ),
    rule(
        "slow-under-way",
        "an address with two long calls under way is slow",
        &[patch(
            core!("address_turns.rs"),
            "const SLOW_FROM: usize = 2;",
            "const SLOW_FROM: usize = usize::MAX;",
        )],
    ),
    rule(
        "slow-before",
        "an address whose calls were long twice is slow",
        &[patch(
            core!("sick_addresses.rs"),
            "const LONG_MIN: u32 = 2;",
            "const LONG_MIN: u32 = u32::MAX;",
        )],
    ),
    rule(
        "slow-share",
        "a slow address gets one call for every eight free long places",
        &[patch(
            core!("address_turns.rs"),
            "let is_much = SLOW_SHARE",
            "let is_much = room.long == usize::MAX && SLOW_SHARE",
        )],
    ),
    rule(
        "long-places",
        "long calls have places of their own",
        &[patch(
            core!("call_places.rs"),
            "if ceiling < CEILING_MIN ||",
            "if ceiling < CEILING_MIN.max(usize::MAX) ||",
        )],
    ),
    rule(
        "stall",
        "an origin where no call ends in the usual time gets 32 calls at most, long ones among them",
        &[patch(
            core!("origin_stall.rs"),
            "self.begun >= CALLS_MIN\n",
            "now.0 < 0 && self.begun >= CALLS_MIN\n",
        )],
    ),
    rule(
        "unproven",
        "an origin that did not answer lately gets four calls",
        &[patch(core!("call_limit.rs"), "limit.min(UNPROVEN)", "limit.max(UNPROVEN.min(1))")],
    ),
    rule(
        "unproven-apart",
        "calls to such an origin count as calls of unknown length",
        &[
            patch(lanes!("provider.rs"), "slow || !self.limit.is_proven(now);", "slow;"),
            patch(
                lanes!("checks/mod.rs"),
                "false => global.room_apart(all, number, origin, self.gates.is_silent(tenant)),",
                "false => usize::MAX,",
            ),
        ],
    ),
    rule(
        "apart-half",
        "calls of unknown length get half of our places",
        &[patch(core!("global_places.rs"), "(all / 2).max(1)", "all.max(1)")],
    ),
    rule(
        "apart-tenant",
        "a tenant gets no more of these than are free",
        &[patch(core!("global_places.rs"), ".room(1)", ".room(1_000_000)")],
    ),
    rule(
        "apart-origin",
        "an origin gets a quarter of these at most",
        &[patch(
            lanes!("global.rs"),
            "room.min(apart_of_origin(all).saturating_sub(self.all.at(origin)))",
            "room.min(apart_of_origin(all).max(usize::MAX))",
        )],
    ),
    rule(
        "known-long",
        "calls known to last long leave half of these to others",
        &[patch(
            core!("global_places.rs"),
            "if is_known { places.all.div_ceil(2) }",
            "if is_known { places.all }",
        )],
    ),
    rule(
        "apart-part",
        "what an origin holds of these beyond its part is no loss of the others",
        &[patch(
            core!("global_places.rs"),
            "let part = apart_of_origin(apart_places);",
            "let part = usize::MAX - apart_places;",
        )],
    ),
    rule(
        "told-waiting",
        "a lane that found a place by itself is not told in the stead of others",
        &[patch(lanes!("mod.rs"), "self.global.found(lane);", "")],
    ),
    rule(
        "overdue-apart",
        "a call that turns out to be long counts as one of unknown length",
        &[
            patch(
                lanes!("checks/mod.rs"),
                "overdue.for_each(|tenant|",
                "overdue.take(0).for_each(|tenant|",
            ),
            patch(
                lanes!("mod.rs"),
                "ticket.is_apart || was_long;",
                "ticket.is_apart || (was_long && now.0 < 0);",
            ),
        ],
    ),
    rule(
        "by-occupancy",
        "a tenant's calls to an origin are eight times what is free at most",
        &[patch(
            core!("global_places.rs"),
            "const ORDINARY_SHARE: usize = 8;",
            "const ORDINARY_SHARE: usize = 1_000_000;",
        )],
    ),
    rule(
        "reserve-all",
        "a tenth of our places is kept for urgent work",
        &[patch(
            core!("global_places.rs"),
            "const RESERVED_PERCENT: usize = 10;",
            "const RESERVED_PERCENT: usize = 0;",
        )],
    ),
    rule(
        "reserve-origin",
        "a tenth of an origin's places is kept for urgent work",
        &[patch(
            core!("fairness.rs"),
            "const RESERVED_PERCENT: usize = 10;",
            "const RESERVED_PERCENT: usize = 0;",
        )],
    ),
];
