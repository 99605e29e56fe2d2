//! What is wrong with a part of a world: with whom, what, and when.

use std::fmt;
use std::time::Duration;

use postrider_testkit::sick_level::SickLevel;

use super::traffic::Arrival;
use crate::rng::SimRng;

/// A wait that was asked for may be made longer by so much, so that not all calls come back at once.
const WAIT_STRETCH: f64 = 1.25;

/// One cause of trouble.
#[derive(Debug, Clone)]
pub(crate) struct SickPart {
    pub level: SickLevel,
    pub kind: SickKind,
    /// The share of the calls concerned that are hit.
    pub chance: f64,
    pub when: SickTime,
}

#[derive(Debug, Clone)]
pub(crate) enum SickKind {
    Status(u16),
    TooMany {
        retry_after_s: Option<u64>,
    },
    /// The connection breaks after the request was written.
    Reset,
    /// No connection: the code is that of the real channels.
    NoConnection {
        code: &'static str,
        after_ms: u64,
    },
    /// We ran out of something ourselves, such as open files.
    Local,
    /// A later answer.
    Slow(SlowShape),
    /// No answer at all, or one that trickles in for longer than we wait.
    Hang,
    /// Takes so many calls at once, one after the other.
    Queue {
        slots: usize,
        work_ms: u64,
    },
    /// Refuses what is more than so many calls at once.
    Slots {
        slots: usize,
        work_ms: u64,
        status: u16,
    },
    /// Refuses what is more than so many calls per second.
    Rate {
        per_s: u64,
        status: u16,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum SlowShape {
    Constant(u64),
    Lognormal {
        median_ms: f64,
        sigma: f64,
    },
    Bimodal {
        share: f64,
        ms: u64,
    },
    /// Grows by so much per minute.
    Drifting {
        ms_per_min: u64,
    },
}

/// When a part is sick, in milliseconds of the run.
#[derive(Debug, Clone)]
pub(crate) enum SickTime {
    Always,
    From(i64),
    Between(i64, i64),
    Wave {
        period: i64,
        on: i64,
    },
    /// Gets better from the first time to the second.
    Decay(i64, i64),
}

impl SickTime {
    /// How sick it is, from 0 to 1.
    pub(crate) fn strength(&self, at: i64) -> f64 {
        let on = match *self {
            Self::Always => true,
            Self::From(from) => at >= from,
            Self::Between(from, to) => at >= from && at < to,
            Self::Wave { period, on } => at % period < on,
            Self::Decay(from, to) => {
                return if at < from {
                    0.0
                } else {
                    ((to - at) as f64 / (to - from) as f64).max(0.0)
                };
            }
        };
        f64::from(u8::from(on))
    }

    /// How long before `at` it last began to be sick; nothing if it had not begun.
    pub(crate) fn since_onset(&self, at: i64) -> Option<i64> {
        let onset = match *self {
            Self::Always => 0,
            Self::From(from) | Self::Between(from, _) | Self::Decay(from, _) => from,
            Self::Wave { period, .. } => at - at % period,
        };
        (at >= onset).then_some(at - onset)
    }

    /// The same, so many times as slow.
    pub(crate) fn stretched(&self, by: f64) -> Self {
        let times = |ms: i64| (ms as f64 * by) as i64;
        match *self {
            Self::Always => Self::Always,
            Self::From(from) => Self::From(times(from)),
            Self::Between(from, to) => Self::Between(times(from), times(to)),
            Self::Wave { period, on } => Self::Wave { period: times(period), on: times(on) },
            Self::Decay(from, to) => Self::Decay(times(from), times(to)),
        }
    }

    /// When it is well again for good.
    pub(crate) fn healed_at(&self) -> Option<i64> {
        match *self {
            Self::Between(_, to) | Self::Decay(_, to) => Some(to),
            _ => None,
        }
    }
}

impl SickPart {
    /// `near` is an arrival of the world; the part is drawn around it.
    pub(crate) fn draw(rng: &mut SimRng, near: &Arrival, length_ms: i64) -> Self {
        let level = match rng.below(20) {
            0..=9 => SickLevel::Addresses {
                origin: near.origin,
                share: rng.log_uniform(0.001, 0.95),
                salt: rng.next(),
            },
            10..=13 => SickLevel::TenantAtOrigin { tenant: near.tenant, origin: near.origin },
            14..=15 => SickLevel::Origin(near.origin),
            16 => SickLevel::Origins { share: rng.log_uniform(0.01, 0.8), salt: rng.next() },
            17 => SickLevel::OwnProcess { share: rng.log_uniform(0.01, 0.8), salt: rng.next() },
            _ => SickLevel::Tenant(near.tenant),
        };
        let kind = match &level {
            SickLevel::OwnProcess { .. } => SickKind::Local,
            SickLevel::Origin(_) if rng.chance(0.4) => SickKind::draw_of_load(rng),
            SickLevel::TenantAtOrigin { .. } if rng.chance(0.4) => SickKind::draw_of_quota(rng),
            SickLevel::Origin(_) | SickLevel::Origins { .. } if rng.chance(0.4) => {
                SickKind::draw_of_connections(rng)
            }
            _ => SickKind::draw(rng),
        };
        let is_local = matches!(kind, SickKind::Local);
        let always = rng.chance(0.5) || kind.depends_on_load();
        let chance = if always { 1.0 } else { rng.log_uniform(0.05, 1.0) };
        let onset = rng.within(5_000, length_ms as u64 / 3) as i64;
        let heals = onset + rng.within(10_000, length_ms as u64 / 3) as i64;
        let when = match rng.below(6) {
            // Every delivery tries again each second: longer would only take longer to run.
            _ if is_local => SickTime::Between(onset, onset + rng.within(1_000, 10_000) as i64),
            0 => SickTime::Always,
            1 | 2 => SickTime::From(onset),
            3 => SickTime::Between(onset, heals),
            4 => {
                let period = rng.within(20_000, 60_000) as i64;
                SickTime::Wave { period, on: rng.within(1_000, period as u64 / 2) as i64 }
            }
            _ => SickTime::Decay(onset, heals),
        };
        Self { level, kind, chance, when }
    }

    /// Everything fails for a while, for a tenant or for all: beside what else is sick there.
    pub(crate) fn draw_outage(rng: &mut SimRng, near: &Arrival, length_ms: i64) -> Self {
        let Arrival { tenant, origin, .. } = *near;
        let (level, kind) = match rng.chance(0.6) {
            true => (SickLevel::TenantAtOrigin { tenant, origin }, SickKind::draw_failure(rng)),
            false if rng.chance(0.7) => (SickLevel::Origin(origin), SickKind::draw_failure(rng)),
            false => (SickLevel::Origin(origin), SickKind::draw_of_connections(rng)),
        };
        let onset = rng.within(5_000, length_ms as u64 / 3) as i64;
        let heals = onset + rng.log_uniform(8_000.0, length_ms as f64 / 2.0) as i64;
        Self { level, kind, chance: 1.0, when: SickTime::Between(onset, heals) }
    }

    /// When it is well again for good, and the last wait that it asked for is over.
    pub(crate) fn healed_at(&self) -> Option<i64> {
        let asked_s = match self.kind {
            SickKind::TooMany { retry_after_s } => retry_after_s.unwrap_or(0),
            _ => 0,
        };
        let asked = Duration::from_secs(asked_s).mul_f64(WAIT_STRETCH);
        self.when.healed_at().map(|at| at + asked.as_millis() as i64)
    }

    /// Whether the arrival belongs to the sick part of the world, sick at this moment or not.
    pub(crate) fn covers(&self, arrival: &Arrival) -> bool {
        self.level.covers(arrival.ends())
    }
}

impl SickKind {
    fn draw(rng: &mut SimRng) -> Self {
        match rng.below(10) {
            0 | 1 => Self::Status(*rng.pick(&[500, 502, 503, 504])),
            2 | 3 => Self::TooMany {
                retry_after_s: rng.chance(0.7).then(|| rng.log_uniform(1.0, 3_600.0) as u64),
            },
            4 => Self::Reset,
            5..=7 => Self::Slow(match rng.below(4) {
                0 => SlowShape::Constant(rng.log_uniform(50.0, 30_000.0) as u64),
                1 => SlowShape::Lognormal {
                    median_ms: rng.log_uniform(50.0, 10_000.0),
                    sigma: rng.unit(),
                },
                2 => SlowShape::Bimodal {
                    share: rng.log_uniform(0.05, 0.9),
                    ms: rng.log_uniform(200.0, 30_000.0) as u64,
                },
                _ => SlowShape::Drifting { ms_per_min: rng.log_uniform(100.0, 20_000.0) as u64 },
            }),
            _ => Self::Hang,
        }
    }

    pub(super) fn draw_failure(rng: &mut SimRng) -> Self {
        match rng.below(4) {
            0 | 1 => Self::Status(*rng.pick(&[500, 502, 503, 504])),
            2 => Self::Reset,
            _ => Self::Hang,
        }
    }

    /// Nobody can connect: this concerns an origin as a whole.
    fn draw_of_connections(rng: &mut SimRng) -> Self {
        let code = *rng.pick(&["connect", "connect", "tls", "dns", "no_such_host"]);
        Self::NoConnection { code, after_ms: rng.log_uniform(1.0, 10_000.0) as u64 }
    }

    fn draw_of_load(rng: &mut SimRng) -> Self {
        let slots = rng.log_uniform(1.0, 64.0) as usize;
        let work_ms = rng.log_uniform(5.0, 500.0) as u64;
        let status = *rng.pick(&[429, 503]);
        match rng.below(3) {
            0 => Self::Queue { slots, work_ms },
            1 => Self::Slots { slots, work_ms, status },
            _ => Self::Rate { per_s: rng.log_uniform(1.0, 200.0) as u64, status },
        }
    }

    /// What an origin allows one tenant: capacity belongs to the origin.
    fn draw_of_quota(rng: &mut SimRng) -> Self {
        match Self::draw_of_load(rng) {
            Self::Queue { slots, work_ms } | Self::Slots { slots, work_ms, .. } => {
                let per_s = (slots as u64 * 1_000 / work_ms.max(1)).max(1);
                Self::Rate { per_s, status: 429 }
            }
            Self::Rate { per_s, .. } => Self::Rate { per_s, status: 429 },
            other => other,
        }
    }

    /// No request is written at all.
    pub(crate) fn prevents_connections(&self) -> bool {
        matches!(self, Self::NoConnection { .. } | Self::Local)
    }

    /// Its calls end as soon as those of others.
    pub(crate) fn fails_at_once(&self) -> bool {
        matches!(self, Self::Status(_) | Self::TooMany { .. } | Self::Reset | Self::Local)
    }

    /// Its calls take longer than those of others.
    pub(crate) fn makes_calls_last(&self) -> bool {
        matches!(self, Self::Slow(_) | Self::Hang | Self::Queue { .. } | Self::Slots { .. })
    }

    /// It asks for fewer calls.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self, Self::Status(503 | 504) | Self::TooMany { .. })
    }

    pub(crate) fn depends_on_load(&self) -> bool {
        matches!(self, Self::Queue { .. } | Self::Slots { .. } | Self::Rate { .. })
    }
}

impl SlowShape {
    pub(crate) fn extra_ms(&self, rng: &mut SimRng, sick_for_ms: i64) -> u64 {
        match *self {
            Self::Constant(ms) => ms,
            Self::Lognormal { median_ms, sigma } => {
                (median_ms * (sigma * rng.normal()).exp()) as u64
            }
            Self::Bimodal { share, ms } => ms * u64::from(rng.chance(share)),
            Self::Drifting { ms_per_min } => ms_per_min * sick_for_ms.max(0) as u64 / 60_000,
        }
    }
}

impl fmt::Display for SickPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.level, self.kind)?;
        if self.chance < 1.0 {
            write!(f, " for {:.0} % of the calls", self.chance * 100.0)?;
        }
        write!(f, ", {:?}", self.when)
    }
}
