//! The events of a run: a hash over all of them, and the last ones for people to read. Holds no ids and
//! no tokens, because those differ from run to run.

use std::collections::VecDeque;
use std::fmt;

/// Events kept for the report of a failure.
const EVENTS_KEPT: usize = 120;

#[derive(Debug, Clone, Copy)]
pub struct TraceEvent {
    /// True time in milliseconds.
    pub at: i64,
    pub what: &'static str,
    /// The number of the delivery, message, provider, … concerned.
    pub which: u64,
    pub how: &'static str,
    pub more: i64,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, what, which, how, more } = self;
        let (s, ms) = (at / 1000, at % 1000);
        write!(f, "{s:>7}.{ms:03} s  {what:<12} {which:>5}  {how:<18} {more}")
    }
}

pub(crate) struct SimTrace {
    hash: u64,
    count: u64,
    last: VecDeque<TraceEvent>,
    /// Print every event at once.
    loud: bool,
}

impl SimTrace {
    pub(crate) fn new(loud: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, count: 0, last: VecDeque::new(), loud }
    }

    pub(crate) fn push(&mut self, event: TraceEvent) {
        if self.loud {
            println!("{event}");
        }
        self.mix(event.at as u64);
        self.mix(event.which);
        self.mix(event.more as u64);
        event.what.bytes().chain(event.how.bytes()).for_each(|byte| self.mix_byte(byte));
        self.count += 1;
        if self.last.len() == EVENTS_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(event);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn last(&self) -> impl Iterator<Item = &TraceEvent> {
        self.last.iter()
    }

    fn mix(&mut self, word: u64) {
        word.to_le_bytes().into_iter().for_each(|byte| self.mix_byte(byte));
    }

    /// FNV-1a: the same everywhere.
    fn mix_byte(&mut self, byte: u8) {
        self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
