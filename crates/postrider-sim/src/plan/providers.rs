//! How each provider behaves over time: well, but for phases in which it does not.

use postrider_core::ChannelKind;

use super::Profile;
use crate::intake::KINDS;
use crate::rng::Rng;

#[derive(Debug, Clone)]
pub(crate) struct ProviderPlan {
    pub kind: ChannelKind,
    /// Under which name its answers are looked up in the table.
    pub service: &'static str,
    /// Of an ordinary answer.
    pub latency_ms: u64,
    pub phases: Vec<Phase>,
}

#[derive(Debug, Clone)]
pub(crate) struct Phase {
    pub from_ms: i64,
    pub to_ms: i64,
    pub mood: Mood,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Mood {
    Well,
    /// More than that is answered with 429 (or what stands for it).
    Limited {
        per_s: u64,
        wait: Wait,
    },
    /// More at once than that is answered with 503.
    Slots {
        at_once: usize,
    },
    /// Nothing works: 500, 503 with or without a wish to be left alone, or no connection at all.
    Down {
        status: Option<u16>,
        wait: Wait,
    },
    Slow {
        ms: u64,
    },
    /// Does not answer for so long; sometimes longer than a lease lasts.
    Hanging {
        ms: u64,
    },
    /// Takes some of the requests, or loses them, and answers to none of those.
    Losing {
        percent: u64,
    },
    /// So many of its addresses are gone.
    Gone {
        percent: u64,
    },
    /// Refuses some messages for good.
    Refusing {
        percent: u64,
    },
    /// Says of some requests that it did not process them.
    Reconnecting {
        percent: u64,
    },
    /// Calls some tokens stale.
    Stale {
        percent: u64,
    },
}

/// How `Retry-After` is written, if at all.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    Unsaid,
    Seconds(u64),
    Date(u64),
}

impl ProviderPlan {
    pub(crate) fn mood_at(&self, ms: i64) -> Mood {
        let now = self.phases.iter().find(|phase| (phase.from_ms..phase.to_ms).contains(&ms));
        now.map_or(Mood::Well, |phase| phase.mood)
    }
}

/// Their 429s differ in how far they reach: one address, one credential, the whole host.
const SERVICES: [&str; 5] = ["webhook", "http", "webpush.wns", "webpush.fcm", "webpush.mozilla"];

pub(super) fn draw(profile: Profile, calm_at_ms: i64, rng: &mut Rng) -> Vec<ProviderPlan> {
    let count = match profile {
        Profile::Contention => 1,
        Profile::Outage => rng.within(2, 3),
        _ => rng.magnitude(6),
    };
    let provider = |_| ProviderPlan {
        kind: *rng.pick(&KINDS),
        service: SERVICES[rng.index(SERVICES.len())],
        latency_ms: rng.within(5, 300),
        phases: phases(profile, calm_at_ms, rng),
    };
    (0..count).map(provider).collect()
}

fn phases(profile: Profile, calm_at_ms: i64, rng: &mut Rng) -> Vec<Phase> {
    if profile == Profile::Contention {
        return Vec::new();
    }
    let mut phases = Vec::new();
    let mut at = 0;
    while phases.len() < 8 {
        at += rng.within(0, calm_at_ms as u64 / 4) as i64;
        let longest = match profile {
            Profile::Outage => 300_000,
            Profile::Days => 7_200_000,
            _ => 60_000,
        };
        let to = at + rng.magnitude(longest) as i64;
        if to >= calm_at_ms {
            break;
        }
        let mood =
            if profile == Profile::Outage && rng.chance(0.6) { down(rng) } else { mood(rng) };
        phases.push(Phase { from_ms: at, to_ms: to, mood });
        at = to;
    }
    phases
}

fn mood(rng: &mut Rng) -> Mood {
    let percent = rng.within(5, 100);
    match rng.below(11) {
        0 | 1 => Mood::Limited { per_s: rng.magnitude(20), wait: wait(rng) },
        2 => Mood::Slots { at_once: rng.within(1, 6) as usize },
        3 => down(rng),
        4 => Mood::Slow { ms: rng.within(500, 9_000) },
        5 => Mood::Hanging { ms: rng.within(5_000, 200_000) },
        6 => Mood::Losing { percent },
        7 => Mood::Gone { percent },
        8 => Mood::Refusing { percent },
        9 => Mood::Reconnecting { percent },
        _ => Mood::Stale { percent },
    }
}

fn down(rng: &mut Rng) -> Mood {
    Mood::Down { status: *rng.pick(&[Some(500), Some(503), None]), wait: wait(rng) }
}

fn wait(rng: &mut Rng) -> Wait {
    match rng.below(3) {
        0 => Wait::Unsaid,
        1 => Wait::Seconds(rng.magnitude(600)),
        _ => Wait::Date(rng.magnitude(600)),
    }
}
