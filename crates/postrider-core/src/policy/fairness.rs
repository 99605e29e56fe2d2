//! Whose turn it is: deficit round robin over the tenants that have something to send, by weight, within
//! tiers of priority that each have a share. A tenant with nothing to send is forgotten with the rest of
//! its turn, so that none saves up and an idle one costs nothing. Reads no clock, and does not know how
//! much is queued.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::model::message::{Priority, TenantId};
use crate::model::time::Timestamp;

/// What a tenant of weight 1 may send in one turn where others wait, too, at the most: a larger
/// quantum is cheaper, a smaller one lets everybody's turn come sooner. It is found by itself: doubled
/// while all of them have had their turns within [`CYCLE_MIN`], halved beyond [`CYCLE_MAX`].
pub const QUANTUM_MAX: usize = 16;
const CYCLE_MIN: Duration = Duration::from_millis(250);
const CYCLE_MAX: Duration = Duration::from_secs(1);
/// What each tier may send before all have had their share, where all have something to send; by
/// [`Priority`] from low to high.
pub const TIER_SHARES: [usize; 3] = [4, 12, 32];
/// The percentage of a provider's slots that is kept for urgent work.
const RESERVED_PERCENT: usize = 10;
/// The smallest weight: one near zero would turn the ring for ever.
const WEIGHT_MIN: f64 = 0.01;
/// Weights are summed as whole numbers. A tenant counts as one of weight 1 until its first turn.
const THOUSANDTHS: f64 = 1_000.0;
const WEIGHT_UNKNOWN: u64 = 1_000;

/// Shares of tenants where they compete; a tenant that is not named weighs 1.
pub type Weights = HashMap<TenantId, f64>;

/// The lanes that wait for a resource that cannot serve all at once. `L` is a lane.
#[derive(Debug)]
pub struct Fairness<L> {
    tiers: [Tier<L>; 3],
}

/// One tier's ring of tenants; the first is whose turn it is.
#[derive(Debug)]
struct Tier<L> {
    ring: VecDeque<TenantId>,
    members: HashMap<TenantId, Member<L>>,
    /// Of all members, in thousandths.
    weight_all: u64,
    /// What it may still send before the less urgent tiers have had theirs.
    credit: usize,
    /// A turn was given and is not back yet.
    out: bool,
    quantum: usize,
    /// So many are still to have their turn until all have had one.
    cycle_left: usize,
    cycle_began: Timestamp,
}

#[derive(Debug)]
struct Member<L> {
    /// In thousandths, as of its last quantum.
    weight: u64,
    deficit: f64,
    /// Has had the quantum of its turn.
    granted: bool,
    lanes: VecDeque<L>,
}

/// The turn of a lane; to be [ended](Fairness::end) with what the lane sent.
#[derive(Debug)]
pub struct Turn {
    tenant: TenantId,
    priority: Priority,
    /// At least 1; without bound where nobody else waits.
    pub allowance: usize,
    part: WeightPart,
}

/// The part of one tenant among those that wait: its weight, and that of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightPart {
    own: u64,
    all: u64,
}

impl WeightPart {
    /// Nobody else waits.
    pub const WHOLE: Self = Self { own: 1, all: 1 };

    /// So many of these places. The parts of all are at least all places.
    pub fn of(self, places: usize) -> usize {
        (places as u64 * self.own).div_ceil(self.all.max(1)) as usize
    }
}

impl Turn {
    pub fn part(&self) -> WeightPart {
        self.part
    }
}

impl<L> Default for Fairness<L> {
    fn default() -> Self {
        Self { tiers: TIER_SHARES.map(Tier::with_share) }
    }
}

impl<L> Fairness<L> {
    /// A lane has something to send. It must not be waiting here already.
    pub fn join(&mut self, lane: L, tenant: &TenantId, priority: Priority) {
        self.tiers[priority as usize].join(lane, tenant);
    }

    /// No lane waits for its turn, nor has one.
    pub fn is_empty(&self) -> bool {
        self.tiers.iter().all(|tier| tier.ring.is_empty())
    }

    /// Whose turn it is, of the tiers that may. Of each tier one turn is given at a time.
    pub fn next(
        &mut self,
        weights: &Weights,
        now: Timestamp,
        may: impl Fn(Priority) -> bool,
    ) -> Option<(L, Turn)> {
        let waits = PRIORITIES.map(|p| may(p) && self.tiers[p as usize].waits());
        let contested = waits.iter().filter(|waits| **waits).count() > 1;
        let priority = match self.with_credit(waits) {
            Some(priority) => priority,
            None => self.new_shares(waits)?,
        };
        self.turn(weights, now, priority, contested)
    }

    /// The same for whoever may go although others have their turn at this moment: only within the
    /// share of its tier.
    pub fn overtake(
        &mut self,
        weights: &Weights,
        now: Timestamp,
        may: impl Fn(Priority) -> bool,
    ) -> Option<(L, Turn)> {
        let waits = PRIORITIES.map(|p| may(p) && self.tiers[p as usize].waits());
        let priority = self.with_credit(waits)?;
        self.turn(weights, now, priority, true)
    }

    fn turn(
        &mut self,
        weights: &Weights,
        now: Timestamp,
        priority: Priority,
        contested: bool,
    ) -> Option<(L, Turn)> {
        let tier = &mut self.tiers[priority as usize];
        let weight = |tenant: &TenantId| weights.get(tenant).map_or(1.0, |w| w.max(WEIGHT_MIN));
        let (lane, tenant, deficit) = tier.next(weight, now)?;
        let allowance = if contested { deficit.min(tier.credit) } else { deficit };
        let own = tier.members.get(&tenant).map_or(1, |member| member.weight);
        let part = WeightPart { own, all: tier.weight_all };
        Some((lane, Turn { tenant, priority, allowance, part }))
    }

    /// A lane sent nothing because its tenant holds its part already: it is the next one's turn. Nothing of the
    /// allowance is lost, and nothing more is granted.
    pub fn pass(&mut self, turn: Turn, lane: L) {
        let tier = &mut self.tiers[turn.priority as usize];
        tier.out = false;
        if let Some(member) = tier.members.get_mut(&turn.tenant) {
            member.lanes.push_front(lane);
            tier.ring.rotate_left(1);
        }
    }

    /// A lane has sent `used` of its turn's allowance. It stays if it is handed back.
    pub fn end(&mut self, turn: Turn, used: usize, stays: Option<L>) {
        let contested = self.tiers.iter().filter(|tier| !tier.ring.is_empty()).count() > 1;
        let tier = &mut self.tiers[turn.priority as usize];
        if contested {
            tier.credit = tier.credit.saturating_sub(used);
        }
        tier.end(&turn.tenant, used, stays);
    }

    /// Takes out the lanes that match. Looks at every lane.
    pub fn extract(&mut self, meant: impl Fn(&L) -> bool) -> Vec<L> {
        let mut out = Vec::new();
        for tier in &mut self.tiers {
            for tenant in tier.ring.clone() {
                tier.extract(&tenant, &meant, &mut out);
            }
        }
        out
    }

    /// The most urgent tier that has not had its share.
    fn with_credit(&self, waits: [bool; 3]) -> Option<Priority> {
        let ready = |p: &Priority| waits[*p as usize] && self.tiers[*p as usize].credit > 0;
        PRIORITIES.into_iter().rev().find(ready)
    }

    /// All have had their shares, and get new ones.
    fn new_shares(&mut self, waits: [bool; 3]) -> Option<Priority> {
        for (tier, share) in self.tiers.iter_mut().zip(TIER_SHARES) {
            tier.credit = share;
        }
        PRIORITIES.into_iter().rev().find(|p| waits[*p as usize])
    }
}

const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

impl<L> Tier<L> {
    fn with_share(share: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            members: HashMap::new(),
            weight_all: 0,
            credit: share,
            out: false,
            quantum: 1,
            cycle_left: 0,
            cycle_began: Timestamp::default(),
        }
    }

    fn waits(&self) -> bool {
        !self.out && !self.ring.is_empty()
    }

    fn join(&mut self, lane: L, tenant: &TenantId) {
        if let Some(member) = self.members.get_mut(tenant) {
            member.lanes.push_back(lane);
            return;
        }
        let weight = WEIGHT_UNKNOWN;
        let member = Member { weight, deficit: 0.0, granted: false, lanes: [lane].into() };
        self.weight_all += weight;
        self.members.insert(tenant.clone(), member);
        self.ring.push_back(tenant.clone());
    }

    fn next(
        &mut self,
        weight: impl Fn(&TenantId) -> f64,
        now: Timestamp,
    ) -> Option<(L, TenantId, usize)> {
        let alone = self.ring.len() == 1;
        loop {
            if self.cycle_left == 0 {
                self.new_cycle(now);
            }
            let tenant = self.ring.front()?;
            let member = self.members.get_mut(tenant)?;
            if !member.granted {
                member.granted = true;
                let weight = weight(tenant);
                member.deficit += self.quantum as f64 * weight;
                self.weight_all -= member.weight;
                member.weight = (weight * THOUSANDTHS) as u64;
                self.weight_all += member.weight;
                self.cycle_left -= 1;
            }
            if alone || member.deficit >= 1.0 {
                let allowance = if alone { usize::MAX } else { member.deficit as usize };
                let lane = member.lanes.pop_front()?;
                self.out = true;
                return Some((lane, tenant.clone(), allowance));
            }
            self.turn_over();
        }
    }

    fn end(&mut self, tenant: &TenantId, used: usize, stays: Option<L>) {
        self.out = false;
        let Some(member) = self.members.get_mut(tenant) else { return };
        // A tenant that was alone may have used more than its deficit, and owes nothing.
        member.deficit = (member.deficit - used as f64).max(0.0);
        member.lanes.extend(stays);
        if member.lanes.is_empty() {
            // Nothing is saved for another time.
            self.weight_all -= member.weight;
            self.members.remove(tenant);
            self.ring.pop_front();
        } else if member.deficit < 1.0 {
            self.turn_over();
        }
    }

    fn extract(&mut self, tenant: &TenantId, meant: impl Fn(&L) -> bool, out: &mut Vec<L>) {
        let has_turn = self.out && self.ring.front() == Some(tenant);
        let Some(member) = self.members.get_mut(tenant) else { return };
        let (going, staying): (VecDeque<_>, _) = member.lanes.drain(..).partition(|l| meant(l));
        member.lanes = staying;
        out.extend(going);
        if member.lanes.is_empty() && !has_turn {
            self.weight_all -= member.weight;
            self.members.remove(tenant);
            self.ring.retain(|other| other != tenant);
        }
    }

    fn new_cycle(&mut self, now: Timestamp) {
        let took = now.since(self.cycle_began);
        if took > CYCLE_MAX {
            self.quantum = (self.quantum / 2).max(1);
        } else if took < CYCLE_MIN {
            self.quantum = (self.quantum * 2).min(QUANTUM_MAX);
        }
        self.cycle_left = self.ring.len();
        self.cycle_began = now;
    }

    fn turn_over(&mut self) {
        let Some(tenant) = self.ring.pop_front() else { return };
        if let Some(member) = self.members.get_mut(&tenant) {
            member.granted = false;
        }
        self.ring.push_back(tenant);
    }
}

/// How many of a provider's free slots work of this priority may use, while `others` that are not urgent
/// are under way. Slots that urgent work uses already count towards those that are kept for it.
pub fn places(free: usize, limit: usize, others: usize, priority: Priority) -> usize {
    match priority {
        Priority::High => free,
        // Rounded down: of a few slots, none can be spared.
        _ => free.min((limit - limit * RESERVED_PERCENT / 100).saturating_sub(others)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name)
    }

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn any(_: Priority) -> bool {
        true
    }

    #[test]
    fn who_is_alone_is_not_held_back() {
        let mut fairness = Fairness::default();
        fairness.join(1, &tenant("a"), Priority::Low);
        let (lane, turn) = fairness.next(&Weights::new(), NOW, any).unwrap();
        assert_eq!((lane, turn.allowance), (1, usize::MAX));
        assert!(fairness.next(&Weights::new(), NOW, any).is_none(), "one turn at a time");
        fairness.end(turn, 1_000, Some(lane));
        fairness.join(2, &tenant("b"), Priority::Low);
        let (lane, turn) = fairness.next(&Weights::new(), NOW, any).unwrap();
        assert_eq!((lane, turn.allowance), (1, 2), "nothing is owed, nothing repaid");
    }

    #[test]
    fn what_is_left_of_a_turn_is_kept_while_there_is_work_and_lost_without() {
        let mut fairness = Fairness::default();
        let weights = [(tenant("a"), 10.0), (tenant("b"), 10.0)].into();
        fairness.join(1, &tenant("a"), Priority::Low);
        fairness.join(2, &tenant("b"), Priority::Low);
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        fairness.end(turn, 7, Some(lane));
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.allowance), (1, 3), "still its turn");
        fairness.end(turn, 1, None);
        fairness.join(1, &tenant("a"), Priority::Low);
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.allowance), (2, 10));
        fairness.end(turn, 10, Some(lane));
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.allowance), (1, 20), "nothing was saved");
    }

    #[test]
    fn turns_are_short_where_they_take_long_to_come() {
        let mut fairness = Fairness::default();
        (0..100).for_each(|n| fairness.join(n, &tenant(&format!("t{n}")), Priority::Low));
        let mut quantum_at = |per_s: u64| {
            let (mut last, mut sent) = (0, 0);
            while sent < 20_000 {
                let now = NOW + Duration::from_millis(sent * 1_000 / per_s);
                let (lane, turn) = fairness.next(&Weights::new(), now, any).unwrap();
                last = turn.allowance;
                sent += last as u64;
                fairness.end(turn, last, Some(lane));
            }
            last
        };
        assert_eq!(quantum_at(10), 1);
        assert_eq!(quantum_at(100_000), QUANTUM_MAX);
        assert!((2..=8).contains(&quantum_at(1_000)));
    }

    #[test]
    fn a_tenants_lanes_take_turns_within_its_share() {
        let mut fairness = Fairness::default();
        for lane in 0..100 {
            fairness.join(lane, &tenant("many"), Priority::Normal);
        }
        fairness.join(100, &tenant("one"), Priority::Normal);
        let mut had = vec![0; 101];
        for _ in 0..2_000 {
            let (lane, turn) = fairness.next(&Weights::new(), NOW, any).unwrap();
            let used = turn.allowance.min(8);
            had[lane] += used;
            fairness.end(turn, used, Some(lane));
        }
        let all: usize = had.iter().sum();
        assert!(had[100].abs_diff(all / 2) <= QUANTUM_MAX, "{} of {all}", had[100]);
        assert!(had[..100].iter().all(|had| had.abs_diff(all / 200) <= 8), "{had:?}");
    }

    #[test]
    fn whoever_holds_its_part_is_passed_over_and_loses_nothing() {
        let mut fairness = Fairness::default();
        let weights = [(tenant("a"), 3.0)].into();
        fairness.join(1, &tenant("a"), Priority::Low);
        fairness.join(2, &tenant("b"), Priority::Low);
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.allowance, turn.part().of(8)), (1, 3, 6));
        fairness.pass(turn, lane);
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.part().of(8)), (2, 2));
        fairness.end(turn, 1, None);
        let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
        assert_eq!((lane, turn.part().of(8)), (1, 8), "nobody else waits");
        fairness.end(turn, 1, None);
        assert!(fairness.is_empty() && fairness.tiers.iter().all(|tier| tier.weight_all == 0));
    }

    #[test]
    fn the_parts_of_all_are_all_places_and_passing_on_goes_round() {
        let mut fairness = Fairness::default();
        let weights: Weights =
            (0..7).map(|n| (tenant(&format!("t{n}")), 0.1 + f64::from(n) * 0.7)).collect();
        (0..7).for_each(|n| fairness.join(n, &tenant(&format!("t{n}")), Priority::Low));
        let mut parts = [0; 7];
        for _ in 0..70 {
            let (lane, turn) = fairness.next(&weights, NOW, any).unwrap();
            parts[lane as usize] = turn.part().of(10);
            fairness.pass(turn, lane);
        }
        assert!(parts.iter().all(|part| *part > 0) && parts.iter().sum::<usize>() >= 10);
    }

    #[test]
    fn a_tier_that_may_not_go_does_not_hold_up_the_others() {
        let mut fairness = Fairness::default();
        fairness.join("urgent", &tenant("a"), Priority::High);
        fairness.join("rest", &tenant("a"), Priority::Low);
        let (lane, turn) = fairness.next(&Weights::new(), NOW, |p| p != Priority::High).unwrap();
        assert_eq!((lane, turn.allowance), ("rest", usize::MAX));
        assert_eq!(
            fairness.next(&Weights::new(), NOW, any).unwrap().0,
            "urgent",
            "while the other has its turn"
        );
    }

    #[test]
    fn who_is_more_urgent_overtakes_but_for_no_more_than_its_share() {
        let mut fairness = Fairness::default();
        fairness.join("low", &tenant("a"), Priority::Low);
        let (_, low) = fairness.next(&Weights::new(), NOW, any).unwrap();
        fairness.join("high", &tenant("b"), Priority::High);
        let (mut had, share) = (0, TIER_SHARES[2]);
        while let Some((lane, turn)) =
            fairness.overtake(&Weights::new(), NOW, |p| p > Priority::Low)
        {
            let used = turn.allowance.min(10);
            had += used;
            fairness.end(turn, used, Some(lane));
        }
        assert_eq!(had, share);
        fairness.end(low, 1, None);
        assert!(fairness.next(&Weights::new(), NOW, any).is_some(), "nobody else waits any more");
    }

    #[test]
    fn places_are_kept_for_urgent_work_but_no_more_than_those() {
        assert_eq!(places(100, 100, 0, Priority::Low), 90);
        assert_eq!(places(10, 100, 90, Priority::Normal), 0);
        assert_eq!(places(10, 100, 90, Priority::High), 10);
        assert_eq!(places(1, 1, 0, Priority::Low), 1);
        assert_eq!(places(1, 100, 0, Priority::Low), 1, "urgent work has more than what is kept");
    }
}
