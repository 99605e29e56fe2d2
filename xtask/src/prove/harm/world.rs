//! A world of one seed: who sends what to whom, and which part of it is sick. Every draw is a hash of seed, entity and
//! number, so that leaving out the sick part shifts nothing.

use std::fmt::{self, Write as _};

use postrider_testkit::random::{SimRng, draw, zipf};
use postrider_testkit::sick_level::{MessageEnds, SickGround};

use super::sick::{SickCause, Trouble};
use super::traffic::{DueDestination, DueMessage, DuePort};

const CLASSES: [&str; 3] = ["otp", "transactional", "marketing"];
/// How long the origins take to answer in health; each has one of these.
const LATENCIES_MS: [u64; 4] = [0, 2, 10, 40];
/// So much of a world's traffic stays healthy at the least.
const HEALTHY_SHARE_MIN: f64 = 0.15;
/// A cause concerns so much of the traffic at the least.
const CAUSE_SHARE_MIN: f64 = 0.01;

pub(super) struct HarmWorld {
    seed: u64,
    size: RealSize,
    messages: Vec<WorldMessage>,
    causes: Vec<SickCause>,
}

#[derive(Debug, Clone, Copy)]
struct RealSize {
    tenants: u64,
    origins: u64,
    addresses: u64,
    per_s: u64,
    length_ms: u64,
}

#[derive(Debug, Clone)]
struct WorldMessage {
    due_ms: u64,
    ends: MessageEnds,
    class: usize,
    sick: bool,
    /// The first cause that concerns it.
    cause: Option<usize>,
}

/// Which part of the world takes part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RealRunKind {
    HealthyAlone,
    AllWell,
    SomeSick,
}

impl HarmWorld {
    pub(super) fn draw(seed: u64, seconds: u64) -> Self {
        let mut rng = draw(seed, "world", 0);
        let size = RealSize {
            tenants: rng.log_uniform(1.0, 50.0) as u64,
            origins: rng.log_uniform(1.0, 2_000.0) as u64,
            addresses: rng.log_uniform(1.0, 20_000.0) as u64,
            per_s: rng.log_uniform(100.0, 800.0) as u64,
            length_ms: seconds * 1_000,
        };
        let mut world = Self { seed, size, messages: draw_messages(seed, size), causes: vec![] };
        let causes = rng.within(1, 4);
        // A cause that would leave too little healthy traffic is drawn anew.
        for n in 0..causes * 8 {
            if (world.causes.len() as u64) < causes {
                world.add_cause(&mut draw(seed, "sick cause", n));
            }
        }
        world
    }

    /// Adds a cause, unless it concerns hardly anybody or leaves too little of the world healthy.
    fn add_cause(&mut self, rng: &mut SimRng) {
        let near = self.messages[rng.index(self.messages.len())].ends;
        let cause = SickCause::draw(rng, near, self.size.length_ms);
        let mut messages = self.messages.clone();
        let mut concerned = 0;
        for message in messages.iter_mut().filter(|message| cause.covers(message.ends)) {
            concerned += 1;
            message.sick = true;
            message.cause.get_or_insert(self.causes.len());
        }
        spread_to_tenants(&mut messages);
        let healthy = messages.iter().filter(|message| !message.sick).count();
        let count = messages.len() as f64;
        let is_felt = f64::from(concerned) >= CAUSE_SHARE_MIN * count;
        if is_felt && healthy as f64 >= HEALTHY_SHARE_MIN * count {
            self.messages = messages;
            self.causes.push(cause);
        }
    }

    pub(super) fn messages(&self, kind: RealRunKind) -> Vec<DueMessage> {
        let takes_part =
            |message: &&WorldMessage| kind != RealRunKind::HealthyAlone || !message.sick;
        self.messages.iter().filter(takes_part).map(|m| self.planned(m, kind)).collect()
    }

    fn planned(&self, message: &WorldMessage, kind: RealRunKind) -> DueMessage {
        let MessageEnds { tenant, origin, address } = message.ends;
        let latency = self.latency_of(origin);
        let cause = message.cause.map_or_else(|| "-".to_owned(), |cause| cause.to_string());
        let is_refused = message.cause.is_some_and(|cause| {
            kind == RealRunKind::SomeSick && self.causes[cause].trouble == Trouble::Refused
        });
        let name = format!("l{latency}.p{cause}.o{origin}.t{tenant}.a{address}");
        let port = if is_refused { DuePort::Closed } else { DuePort::Plain };
        DueMessage {
            due_ms: message.due_ms,
            tenant,
            class: CLASSES[message.class],
            destination: DueDestination::Hook { origin, name, port },
            healthy: !message.sick,
        }
    }

    fn latency_of(&self, origin: u32) -> usize {
        draw(self.seed, "origin", origin.into()).index(LATENCIES_MS.len())
    }

    /// The provider's fault profile in a run, in which sending begins so long after the provider.
    pub(super) fn faults(&self, kind: RealRunKind, lead_ms: u64) -> String {
        let mut text = String::new();
        if kind == RealRunKind::SomeSick {
            let rules = self.causes.iter().enumerate();
            rules
                .filter_map(|(n, cause)| cause.rule(&format!(".p{n}."), lead_ms))
                .for_each(|r| text += &r);
        }
        for (n, ms) in LATENCIES_MS.iter().enumerate().skip(1) {
            let _ = write!(text, "[[rule]]\nfault = \"slow:{ms}\"\nname = \"l{n}.p\"\n");
        }
        text
    }

    /// How long before `at` the last of the causes began.
    pub(super) fn since_onset(&self, at: i64) -> i64 {
        let since = self.causes.iter().filter_map(|cause| cause.since_onset(at));
        since.min().unwrap_or(at)
    }

    pub(super) fn length_ms(&self) -> i64 {
        self.size.length_ms as i64
    }
}

fn draw_messages(seed: u64, size: RealSize) -> Vec<WorldMessage> {
    let streams = draw(seed, "streams", 0).within(2, 6);
    let mut messages = Vec::new();
    let mut left = size.per_s * size.length_ms / 1_000;
    for n in 0..streams {
        let mut rng = draw(seed, "stream", n);
        let stream = RealStream::draw(&mut rng, size);
        let share = if n + 1 == streams { left } else { rng.within(left / 8, left / 2) };
        left -= share;
        let draws = (0..share).map(|k| draw(seed, "message", (n << 32) | k));
        messages.extend(draws.map(|mut rng| stream.message(&mut rng, size)));
    }
    messages.sort_by_key(|message| (message.due_ms, message.ends.tenant));
    messages
}

/// Messages of one pattern.
struct RealStream {
    tenants: (u64, u64),
    origins: (u64, u64),
    origin_zipf: f64,
    addresses: u64,
    address_zipf: f64,
    class: usize,
    /// They come in the first part of each period.
    period_ms: u64,
    on_ms: u64,
}

impl RealStream {
    fn draw(rng: &mut SimRng, size: RealSize) -> Self {
        let period_ms = if rng.chance(0.3) {
            rng.within(size.length_ms / 12, size.length_ms / 3)
        } else {
            size.length_ms
        };
        let is_steady = period_ms == size.length_ms;
        Self {
            tenants: part_of(rng, size.tenants),
            origins: part_of(rng, size.origins),
            origin_zipf: rng.unit() * 1.5,
            addresses: rng.magnitude(size.addresses),
            address_zipf: rng.unit() * 1.5,
            class: *rng.pick(&[0, 1, 1, 1, 2]),
            period_ms,
            on_ms: if is_steady { period_ms } else { rng.within(period_ms / 4, period_ms) },
        }
    }

    fn message(&self, rng: &mut SimRng, size: RealSize) -> WorldMessage {
        let periods = (size.length_ms / self.period_ms).max(1);
        let at_ms = rng.below(periods) * self.period_ms + rng.below(self.on_ms);
        let tenant = self.tenants.0 + rng.below(self.tenants.1);
        let ends = MessageEnds {
            tenant: tenant as u32,
            origin: (self.origins.0 + zipf(rng, self.origins.1, self.origin_zipf)) as u32,
            address: zipf(rng, self.addresses, self.address_zipf) as u32,
        };
        let due_ms = next_batch(at_ms, tenant, size.tenants);
        WorldMessage { due_ms, ends, class: self.class, sick: false, cause: None }
    }
}

/// A tenant hands in what it has every so often: hundreds of calls per second would measure the machine.
fn next_batch(at_ms: u64, tenant: u64, tenants: u64) -> u64 {
    let every_ms = (tenants * 2).clamp(20, 100);
    let phase_ms = tenant * 7 % every_ms;
    at_ms.saturating_sub(phase_ms).div_ceil(every_ms) * every_ms + phase_ms
}

/// A part of `0..n`: one, a few or all.
fn part_of(rng: &mut SimRng, n: u64) -> (u64, u64) {
    let first = rng.below(n);
    match rng.below(3) {
        0 => (first, 1),
        1 => (first, rng.magnitude(n - first)),
        _ => (0, n),
    }
}

/// Where nearly half of a tenant's addresses at an origin are sick, nobody can tell the healthy ones before
/// they are called: all of them count as sick. So do all tenants of an origin where most are sick.
fn spread_to_tenants(messages: &mut [WorldMessage]) {
    let ground = SickGround::of(messages.iter().map(|message| (message.ends, message.sick)));
    for message in messages {
        message.sick |= ground.holds(message.ends);
    }
}

impl fmt::Display for HarmWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RealSize { tenants, origins, addresses, per_s, .. } = self.size;
        let sick = self.messages.iter().filter(|message| message.sick).count();
        let sick = sick * 100 / self.messages.len().max(1);
        write!(
            f,
            "{tenants} tenants, {origins} origins, {addresses} addresses, {per_s} messages/s, {sick} % sick"
        )?;
        self.causes.iter().try_for_each(|cause| write!(f, "; {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_healthy_part_is_the_same_in_every_run() {
        for seed in 0..20 {
            let world = HarmWorld::draw(seed, 5);
            let shown = |kind| -> Vec<_> {
                let messages = world.messages(kind).into_iter().filter(|m| m.healthy);
                messages.map(|message| format!("{message:?}")).collect()
            };
            let alone = shown(RealRunKind::HealthyAlone);
            assert!(!alone.is_empty(), "{world}");
            assert_eq!(alone, shown(RealRunKind::AllWell), "{world}");
            assert_eq!(alone, shown(RealRunKind::SomeSick), "{world}");
        }
    }

    #[test]
    fn a_seed_is_always_the_same_world_and_some_of_it_is_sick() {
        for seed in 0..20 {
            let (a, b) = (HarmWorld::draw(seed, 5), HarmWorld::draw(seed, 5));
            assert_eq!(a.to_string(), b.to_string());
            assert!(!a.causes.is_empty() || a.size.origins * a.size.tenants < 20, "{a}");
        }
    }

    #[test]
    fn messages_are_in_order_of_time_and_tenant() {
        let messages = HarmWorld::draw(3, 5).messages(RealRunKind::AllWell);
        assert!(messages.is_sorted_by_key(|message| (message.due_ms, message.tenant)));
    }
}
