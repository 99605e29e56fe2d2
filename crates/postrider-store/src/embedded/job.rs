//! A delivery with all that an attempt and its settlement need, so that neither reads again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use postrider_core::model::id::{from_order_key, order_key};
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::ports::store::{Alternative, Leased};
use postrider_core::{AddressHash, DeliveryId, Message, Strike, Target, Timestamp};

use crate::progress::{Mark, Progress};

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) seq: u64,
    pub(super) tail: u64,
    pub(super) lane: u32,
    pub(super) message: Arc<Message>,
    /// How many deliveries the message has.
    pub(super) siblings: u32,
    pub(super) target: Arc<Target>,
    /// Of the target as it is stored.
    pub(super) target_bytes: usize,
    pub(super) hash: AddressHash,
    pub(super) address_since: Option<Timestamp>,
    pub(super) expires: Timestamp,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) progress: Progress,
    /// The attempts so far, as a JSON array.
    pub(super) log: Option<Box<str>>,
    pub(super) alternatives: Vec<Alternative>,
}

/// What is known against a job's address.
#[derive(Debug, Default)]
pub(super) struct Blame {
    pub(super) gone: bool,
    pub(super) strikes: Vec<Strike>,
}

impl Job {
    pub(super) fn id(&self) -> DeliveryId {
        DeliveryId(from_order_key(self.seq, self.tail))
    }

    pub(super) fn message_seq(&self) -> u64 {
        order_key(self.message.id.0)
    }

    pub(super) fn leased(&self, token: u64, blame: Blame, mark: Mark) -> Leased {
        Leased {
            delivery: self.id(),
            token,
            message: self.message.clone(),
            target: self.target.clone(),
            hash: self.hash,
            address_since: self.address_since,
            attempts: self.progress.attempts,
            tries: self.progress.tries,
            last_delay: self.progress.last_delay,
            expires_at: self.expires,
            retry: self.retry.clone(),
            halt: mark.halt(blame.gone),
            crashes: mark.crashes,
            started: mark.started,
            alternatives: self.alternatives.clone(),
            strikes: blame.strikes,
        }
    }

    fn bytes(&self) -> usize {
        let log = self.log.as_ref().map_or(0, |log| log.len());
        // The structs themselves, the allocations around them and the smaller strings.
        900 + self.message.content.len() + self.target.place().len() + log
    }
}

/// How long a job may stay when others want its room: a lane that is blocked must not keep the
/// lanes that run from being served from memory.
const STALE_AFTER_MS: i64 = 10_000;

/// Jobs that will be leased soon. Bounded by bytes: what does not fit is read when it is leased.
pub(super) struct Cache {
    jobs: HashMap<u64, Arc<Job>>,
    arrivals: VecDeque<(i64, u64)>,
    bytes: usize,
    limit: usize,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { jobs: HashMap::new(), arrivals: VecDeque::new(), bytes: 0, limit }
    }

    pub(super) fn put(&mut self, job: Arc<Job>, now: i64) {
        let bytes = job.bytes();
        while self.bytes + bytes > self.limit || self.arrivals.len() > 4 * self.jobs.len() + 1024 {
            let Some(&(at, seq)) = self.arrivals.front() else { break };
            let there = self.jobs.contains_key(&seq);
            if there && at.saturating_add(STALE_AFTER_MS) > now {
                break;
            }
            self.arrivals.pop_front();
            self.take(seq);
        }
        if self.bytes + bytes > self.limit {
            return;
        }
        self.arrivals.push_back((now, job.seq));
        self.bytes += bytes;
        if let Some(old) = self.jobs.insert(job.seq, job) {
            self.bytes -= old.bytes();
        }
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&seq)?;
        self.bytes -= job.bytes();
        Some(job)
    }
}
