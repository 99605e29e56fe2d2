//! What arrived, by correlation id, so that lost and repeated messages can be counted. In memory only; holds ids,
//! times and statuses, never content.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::correlation::CorrelationId;
use super::counts::RequestCounts;
use super::inbox::InboxTicket;
use super::receiver::{Receiver, ReceiverRegistry};

pub(super) const SHARDS: usize = 64;

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptEnding {
    /// Accepted and answered.
    Accepted {
        status: u16,
    },
    /// Accepted, but the connection was cut on purpose, so the sender does not know.
    AcceptedUnanswered,
    Refused {
        status: u16,
        retry_after_s: Option<u32>,
    },
    /// Cut or refused before it was processed.
    Unprocessed,
}

/// One attempt under way; ended by [`ReceivedRequests::end`].
#[derive(Debug)]
pub(crate) struct FakeAttempt {
    /// Counted from 1, per id and receiver.
    pub number: u32,
    pub since_start_ms: u64,
    /// Its place in the inbox.
    pub inbox: Option<InboxTicket>,
    key: RequestKey,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RequestKey {
    id: CorrelationId,
    /// The receiver, where the id is not unique over all of them.
    scope: u32,
}

/// Kept to 24 bytes: there are a million of them, most with one attempt.
#[derive(Debug)]
struct RequestRecord {
    first: AttemptTrace,
    #[expect(clippy::box_collection, reason = "8 bytes instead of 24 in a million records")]
    more: Option<Box<Vec<AttemptTrace>>>,
    not_before_ms: u32,
    receiver: u32,
}

#[derive(Debug, Clone, Copy)]
struct AttemptTrace {
    at_ms: u32,
    status: u16,
    taken: bool,
    early: bool,
}

const UNDER_WAY: u16 = 0;
const UNANSWERED: u16 = 1;
const UNPROCESSED: u16 = 2;

pub(crate) struct ReceivedRequests {
    started: Instant,
    started_at_ms: i64,
    receivers: Arc<ReceiverRegistry>,
    shards: Box<[Mutex<HashMap<RequestKey, RequestRecord>>]>,
    pub counts: RequestCounts,
}

impl ReceivedRequests {
    pub(crate) fn new(receivers: Arc<ReceiverRegistry>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            receivers,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            counts: RequestCounts::default(),
        }
    }

    /// Notes that an attempt arrived, and whether it came before it was allowed to.
    pub(crate) fn begin(&self, id: CorrelationId, receiver: &Receiver) -> FakeAttempt {
        let since_start_ms = self.since_start_ms();
        let scope = if matches!(id, CorrelationId::Delivery(_)) { 0 } else { receiver.index };
        let key = RequestKey { id, scope };
        let at_ms = since_start_ms as u32;
        let mut shard = self.shard(&key.id);
        let (number, early) = match shard.get_mut(&key) {
            Some(record) => record.again(at_ms),
            None => {
                shard.insert(key.clone(), RequestRecord::new(at_ms, receiver.index));
                (1, false)
            }
        };
        drop(shard);
        self.counts.arrived(receiver.kind, since_start_ms, early);
        FakeAttempt { number, since_start_ms, inbox: None, key }
    }

    /// Notes how it ended. Call it before the answer is sent, so that a client with an answer finds it counted.
    pub(crate) fn end(&self, attempt: &FakeAttempt, ending: AttemptEnding) {
        let mut shard = self.shard(&attempt.key.id);
        let Some(record) = shard.get_mut(&attempt.key) else { return };
        if let AttemptEnding::Refused { retry_after_s: Some(seconds), .. } = ending {
            let until = self.since_start_ms() + u64::from(seconds) * 1000;
            record.not_before_ms = record.not_before_ms.max(until.min(u64::from(u32::MAX)) as u32);
        }
        let earlier = record.traces().filter(|t| t.taken).last();
        if let Some(trace) = record.trace_mut(attempt.number) {
            trace.status = ending.code();
            trace.taken = ending.is_taken();
        }
        drop(shard);
        self.counts.ended(ending, earlier.map(|t| t.status == UNANSWERED));
    }

    pub(crate) fn since_start_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Forgets all requests. The receivers stay.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            *shard = HashMap::new();
        }
        self.counts.clear();
    }

    pub(crate) fn summary(&self) -> Value {
        let ids: usize = self
            .shards
            .iter()
            .map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum();
        self.counts.summary(ids, self.started_at_ms)
    }

    /// The records of one id, one per receiver.
    pub(crate) fn find(&self, id: &CorrelationId) -> Vec<Value> {
        let shard = self.shard(id);
        shard.iter().filter(|(k, _)| k.id == *id).map(|(k, r)| self.describe(k, r)).collect()
    }

    /// One shard as NDJSON: a million ids are never in memory as text at once.
    pub(crate) fn shard_as_ndjson(&self, index: usize) -> Bytes {
        let Some(shard) = self.shards.get(index) else { return Bytes::new() };
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::with_capacity(shard.len() * 200);
        for (key, record) in shard.iter() {
            let _ = writeln!(text, "{}", self.describe(key, record));
        }
        text.into()
    }

    fn describe(&self, key: &RequestKey, record: &RequestRecord) -> Value {
        let receiver = self.receivers.by_index(record.receiver);
        let at = |ms: u32| self.started_at_ms + i64::from(ms);
        let taken: Vec<_> = record.traces().filter(|t| t.taken).collect();
        let history: Vec<_> =
            record.traces().map(|t| json!({ "at": at(t.at_ms), "result": t.result() })).collect();
        json!({
            "id": key.id.to_string(),
            "kind": receiver.as_ref().map(|t| t.kind),
            "target": receiver.as_ref().map(|t| &t.name),
            "attempts": history.len(),
            "accepted": taken.len(),
            "accepted_unanswered": taken.iter().filter(|t| t.status == UNANSWERED).count(),
            "retry_after_violations": record.traces().filter(|t| t.early).count(),
            "first_at": at(record.first.at_ms),
            "last_at": record.traces().last().map(|t| at(t.at_ms)),
            "history": history,
        })
    }

    fn shard(&self, id: &CorrelationId) -> MutexGuard<'_, HashMap<RequestKey, RequestRecord>> {
        let index = id.stable_hash(0) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AttemptEnding {
    fn code(self) -> u16 {
        match self {
            Self::Accepted { status } | Self::Refused { status, .. } => status,
            Self::AcceptedUnanswered => UNANSWERED,
            Self::Unprocessed => UNPROCESSED,
        }
    }

    pub(crate) fn is_taken(self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::AcceptedUnanswered)
    }
}

impl RequestRecord {
    fn new(at_ms: u32, receiver: u32) -> Self {
        Self { first: AttemptTrace::new(at_ms, false), more: None, not_before_ms: 0, receiver }
    }

    fn again(&mut self, at_ms: u32) -> (u32, bool) {
        let early = at_ms < self.not_before_ms;
        let more = self.more.get_or_insert_default();
        more.push(AttemptTrace::new(at_ms, early));
        (more.len() as u32 + 1, early)
    }

    fn traces(&self) -> impl Iterator<Item = AttemptTrace> {
        std::iter::once(self.first).chain(self.more.iter().flat_map(|m| m.iter().copied()))
    }

    fn trace_mut(&mut self, number: u32) -> Option<&mut AttemptTrace> {
        match number {
            1 => Some(&mut self.first),
            n => self.more.as_mut()?.get_mut(n as usize - 2),
        }
    }
}

impl AttemptTrace {
    fn new(at_ms: u32, early: bool) -> Self {
        Self { at_ms, status: UNDER_WAY, taken: false, early }
    }

    fn result(self) -> Value {
        match self.status {
            UNDER_WAY => "under way".into(),
            UNANSWERED => "accepted, unanswered".into(),
            UNPROCESSED => "not processed".into(),
            status => status.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::http;
    use crate::receiver::{ReceiverBehaviour, ReceiverDetail};

    fn fixture() -> (ReceivedRequests, Arc<Receiver>) {
        let receivers = Arc::new(ReceiverRegistry::new(1));
        let receiver = receivers.put(
            http::ENTRY.kind,
            "a",
            ReceiverBehaviour::default(),
            ReceiverDetail::Plain,
        );
        (ReceivedRequests::new(receivers), receiver)
    }

    fn take(received: &ReceivedRequests, receiver: &Receiver, ending: AttemptEnding) {
        let attempt = received.begin(CorrelationId::from_text("k1"), receiver);
        received.end(&attempt, ending);
    }

    #[test]
    fn a_record_stays_small() {
        assert_eq!(std::mem::size_of::<RequestRecord>(), 24);
        assert!(std::mem::size_of::<(RequestKey, RequestRecord)>() <= 56);
    }

    #[test]
    fn a_second_acceptance_is_a_duplicate() {
        let (received, receiver) = fixture();
        take(&received, &receiver, AttemptEnding::Accepted { status: 200 });
        take(&received, &receiver, AttemptEnding::Accepted { status: 200 });
        let sum = received.summary();
        assert_eq!((&sum["accepted"], &sum["distinct"]), (&json!(2), &json!(1)));
        assert_eq!((&sum["duplicates"], &sum["duplicates_after_reset"]), (&json!(1), &json!(0)));
    }

    #[test]
    fn a_repeat_after_our_own_reset_is_told_apart() {
        let (received, receiver) = fixture();
        take(&received, &receiver, AttemptEnding::AcceptedUnanswered);
        take(&received, &receiver, AttemptEnding::Accepted { status: 200 });
        let sum = received.summary();
        assert_eq!((&sum["duplicates"], &sum["duplicates_after_reset"]), (&json!(0), &json!(1)));
        assert_eq!(sum["accepted_unanswered"], json!(1));
    }

    #[test]
    fn an_attempt_before_its_retry_after_is_a_violation() {
        let (received, receiver) = fixture();
        take(&received, &receiver, AttemptEnding::Refused { status: 429, retry_after_s: Some(60) });
        take(&received, &receiver, AttemptEnding::Accepted { status: 200 });
        let sum = received.summary();
        assert_eq!(sum["retry_after_violations"], json!(1));
        assert_eq!(sum["refused"], json!({ "429": 1 }));
    }

    #[test]
    fn clearing_forgets_attempts_under_way() {
        let (received, receiver) = fixture();
        let attempt = received.begin(CorrelationId::from_text("k1"), &receiver);
        received.clear();
        received.end(&attempt, AttemptEnding::Accepted { status: 200 });
        assert_eq!(received.summary()["accepted"], json!(0));
    }
}
