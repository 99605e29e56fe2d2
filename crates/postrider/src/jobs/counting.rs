//! Which deliveries a job is for, and how many there are.

use std::time::Duration;

use postrider_core::ports::store::{DeliveryFilter, Page, StoreResult};
use postrider_core::{Delivery, DeliveryId, Timestamp};

use super::record::JobKind;
use crate::api::SharedState;

/// Deliveries that one call lists.
pub(crate) const PAGE: usize = 1_000;

/// A job means what was there before this time. What came in its own millisecond, just before it, belongs to it.
pub(super) fn end_of_scope(made: Timestamp) -> Timestamp {
    made + Duration::from_millis(1)
}

/// The filter of a job: only what was there when it was made.
pub(crate) fn narrowed(filter: DeliveryFilter, kind: JobKind, made: Timestamp) -> DeliveryFilter {
    let end = end_of_scope(made);
    let until = filter.until.map_or(end, |until| until.min(end));
    match kind.is_of_dead_letters() {
        // What became a dead letter later is not meant, above all not what the job itself put back.
        true => DeliveryFilter { changed_before: Some(end), ..filter },
        false => DeliveryFilter { until: Some(until), ..filter },
    }
}

/// One page of what a job is for, newest first.
pub(crate) async fn page(
    app: &SharedState,
    kind: JobKind,
    filter: &DeliveryFilter,
    cursor: Option<DeliveryId>,
    limit: usize,
) -> StoreResult<Page<Delivery, DeliveryId>> {
    let filter = DeliveryFilter { cursor, limit, ..filter.clone() };
    let mut page = match kind.is_of_dead_letters() {
        true => app.store.dead_letters(filter).await?,
        false => app.store.deliveries(filter).await?,
    };
    if kind == JobKind::Cancel {
        page.items.retain(|delivery| delivery.state.is_pending());
    }
    Ok(page)
}

/// How many there are, and the first of them. Looks at so many pages at most.
pub(crate) struct JobCount {
    pub(crate) count: u64,
    pub(crate) is_at_least: bool,
    pub(crate) sample: Vec<Delivery>,
}

pub(crate) async fn count(
    app: &SharedState,
    kind: JobKind,
    filter: &DeliveryFilter,
    pages_max: usize,
    sample: usize,
) -> StoreResult<JobCount> {
    let mut found = JobCount { count: 0, is_at_least: false, sample: Vec::new() };
    let mut cursor = None;
    for _ in 0..pages_max {
        let page = page(app, kind, filter, cursor, PAGE).await?;
        found.count += page.items.len() as u64;
        let lacking = sample - found.sample.len();
        found.sample.extend(page.items.into_iter().take(lacking));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
    found.is_at_least = true;
    Ok(found)
}
