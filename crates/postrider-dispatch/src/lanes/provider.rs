//! One provider (origin) as all its lanes share it: the places for calls, and what was learned about it.
//! Keeps state only; the [checks](super::checks) decide by it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::model::message::Priority;
use postrider_core::policy::address_room::AddressRoom;
use postrider_core::policy::address_turns::is_slow;
use postrider_core::policy::breaker::{BreakerPolicy, BreakerRefusal, BreakerState};
use postrider_core::policy::call_limit::{CallLimit, CallToken};
use postrider_core::policy::call_places::{CallPlace, CallPlaces};
use postrider_core::policy::credential::CredentialBreaker;
use postrider_core::policy::most_tenants::ActiveShare;
use postrider_core::policy::openings::Openings;
use postrider_core::policy::pace::Pace;
use postrider_core::policy::probe_breaker::ProbeBreaker;
use postrider_core::policy::recent_calls::RecentCalls;
use postrider_core::policy::recent_voters::RecentVoters;
use postrider_core::policy::sick_calls::SickCalls;
use postrider_core::policy::storm::Storm;
use postrider_core::policy::tenant_health::TenantHealth;
use postrider_core::policy::throttle::{Pause, ThrottleSpread};
use postrider_core::{Gate, TenantId, Timestamp};

use super::ProviderKey;

/// From so many tenants of one provider on, those are forgotten about whom there is nothing to know.
const TENANTS_MAX: usize = 65_536;

pub(crate) struct LaneProvider {
    key: ProviderKey,
    number: u64,
    gates: Mutex<ProviderGates>,
}

/// Whether the end of a call is a reason to lease again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreedPlaces {
    /// Nobody waits for them.
    Unwanted,
    /// Soon: a place or two are not worth a round of their own.
    Few,
    Enough,
}

/// A tenant that called within this time is active.
const ACTIVE: Duration = Duration::from_secs(60);

/// What the checks know about one provider.
pub(super) struct ProviderGates {
    policy: BreakerPolicy,
    pub(super) pause: Pause,
    pub(super) breaker: ProbeBreaker,
    pub(super) openings: Openings,
    pub(super) limit: CallLimit,
    pub(super) places: CallPlaces,
    pub(super) sick_calls: SickCalls,
    /// Somebody had more to send than there was room for.
    pub(super) wanted: bool,
    /// The dispatcher is about to be told of a few free places.
    pub(super) gathering: bool,
    pub(super) tenants: HashMap<TenantId, TenantGates>,
    /// So many tenants are remembered before some are forgotten.
    tenants_max: usize,
    address_room: Arc<AddressRoom>,
}

/// What the checks know about one tenant at the provider.
#[derive(Default)]
pub(super) struct TenantGates {
    last_call: Timestamp,
    /// Calls under way.
    pub(super) held: usize,
    /// Its last call got no answer.
    pub(super) is_silent: bool,
    /// Calls that went well lately, where nothing failed.
    pub(super) recent: RecentCalls,
    pub(super) voters: RecentVoters,
    /// Where the provider ever refused the tenant's credential.
    pub(super) credential: Option<Box<CredentialBreaker>>,
    /// Where something failed lately.
    pub(super) trouble: Option<Box<TenantTrouble>>,
}

/// What is known about a tenant at a provider where not all is well.
pub(super) struct TenantTrouble {
    pub(super) pause: Pause,
    pub(super) health: TenantHealth,
    pub(super) breaker: ProbeBreaker,
    pub(super) storm: Storm,
    /// While it is degraded: when calls may be made again.
    pub(super) throttled_until: Timestamp,
    pub(super) spread: ThrottleSpread,
    pub(super) pace: Pace,
}

/// Under which openings of the breakers a call was permitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BreakerEpochs {
    pub(super) breaker: u32,
    pub(super) tenant: Option<u32>,
    pub(super) credential: Option<u32>,
    /// The calls try whether the provider works again.
    pub(super) probes: bool,
}

impl LaneProvider {
    pub(super) fn new(
        key: ProviderKey,
        ceiling: usize,
        policy: BreakerPolicy,
        address_room: Arc<AddressRoom>,
    ) -> Self {
        Self {
            number: number(&key),
            key,
            gates: Mutex::new(ProviderGates {
                policy,
                pause: Pause::default(),
                breaker: ProbeBreaker::new(&policy),
                openings: Openings::default(),
                limit: CallLimit::new(ceiling),
                places: CallPlaces::default(),
                sick_calls: SickCalls::default(),
                wanted: false,
                gathering: false,
                tenants: HashMap::new(),
                tenants_max: TENANTS_MAX,
                address_room,
            }),
        }
    }

    pub(super) fn key(&self) -> &ProviderKey {
        &self.key
    }

    /// Stands for the provider.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Applies other limits from now on.
    pub(super) fn adopt(&self, ceiling: usize, policy: BreakerPolicy) {
        let mut gates = self.gates();
        gates.policy = policy;
        gates.breaker.adopt(&policy);
        for own in gates.tenants.values_mut() {
            own.credential.iter_mut().for_each(|credential| credential.adopt(policy));
            if let Some(trouble) = &mut own.trouble {
                trouble.storm.adopt(&policy);
                trouble.breaker.adopt(&policy);
            }
        }
        gates.limit.adopt(ceiling);
    }

    pub(super) fn gates(&self) -> MutexGuard<'_, ProviderGates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is under way to it, and nothing worth remembering is known.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let mut gates = self.gates();
        let idle = gates.tenants.values_mut().all(|own| own.is_forgettable(now));
        gates.places.in_flight() == 0 && idle && !gates.holds_every_lane(now)
    }
}

impl ProviderGates {
    /// Whether no lane of the provider may go, whosever it is.
    pub(super) fn holds_every_lane(&self, now: Timestamp) -> bool {
        self.pause.until(now).is_some() || self.breaker.may_pass(now).is_err()
    }

    /// Whether the tenant's calls try, or would try, if the provider works again.
    pub(super) fn is_probed_by(&self, tenant: &TenantId) -> bool {
        let own = self.known_trouble(tenant).is_some_and(|own| own.breaker.is_probing());
        own || self.breaker.is_probing()
    }

    /// Whether the tenant's last call there got no answer.
    pub(super) fn is_silent(&self, tenant: &TenantId) -> bool {
        self.tenants.get(tenant).is_some_and(|own| own.is_silent)
    }

    /// How many long calls there may be beside the others.
    pub(super) fn long_places(&self, now: Timestamp) -> usize {
        let limit = &self.limit;
        let places =
            CallPlaces::long_places(limit.limit(now), limit.ceiling(), limit.is_behind(now));
        places.min(limit.long_max(now))
    }

    /// Moves calls that take long to places of their own. Returns the tenant of each.
    pub(super) fn advance(&mut self, now: Timestamp) -> Vec<u64> {
        let long_places = self.long_places(now);
        self.places.advance(self.limit.long_after(), long_places, now)
    }

    /// What holds the calls of everybody who uses it, and until when if that is known.
    pub(super) fn held_by(&self, now: Timestamp) -> Option<(Gate, Option<Timestamp>)> {
        if let Some(until) = self.pause.until(now) {
            return Some((Gate::RetryAfter, Some(until)));
        }
        let held = |breaker: &ProbeBreaker| match breaker.may_pass(now) {
            Err(BreakerRefusal::Until(until)) => Some(until),
            _ => None,
        };
        if self.breaker.may_pass(now).is_err() {
            return Some((Gate::Breaker, held(&self.breaker)));
        }
        let mut until = None;
        for own in self.tenants.values() {
            match own.trouble.as_deref().map(|trouble| &trouble.breaker) {
                Some(breaker) if breaker.may_pass(now).is_err() => {
                    until = until.into_iter().chain(held(breaker)).min();
                }
                _ if own.is_active(now) => return None,
                _ => {}
            }
        }
        until.map(|until| (Gate::Breaker, Some(until)))
    }

    /// How many more brisk calls of this priority may be made.
    pub(super) fn free_places(&self, priority: Priority, now: Timestamp) -> usize {
        self.places.free(self.limit.limit(now), self.limit.is_behind(now), priority)
    }

    /// Calls of the tenant that count together with those of this priority. Where the provider stands still, long ones
    /// are among them.
    pub(super) fn held_by_tenant(
        &self,
        tenant: &TenantId,
        priority: Priority,
        now: Timestamp,
    ) -> usize {
        match self.limit.is_behind(now) {
            true => self.tenants.get(tenant).map_or(0, |own| own.held),
            false => self.places.brisk_of(number(tenant), priority),
        }
    }

    /// Whether the tenant's calls that take long leave too little to the others there.
    pub(super) fn is_crowded_by(&self, tenant: u64, now: Timestamp) -> bool {
        let (limit, long_places) = (self.limit.limit(now), self.long_places(now));
        let active = || self.tenants.values().filter(|own| own.is_active(now)).count();
        self.places.crowds(tenant, active, limit, long_places)
    }

    /// When a call that is under way makes room by becoming a long one.
    pub(super) fn next_free_place(&self, now: Timestamp) -> Option<Timestamp> {
        let long_places = self.long_places(now);
        self.places.next_long(self.limit.long_after(), long_places).filter(|at| *at > now)
    }

    pub(super) fn begin_call(
        &mut self,
        tenant: &TenantId,
        tenant_number: u64,
        target: u64,
        priority: Priority,
        now: Timestamp,
    ) -> (CallPlace, CallToken, bool) {
        let addresses = self.known_trouble(tenant).map(|own| &own.health.addresses);
        let sick = addresses.is_some_and(|addresses| addresses.is_sick(target));
        let is_failing = addresses.is_some_and(|own| own.failing_since(target).is_some());
        let overdue = self.places.overdue_at(tenant_number, target);
        let slow = is_slow(addresses, target, overdue) && self.long_places(now) > 0;
        let is_apart = slow || !self.limit.is_proven(now);
        let place = match slow {
            true => self.places.begin_long(tenant_number, target),
            false => self.places.begin(tenant_number, target, priority, is_apart, now),
        };
        let in_flight = (self.places.brisk(), self.places.not_known_long());
        if !slow && !is_failing {
            self.limit.expect_end(target, tenant_number, now);
        }
        let token = self.limit.start(target, tenant_number, sick || slow, in_flight, now);
        let own = self.tenant(tenant, now);
        own.held += 1;
        own.trouble.iter_mut().for_each(|own| own.health.addresses.begin(target));
        (place, token, is_apart)
    }

    /// Frees the place of a call that ended; says whether it took long. It is worth leasing again when a
    /// quarter of the room is free, not for every single call, because leasing in batches keeps a
    /// delivery cheap. `is_told` if the dispatcher looks at the provider again for another reason.
    pub(super) fn free_place(
        &mut self,
        tenant: &TenantId,
        place: CallPlace,
        target: u64,
        is_told: bool,
        now: Timestamp,
    ) -> (FreedPlaces, bool) {
        let was_long = self.places.end(place);
        if let Some(own) = self.tenants.get_mut(tenant) {
            own.held = own.held.saturating_sub(1);
            own.trouble.iter_mut().for_each(|own| own.health.addresses.end(target));
        }
        let limit = self.limit.limit(now);
        let enough = self.places.brisk() <= limit - limit.div_ceil(4);
        if enough && std::mem::take(&mut self.wanted) {
            return (FreedPlaces::Enough, was_long);
        }
        if is_told || !self.wanted || std::mem::replace(&mut self.gathering, true) {
            return (FreedPlaces::Unwanted, was_long);
        }
        (FreedPlaces::Few, was_long)
    }

    pub(super) fn tenant(&mut self, tenant: &TenantId, now: Timestamp) -> &mut TenantGates {
        if self.tenants.len() >= self.tenants_max && !self.tenants.contains_key(tenant) {
            self.tenants.retain(|_, own| !own.is_forgettable(now) && !own.is_quiet());
            // Not for every newcomer if nearly all of them stay.
            self.tenants_max = TENANTS_MAX.max(2 * self.tenants.len());
        }
        let own = self.tenants.entry(tenant.clone()).or_default();
        own.last_call = now;
        own
    }

    pub(super) fn credential(
        &mut self,
        tenant: &TenantId,
        now: Timestamp,
    ) -> &mut CredentialBreaker {
        let (policy, breaker) = (self.policy, self.breaker.state());
        self.tenant(tenant, now).credential.get_or_insert_with(|| {
            let mut credential = CredentialBreaker::new(policy);
            credential.believe_gone(breaker == BreakerState::ForcedClosed);
            Box::new(credential)
        })
    }

    pub(super) fn trouble(&mut self, tenant: &TenantId, now: Timestamp) -> &mut TenantTrouble {
        let (policy, room) = (self.policy, self.address_room.clone());
        let TenantGates { trouble, recent, voters, .. } = self.tenant(tenant, now);
        trouble.get_or_insert_with(|| {
            let health = TenantHealth::with_voters(voters, room.share(number(tenant)));
            Box::new(TenantTrouble::new(&policy, recent, health, now))
        })
    }

    pub(super) fn known_trouble(&self, tenant: &TenantId) -> Option<&TenantTrouble> {
        self.tenants.get(tenant)?.trouble.as_deref()
    }

    pub(super) fn known_trouble_mut(&mut self, tenant: &TenantId) -> Option<&mut TenantTrouble> {
        self.tenants.get_mut(tenant)?.trouble.as_deref_mut()
    }

    /// A call to the address begins that tries whether the provider works again. It may hang for longer than a round.
    pub(super) fn note_probe(&mut self, tenant: &TenantId, target: u64) {
        self.known_trouble_mut(tenant).into_iter().for_each(|own| own.health.note_probe(target));
    }

    /// Whether nearly all of the active tenants find the provider down.
    pub(super) fn is_down_for_all(&self, now: Timestamp) -> bool {
        self.share_of_active(now, |own| own.breaker.is_probing()).is_down_for_all()
    }

    /// Whether the provider asked so many of its active tenants to wait that it means all.
    pub(super) fn is_paused_for_most(&self, now: Timestamp) -> bool {
        self.share_paused(now).is_paused_for_most()
    }

    /// The tenants that it asked to wait, of the active ones.
    pub(super) fn share_paused(&self, now: Timestamp) -> ActiveShare {
        self.share_of_active(now, |own| own.pause.until(now).is_some())
    }

    /// The tenants that find it down, of these and the active ones, for people.
    pub(super) fn share_down(&self, now: Timestamp) -> ActiveShare {
        let is_down = |own: &&TenantGates| {
            own.trouble.as_deref().is_some_and(|trouble| trouble.breaker.is_probing())
        };
        let those = self.tenants.values().filter(is_down).count();
        let others = self.tenants.values().filter(|own| !is_down(own) && own.is_active(now));
        ActiveShare { those, all: those + others.count() }
    }

    fn share_of_active(
        &self,
        now: Timestamp,
        is_one: impl Fn(&TenantTrouble) -> bool,
    ) -> ActiveShare {
        let mut share = ActiveShare::default();
        for own in self.tenants.values().filter(|own| own.is_active(now)) {
            share.all += 1;
            share.those += usize::from(own.trouble.as_deref().is_some_and(&is_one));
        }
        share
    }
}

impl TenantTrouble {
    /// What went well just before belongs to the picture.
    fn new(
        policy: &BreakerPolicy,
        recent: &RecentCalls,
        health: TenantHealth,
        now: Timestamp,
    ) -> Self {
        let mut trouble = Self {
            pause: Pause::default(),
            health,
            breaker: ProbeBreaker::new(policy),
            storm: Storm::new(policy),
            throttled_until: Timestamp::default(),
            spread: ThrottleSpread::default(),
            pace: Pace::default(),
        };
        for (at, calls) in recent.counts(now) {
            trouble.spread.count_well(calls, at);
            trouble.pace.count_well(calls, at);
        }
        trouble
    }

    fn is_forgettable(&self, now: Timestamp) -> bool {
        self.pause.until(now).is_none()
            && !self.breaker.is_probing()
            && self.pace.per_s().is_none()
            && self.health.is_forgettable(now)
    }
}

impl TenantGates {
    fn is_active(&self, now: Timestamp) -> bool {
        now.since(self.last_call) < ACTIVE
    }

    fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.held == 0
            && !self.is_active(now)
            && self.credential.as_mut().is_none_or(|credential| credential.is_forgettable(now))
            && self.trouble.as_ref().is_none_or(|trouble| trouble.is_forgettable(now))
    }

    /// Nothing is under way, and nothing but successes is known.
    fn is_quiet(&self) -> bool {
        self.held == 0 && self.credential.is_none() && self.trouble.is_none()
    }

    /// Forgets a trouble that is over.
    pub(super) fn forget_trouble(&mut self, now: Timestamp) {
        if self.trouble.as_ref().is_some_and(|trouble| trouble.is_forgettable(now)) {
            self.trouble = None;
        }
    }
}

/// A number that stands for a tenant or a provider.
pub(super) fn number(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use postrider_core::ChannelKind;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn what_is_known_of_one_tenant_outlasts_any_number_of_quiet_ones() {
        let key = (ChannelKind::new("push"), "https://push.example".into());
        let provider = LaneProvider::new(key, 1_024, BreakerPolicy::default(), Arc::default());
        let mut gates = provider.gates();
        let (paused, busy) = (TenantId::new("paused"), TenantId::new("busy"));
        gates.trouble(&paused, NOW).pause.extend(NOW + Duration::from_secs(900));
        gates.tenant(&busy, NOW).held = 7;
        for n in 0..2 * TENANTS_MAX {
            gates.tenant(&TenantId::new(&format!("t{n}")), NOW);
        }
        assert!(gates.tenants.len() <= TENANTS_MAX);
        assert!(gates.known_trouble(&paused).is_some_and(|own| own.pause.until(NOW).is_some()));
        assert_eq!(gates.tenants.get(&busy).map(|own| own.held), Some(7));
    }
}
