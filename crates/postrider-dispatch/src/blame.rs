//! What an answer makes of its address, by what that was blamed for before. Weighs by the rules in force;
//! decides nothing by itself and writes nothing down.

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::policy::strikes::{self, AddressStanding, NewStrike, StrikeKind};
use postrider_core::ports::store::{Learned, Leased};
use postrider_core::{Report, Target, Timestamp};

use crate::policies::Policies;

/// An answer's word about its address.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    strike: Option<(StrikeKind, AddressStanding)>,
    target: Option<Arc<Target>>,
}

impl Blame {
    /// Weighs the answer. What it means may change: one strike too many, and the address is gone.
    pub(crate) fn weigh(
        report: &mut Report,
        leased: &Leased,
        policies: &Policies,
        now: Timestamp,
    ) -> Self {
        let target = report.target.take();
        let Some(kind) = report.terms.strike else { return Self { strike: None, target } };
        let standing = policies.now().limits.strikes.weigh(&leased.strikes, kind, now);
        report.outcome = strikes::outcome(report.outcome.clone(), kind, standing);
        if kind == StrikeKind::Failing && standing == AddressStanding::Keep {
            // That it failed is what the attempt says already.
            report.terms.strike = None;
        }
        Self { strike: Some((kind, standing)), target }
    }

    /// What is to be written down once it is known what follows.
    pub(crate) fn learned(self, leased: &Leased, decision: &Decision, now: Timestamp) -> Learned {
        let given_up = matches!(
            decision,
            Decision::DeadLetter(_) | Decision::MarkGone | Decision::Expire | Decision::Drop
        );
        let strike = self.strike.and_then(|(kind, standing)| {
            NewStrike::noted(&leased.strikes, kind, standing, given_up, now)
        });
        Learned { strike, target: self.target }
    }
}
