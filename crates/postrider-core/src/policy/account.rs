//! Credential, quota and pauses of a provider account, and the choice between several accounts. Reads no clock.
//!
//! The choice is made for every attempt, so nothing that is queued has to move: when an account's
//! credential is refused or its quota is used up, the next attempt goes through another account. Whether
//! its provider fails is not judged here: the dispatcher's lanes do that for each account.

use std::sync::Arc;
use std::time::Duration;

use crate::model::lane::{Gate, LaneState};
use crate::model::outcome::{Outcome, Scope};
use crate::model::time::Timestamp;
use crate::policy::breaker::{BreakerChange, BreakerPolicy, BreakerRefusal};
use crate::policy::credential::CredentialBreaker;
use crate::policy::limiter::{Limiter, Rate};
use crate::policy::signal::Signal;
use crate::policy::throttle::Pause;
use crate::policy::work_share::WorkShare;

/// How soon to ask again while a probe is under way.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// An attempt waits this long at most for an account's quota; beyond that its delivery is put off.
pub const SHORT_WAIT: Duration = Duration::from_secs(1);

/// How soon to ask again whether an operator's pause was taken back.
const ORDER_PAUSE: Duration = Duration::from_secs(60);

/// What is known about one account.
#[derive(Debug, Clone)]
pub struct AccountGates {
    /// The end of an operator's pause.
    paused_until: Option<Timestamp>,
    pause: Pause,
    credential: CredentialBreaker,
    quota: Option<AccountQuota>,
}

/// This worker's part of an account's rate.
#[derive(Debug, Clone)]
struct AccountQuota {
    whole: Rate,
    share: Arc<WorkShare>,
    limiter: Limiter,
}

impl AccountQuota {
    fn new(whole: Rate, share: Arc<WorkShare>) -> Self {
        Self { limiter: Limiter::new(share.of_rate(whole)), whole, share }
    }

    /// The limiter of the present part.
    fn limiter(&mut self, now: Timestamp) -> &mut Limiter {
        let rate = self.share.of_rate(self.whole);
        if rate != self.limiter.rate() {
            self.limiter.adopt(rate, now);
        }
        &mut self.limiter
    }
}

/// Why an account cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountHold {
    pub by: Gate,
    pub until: Timestamp,
}

impl From<AccountHold> for LaneState {
    fn from(held: AccountHold) -> Self {
        Self::Waiting { on: held.by, until: held.until }
    }
}

/// An account that may send a tenant's messages.
#[derive(Debug, Clone)]
pub struct AccountOffer {
    pub name: Arc<str>,
    /// Why it cannot be used at this moment.
    pub held: Option<AccountHold>,
}

/// Under which opening of its credential's breaker an account was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountEpoch {
    credential: u32,
}

impl AccountGates {
    /// Uses only this worker's part of the quota.
    pub fn new(policy: BreakerPolicy, quota: Option<Rate>, share: Arc<WorkShare>) -> Self {
        Self {
            paused_until: None,
            pause: Pause::default(),
            credential: CredentialBreaker::new(policy),
            quota: quota.map(|rate| AccountQuota::new(rate, share)),
        }
    }

    /// Applies another policy of breakers. What was learned stays.
    pub fn adopt(&mut self, policy: BreakerPolicy) {
        self.credential.adopt(policy);
    }

    /// Uses the account no more until then, by an operator's order; `None` takes the order back.
    pub fn order_pause(&mut self, until: Option<Timestamp>) {
        self.paused_until = until;
    }

    /// Whether it could be used now, or within a [`SHORT_WAIT`]. Takes nothing.
    pub fn ready(&mut self, now: Timestamp) -> Result<(), AccountHold> {
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            // What waits for the end would not notice that the order is taken back.
            let until = end.min(now + ORDER_PAUSE);
            return Err(AccountHold { by: Gate::ProviderPaused, until });
        }
        if let Some(until) = self.pause.until(now) {
            return Err(AccountHold { by: Gate::RetryAfter, until });
        }
        let held = |by, barred| match barred {
            BreakerRefusal::Until(until) => AccountHold { by, until },
            BreakerRefusal::Probing | BreakerRefusal::Forced => {
                AccountHold { by, until: now + PROBE_PAUSE }
            }
        };
        self.credential.may_pass(now).map_err(|b| held(Gate::Credential, b))?;
        let Some(quota) = &mut self.quota else { return Ok(()) };
        let quota = quota.limiter(now);
        if quota.available(1, now) > 0 {
            return Ok(());
        }
        let until = quota.next(now);
        let is_near = until.since(now) <= SHORT_WAIT;
        if is_near { Ok(()) } else { Err(AccountHold { by: Gate::RateLimit, until }) }
    }

    /// Takes one call, and says when it may be made. The caller [reports](Self::report) its end or
    /// [hands it back](Self::hand_back).
    pub fn take(&mut self, now: Timestamp) -> Result<(AccountEpoch, Timestamp), AccountHold> {
        self.ready(now)?;
        let probing = AccountHold { by: Gate::Credential, until: now + PROBE_PAUSE };
        let credential = self.credential.admit(1, now).map_err(|_| probing)?;
        let at = self.quota.as_mut().map_or(now, |quota| {
            let quota = quota.limiter(now);
            let at = if quota.available(1, now) > 0 { now } else { quota.next(now) };
            quota.take(1, now);
            at
        });
        Ok((AccountEpoch { credential: credential.epoch }, at))
    }

    /// The call counts for so many more in the quota, e.g. for the further segments of a text message.
    pub fn charge(&mut self, more: usize, now: Timestamp) {
        if let Some(quota) = self.quota.as_mut().filter(|_| more > 0) {
            quota.limiter(now).take(more, now);
        }
    }

    /// The call was not made.
    pub fn hand_back(&mut self, epoch: AccountEpoch, now: Timestamp) {
        self.credential.hand_back(1, epoch.credential);
        if let Some(quota) = &mut self.quota {
            quota.limiter(now).refund(1, now);
        }
    }

    /// The end of a call. Says how the credential's gate changed.
    pub fn report(
        &mut self,
        outcome: &Outcome,
        status: Option<u16>,
        epoch: AccountEpoch,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        // A stale token is no refusal yet: the new one decides.
        let signal = match outcome {
            Outcome::ResignOnce => Signal::Nothing,
            _ => Signal::of(outcome, status),
        };
        let gone = *outcome == Outcome::Gone;
        let apart = |scope| scope != Scope::Target;
        match *outcome {
            Outcome::RetryAfter { after, scope } | Outcome::Hold { after, scope }
                if apart(scope) =>
            {
                self.pause.extend(now + after);
            }
            _ => {}
        }
        self.credential.report(signal, gone, epoch.credential, now, random)
    }

    /// There is a new credential: forgets all that is known of the old one.
    pub fn renewed(&mut self) {
        self.credential.renewed();
    }
}

/// Whether the outcome is the account's fault and not the message's: another account may do better.
pub fn is_the_account_s(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Config => true,
        Outcome::RetryAfter { scope, .. } | Outcome::Hold { scope, .. } => *scope != Scope::Target,
        _ => false,
    }
}

/// One account as the choice sees it.
#[derive(Debug, Clone, Copy)]
pub struct AccountCandidate {
    /// It is in another region than the server.
    pub is_far: bool,
    /// Lower is used first.
    pub priority: u16,
    /// What a message costs there; decides between accounts of the same priority.
    pub cost: f64,
    pub ready: Result<(), AccountHold>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AccountChoice {
    /// This one, by its place in the list.
    Use(usize),
    /// None at the moment; the first one is ready then.
    Wait(AccountHold),
    /// There is none.
    Nobody,
}

/// The first that is ready: near ones first, then by priority, then by cost, then as listed.
pub fn choose(candidates: &[AccountCandidate]) -> AccountChoice {
    let rank = |c: &AccountCandidate| ((c.is_far, c.priority), c.cost);
    let less = |a: &AccountCandidate, b: &AccountCandidate| {
        let ((ap, ac), (bp, bc)) = (rank(a), rank(b));
        ap.cmp(&bp).then(ac.total_cmp(&bc))
    };
    let ready = candidates.iter().enumerate().filter(|(_, c)| c.ready.is_ok());
    if let Some((best, _)) = ready.min_by(|(_, a), (_, b)| less(a, b)) {
        return AccountChoice::Use(best);
    }
    let held = candidates.iter().filter_map(|c| c.ready.err()).min_by_key(|held| held.until);
    held.map_or(AccountChoice::Nobody, AccountChoice::Wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn standing() -> AccountGates {
        AccountGates::new(BreakerPolicy::default(), None, Arc::default())
    }

    fn with_quota(rate: Rate) -> AccountGates {
        AccountGates::new(BreakerPolicy::default(), Some(rate), Arc::default())
    }

    fn end(standing: &mut AccountGates, outcome: &Outcome, status: u16) {
        let (epoch, _) = standing.take(NOW).unwrap();
        standing.report(outcome, Some(status), epoch, NOW, 0.0);
    }

    fn candidate(priority: u16, cost: f64, ready: bool) -> AccountCandidate {
        let held = AccountHold { by: Gate::Breaker, until: NOW };
        let ready = if ready { Ok(()) } else { Err(held) };
        AccountCandidate { is_far: false, priority, cost, ready }
    }

    #[test]
    fn an_account_of_the_own_region_is_used_first_and_others_take_over() {
        let far = |ready| AccountCandidate { is_far: true, ..candidate(0, 0.0, ready) };
        assert_eq!(choose(&[far(true), candidate(7, 0.5, true)]), AccountChoice::Use(1));
        assert_eq!(choose(&[far(true), candidate(7, 0.5, false)]), AccountChoice::Use(0));
    }

    #[test]
    fn the_first_by_priority_is_used_and_among_equals_the_cheapest() {
        let list = [candidate(1, 0.0, true), candidate(0, 0.9, true), candidate(0, 0.1, true)];
        assert_eq!(choose(&list), AccountChoice::Use(2));
        let list = [candidate(0, 0.1, false), candidate(1, 0.9, true), candidate(2, 0.0, true)];
        assert_eq!(choose(&list), AccountChoice::Use(1));
        assert_eq!(choose(&[]), AccountChoice::Nobody);
    }

    #[test]
    fn where_none_is_ready_the_first_to_come_back_is_waited_for() {
        let held =
            |s: u64| AccountHold { by: Gate::RateLimit, until: NOW + Duration::from_secs(s) };
        let list =
            [9, 4, 7].map(|s| AccountCandidate { ready: Err(held(s)), ..candidate(0, 0.0, true) });
        assert_eq!(choose(&list), AccountChoice::Wait(held(4)));
    }

    #[test]
    fn a_refused_credential_and_a_spent_quota_each_hold_an_account() {
        let mut refused = standing();
        end(&mut refused, &Outcome::Config, 403);
        assert_eq!(refused.ready(NOW).unwrap_err().by, Gate::Credential);

        let mut asked = standing();
        let after = Duration::from_secs(60);
        end(&mut asked, &Outcome::RetryAfter { after, scope: Scope::Credential }, 429);
        assert_eq!(asked.ready(NOW), Err(AccountHold { by: Gate::RetryAfter, until: NOW + after }));
        assert_eq!(asked.ready(NOW + after), Ok(()));

        let rate = Rate { per_s: 0.1, burst: 1, ramp_s: 0 };
        let mut spent = with_quota(rate);
        spent.take(NOW).unwrap();
        let held = spent.ready(NOW).unwrap_err();
        assert_eq!((held.by, held.until), (Gate::RateLimit, NOW + Duration::from_secs(10)));
    }

    #[test]
    fn an_account_that_an_operator_paused_is_held_until_its_end_or_until_it_is_resumed() {
        let mut paused = standing();
        paused.order_pause(Some(NOW + Duration::from_secs(30)));
        let held = paused.ready(NOW).unwrap_err();
        assert_eq!((held.by, held.until), (Gate::ProviderPaused, NOW + Duration::from_secs(30)));
        assert!(paused.take(NOW).is_err());
        assert_eq!(paused.ready(held.until), Ok(()));
        paused.order_pause(Some(Timestamp::MAX));
        assert_eq!(paused.ready(NOW).unwrap_err().until, NOW + ORDER_PAUSE, "it is asked again");
        paused.order_pause(None);
        assert_eq!(paused.ready(NOW), Ok(()));
    }

    #[test]
    fn a_provider_that_fails_does_not_hold_its_account_here() {
        let mut failing = standing();
        for _ in 0..100 {
            end(&mut failing, &Outcome::RetryBackoff { at_least: Duration::ZERO }, 500);
        }
        assert_eq!(failing.ready(NOW), Ok(()));
    }

    #[test]
    fn a_stale_token_holds_no_account() {
        let mut standing = standing();
        end(&mut standing, &Outcome::ResignOnce, 401);
        assert_eq!(standing.ready(NOW), Ok(()));
    }

    #[test]
    fn one_address_that_is_asked_too_often_holds_no_account() {
        let mut standing = standing();
        let after = Duration::from_secs(60);
        end(&mut standing, &Outcome::RetryAfter { after, scope: Scope::Target }, 429);
        assert_eq!(standing.ready(NOW), Ok(()));
    }

    #[test]
    fn a_short_wait_for_the_quota_is_told_and_paid_for() {
        let rate = Rate { per_s: 10.0, burst: 1, ramp_s: 0 };
        let mut standing = with_quota(rate);
        let at = |standing: &mut AccountGates| standing.take(NOW).unwrap().1;
        assert_eq!(at(&mut standing), NOW);
        assert_eq!(at(&mut standing), NOW + Duration::from_millis(100));
        assert_eq!(at(&mut standing), NOW + Duration::from_millis(200));
    }

    #[test]
    fn a_worker_without_a_part_waits_only_until_it_gets_one() {
        let (rate, share) =
            (Rate { per_s: 10.0, burst: 1, ramp_s: 0 }, Arc::<WorkShare>::default());
        share.set(0.0);
        let mut gates = AccountGates::new(BreakerPolicy::default(), Some(rate), share.clone());
        gates.take(NOW).unwrap();
        assert_eq!(gates.ready(NOW).unwrap_err().by, Gate::RateLimit);
        share.set(0.5);
        assert_eq!(gates.ready(NOW), Ok(()), "the next call is near");
        let (_, at) = gates.take(NOW).unwrap();
        assert!(at <= NOW + Duration::from_millis(250), "{at:?}");
    }

    #[test]
    fn a_call_that_weighs_more_is_paid_for_by_those_behind_it() {
        let rate = Rate { per_s: 1.0, burst: 1, ramp_s: 0 };
        let mut standing = with_quota(rate);
        standing.take(NOW).unwrap();
        standing.charge(3, NOW);
        let held = standing.ready(NOW).unwrap_err();
        assert_eq!((held.by, held.until), (Gate::RateLimit, NOW + Duration::from_secs(4)));
    }

    #[test]
    fn what_was_not_used_is_given_back() {
        let rate = Rate { per_s: 0.1, burst: 1, ramp_s: 0 };
        let mut standing = with_quota(rate);
        let (epoch, _) = standing.take(NOW).unwrap();
        standing.hand_back(epoch, NOW);
        assert_eq!(standing.ready(NOW), Ok(()));
    }
}
