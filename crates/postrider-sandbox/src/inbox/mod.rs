//! The inbox: what the providers received, with its content and every attempt, for a person who looks and for tests.
//! In memory only and bounded: so many messages per kind, so many bytes in all; the oldest are forgotten.

pub(crate) mod api;
pub(crate) mod guard;
pub(crate) mod message;
pub(crate) mod next_answers;
pub(crate) mod page;
pub(crate) mod view;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::correlation::CorrelationId;
use crate::fakes::{FAKES, FakeKind};
use crate::fault::Fault;
use crate::received::AttemptEnding;
use crate::receiver::{LastRequest, Receiver};
use message::{InboxAttempt, InboxContent, InboxMessage};

/// Bytes of all messages together.
const BYTES_MAX: usize = 64 << 20;
/// What a message without content is counted as.
const MESSAGE_BYTES: usize = 500;
/// A version that no change has: the sandbox ends.
const CLOSED: u64 = u64::MAX;

pub(crate) struct Inbox {
    /// Per kind of receiver; 0 keeps nothing.
    messages_max: usize,
    bytes_max: usize,
    table: Mutex<InboxTable>,
    /// The version of the last change.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct InboxTable {
    version: u64,
    last_number: u64,
    bytes: usize,
    /// How many messages the bounds have removed.
    forgotten: u64,
    messages: BTreeMap<u64, Arc<InboxMessage>>,
    by_kind: [VecDeque<u64>; FAKES.len()],
    by_key: HashMap<InboxKey, u64>,
}

/// All attempts of one message have the same: its receiver's index and its id.
type InboxKey = (u32, CorrelationId);

/// Where an attempt is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InboxTicket {
    number: u64,
    attempt: u32,
}

/// The messages at one moment, the newest first.
pub(crate) struct InboxSnapshot {
    pub(crate) version: u64,
    pub(crate) forgotten: u64,
    pub(crate) messages: Vec<Arc<InboxMessage>>,
}

impl Inbox {
    pub(crate) fn new(messages_max: usize) -> Self {
        Self {
            messages_max,
            bytes_max: BYTES_MAX,
            table: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Notes that an attempt arrived. Attempts with the same id at the same receiver belong to one message.
    pub(crate) fn begin(
        &self,
        receiver: &Receiver,
        id: &CorrelationId,
        request: Option<Arc<LastRequest>>,
    ) -> Option<InboxTicket> {
        if self.messages_max == 0 {
            return None;
        }
        let key = (receiver.index, id.clone());
        let mut table = self.table();
        let known = table.by_key.get(&key).and_then(|number| table.messages.get(number)).cloned();
        // A digest is the same for two messages with the same text: after an acceptance comes another message.
        let is_digest = matches!(id, CorrelationId::Digest(_));
        let known = known.filter(|message| !(is_digest && message.is_accepted()));
        let mut message = match known {
            Some(message) => message,
            None => {
                let number = table.add(receiver.kind);
                table.by_key.insert(key.clone(), number);
                Arc::new(InboxMessage::new(number, receiver, id, Some(key)))
            }
        };
        let changed = Arc::make_mut(&mut message);
        let attempt = changed.add_attempt(InboxAttempt::new(now_ms()));
        if let Some(request) = request {
            changed.content = Some(Arc::new(InboxContent::new(request, now_ms())));
        }
        let ticket = InboxTicket { number: message.number, attempt };
        self.put(table, message);
        Some(ticket)
    }

    /// Notes a request that did not pass its provider's checks.
    pub(crate) fn reject(
        &self,
        kind: FakeKind,
        request: impl FnOnce() -> LastRequest,
        status: u16,
        why: &str,
    ) {
        if self.messages_max == 0 {
            return;
        }
        let mut table = self.table();
        let number = table.add(kind);
        let mut attempt = InboxAttempt::new(now_ms());
        attempt.ending = Some(AttemptEnding::Refused { status, retry_after_s: None });
        let content = InboxContent::new(Arc::new(request()), now_ms());
        let message = InboxMessage::rejected(number, kind, attempt, content, why);
        self.put(table, Arc::new(message));
    }

    /// The content of an attempt that began without it.
    pub(crate) fn give_content(&self, ticket: Option<InboxTicket>, request: Arc<LastRequest>) {
        self.change(ticket, |message, _| {
            message.content = Some(Arc::new(InboxContent::new(request, now_ms())));
        });
    }

    /// Notes that an attempt gets an answer that a person ordered.
    pub(crate) fn note_order(&self, ticket: Option<InboxTicket>, fault: Fault) {
        self.change(ticket, |message, attempt| {
            if let Some(attempt) = message.attempt_mut(attempt) {
                attempt.ordered = Some(fault);
            }
        });
    }

    pub(crate) fn end(&self, ticket: Option<InboxTicket>, ending: AttemptEnding) {
        self.change(ticket, |message, attempt| {
            if let Some(attempt) = message.attempt_mut(attempt) {
                attempt.ending = Some(ending);
            }
        });
    }

    pub(crate) fn snapshot(&self) -> InboxSnapshot {
        let table = self.table();
        InboxSnapshot {
            version: table.version,
            forgotten: table.forgotten,
            messages: table.messages.values().rev().cloned().collect(),
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<InboxMessage>> {
        self.table().messages.get(&number).cloned()
    }

    pub(crate) fn clear(&self) {
        let mut table = self.table();
        let (version, last_number) = (table.version, table.last_number);
        *table = InboxTable { version, last_number, ..InboxTable::default() };
        self.announce(table);
    }

    /// Tells those who look that something beside the messages changed.
    pub(crate) fn touch(&self) {
        self.announce(self.table());
    }

    /// The version after each change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Ends the streams of those who look.
    pub(crate) fn close(&self) {
        self.changed.send_replace(CLOSED);
    }

    fn change(&self, ticket: Option<InboxTicket>, change: impl FnOnce(&mut InboxMessage, u32)) {
        let Some(ticket) = ticket else { return };
        let table = self.table();
        let Some(mut message) = table.messages.get(&ticket.number).cloned() else { return };
        change(Arc::make_mut(&mut message), ticket.attempt);
        self.put(table, message);
    }

    /// Puts a message in its place, and makes room.
    fn put(&self, mut table: MutexGuard<'_, InboxTable>, mut message: Arc<InboxMessage>) {
        Arc::make_mut(&mut message).version = table.version + 1;
        let kind = message.kind;
        table.bytes += message.bytes();
        if let Some(before) = table.messages.insert(message.number, message) {
            table.bytes = table.bytes.saturating_sub(before.bytes());
        }
        while table.by_kind[kind.index()].len() > self.messages_max {
            let oldest = table.by_kind[kind.index()].front().copied().unwrap_or_default();
            table.forget(oldest);
        }
        while table.bytes > self.bytes_max && table.messages.len() > 1 {
            let oldest = table.messages.keys().next().copied().unwrap_or_default();
            table.forget(oldest);
        }
        self.announce(table);
    }

    fn announce(&self, mut table: MutexGuard<'_, InboxTable>) {
        table.version += 1;
        let version = table.version;
        drop(table);
        self.changed.send_if_modified(|seen| {
            let is_newer = *seen < version;
            *seen = (*seen).max(version);
            is_newer
        });
    }

    fn table(&self) -> MutexGuard<'_, InboxTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InboxTable {
    /// A new number of this kind.
    fn add(&mut self, kind: FakeKind) -> u64 {
        self.last_number += 1;
        self.by_kind[kind.index()].push_back(self.last_number);
        self.last_number
    }

    fn forget(&mut self, number: u64) {
        for numbers in &mut self.by_kind {
            // The oldest of all is the oldest of its kind.
            if numbers.front() == Some(&number) {
                numbers.pop_front();
            }
        }
        let Some(message) = self.messages.remove(&number) else { return };
        self.bytes = self.bytes.saturating_sub(message.bytes());
        self.forgotten += 1;
        if let Some(key) = &message.key
            && self.by_key.get(key) == Some(&number)
        {
            self.by_key.remove(key);
        }
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
