//! A breaker for one credential at one provider: opens at once when the provider refuses it, and lets
//! single calls try whether it is accepted again. Reads no clock.
//!
//! One that came back is given the benefit of the doubt for a while: then a refusal is more likely
//! about one address (a subscription made with another key) than about the credential.

use std::time::Duration;

use crate::breaker::{Barred, Breaker, BreakerPolicy, BreakerState, Permit, Turn};
use crate::signal::Signal;
use crate::time::Timestamp;

/// How long a credential that was accepted again is trusted.
const TRUST: Duration = Duration::from_secs(600);
/// Refusals in a row that end the trust.
const REFUSALS_MAX: u32 = 3;

#[derive(Debug, Clone)]
pub struct Credential {
    breaker: Breaker,
    accepted_at: Option<Timestamp>,
    refused_in_a_row: u32,
}

impl Credential {
    pub fn new(policy: BreakerPolicy) -> Self {
        Self { breaker: Breaker::new(policy), accepted_at: None, refused_in_a_row: 0 }
    }

    /// See [`Breaker::adopt`].
    pub fn adopt(&mut self, policy: BreakerPolicy) {
        self.breaker.adopt(policy);
    }

    pub fn admit(&mut self, want: usize, now: Timestamp) -> Result<Permit, Barred> {
        self.breaker.admit(want, now)
    }

    pub fn may_pass(&self, now: Timestamp) -> Result<(), Barred> {
        self.breaker.may_pass(now)
    }

    pub fn hand_back(&mut self, calls: usize, epoch: u32) {
        self.breaker.hand_back(calls, epoch);
    }

    pub fn report(
        &mut self,
        signal: Signal,
        epoch: u32,
        now: Timestamp,
        roll: f64,
    ) -> Option<Turn> {
        match signal {
            Signal::Well => {
                self.refused_in_a_row = 0;
                self.accepted_at = Some(now);
                self.breaker.report(Signal::Well, epoch, now, roll)
            }
            Signal::Credential => {
                self.refused_in_a_row += 1;
                match self.breaker.state() {
                    BreakerState::Closed if self.is_trusted(now) => None,
                    BreakerState::Closed => Some(self.breaker.open(now, roll)),
                    // Of those coming back, one refusal is enough.
                    _ => self.breaker.report(Signal::Failing, epoch, now, roll),
                }
            }
            _ => self.breaker.report(Signal::Nothing, epoch, now, roll),
        }
    }

    /// There is a new credential: nothing that was known holds any longer.
    pub fn renewed(&mut self) {
        self.breaker = self.breaker.fresh();
        self.refused_in_a_row = 0;
    }

    /// Nothing is remembered that is worth its memory.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        self.breaker.state() == BreakerState::Closed
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

    fn call(credential: &mut Credential, signal: Signal, now: Timestamp) -> Option<Turn> {
        let permit = credential.admit(1, now).unwrap();
        credential.report(signal, permit.epoch, now, 0.0)
    }

    #[test]
    fn the_first_refusal_opens_it_at_once() {
        let mut credential = Credential::new(BreakerPolicy::default());
        let turn = call(&mut credential, Signal::Credential, NOW);
        assert_eq!(turn, Some(Turn::Opened { until: NOW + Duration::from_secs(5) }));
        assert!(credential.admit(1, NOW).is_err());
    }

    #[test]
    fn one_odd_address_does_not_hold_up_a_credential_that_works() {
        let mut credential = Credential::new(BreakerPolicy::default());
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
            Some(Turn::Opened { .. })
        ));
    }

    #[test]
    fn a_new_credential_starts_with_a_clean_slate() {
        let mut credential = Credential::new(BreakerPolicy::default());
        call(&mut credential, Signal::Credential, NOW);
        credential.renewed();
        assert!(credential.admit(5, NOW).is_ok_and(|permit| permit.calls == 5));
    }
}
