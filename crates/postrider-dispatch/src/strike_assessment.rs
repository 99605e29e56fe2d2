//! What an answer means for its address, given the strikes that the address has. Applies the rules in
//! force; decides nothing about the delivery and writes nothing.

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::policy::strikes::{self, AddressStanding, NewStrike, StrikeKind};
use postrider_core::ports::store::{AddressLearning, LeasedDelivery};
use postrider_core::{Report, Target, Timestamp};

use crate::policies::Policies;

/// The strike that an answer is for its address, if it is one.
#[derive(Debug, Default)]
pub(crate) struct StrikeAssessment {
    strike: Option<(StrikeKind, AddressStanding)>,
    target: Option<Arc<Target>>,
}

impl StrikeAssessment {
    /// Assesses an answer. Its outcome may change: one strike too many, and the address is gone.
    pub(crate) fn of(
        report: &mut Report,
        leased: &LeasedDelivery,
        policies: &Policies,
        now: Timestamp,
    ) -> Self {
        let target = report.target.take();
        let Some(kind) = report.terms.strike else { return Self { strike: None, target } };
        let standing = policies.now().limits.strikes.weigh(&leased.strikes, kind, now);
        report.outcome = strikes::outcome(report.outcome.clone(), kind, standing);
        if kind == StrikeKind::Failing && standing == AddressStanding::Keep {
            // The attempt says already that it failed.
            report.terms.strike = None;
        }
        Self { strike: Some((kind, standing)), target }
    }

    /// What is to be written down once the decision is known.
    pub(crate) fn learned(
        self,
        leased: &LeasedDelivery,
        decision: &Decision,
        now: Timestamp,
    ) -> AddressLearning {
        let given_up = matches!(
            decision,
            Decision::DeadLetter(_) | Decision::MarkGone | Decision::Expire | Decision::Drop
        );
        let strike = self.strike.and_then(|(kind, standing)| {
            NewStrike::for_answer(&leased.strikes, kind, standing, given_up, now)
        });
        AddressLearning { strike, target: self.target }
    }
}
