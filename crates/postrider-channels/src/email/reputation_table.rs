//! The reputation of sending domains at receiving domains. Stores only pairs with a refusal, so that accepted mail
//! costs nothing. `reputation.rs` judges.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::{Outcome, Report, Scope, Timestamp};

use super::reputation::{Reputation, ReputationPolicy};

/// The most pairs that are stored.
const PAIRS_MAX: usize = 10_000;

type DomainPair = (String, String);

#[derive(Default)]
pub(super) struct ReputationTable {
    policy: ReputationPolicy,
    /// Whether any pair is stored.
    any: AtomicBool,
    pairs: Mutex<HashMap<DomainPair, Reputation>>,
}

impl ReputationTable {
    pub(super) fn new(policy: ReputationPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<DomainPair, Reputation>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report of an attempt that is not made because its pair is held.
    pub(super) fn held(&self, from: &str, to: &str, now: Timestamp) -> Option<Box<Report>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let pair = pair(from, to);
        let until = self.pairs().get(&pair).and_then(|known| known.held(now))?;
        let outcome = Outcome::Hold { after: until.since(now), scope: Scope::Target };
        let detail = format!(
            "{} refused too many of the latest mails from {} for policy; see that SPF, DKIM, DMARC and PTR are right",
            pair.1, pair.0
        );
        Some(Box::new(Report::new(outcome).code("reputation").detail(detail)))
    }

    /// Records whether a mail was refused for the sender's reputation.
    pub(super) fn report(&self, from: &str, to: &str, refused: bool, now: Timestamp) {
        if !refused && !self.any.load(Ordering::Acquire) {
            return;
        }
        let pair = pair(from, to);
        let mut pairs = self.pairs();
        if refused && !pairs.contains_key(&pair) {
            if pairs.len() >= PAIRS_MAX {
                pairs.retain(|_, known| !known.is_forgettable(now));
            }
            if pairs.len() >= PAIRS_MAX {
                // Losing the pairs costs a few refusals; keeping all costs memory.
                pairs.clear();
            }
            pairs.insert(pair.clone(), Reputation::new(self.policy));
            self.any.store(true, Ordering::Release);
        }
        let Some(known) = pairs.get_mut(&pair) else { return };
        if let Some(until) = known.report(refused, now) {
            let (sender, receiver) = (&*pair.0, &*pair.1);
            tracing::warn!(sender, receiver, %until, "too many mails were refused for policy: the rest wait");
        }
    }
}

fn pair(from: &str, to: &str) -> DomainPair {
    let domain = |address: &str| {
        address.rsplit_once('@').map_or(address, |(_, domain)| domain).to_ascii_lowercase()
    };
    (domain(from), domain(to))
}
