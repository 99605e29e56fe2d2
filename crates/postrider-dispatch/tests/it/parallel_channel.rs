//! A channel whose calls are under way side by side, each with a fate of its own.

use std::sync::Mutex;

use futures_util::future::join_all;
use postrider_core::{Attempt, Channel, ChannelKind, ChannelTraits, Finished, Outcome, Report};
use tokio::sync::Semaphore;

use crate::fixture::WEBHOOK;

/// What becomes of one call.
#[derive(Debug, Clone)]
pub(crate) enum CallFate {
    Answer(Outcome),
    /// Goes on when [`ParallelChannel::release`] lets it: to what [`ParallelChannel::answer_next`] said, else
    /// accepted.
    Wait,
    Panic,
}

/// Fates in the order of the calls; when they run out, everything is accepted.
pub(crate) struct ParallelChannel {
    fates: Mutex<Vec<CallFate>>,
    pub(crate) calls: Mutex<Vec<Attempt>>,
    release: Semaphore,
    next: Mutex<Option<Outcome>>,
}

impl ParallelChannel {
    pub(crate) fn new(fates: Vec<CallFate>) -> Self {
        Self {
            fates: Mutex::new(fates),
            calls: Mutex::default(),
            release: Semaphore::new(0),
            next: Mutex::default(),
        }
    }

    pub(crate) fn release(&self, calls: usize) {
        self.release.add_permits(calls);
    }

    pub(crate) fn answer_next(&self, outcome: Outcome) {
        *self.next.lock().unwrap() = Some(outcome);
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    async fn call(&self, attempt: Attempt, done: &(dyn Fn(Finished) + Send + Sync)) {
        let slot = attempt.slot;
        self.calls.lock().unwrap().push(attempt);
        let fate = {
            let mut fates = self.fates.lock().unwrap();
            if fates.is_empty() { CallFate::Answer(Outcome::Accepted) } else { fates.remove(0) }
        };
        let outcome = match fate {
            CallFate::Answer(outcome) => outcome,
            CallFate::Wait => {
                self.release.acquire().await.unwrap().forget();
                self.next.lock().unwrap().take().unwrap_or(Outcome::Accepted)
            }
            CallFate::Panic => panic!("a channel with a bug"),
        };
        done(Finished { slot, report: Report::new(outcome), latency_ms: 1, waited_ms: 0 });
    }
}

#[async_trait::async_trait]
impl Channel for ParallelChannel {
    fn kind(&self) -> ChannelKind {
        WEBHOOK
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits::PLAIN
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        join_all(batch.into_iter().map(|attempt| self.call(attempt, done))).await;
    }
}
