//! One connection of a caller: how many requests it has open, which answers wait until the caller reads, and when it
//! is idle, stuck or old enough to be closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The times of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionTimes {
    /// Until its first request.
    pub(super) first_request: Duration,
    /// Without a request.
    pub(super) idle: Duration,
    /// Then it takes no new requests; after twice this time it is closed in any case.
    pub(super) age: Duration,
    /// How long an answer may wait until the caller reads its next part. With HTTP/2 a caller can forbid all answers
    /// while its socket takes everything, so the writes of the socket do not show this.
    pub(super) write: Duration,
}

/// What to do with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionVerdict {
    /// It is fine, at least for this time.
    Keep(Duration),
    /// It ends when its requests do.
    Drain(Duration),
    Close,
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    times: ConnectionTimes,
    opened_at: Instant,
    requests: Mutex<OpenRequests>,
}

#[derive(Debug, Default)]
struct OpenRequests {
    /// By number; those whose answer waits for the caller with the time since when.
    open: BTreeMap<u64, Option<Instant>>,
    next: u64,
    /// When the last one ended; none if there was no request yet.
    quiet_since: Option<Instant>,
}

impl ConnectionState {
    pub(super) fn new(times: ConnectionTimes) -> Self {
        Self { times, opened_at: Instant::now(), requests: Mutex::default() }
    }

    pub(super) fn begin(self: &Arc<Self>) -> OpenRequest {
        let number = self.change(|requests| {
            requests.next += 1;
            requests.open.insert(requests.next, None);
            requests.next
        });
        OpenRequest { state: self.clone(), number }
    }

    /// Whether it has made a request.
    pub(super) fn has_begun(&self) -> bool {
        self.change(|requests| requests.next > 0)
    }

    pub(super) fn verdict(&self, now: Instant) -> ConnectionVerdict {
        let ConnectionTimes { first_request, idle, age, write } = self.times;
        let old = now.duration_since(self.opened_at);
        if old >= age.saturating_mul(2) {
            return ConnectionVerdict::Close;
        }
        let (is_open, waiting_since, quiet) = self.change(|requests| {
            let waiting = requests.open.values().flatten().min().copied();
            (!requests.open.is_empty(), waiting, requests.quiet_since)
        });
        let left = match (is_open, quiet) {
            (true, _) => idle,
            (false, None) => first_request.saturating_sub(old),
            (false, Some(since)) => idle.saturating_sub(now.duration_since(since)),
        };
        let waited = |since| write.saturating_sub(now.duration_since(since));
        let left = waiting_since.map_or(left, |since| left.min(waited(since)));
        match old.checked_sub(age) {
            _ if left.is_zero() => ConnectionVerdict::Close,
            Some(over) => ConnectionVerdict::Drain(left.min(age.saturating_sub(over))),
            None => ConnectionVerdict::Keep(left.min(age - old)),
        }
    }

    /// The longest time between two verdicts: a request may end, or begin to wait, at any time.
    pub(super) fn look_every(&self) -> Duration {
        self.times.idle.min(self.times.write)
    }

    fn change<T>(&self, change: impl FnOnce(&mut OpenRequests) -> T) -> T {
        change(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that is not answered completely.
#[derive(Debug)]
pub(super) struct OpenRequest {
    state: Arc<ConnectionState>,
    number: u64,
}

impl OpenRequest {
    /// From now on its answer waits until the caller reads, or until there is more of it.
    pub(super) fn note_wait(&self, is_for_caller: bool) {
        let since = is_for_caller.then(Instant::now);
        self.state.change(|requests| requests.open.insert(self.number, since));
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.state.change(|requests| {
            requests.open.remove(&self.number);
            requests.quiet_since = Some(Instant::now());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_when_it_is_idle_and_drained_when_it_is_old() {
        let seconds = Duration::from_secs;
        let times = ConnectionTimes {
            first_request: seconds(5),
            idle: seconds(10),
            age: seconds(60),
            write: seconds(30),
        };
        let state = Arc::new(ConnectionState::new(times));
        let after = async |n: u64| {
            tokio::time::advance(seconds(n)).await;
            state.verdict(Instant::now())
        };
        assert_eq!(after(0).await, ConnectionVerdict::Keep(seconds(5)));
        let request = state.begin();
        assert_eq!(after(20).await, ConnectionVerdict::Keep(seconds(10)), "a request is open");
        drop(request);
        assert_eq!(after(4).await, ConnectionVerdict::Keep(seconds(6)));
        assert_eq!(after(6).await, ConnectionVerdict::Close);
        let request = state.begin();
        assert_eq!(after(31).await, ConnectionVerdict::Drain(seconds(10)));
        assert_eq!(after(59).await, ConnectionVerdict::Close, "twice its age");
        drop(request);
        let silent = ConnectionState::new(times);
        tokio::time::advance(seconds(5)).await;
        assert_eq!(silent.verdict(Instant::now()), ConnectionVerdict::Close, "no first request");
    }
}
