//! Adds the minutes of an hour up, and deletes what is older than it is kept. One server of all does it. An hour is
//! added up again twice, so that minutes that were written late are in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::rollup::RollupTable;
use postrider_core::ports::store::{
    Consumer, RollupFilter, RollupName, RollupOwner, RollupPart, RollupSpan, Store, StoreError,
    StoreResult,
};
use postrider_core::{TenantId, Timestamp};

use crate::api::SharedState;

const EVERY: Duration = Duration::from_secs(30);
/// An hour is added up so long after its end.
const AFTER: Duration = Duration::from_secs(120);
/// How many of the last hours are added up again.
const AGAIN: i64 = 3;
/// Whoever adds hours up writes them with this number.
const WRITER: u64 = 0;
/// Rows of an hour, for each lane that a minute may have.
const ROWS_PER_LANE: usize = 8;

/// Of several workers, the one that leads does it. A server that sends nothing does it only if it has its store alone.
pub(crate) async fn keep_hours(
    app: SharedState,
    consumer: Option<Arc<dyn Consumer>>,
    is_shared: bool,
) {
    let mut every = tokio::time::interval(EVERY);
    let mut done = None;
    loop {
        every.tick().await;
        if consumer.as_ref().map_or(is_shared, |consumer| !consumer.leads()) {
            done = None;
            continue;
        }
        let last = RollupSpan::Hour.begin(app.clock.now() - AFTER);
        if done == Some(last) {
            continue;
        }
        match bring_up_to_date(&app, last, done.is_none()).await {
            Ok(()) => done = Some(last),
            Err(error) => tracing::warn!(%error, "an hour of the history could not be added up"),
        }
    }
}

/// `end` is the end of the last hour that is over. At first, all missing hours of kept minutes are added up.
async fn bring_up_to_date(app: &SharedState, end: Timestamp, is_first: bool) -> StoreResult<()> {
    let section = app.config().rollups.clone();
    let now = app.clock.now();
    let kept = [section.minutes_kept_h, section.hours_kept_days.saturating_mul(24)];
    for (span, hours) in RollupSpan::COUNTED.into_iter().zip(kept) {
        let before = now - Duration::from_secs(u64::from(hours) * 3_600);
        app.store.prune_rollups(span, before).await?;
    }
    let hour_ms = RollupSpan::Hour.ms();
    let hours = if is_first { i64::from(section.minutes_kept_h).max(AGAIN) } else { AGAIN };
    let first = Timestamp(end.0 - hours * hour_ms);
    let of = RollupOwner::Server;
    let filter = RollupFilter { span: RollupSpan::Hour, from: first, until: end, of };
    let known: Vec<_> = app.store.rollups(filter).await?.iter().map(|part| part.name.at).collect();
    for back in (1..=hours).rev() {
        let at = Timestamp(end.0 - back * hour_ms);
        if back <= AGAIN || !known.contains(&at) {
            add_up(&*app.store, at, section.lanes_max.saturating_mul(ROWS_PER_LANE)).await?;
        }
    }
    Ok(())
}

/// Writes the sum of all minutes of an hour, for the server and for every tenant.
async fn add_up(store: &dyn Store, at: Timestamp, rows_max: usize) -> StoreResult<()> {
    let mut sums: BTreeMap<Option<TenantId>, RollupTable> = BTreeMap::new();
    let minute_ms = RollupSpan::Minute.ms();
    for minute in 0..RollupSpan::Hour.ms() / minute_ms {
        let from = Timestamp(at.0 + minute * minute_ms);
        let until = Timestamp(from.0 + minute_ms);
        let of = RollupOwner::Everybody;
        let filter = RollupFilter { span: RollupSpan::Minute, from, until, of };
        for part in store.rollups(filter).await? {
            let mut table = RollupTable::default();
            table.add_text(&part.text).map_err(|error| damaged(&part.name, &error))?;
            let sum = sums.entry(part.name.tenant).or_default();
            for (key, figures) in table.rows() {
                sum.add_bounded(key.clone(), figures, rows_max);
            }
        }
    }
    let part = |(tenant, table): (Option<TenantId>, RollupTable)| {
        let name = RollupName { span: RollupSpan::Hour, at, tenant, writer: WRITER };
        RollupPart { name, text: table.to_text() }
    };
    store.put_rollups(sums.into_iter().map(part).collect()).await
}

/// The text of a part cannot be read.
pub(super) fn damaged(name: &RollupName, error: &serde_json::Error) -> StoreError {
    let what = format!("the counts of the {} {}: {error}", name.span.name(), name.at);
    StoreError::Corrupt { what, cause: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::ports::store::Rollups as _;
    use postrider_store::{ManualClock, MemoryStore};

    fn part(minute: i64, writer: u64, count: u64) -> RollupPart {
        let name = RollupName {
            span: RollupSpan::Minute,
            at: Timestamp(minute * 60_000),
            tenant: Some(TenantId::new("acme")),
            writer,
        };
        let text = format!(
            r#"[["attempts","webhook","https://h","otp","accepted",{count},0,0,[0,{count}]]]"#
        );
        RollupPart { name, text }
    }

    #[tokio::test]
    async fn an_hour_is_the_sum_of_its_minutes_and_writers_however_often_it_is_made() {
        let store = MemoryStore::new(Arc::new(ManualClock::at(Timestamp(0))));
        let parts = vec![part(60, 1, 5), part(60, 2, 7), part(119, 1, 1), part(120, 1, 100)];
        store.put_rollups(parts).await.unwrap();
        for _ in 0..2 {
            add_up(&store, Timestamp(3_600_000), 100).await.unwrap();
        }
        let of = RollupOwner::Tenant(TenantId::new("acme"));
        let (from, until) = (Timestamp(0), Timestamp::MAX);
        let filter = RollupFilter { span: RollupSpan::Hour, from, until, of };
        let hours = store.rollups(filter).await.unwrap();
        assert_eq!(hours.len(), 1);
        let mut table = RollupTable::default();
        table.add_text(&hours[0].text).unwrap();
        assert_eq!(table.rows().map(|(_, figures)| figures.count).collect::<Vec<_>>(), [13]);
    }
}
