//! Holds the lane while its provider refuses the tenant's credential, or calls too many of the tenant's
//! addresses gone to be believed. One breaker stands behind both gates; its cause names the gate.

use postrider_core::policy::breaker::{BreakerCause, BreakerChange};
use postrider_core::policy::credential::CredentialBreaker;
use postrider_core::{Gate, LaneState, Signal};

use super::{LaneCheck, LaneContext, held_by};
use crate::lanes::call::{CallEffect, CallResult, LaneEvent};
use crate::lanes::report::GateVerdict;

pub(super) struct CredentialCheck;

impl LaneCheck for CredentialCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Credential, Gate::MassGone]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let held = self.room(lane, 1).err();
        [Gate::Credential, Gate::MassGone].map(|gate| verdict(gate, held)).into()
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let own = lane.gates.tenants.get(&lane.lane.tenant);
        let Some(credential) = own.and_then(|own| own.credential.as_deref()) else {
            return Ok(want);
        };
        let passed = credential.may_pass(lane.now);
        passed.map(|()| want).map_err(|refusal| held_by(gate(credential), refusal))
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let own = lane.gates.tenants.get_mut(&lane.lane.tenant);
        let Some(credential) = own.and_then(|own| own.credential.as_deref_mut()) else {
            return Ok(want);
        };
        let permit = credential.admit(want, lane.now);
        let permit = permit.map_err(|refusal| held_by(gate(credential), refusal))?;
        lane.epochs.credential = Some(permit.epoch);
        Ok(permit.calls)
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        let own = lane.gates.tenants.get_mut(&lane.lane.tenant);
        let credential = own.and_then(|own| own.credential.as_deref_mut());
        if let (Some(epoch), Some(credential)) = (lane.epochs.credential, credential) {
            credential.hand_back(calls, epoch);
        }
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let is_suspicious = call.gone || call.signal == Signal::Credential;
        if lane.epochs.credential.is_none() && !(is_suspicious && call.tenant_credential) {
            return;
        }
        let credential = lane.gates.credential(&lane.lane.tenant, lane.now);
        let epoch = lane.epochs.credential.unwrap_or(0);
        let change = credential.report(call.signal, call.gone, epoch, lane.now, lane.random);
        effect.eased |= change.is_some_and(BreakerChange::is_easing);
        effect.doubted = call.gone && credential.doubts_gone();
        effect.event = effect.event.or(event(credential, change));
    }
}

/// The gate that the credential's breaker closes.
fn gate(credential: &CredentialBreaker) -> Gate {
    match credential.cause() {
        BreakerCause::MassGone => Gate::MassGone,
        _ => Gate::Credential,
    }
}

fn verdict(gate: Gate, held: Option<LaneState>) -> GateVerdict {
    let held = held.filter(|state| state.gate() == Some(gate));
    let detail = match (gate, held.is_some()) {
        (Gate::MassGone, false) => "addresses that are called gone are believed to be",
        (Gate::MassGone, true) => {
            "the provider calls so many of the tenant's addresses gone that it is not believed; none is erased"
        }
        (_, false) => "not refused",
        (_, true) => "the provider refused the tenant's credential",
    };
    GateVerdict::of(gate, held, detail.into())
}

fn event(credential: &CredentialBreaker, change: Option<BreakerChange>) -> Option<LaneEvent> {
    match change? {
        BreakerChange::Opened { until } if gate(credential) == Gate::MassGone => {
            Some(LaneEvent::MassGone { until })
        }
        BreakerChange::Opened { until } => Some(LaneEvent::CredentialRefused { until }),
        BreakerChange::Closed => Some(LaneEvent::CredentialAccepted),
        BreakerChange::Eased => None,
    }
}
