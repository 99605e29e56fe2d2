//! What every attempt needs, shared by all, and the one place where a lease ends. Decides nothing.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{AddressLearning, Consumer, Settlement};
use postrider_core::{ChannelKind, ChannelTraits, Clock, LaneKey};

use crate::attempt::DeliveryJob;
use crate::jitter_rng::JitterRng;
use crate::lanes::Lanes;
use crate::observer::Observer;
use crate::settler::{PendingSettlement, SettlementQueue};
use crate::unsettled_limit::UnsettledLimit;

pub(crate) struct DispatchContext {
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) unsettled: Arc<UnsettledLimit>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) settlements: SettlementQueue,
    pub(crate) random: JitterRng,
    pub(crate) traits: HashMap<ChannelKind, &'static ChannelTraits>,
}

impl DispatchContext {
    /// Ends the lease of a delivery: hands the decision and the attempts made to the settler.
    pub(crate) fn settle(
        &self,
        lane: &Arc<LaneKey>,
        job: &mut DeliveryJob,
        decision: Decision,
        learned: AddressLearning,
    ) {
        let attempts = std::mem::take(&mut job.log);
        let leased = &job.leased;
        let suspected = learned.strike.is_some_and(|strike| strike.makes_suspect(&leased.strikes));
        self.settlements.push(PendingSettlement {
            settlement: Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts,
                decision,
                learned,
            },
            message: leased.message.clone(),
            lane: lane.clone(),
            hash: leased.hash,
            suspected,
            accepted_at: leased.message.created_at,
            decided_at: self.clock.now(),
        });
    }
}
