//! A breaker for one credential at one provider: opens at once when the provider refuses it, or when it
//! calls too many of its addresses gone, and lets single calls try whether that is over. Reads no clock.
//!
//! A credential that was accepted again is trusted for a while: a refusal then is more likely about one
//! address (a subscription made with another key) than about the credential.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::breaker::{
    BreakerCause, BreakerChange, BreakerPolicy, BreakerRefusal, BreakerState, Permit,
};
use crate::policy::gone_guard::GoneGuard;
use crate::policy::ramp_breaker::RampBreaker;
use crate::policy::signal::Signal;

/// How long a credential that was accepted again is trusted.
const TRUST: Duration = Duration::from_secs(600);
/// Refusals in a row that end the trust.
const REFUSALS_MAX: u32 = 3;

#[derive(Debug, Clone)]
pub struct CredentialBreaker {
    breaker: RampBreaker,
    gone: GoneGuard,
    accepted_at: Option<Timestamp>,
    refused_in_a_row: u32,
}

impl CredentialBreaker {
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            breaker: RampBreaker::new(policy),
            gone: GoneGuard::new(&policy),
            accepted_at: None,
            refused_in_a_row: 0,
        }
    }

    /// See [`RampBreaker::adopt`].
    pub fn adopt(&mut self, policy: BreakerPolicy) {
        self.breaker.adopt(policy);
        self.gone.adopt(&policy);
    }

    pub fn admit(&mut self, want: usize, now: Timestamp) -> Result<Permit, BreakerRefusal> {
        self.breaker.admit(want, now)
    }

    pub fn may_pass(&self, now: Timestamp) -> Result<(), BreakerRefusal> {
        self.breaker.may_pass(now)
    }

    pub fn hand_back(&mut self, calls: usize, epoch: u32) {
        self.breaker.hand_back(calls, epoch);
    }

    /// The end of a call; `gone` if the provider called the address gone.
    pub fn report(
        &mut self,
        signal: Signal,
        gone: bool,
        epoch: u32,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        if signal == Signal::Well {
            self.gone.count(gone, now);
        }
        if gone && self.gone.doubts() {
            return match self.breaker.state() {
                BreakerState::Closed => {
                    Some(self.breaker.open(BreakerCause::MassGone, now, random))
                }
                _ => self.breaker.report(Signal::Failing, epoch, now, random),
            };
        }
        let turn = self.report_signal(signal, epoch, now, random);
        if turn == Some(BreakerChange::Closed) {
            self.gone.clear();
        }
        turn
    }

    fn report_signal(
        &mut self,
        signal: Signal,
        epoch: u32,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        match signal {
            Signal::Well => {
                self.refused_in_a_row = 0;
                self.accepted_at = Some(now);
                self.breaker.report(Signal::Well, epoch, now, random)
            }
            Signal::Credential => {
                self.refused_in_a_row += 1;
                match self.breaker.state() {
                    BreakerState::Closed if self.is_trusted(now) => None,
                    BreakerState::Closed => {
                        Some(self.breaker.open(BreakerCause::Refused, now, random))
                    }
                    // While it recovers, one refusal is enough.
                    _ => self.breaker.report(Signal::Failing, epoch, now, random),
                }
            }
            _ => self.breaker.report(Signal::Nothing, epoch, now, random),
        }
    }

    /// There is a new credential: forgets all that is known of the old one.
    pub fn renewed(&mut self) {
        self.breaker = self.breaker.fresh();
        self.gone.clear();
        self.refused_in_a_row = 0;
    }

    /// Why it opened last.
    pub fn cause(&self) -> BreakerCause {
        self.breaker.cause()
    }

    /// Whether an address that is called gone is to be kept for the time being.
    pub fn doubts_gone(&self) -> bool {
        self.gone.doubts()
    }

    /// Sets that an operator confirms gone addresses; `false` takes it back.
    pub fn believe_gone(&mut self, believe: bool) {
        if self.gone.doubts() && believe {
            self.breaker = self.breaker.fresh();
        }
        self.gone.overrule(believe);
    }

    /// Whether nothing is remembered that is worth its memory.
    pub fn is_forgettable(&mut self, now: Timestamp) -> bool {
        self.breaker.state() == BreakerState::Closed
            && self.gone.is_forgettable(now)
            && self.accepted_at.is_none_or(|at| now.since(at) >= TRUST)
    }

    fn is_trusted(&self, now: Timestamp) -> bool {
        let recent = self.accepted_at.is_some_and(|at| now.since(at) < TRUST);
        recent && self.refused_in_a_row < REFUSALS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn call(
        credential: &mut CredentialBreaker,
        signal: Signal,
        now: Timestamp,
    ) -> Option<BreakerChange> {
        let permit = credential.admit(1, now).unwrap();
        credential.report(signal, false, permit.epoch, now, 0.0)
    }

    #[test]
    fn the_first_refusal_opens_it_at_once() {
        let mut credential = CredentialBreaker::new(BreakerPolicy::default());
        let turn = call(&mut credential, Signal::Credential, NOW);
        assert_eq!(turn, Some(BreakerChange::Opened { until: NOW + Duration::from_secs(5) }));
        assert!(credential.admit(1, NOW).is_err());
    }

    #[test]
    fn one_odd_address_does_not_hold_up_a_credential_that_works() {
        let mut credential = CredentialBreaker::new(BreakerPolicy::default());
        call(&mut credential, Signal::Credential, NOW);
        let later = NOW + Duration::from_secs(5);
        while credential.breaker.state() != BreakerState::Closed {
            call(&mut credential, Signal::Well, later);
        }
        assert_eq!(call(&mut credential, Signal::Credential, later), None);
        assert_eq!(call(&mut credential, Signal::Well, later), None);
        assert_eq!(call(&mut credential, Signal::Credential, later), None);
        assert_eq!(call(&mut credential, Signal::Credential, later), None);
        assert!(matches!(
            call(&mut credential, Signal::Credential, later),
            Some(BreakerChange::Opened { .. })
        ));
    }

    #[test]
    fn a_new_credential_starts_with_a_clean_slate() {
        let mut credential = CredentialBreaker::new(BreakerPolicy::default());
        call(&mut credential, Signal::Credential, NOW);
        credential.renewed();
        assert!(credential.admit(5, NOW).is_ok_and(|permit| permit.calls == 5));
    }

    fn gone(credential: &mut CredentialBreaker, now: Timestamp) -> Option<BreakerChange> {
        let permit = credential.admit(1, now).unwrap();
        credential.report(Signal::Well, true, permit.epoch, now, 0.0)
    }

    #[test]
    fn a_mass_of_gone_addresses_stops_the_credential_until_one_of_them_answers() {
        let mut credential = CredentialBreaker::new(BreakerPolicy::default());
        (0..49).for_each(|_| assert_eq!(gone(&mut credential, NOW), None));
        assert!(!credential.doubts_gone());
        assert_eq!(
            gone(&mut credential, NOW),
            Some(BreakerChange::Opened { until: NOW + Duration::from_secs(5) })
        );
        assert!(credential.doubts_gone() && credential.cause() == BreakerCause::MassGone);
        let later = NOW + Duration::from_secs(5);
        let again = gone(&mut credential, later);
        assert_eq!(again, Some(BreakerChange::Opened { until: later + Duration::from_secs(10) }));
        let well = later + Duration::from_secs(10);
        while credential.breaker.state() != BreakerState::Closed {
            assert!(credential.doubts_gone(), "until it is closed again");
            call(&mut credential, Signal::Well, well);
        }
        assert!(!credential.doubts_gone());
        assert_eq!(gone(&mut credential, well), None, "counted anew");
    }

    #[test]
    fn an_operator_can_say_that_they_are_gone_indeed() {
        let mut credential = CredentialBreaker::new(BreakerPolicy::default());
        (0..50).for_each(|_| {
            gone(&mut credential, NOW);
        });
        assert!(credential.admit(1, NOW).is_err());
        credential.believe_gone(true);
        (0..100).for_each(|_| assert_eq!(gone(&mut credential, NOW), None));
        assert!(!credential.doubts_gone());
    }
}
