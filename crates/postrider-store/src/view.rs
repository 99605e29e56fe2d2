//! What the ledgers of both stores show, and in what pages. Pure; knows no store.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use postrider_core::ports::store::{DeliveryFilter, LaneDepth, MessageView, Page};
use postrider_core::{AttemptRecord, Delivery, DeliveryId, Message, State, TenantId};

use crate::progress::is_held;

/// Deliveries that the view of a message lists, and the default size of a page.
pub(crate) const SHOWN: usize = 100;

/// A page of at most `limit` items. There is a next page if there are more.
pub(crate) fn page<T, C>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> C) -> Page<T, C> {
    let more = items.len() > limit;
    items.truncate(limit);
    Page { next: items.last().filter(|_| more).map(cursor), items }
}

/// The deepest lanes of a tenant, or of all.
pub(crate) fn deepest(
    lanes: impl Iterator<Item = LaneDepth>,
    tenant: Option<&TenantId>,
    limit: usize,
) -> Vec<LaneDepth> {
    let mut ours: Vec<_> =
        lanes.filter(|lane| tenant.is_none_or(|tenant| *tenant == lane.key.tenant)).collect();
    ours.sort_by_key(|lane| (Reverse(lane.pending + lane.in_flight), lane.id));
    ours.truncate(limit);
    for lane in &mut ours {
        lane.next_due = lane.next_due.filter(|due| !is_held(*due));
    }
    ours
}

/// The view of a message, still without its deliveries.
pub(crate) fn message(message: &Message, has_content: bool) -> MessageView {
    MessageView {
        id: message.id,
        tenant: message.tenant.clone(),
        class: message.class.clone(),
        created_at: message.created_at,
        expires_at: message.expires_at,
        ttl_s: message.ttl_s,
        envelope: message.envelope.clone(),
        states: BTreeMap::new(),
        deliveries: Vec::new(),
        has_content,
    }
}

pub(crate) fn add_delivery(view: &mut MessageView, id: DeliveryId, state: State) {
    *view.states.entry(state).or_default() += 1;
    if view.deliveries.len() < SHOWN {
        view.deliveries.push((id, state));
    }
}

/// Whether a delivery matches the filter. Ignores marks, cursor and limit.
pub(crate) fn matches(filter: &DeliveryFilter, delivery: &Delivery) -> bool {
    let error_matches = |part: &String| {
        delivery.log.last().is_some_and(|last| {
            [&last.code, &last.detail].into_iter().flatten().any(|text| text.contains(part))
        })
    };
    filter.tenant.as_ref().is_none_or(|t| *t == delivery.tenant)
        && (!filter.held || delivery.held)
        && filter.state.is_none_or(|s| s == delivery.state)
        && filter.channel.is_none_or(|c| c == delivery.channel)
        && filter.provider.as_ref().is_none_or(|p| *p == delivery.provider)
        && filter.class.as_ref().is_none_or(|c| *c == delivery.class)
        && filter.account.as_deref().is_none_or(|account| {
            let last = delivery.log.iter().rev().find_map(|attempt| attempt.account.as_deref());
            last == Some(account)
        })
        && filter.recipient.as_ref().is_none_or(|r| Some(r) == delivery.recipient.as_ref())
        && filter.message.is_none_or(|m| m == delivery.message)
        && filter.reason.is_none_or(|r| Some(r) == delivery.reason)
        && filter.error.as_ref().is_none_or(error_matches)
        && filter
            .error_is
            .as_ref()
            .is_none_or(|error| delivery.log.last().map_or("", AttemptRecord::error) == error)
        && filter.changed_before.is_none_or(|t| delivery.changed_at < t)
        && filter.since.is_none_or(|t| delivery.created_at >= t)
        && filter.until.is_none_or(|t| delivery.created_at < t)
}
