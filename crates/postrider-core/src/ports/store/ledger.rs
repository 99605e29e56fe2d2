//! The ledger: shows what became of messages and deliveries, and lets an operator act on them. Hands out
//! no work.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{PruneProgress, Retention, StoreHealth, StoreResult, TenantHoldings};
use crate::model::channel::ChannelKind;
use crate::model::delivery::{DeadReason, Delivery, State};
use crate::model::id::{DeliveryId, MessageId};
use crate::model::lane::{LaneId, LaneKey};
use crate::model::message::{Envelope, TenantId, campaign_mark};
use crate::model::time::Timestamp;
use crate::policy::backoff::RetryPolicy;

/// A message as the ledger shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageView {
    pub id: MessageId,
    pub tenant: TenantId,
    pub class: Arc<str>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub ttl_s: u32,
    pub envelope: Envelope,
    pub states: BTreeMap<State, u64>,
    /// The first hundred.
    pub deliveries: Vec<(DeliveryId, State)>,
    /// Whether the body is still there.
    pub has_content: bool,
}

/// Which deliveries to show; newest first.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub tenant: Option<TenantId>,
    pub state: Option<State>,
    pub channel: Option<ChannelKind>,
    /// The lane's provider.
    pub provider: Option<Arc<str>>,
    pub class: Option<Arc<str>>,
    /// The account that the last attempt went through.
    pub account: Option<Arc<str>>,
    pub recipient: Option<Arc<str>>,
    pub message: Option<MessageId>,
    /// One of the message's tags. Found by an index where `tenant` is given, too.
    pub tag: Option<Arc<str>>,
    /// The message's campaign. Found as a tag is.
    pub campaign: Option<Arc<str>>,
    /// Only deliveries that are [held](super::HeldDeliveries).
    pub held: bool,
    /// Dead letters only.
    pub reason: Option<DeadReason>,
    /// Part of the last attempt's code or detail.
    pub error: Option<String>,
    /// Exactly [`AttemptRecord::error`](crate::AttemptRecord::error) of the last attempt; empty for none.
    pub error_is: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Those that became what they are before this time.
    pub changed_before: Option<Timestamp>,
    /// The last id of the page before.
    pub cursor: Option<DeliveryId>,
    pub limit: usize,
}

impl DeliveryFilter {
    /// The marks (see [`Envelope::marks`]) that a message must have.
    pub fn marks(&self) -> Vec<Box<str>> {
        let campaign = self.campaign.as_deref().map(campaign_mark);
        self.tag.as_deref().map(Box::from).into_iter().chain(campaign).collect()
    }

    /// Whether a lane can have a match.
    pub fn fits_lane(&self, lane: &LaneKey) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == lane.tenant)
            && self.channel.is_none_or(|channel| channel == lane.channel)
            && self.provider.as_ref().is_none_or(|provider| *provider == lane.provider)
            && self.class.as_ref().is_none_or(|class| *class == lane.class)
    }
}

/// A page may hold fewer than asked for and still have a successor: a rare match costs several
/// short reads, never one long one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T, C> {
    pub items: Vec<T>,
    pub next: Option<C>,
}

/// Which dead letters to act upon.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one per call of an operator")]
pub enum Selection {
    Ids(Vec<DeliveryId>),
    Filter(DeliveryFilter),
}

#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// The replayed delivery's new TTL; its message's own if absent.
    pub ttl_s: Option<u32>,
    /// At most this many become due per second; all at once if absent.
    pub rate_per_s: Option<f64>,
    pub retry: Option<RetryPolicy>,
    /// Only those that became dead letters before this time: a second replay with the same time leaves those alone
    /// that the first one put back, also if they are dead letters again.
    pub dead_before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CancelResult {
    pub cancelled: u64,
    /// Being sent at this moment: what is under way ends as it will and is not tried again.
    pub in_flight: u64,
    /// Already final.
    pub already_final: u64,
}

/// Maintained, never counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub messages: u64,
    pub states: BTreeMap<State, u64>,
    pub dead: BTreeMap<DeadReason, u64>,
    /// Of the parked deliveries, those that are [held](super::HeldDeliveries).
    pub held: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDepth {
    pub id: LaneId,
    pub key: Arc<LaneKey>,
    pub pending: u64,
    pub in_flight: u64,
    pub next_due: Option<Timestamp>,
}

#[async_trait]
pub trait Ledger: Send + Sync {
    /// `tenant` limits what can be seen; `None` sees all.
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>>;

    /// The stored body, while it is kept.
    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>>;

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>>;

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>>;

    /// Deliveries in state `Failed`, newest first.
    async fn dead_letters(&self, filter: DeliveryFilter)
    -> StoreResult<Page<Delivery, DeliveryId>>;

    /// Puts dead letters back into the queue with their attempts reset; answers how many.
    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64>;

    /// Gives dead letters up for good: body and address are erased, the history stays, the delivery
    /// no longer counts as a dead letter to act upon. Answers how many.
    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64>;

    /// Cancels what is not yet sent of a message; `None` if there is no such message.
    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>>;

    /// Cancels deliveries that are not yet sent. Ids of others' deliveries are passed over.
    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult>;

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts>;

    /// What each tenant keeps, by name; a tenant that keeps nothing may be missing. Reads much: a chore asks for it,
    /// never a call.
    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>>;

    /// The deepest lanes first, at most `limit`.
    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>>;

    /// The ids of lanes, in the order of their keys. A lane without any delivery gets one.
    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>>;

    /// When the oldest pending delivery was accepted.
    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>>;

    /// Discards dead letters whose time is over. Forgets final deliveries (dead letters not discarded
    /// excepted) and their messages whose time is over, dedup keys outside their window, strikes that
    /// are [too old](crate::policy::strikes::KEPT), documents whose time is over, and old deletions of
    /// documents. Bounded work per call.
    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress>;

    /// What is wrong while the store goes on. Logs what began or ended since the last check. Costs little.
    fn check_health(&self) -> StoreHealth {
        StoreHealth::default()
    }
}
