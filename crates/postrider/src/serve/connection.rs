//! One connection of a caller: how many requests it has open, and when it is idle or old enough to be closed.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
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
    open: AtomicUsize,
    /// When its last request ended; none if there was no request yet.
    quiet_since: Mutex<Option<Instant>>,
}

impl ConnectionState {
    pub(super) fn new(times: ConnectionTimes) -> Self {
        let quiet_since = Mutex::new(None);
        Self { times, opened_at: Instant::now(), open: AtomicUsize::new(0), quiet_since }
    }

    pub(super) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenRequest(self.clone())
    }

    /// Whether it has made a request.
    pub(super) fn has_begun(&self) -> bool {
        let quiet = *self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.is_some() || self.open.load(Ordering::Relaxed) > 0
    }

    pub(super) fn verdict(&self, now: Instant) -> ConnectionVerdict {
        let ConnectionTimes { first_request, idle, age } = self.times;
        let old = now.duration_since(self.opened_at);
        if old >= age.saturating_mul(2) {
            return ConnectionVerdict::Close;
        }
        let is_open = self.open.load(Ordering::Relaxed) > 0;
        let quiet = *self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner);
        let left = match (is_open, quiet) {
            (true, _) => idle,
            (false, None) => first_request.saturating_sub(old),
            (false, Some(since)) => idle.saturating_sub(now.duration_since(since)),
        };
        match old.checked_sub(age) {
            _ if left.is_zero() => ConnectionVerdict::Close,
            Some(over) => ConnectionVerdict::Drain(left.min(age.saturating_sub(over))),
            None => ConnectionVerdict::Keep(left.min(age - old)),
        }
    }
}

/// A request that is not answered completely.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionState>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let quiet = &self.0.quiet_since;
        *quiet.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer. Its request is open until it ends.
pub(super) struct CountedBody {
    pub(super) body: Body,
    pub(super) _request: OpenRequest,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_when_it_is_idle_and_drained_when_it_is_old() {
        let seconds = Duration::from_secs;
        let times =
            ConnectionTimes { first_request: seconds(5), idle: seconds(10), age: seconds(60) };
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
