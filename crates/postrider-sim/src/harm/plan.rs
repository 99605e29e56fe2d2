//! A world of one seed: who sends what to whom, and which part of it is sick.

use std::fmt;

use postrider_core::ChannelKind;
use postrider_dispatch::DispatchLimits;
use postrider_testkit::sick_level::SickGround;

use super::blind;
use super::busy::{draw_busy, draw_hidden};
use super::draw::draw;
use super::full::draw_full;
use super::sick::SickPart;
use super::traffic::{Arrival, WorldSize, draw_arrivals};
use crate::rng::SimRng;

/// The channel of the origins, and that of the accounts.
pub(crate) const WEB: ChannelKind = ChannelKind::new("webhook");
pub(crate) const RELAY: ChannelKind = ChannelKind::new("sms");

/// The classes of the messages: urgent, normal and low.
pub(crate) const CLASSES: [&str; 3] = ["otp", "transactional", "marketing"];

#[derive(Debug, Clone)]
pub(crate) struct HarmPlan {
    pub seed: u64,
    pub size: WorldSize,
    pub arrivals: Vec<Arrival>,
    pub sick: Vec<SickPart>,
    /// Connections that our process may have open.
    pub connections_max: usize,
    /// Changes the names of tenants and origins, and nothing else.
    pub naming: u64,
    /// Changes the random numbers that the rules draw, and nothing else.
    pub chance: u64,
}

/// How an origin answers in health.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginPlan {
    pub median_ms: f64,
    pub sigma: f64,
    /// One call per connection at a time.
    pub http1: bool,
}

/// Which part of the world takes part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HarmRunKind {
    /// The healthy part alone.
    HealthyAlone,
    /// Everything, and everything is well.
    AllWell,
    /// Everything, and the sick part is sick.
    SomeSick,
}

/// Of so many worlds, one is full and one has hidden trouble ...
const RARE_EVERY: u64 = 16;
/// ... and of the others, one of so many is a busy one.
const BUSY_EVERY: u64 = 4;
/// In one of so many worlds, tenants have weights.
const WEIGHTED_EVERY: u64 = 4;
const QUICK_MS: (f64, f64) = (5.0, 20.0);
const ONSET_MS: i64 = 1_000;
/// So much of a world's traffic stays healthy at the least.
const HEALTHY_SHARE_MIN: f64 = 0.15;

impl HarmPlan {
    pub(crate) fn draw(seed: u64) -> Self {
        match draw(seed, "rare kind of world", 0).below(RARE_EVERY) {
            0 => return draw_full(seed),
            1 => return draw_hidden(seed),
            _ => {}
        }
        match draw(seed, "kind of world", 0).below(BUSY_EVERY) {
            0 => draw_busy(seed),
            _ => Self::draw_wide(seed),
        }
    }

    fn draw_wide(seed: u64) -> Self {
        let mut rng = draw(seed, "world", 0);
        let size = WorldSize::draw(&mut rng);
        let connections_max = *rng.pick(&[256, 768, 4_096, 4_096]);
        Self::fill(seed, &mut rng, size, connections_max)
    }

    /// A world in which all share little: few origins, few places, many messages.
    pub(crate) fn draw_dense(seed: u64) -> Self {
        let mut rng = draw(seed, "dense world", 0);
        let size = WorldSize::draw_dense(&mut rng);
        let connections_max = *rng.pick(&[64, 128, 256]);
        Self::fill(seed, &mut rng, size, connections_max)
    }

    fn fill(seed: u64, rng: &mut SimRng, size: WorldSize, connections_max: usize) -> Self {
        let mut plan = Self::new(seed, size, draw_arrivals(seed, size), connections_max);
        for n in 0..rng.within(1, 4) {
            let mut rng = draw(seed, "sick part", n);
            let near = rng.index(plan.arrivals.len());
            plan.add_sick_part(SickPart::draw(&mut rng, &plan.arrivals[near], size.length_ms));
        }
        plan
    }

    pub(super) fn new(
        seed: u64,
        size: WorldSize,
        arrivals: Vec<Arrival>,
        connections_max: usize,
    ) -> Self {
        Self { seed, size, arrivals, sick: vec![], connections_max, naming: 0, chance: 0 }
    }

    /// Calls at once in all, as the server has them: no more than there are connections.
    pub(crate) fn places(&self) -> usize {
        DispatchLimits::default().concurrency.min(self.connections_max)
    }

    /// Adds a sick part, unless too little of the world would be healthy then, or have room.
    pub(super) fn add_sick_part(&mut self, part: SickPart) {
        let mut arrivals = self.arrivals.clone();
        let nth = self.sick.len();
        for arrival in arrivals.iter_mut().filter(|arrival| part.covers(arrival)) {
            arrival.parts |= 1 << nth;
            arrival.sick = true;
        }
        spread_to_tenants(&mut arrivals);
        let healthy = arrivals.iter().filter(|arrival| !arrival.sick).count();
        self.sick.push(part);
        if healthy as f64 >= HEALTHY_SHARE_MIN * arrivals.len() as f64
            && blind::leave_room(&arrivals, &self.sick, self.connections_max, self.size.per_origin)
        {
            self.arrivals = arrivals;
        } else {
            self.sick.pop();
        }
    }

    /// The same world, in which the rules draw other random numbers.
    pub(crate) fn with_chance(&self, chance: u64) -> Self {
        Self { chance, ..self.clone() }
    }

    /// What the random numbers of the rules begin with.
    pub(crate) fn seed_of_rules(&self) -> u64 {
        match self.chance {
            0 => self.seed,
            chance => draw(self.seed, "chance", chance).next(),
        }
    }

    /// The weight of a tenant: the same for all in most worlds.
    pub(crate) fn weight(&self, tenant: u32) -> f64 {
        match draw(self.seed, "weights", 0).below(WEIGHTED_EVERY) {
            0 => *draw(self.seed, "weight", tenant.into()).pick(&[0.5, 1.0, 2.0, 4.0]),
            _ => 1.0,
        }
    }

    pub(crate) fn tenant_name(&self, tenant: u32) -> String {
        format!("t{}", self.name(tenant))
    }

    /// The channel and the name of an origin or an account.
    pub(crate) fn origin_name(&self, origin: u32) -> (ChannelKind, String) {
        let name = self.name(origin);
        match u64::from(origin) < self.size.origins {
            true => (WEB, format!("https://o{name}.sim")),
            false => (RELAY, format!("account-{name}")),
        }
    }

    fn name(&self, number: u32) -> u64 {
        match self.naming {
            0 => number.into(),
            naming => draw(naming, "name", number.into()).next(),
        }
    }

    pub(crate) fn origin(&self, origin: u32) -> OriginPlan {
        let mut rng = draw(self.seed, "origin", origin.into());
        let (from, to) = match self.size.quick == Some(origin) {
            true => QUICK_MS,
            false => self.size.median_ms,
        };
        OriginPlan {
            median_ms: rng.log_uniform(from, to),
            sigma: rng.unit() * 0.5,
            http1: rng.chance(0.5),
        }
    }

    pub(crate) fn arrivals_of(&self, kind: HarmRunKind) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(move |a| kind != HarmRunKind::HealthyAlone || !a.sick)
    }

    /// How long ago the last of the sick parts began to be sick.
    pub(crate) fn since_onset(&self, at: i64) -> i64 {
        let since = self.sick.iter().filter_map(|part| part.when.since_onset(at));
        since.min().unwrap_or(at)
    }

    /// Whether something became sick less than a second ago: nobody can know yet which part of a burst is sick.
    pub(crate) fn is_onset(&self, at: i64) -> bool {
        let mut since = self.sick.iter().filter_map(|part| part.when.since_onset(at));
        since.any(|since| since < ONSET_MS)
    }

    /// How long ago the last of the sick parts became well for good.
    pub(crate) fn since_healing(&self, at: i64) -> Option<i64> {
        let healed = self.sick.iter().filter_map(|part| part.when.healed_at());
        healed.filter(|healed| *healed <= at).map(|healed| at - healed).min()
    }
}

/// Where nearly half of a tenant's addresses at an origin are sick, nobody can tell the healthy ones before
/// they are called: all of them count as sick. So do all tenants of an origin where most are sick.
fn spread_to_tenants(arrivals: &mut [Arrival]) {
    let ground = SickGround::of(arrivals.iter().map(|arrival| (arrival.ends(), arrival.sick)));
    for arrival in arrivals {
        arrival.sick |= ground.holds(arrival.ends());
    }
}

impl fmt::Display for HarmPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorldSize { tenants, origins, accounts, addresses, length_ms, .. } = self.size;
        let messages = self.arrivals.len();
        let sick = self.arrivals.iter().filter(|arrival| arrival.sick).count();
        write!(
            f,
            "{tenants} tenants, {origins} origins, {accounts} accounts, {addresses} addresses, {messages} messages ({sick} sick) in {} s, {} connections",
            length_ms / 1000,
            self.connections_max,
        )?;
        self.sick.iter().try_for_each(|part| write!(f, "\n    {part}"))
    }
}
