//! Reads rollups back: the sum of all servers for each minute or hour.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::policy::rollup::{RollupFigures, RollupKey, RollupTable};
use postrider_core::ports::store::{RollupFilter, RollupPart, RollupSpan, Store, StoreResult};
use postrider_core::{TenantId, Timestamp};

use super::hours::damaged;

/// Minutes or hours that one read of the store covers.
const READ_AT_ONCE: i64 = 30;
/// Hours that ended later are read from their minutes: they may not be added up yet.
const ADDED_UP_AFTER: Duration = Duration::from_secs(600);

/// One row of one minute or hour.
pub(crate) struct RollupPoint<'a> {
    pub(crate) at: Timestamp,
    /// Absent for the counts of all tenants together.
    pub(crate) tenant: Option<&'a TenantId>,
    pub(crate) key: &'a RollupKey,
    pub(crate) figures: &'a RollupFigures,
}

/// Every row from one time to another, by time. `take` is false if it wants no more.
pub(crate) async fn points(
    store: &dyn Store,
    filter: RollupFilter,
    now: Timestamp,
    mut take: impl FnMut(RollupPoint<'_>) -> bool + Send,
) -> StoreResult<()> {
    let step = READ_AT_ONCE * filter.span.ms();
    let added_up = RollupSpan::Hour.begin(now - ADDED_UP_AFTER);
    let mut from = filter.from;
    while from < filter.until {
        let is_added_up = filter.span == RollupSpan::Minute || from < added_up;
        let span = if is_added_up { filter.span } else { RollupSpan::Minute };
        let mut until = Timestamp(from.0.saturating_add(step)).min(filter.until);
        if filter.span == RollupSpan::Hour && is_added_up {
            until = until.min(added_up);
        } else if filter.span == RollupSpan::Hour {
            until = Timestamp(from.0 + RollupSpan::Hour.ms());
        }
        let parts =
            store.rollups(RollupFilter { span, from, until, of: filter.of.clone() }).await?;
        let has_more = each(parts, filter.span, &mut take)?;
        if !has_more {
            return Ok(());
        }
        from = until;
    }
    Ok(())
}

fn each(
    parts: Vec<RollupPart>,
    span: RollupSpan,
    take: &mut (impl FnMut(RollupPoint<'_>) -> bool + Send),
) -> StoreResult<bool> {
    let mut sums: BTreeMap<(Timestamp, Option<TenantId>), RollupTable> = BTreeMap::new();
    for part in parts {
        let sum = sums.entry((span.begin(part.name.at), part.name.tenant.clone())).or_default();
        sum.add_text(&part.text).map_err(|error| damaged(&part.name, &error))?;
    }
    for ((at, tenant), table) in &sums {
        for (key, figures) in table.rows() {
            if !take(RollupPoint { at: *at, tenant: tenant.as_ref(), key, figures }) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use postrider_core::ports::store::{RollupName, RollupOwner, Rollups as _};
    use postrider_store::{ManualClock, MemoryStore};

    fn part(span: RollupSpan, at_s: i64, count: u64) -> RollupPart {
        let at = Timestamp::from_secs(at_s);
        let name = RollupName { span, at, tenant: None, writer: count };
        let text = format!(
            r#"[["attempts","webhook","https://h","otp","accepted",{count},0,0,[0,{count}]]]"#
        );
        RollupPart { name, text }
    }

    #[tokio::test]
    async fn hours_come_from_stored_hours_and_the_newest_from_their_minutes() {
        let store = MemoryStore::new(Arc::new(ManualClock::at(Timestamp(0))));
        let hour = |at, count| part(RollupSpan::Hour, at, count);
        let minute = |at, count| part(RollupSpan::Minute, at, count);
        // The second hour is not added up yet; the minutes of the first are not read again.
        let parts =
            vec![hour(0, 10), minute(60, 99), minute(3_600, 1), minute(7_140, 2), minute(7_200, 4)];
        store.put_rollups(parts).await.unwrap();
        let now = Timestamp::from_secs(7_260);
        let mut seen = Vec::new();
        let filter = |span| RollupFilter {
            span,
            from: Timestamp(0),
            until: Timestamp::from_secs(10_800),
            of: RollupOwner::Server,
        };
        points(&store, filter(RollupSpan::Hour), now, |point| {
            seen.push((point.at.as_secs(), point.figures.count));
            true
        })
        .await
        .unwrap();
        assert_eq!(seen, [(0, 10), (3_600, 3), (7_200, 4)]);
        let mut first = Vec::new();
        points(&store, filter(RollupSpan::Minute), now, |point| {
            first.push(point.at.as_secs());
            first.len() < 2
        })
        .await
        .unwrap();
        assert_eq!(first, [60, 3_600], "it stops when it is told");
    }
}
