//! How one tenant's calls at one origin fare, judged by the votes of its addresses: well, degraded or down.
//! Nothing that one tenant's answers say holds for another. Reads no clock, draws no number.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::address_room::AddressShare;
use crate::policy::call_credit::CallCredit;
use crate::policy::recent_voters::RecentVoters;
use crate::policy::served_addresses::ServedAddresses;
use crate::policy::sick_addresses::SickAddresses;
use crate::policy::signal::Signal;
use crate::policy::votes::{VoteCount, Votes};

/// So many voters are needed to judge by shares.
const VOTERS_MIN: usize = 5;
/// With so many that all fail it is no chance, even where a third of the addresses does. With twice as many and
/// more, a few that are well do not matter.
const VOTERS_DOWN: usize = 8;
const VOTERS_SURE: usize = 20;
const DEGRADED_SHARE: f64 = 0.2;
const DOWN_SHARE: f64 = 0.8;
/// With fewer voters, all bad: so many failed calls without a success in between mean down.
const FAILED_MIN: u32 = 20;
/// Failures further apart are not in a row.
const IN_A_ROW: Duration = Duration::from_secs(60);
/// Calls that hung for so long and longer tell of another time.
const OLD_AFTER: Duration = Duration::from_secs(30);
/// Of the calls under way, this share will fail at the least: nobody knows better at first.
const FAILING_MIN: f64 = 0.25;
/// Where so much has changed that votes from before say nothing, these do.
const LATELY: Duration = Duration::from_secs(10);
/// Two rounds of probes.
const PROBED: usize = 6;
/// An address is at fault itself if so many of the others are good.
const OTHERS_GOOD_SHARE: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Well,
    /// Some addresses fail: calls are held to what succeeds.
    Degraded,
    /// Nearly all addresses fail.
    Down,
}

/// Whom it concerns that an address asks for less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It asks for the first time.
    Unclear,
    /// It asks again and again while others work.
    OfAddress,
    /// It asks again and again, and no others work.
    OfMore,
}

#[derive(Debug, Default)]
pub struct TenantHealth {
    votes: Votes,
    /// Failed calls in a row, each within a minute of the one before, and when the last of them failed.
    failed: u32,
    failed_at: Timestamp,
    credit: CallCredit,
    pub addresses: SickAddresses,
    pub served: ServedAddresses,
    /// The addresses of the last probes that failed, or were not answered yet.
    pub probed: [Option<u64>; PROBED],
}

/// The end of a call, as far as health is concerned.
#[derive(Debug, Clone, Copy)]
pub struct HealthCall {
    pub signal: Signal,
    /// A number that stands for the address.
    pub target: u64,
    pub is_retry: bool,
    /// No connection could be opened: that says nothing about address or tenant.
    pub unopened: bool,
    pub began: Timestamp,
}

impl TenantHealth {
    /// Begins with what is known from before anything failed.
    pub fn with_voters(voters: &RecentVoters, room: AddressShare) -> Self {
        let addresses = SickAddresses::sharing(room);
        Self { votes: voters.votes(), served: voters.served(), addresses, ..Self::default() }
    }

    /// Learns from the end of a call. `random` is a random number in `0.0..1.0`.
    pub fn report(&mut self, call: &HealthCall, now: Timestamp, random: f64) {
        let failed = call.signal.is_failure();
        if call.signal == Signal::Busy && self.addresses.is_sick(call.target) {
            // It is no better, whatever it says.
            self.addresses.failed(call.target, call.began, true, now, random);
        }
        if call.unopened || !(failed || call.signal == Signal::Well) {
            return;
        }
        if !failed {
            self.credit.succeeded(now);
            self.failed = 0;
            self.votes.cast(call.target, true, now);
            self.addresses.succeeded(call.target, now);
            self.served.add(call.target);
            return;
        }
        let was_sick = self.addresses.is_sick(call.target);
        if !call.is_retry && !was_sick && now.since(call.began) < OLD_AFTER {
            self.credit.failed(now);
        }
        // How others fared before it began to fail says nothing about it.
        let since = self.addresses.failing_since(call.target).unwrap_or(now);
        let others_work = do_work(self.votes.count_others_since(call.target, since, now));
        if others_work {
            self.served.remove(call.target);
        }
        let is_sick = self.addresses.failed(call.target, call.began, others_work, now, random);
        if is_sick && !was_sick {
            self.votes.withdraw(call.target);
        }
        if !was_sick && !is_sick {
            self.failed = if self.fails_in_a_row(now) { self.failed.saturating_add(1) } else { 1 };
            self.failed_at = now;
        }
        if !call.is_retry && !was_sick && !is_sick {
            self.votes.cast(call.target, false, now);
        }
    }

    /// Whether at least half of the addresses work, as far as any voted: lately, if enough did.
    pub fn do_most_work(&self, now: Timestamp) -> bool {
        let lately = self.votes.count_since(now - LATELY);
        do_work(if lately.voters >= VOTERS_MIN { lately } else { self.votes.count(now) })
    }

    /// An address asked for less; `is_paced` if the provider was found to take calls at a certain pace.
    pub fn asked(&mut self, target: u64, is_paced: bool, now: Timestamp) -> Wish {
        let others = self.votes.count_others(target, now);
        // Where none was called lately, what worked before still does, as far as anybody knows.
        let others_work = do_work(others) || others.voters == 0 && self.served.has_other(target);
        match (self.addresses.asked(target, is_paced, now), others_work) {
            (true, true) => Wish::OfAddress,
            (true, false) => Wish::OfMore,
            (false, _) => Wish::Unclear,
        }
    }

    pub fn condition(&self, now: Timestamp) -> Condition {
        let count = self.votes.count(now);
        let few_all_bad =
            count.voters < VOTERS_DOWN && count.bad == count.voters && self.failed >= FAILED_MIN;
        if few_all_bad {
            return Condition::Down;
        }
        match count.bad_share() {
            _ if count.voters < VOTERS_MIN => Condition::Well,
            share if share >= DOWN_SHARE && count.voters >= VOTERS_SURE => Condition::Down,
            1.0 if count.voters >= VOTERS_DOWN => Condition::Down,
            share if share >= DEGRADED_SHARE => Condition::Degraded,
            _ => Condition::Well,
        }
    }

    fn fails_in_a_row(&self, now: Timestamp) -> bool {
        now.since(self.failed_at) < IN_A_ROW
    }

    /// How many calls may be made now while it is degraded: some of these will succeed.
    pub fn room(&self, now: Timestamp) -> usize {
        let failing = self.votes.count(now).bad_share().max(FAILING_MIN);
        (self.credit.left(now) / failing) as usize
    }

    pub fn votes(&self, now: Timestamp) -> VoteCount {
        self.votes.count(now)
    }

    pub fn votes_of_others(&self, target: u64, now: Timestamp) -> VoteCount {
        self.votes.count_others(target, now)
    }

    /// It works again: what failed before does not count any more.
    pub fn recovered(&mut self) {
        self.failed = 0;
        self.votes.forget_bad();
        self.credit = CallCredit::default();
    }

    /// A call begins, or failed, that tries whether it works again: the next ones try other addresses.
    pub fn note_probe(&mut self, target: u64) {
        if !self.probed.contains(&Some(target)) {
            self.probed.rotate_right(1);
            self.probed[0] = Some(target);
        }
    }

    /// A call that tried whether it works again did not fail.
    pub fn forget_probe(&mut self, target: u64) {
        self.probed.iter_mut().filter(|probed| **probed == Some(target)).for_each(|p| *p = None);
    }

    /// Whether nothing is remembered that is worth its memory.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        let votes = self.votes.count(now);
        votes.bad == 0 && !self.fails_in_a_row(now) && self.addresses.is_forgettable(now)
    }
}

/// Whether at least half of those who voted work, if any did.
fn do_work(votes: VoteCount) -> bool {
    votes.voters > 0 && 1.0 - votes.bad_share() >= OTHERS_GOOD_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn report(health: &mut TenantHealth, target: u64, signal: Signal, is_retry: bool, s: u64) {
        let now = NOW + Duration::from_secs(s);
        let call = HealthCall { signal, target, is_retry, unopened: false, began: now };
        health.report(&call, now, 0.5);
    }

    fn after(bad: u64, good: u64) -> Condition {
        let mut health = TenantHealth::default();
        (0..bad).for_each(|target| report(&mut health, target, Signal::Failing, false, 0));
        (0..good).for_each(|target| report(&mut health, bad + target, Signal::Well, false, 0));
        health.condition(NOW)
    }

    #[test]
    fn it_is_judged_by_the_share_of_addresses_that_fail() {
        let conditions =
            [(1, 9), (2, 8), (15, 5), (16, 4), (8, 0)].map(|(bad, good)| after(bad, good));
        use Condition::{Degraded, Down, Well};
        assert_eq!(conditions, [Well, Degraded, Degraded, Down, Down]);
        assert_eq!([(8, 2), (7, 0)].map(|(bad, good)| after(bad, good)), [Degraded; 2], "chance");
    }

    #[test]
    fn retries_that_fail_have_no_vote() {
        let mut health = TenantHealth::default();
        (0..100).for_each(|target| report(&mut health, target % 9, Signal::Well, false, 0));
        (0..1_000).for_each(|n| report(&mut health, 100, Signal::Failing, true, n / 100));
        assert_eq!(health.condition(NOW), Condition::Well);
    }

    #[test]
    fn a_single_address_that_always_fails_is_down_after_many_calls() {
        let mut health = TenantHealth::default();
        (0..19).for_each(|s| report(&mut health, 1, Signal::Failing, s > 0, s));
        assert_eq!(health.condition(NOW + Duration::from_secs(19)), Condition::Well);
        report(&mut health, 1, Signal::Failing, true, 20);
        assert_eq!(health.condition(NOW + Duration::from_secs(20)), Condition::Down);
    }

    #[test]
    fn a_sick_address_does_not_vote() {
        let mut health = TenantHealth::default();
        for s in 0..600 {
            report(&mut health, s % 4, Signal::Well, false, s);
            report(&mut health, 100, Signal::Failing, false, s);
        }
        let now = NOW + Duration::from_secs(600);
        assert!(health.addresses.is_sick(100));
        assert_eq!(health.votes(now).bad, 0);
    }

    #[test]
    fn connections_that_cannot_be_opened_say_nothing_about_the_tenant() {
        let mut health = TenantHealth::default();
        for target in 0..100 {
            let call = HealthCall {
                signal: Signal::Failing,
                target,
                is_retry: false,
                unopened: true,
                began: NOW,
            };
            health.report(&call, NOW, 0.5);
        }
        assert_eq!(health.condition(NOW), Condition::Well);
    }

    #[test]
    fn after_an_outage_it_is_well_at_once_however_little_it_sends() {
        let mut health = TenantHealth::default();
        (0..20).for_each(|target| report(&mut health, target, Signal::Failing, false, 0));
        assert_eq!(health.condition(NOW), Condition::Down);
        health.recovered();
        assert_eq!(health.condition(NOW), Condition::Well);
    }

    #[test]
    fn while_degraded_calls_are_held_to_twice_the_successes_and_one_per_second() {
        let mut health = TenantHealth::default();
        assert_eq!(health.room(NOW), 120, "a quarter of them fail");
        (0..30).for_each(|target| report(&mut health, target, Signal::Failing, false, 0));
        assert_eq!(health.room(NOW), 0);
        (0..10).for_each(|target| report(&mut health, target, Signal::Well, false, 0));
        assert_eq!(health.room(NOW), 15);
    }
}
