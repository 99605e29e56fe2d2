//! The log of events: parts of a few events each, in the tables of the rollups, with a time that no other part of the
//! same server has. A reader goes on behind a position. Knows nothing of who wants what.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use postrider_core::ports::store::{
    RollupFilter, RollupName, RollupOwner, RollupPart, RollupSpan, Store, StoreResult,
};
use postrider_core::{Clock, TenantId, Timestamp};
use tokio::sync::{Mutex, watch};

use super::{EventPosition, LoggedEvent};

/// A part has at most so many bytes, and an event more.
const PART_BYTES: usize = 64 << 10;
/// Of a store that others write to, only what is older than this is read: a part with an earlier time may still come.
const OTHERS_LATE: Duration = Duration::from_secs(2);
/// A part that took longer to write is written again with a later time, because readers may be past its first one.
const OWN_LATE: Duration = Duration::from_secs(1);
/// The time that one read looks at, first and at most, in microseconds.
const WINDOW_FIRST: i64 = 1_000_000;
const WINDOW_MAX: i64 = 86_400_000_000;
/// Reads of one page.
const WINDOWS: usize = 48;
/// Events that one page looks at.
const LOOKED_AT: usize = 20_000;

pub(crate) struct EventLog {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    writer: u64,
    /// Others write to the store, too.
    is_shared: bool,
    /// The time of the last part. Locked while one is written, so that parts appear in their order.
    last: Mutex<i64>,
    /// The newest part of each owner that this server wrote.
    newest: RwLock<HashMap<Option<TenantId>, i64>>,
    news: watch::Sender<i64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EventPageLimits {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

/// Some events of the log.
#[derive(Debug, Default)]
pub(crate) struct EventPage {
    /// Each with its position.
    pub(crate) events: Vec<(EventPosition, LoggedEvent)>,
    /// Everything up to here was looked at.
    pub(crate) upto: EventPosition,
    /// There may be more at this moment.
    pub(crate) has_more: bool,
}

impl EventLog {
    /// `from` is a position that was given out before: new events come behind it.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        writer: u64,
        is_shared: bool,
        from: EventPosition,
    ) -> Self {
        let clock = store.clock();
        let last = Mutex::new(from.at.saturating_add(1));
        let (newest, news) = (RwLock::default(), watch::Sender::new(0));
        Self { store, clock, writer, is_shared, last, newest, news }
    }

    /// Tells when something was written here.
    pub(crate) fn news(&self) -> watch::Receiver<i64> {
        self.news.subscribe()
    }

    /// Whether there may be something behind a position for this reader.
    pub(crate) fn may_have_news(&self, tenant: Option<&TenantId>, after: EventPosition) -> bool {
        if self.is_shared {
            return true;
        }
        let newest = self.newest.read().unwrap_or_else(PoisonError::into_inner);
        match tenant {
            None => newest.values().any(|at| *at > after.at),
            Some(_) => newest.get(&tenant.cloned()).is_some_and(|at| *at > after.at),
        }
    }

    /// Writes events, durable on return.
    pub(crate) async fn append(&self, events: &[LoggedEvent]) -> StoreResult<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut last = self.last.lock().await;
        loop {
            let began = Instant::now();
            let parts = self.parts(events, &mut last);
            let owners: Vec<_> =
                parts.iter().map(|part| (part.name.tenant.clone(), part.name.at.0)).collect();
            self.store.put_rollups(parts).await?;
            if !self.is_shared || began.elapsed() < OWN_LATE {
                self.newest.write().unwrap_or_else(PoisonError::into_inner).extend(owners);
                self.news.send_replace(*last);
                return Ok(());
            }
        }
    }

    fn parts(&self, events: &[LoggedEvent], last: &mut i64) -> Vec<RollupPart> {
        let mut texts: BTreeMap<Option<TenantId>, Vec<String>> = BTreeMap::new();
        for event in events {
            let owner = event.tenant.as_deref().map(TenantId::new);
            let Ok(line) = serde_json::to_string(event) else { continue };
            let of_owner = texts.entry(owner).or_default();
            match of_owner.last_mut().filter(|text| text.len() + line.len() < PART_BYTES) {
                Some(text) => {
                    text.push('\n');
                    text.push_str(&line);
                }
                None => of_owner.push(line),
            }
        }
        let mut parts = Vec::new();
        for (tenant, texts) in texts {
            for text in texts {
                *last = (*last + 1).max(micros(self.clock.now()));
                let (span, at) = (RollupSpan::Events, Timestamp(*last));
                let name = RollupName { span, at, tenant: tenant.clone(), writer: self.writer };
                parts.push(RollupPart { name, text });
            }
        }
        parts
    }

    /// Behind everything that can be read now.
    pub(crate) async fn end(&self) -> EventPosition {
        match self.is_shared {
            true => EventPosition::before(micros(self.clock.now() - OTHERS_LATE)),
            false => {
                let last = self.last.lock().await;
                EventPosition::before(last.saturating_add(1))
            }
        }
    }

    /// Events behind a position that are asked for, oldest first.
    pub(crate) async fn page(
        &self,
        of: &RollupOwner,
        after: EventPosition,
        limits: EventPageLimits,
        oldest: Timestamp,
        is_asked: impl Fn(&LoggedEvent) -> bool,
    ) -> StoreResult<EventPage> {
        let end = self.end().await;
        let mut page = EventPage { upto: after, ..EventPage::default() };
        let (mut bytes, mut looked_at, mut window) = (0, 0, WINDOW_FIRST);
        let mut from = after.at.max(micros(oldest));
        for _ in 0..WINDOWS {
            if from >= end.at {
                return Ok(page);
            }
            let until = end.at.min(from.saturating_add(window));
            for part in self.read(of, from, until).await? {
                for (place, line) in part.text.lines().enumerate() {
                    let index = u32::try_from(place + 1).unwrap_or(u32::MAX);
                    let position =
                        EventPosition { at: part.name.at.0, writer: part.name.writer, index };
                    if position <= after {
                        continue;
                    }
                    let is_full = page.events.len() >= limits.events || bytes >= limits.bytes;
                    if is_full || looked_at >= LOOKED_AT {
                        page.has_more = true;
                        return Ok(page);
                    }
                    looked_at += 1;
                    page.upto = position;
                    match serde_json::from_str::<LoggedEvent>(line) {
                        Ok(event) if is_asked(&event) => {
                            bytes += line.len();
                            page.events.push((position, event));
                        }
                        Ok(_) => {}
                        // A newer version may know more types.
                        Err(error) => tracing::warn!(%error, "an event cannot be read"),
                    }
                }
                window = WINDOW_FIRST;
            }
            page.upto = page.upto.max(EventPosition::before(until));
            from = until;
            window = window.saturating_mul(4).min(WINDOW_MAX);
        }
        page.has_more = true;
        Ok(page)
    }

    /// The parts of a time, in order.
    async fn read(&self, of: &RollupOwner, from: i64, until: i64) -> StoreResult<Vec<RollupPart>> {
        let filter = RollupFilter {
            span: RollupSpan::Events,
            from: Timestamp(from),
            until: Timestamp(until),
            of: of.clone(),
        };
        let mut parts = self.store.rollups(filter).await?;
        parts.sort_unstable_by_key(|part| (part.name.at, part.name.writer));
        Ok(parts)
    }

    /// Deletes what is older than this.
    pub(crate) async fn prune(&self, before: Timestamp) -> StoreResult<u64> {
        self.store.prune_rollups(RollupSpan::Events, Timestamp(micros(before))).await
    }
}

fn micros(at: Timestamp) -> i64 {
    at.0.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventKind;
    use postrider_store::{ManualClock, MemoryStore};

    const LIMITS: EventPageLimits = EventPageLimits { events: 3, bytes: 1 << 20 };

    fn event(id: usize, tenant: &str) -> LoggedEvent {
        let tenant = Some(tenant.to_owned());
        LoggedEvent {
            tenant,
            ..LoggedEvent::new(EventKind::DeliverySent, id.to_string(), Timestamp(0))
        }
    }

    fn log(clock: &Arc<ManualClock>) -> EventLog {
        let store = Arc::new(MemoryStore::new(clock.clone()));
        EventLog::new(store, 1, false, EventPosition::START)
    }

    async fn ids(log: &EventLog, of: &RollupOwner) -> Vec<String> {
        let (mut after, mut ids) = (EventPosition::START, Vec::new());
        loop {
            let page = log.page(of, after, LIMITS, Timestamp(0), |_| true).await.unwrap();
            ids.extend(page.events.iter().map(|(_, event)| event.id.clone()));
            after = page.upto.to_string().parse().unwrap();
            if !page.has_more {
                return ids;
            }
        }
    }

    #[tokio::test]
    async fn a_reader_gets_every_event_once_in_order_whatever_its_pages_are() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let log = log(&clock);
        let mut expected = Vec::new();
        for round in 0..20 {
            let batch: Vec<_> = (0..round % 5 + 1).map(|n| event(round * 10 + n, "acme")).collect();
            expected.extend(batch.iter().map(|event| event.id.clone()));
            log.append(&batch).await.unwrap();
            log.append(&[event(1_000 + round, "other")]).await.unwrap();
            // Also many parts in the same millisecond, and long pauses.
            if round % 3 == 0 {
                clock.advance(Duration::from_secs(if round == 9 { 86_400 * 2 } else { 1 }));
            }
        }
        assert_eq!(ids(&log, &RollupOwner::Tenant(TenantId::new("acme"))).await, expected);
        assert_eq!(ids(&log, &RollupOwner::Everybody).await.len(), expected.len() + 20);
    }

    #[tokio::test]
    async fn a_clock_that_went_back_puts_no_event_before_a_position_that_was_given_out() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let given_out = EventPosition::before(micros(Timestamp(1_790_000_900_000)));
        let log = EventLog::new(store, 1, false, given_out);
        log.append(&[event(1, "acme")]).await.unwrap();
        let of = RollupOwner::Everybody;
        let page = log.page(&of, given_out, LIMITS, Timestamp(0), |_| true).await.unwrap();
        assert_eq!(page.events.len(), 1);
    }

    #[tokio::test]
    async fn old_events_are_deleted_and_a_reader_goes_on_with_the_rest() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let log = log(&clock);
        log.append(&[event(1, "acme")]).await.unwrap();
        clock.advance(Duration::from_secs(10));
        log.append(&[event(2, "acme")]).await.unwrap();
        assert_eq!(log.prune(clock.now() - Duration::from_secs(5)).await.unwrap(), 1);
        assert_eq!(ids(&log, &RollupOwner::Everybody).await, ["2"]);
    }
}
