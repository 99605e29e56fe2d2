//! All connections to one origin. Picks the least loaded one, opens another when all are busy, and lets callers
//! wait when no more may be opened.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::conn::{ConnectionStatus, PooledConnection, RequestSender, Slot};
use super::connect::{self, Http2Connection, NewConnection};
use super::driver::ConnectionDriver;
use super::{ConnectionProfile, Origin, PoolConfig, TransportError};

/// Connections to an HTTP/1.1 peer that may be opened at the same time.
const HTTP1_OPENING_MAX: usize = 8;
/// For this long after a failed connect, other callers get the same error without another try.
const FAILURE_REPEATED_FOR: Duration = Duration::from_millis(50);
const HTTP2_CONNECTIONS_MAX: usize = 8;
const HTTP1_CONNECTIONS_MAX: usize = 256;

pub(super) struct Peer {
    pub(super) origin: Origin,
    config: Arc<PoolConfig>,
    profile: ConnectionProfile,
    /// The number of connections of the whole pool.
    pub(super) open: Arc<AtomicUsize>,
    state: Mutex<PeerState>,
    /// Callers that found no free stream.
    waiting: AtomicUsize,
    /// Notified when a stream may have become free or a connect has ended.
    changed: Notify,
}

#[derive(Default)]
struct PeerState {
    conns: Vec<Arc<PooledConnection>>,
    /// Connections being opened.
    opening: usize,
    /// Whether the peer was last seen to speak HTTP/1.1 only.
    http1: bool,
    /// How many connects have failed, ever, and when and why the last one did.
    failures: u64,
    failure: Option<(Instant, TransportError)>,
}

impl Peer {
    pub(super) fn new(
        origin: Origin,
        config: Arc<PoolConfig>,
        profile: ConnectionProfile,
        open: Arc<AtomicUsize>,
    ) -> Self {
        let state = Mutex::new(PeerState { http1: !origin.is_https(), ..PeerState::default() });
        let (waiting, changed) = (AtomicUsize::new(0), Notify::new());
        Self { origin, config, profile, open, state, waiting, changed }
    }

    /// Connections and requests in flight.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.lock();
        let in_flight =
            state.conns.iter().map(|c| c.status.in_flight.load(Ordering::Relaxed)).sum();
        (state.conns.len() + state.opening, in_flight)
    }

    pub(super) async fn acquire(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Slot, TransportError> {
        let mut failures_seen = None;
        if let Some(slot) = self.take(&mut failures_seen)? {
            return Ok(slot);
        }
        let _waiting = CountGuard::new(&self.waiting);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // No notification is lost from here on, so check once more before waiting.
            changed.as_mut().enable();
            if let Some(slot) = self.take(&mut failures_seen)? {
                return Ok(slot);
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(TransportError::local("busy", "no connection was free in time"));
            }
        }
    }

    /// Takes a free stream if there is one, and opens another connection if that helps. `None` means wait.
    fn take(
        self: &Arc<Self>,
        failures_seen: &mut Option<u64>,
    ) -> Result<Option<Slot>, TransportError> {
        let mut state = self.lock();
        state.conns.retain(|conn| conn.is_usable());
        let failures_before = *failures_seen.get_or_insert(state.failures);
        if let Some((at, error)) = state.failure.as_ref().filter(|_| state.conns.is_empty())
            && (state.failures != failures_before || at.elapsed() < FAILURE_REPEATED_FOR)
        {
            return Err(error.clone());
        }
        let (best, all_busy) = least_loaded(&state.conns);
        // Every waiting caller needs at most one new connection.
        let wanted = best.is_some() || state.opening < self.waiting.load(Ordering::SeqCst);
        if all_busy && wanted && self.may_open(&state) {
            state.opening += 1;
            tokio::spawn(self.clone().open());
        }
        Ok(best.map(|conn| {
            conn.status.in_flight.fetch_add(1, Ordering::SeqCst);
            Slot { conn, peer: self.clone() }
        }))
    }

    fn may_open(&self, state: &PeerState) -> bool {
        let (max, at_once) = if state.http1 {
            (self.config.http1_connections_max.clamp(1, HTTP1_CONNECTIONS_MAX), HTTP1_OPENING_MAX)
        } else {
            (self.config.connections_max.clamp(1, HTTP2_CONNECTIONS_MAX), 1)
        };
        state.opening < at_once && state.conns.len() + state.opening < max
    }

    /// Runs as a task of its own, so that a caller that gives up does not cancel the connect.
    async fn open(self: Arc<Self>) {
        let opened = if self.open.load(Ordering::SeqCst) < self.config.connections_total_max {
            connect::open(&self.origin, &self.config, &self.profile).await
        } else {
            Err(TransportError::local("connections", "too many connections are open"))
        };
        let mut state = self.lock();
        state.opening -= 1;
        match opened {
            Ok(opened) => {
                state.http1 = matches!(opened, NewConnection::H1(..));
                state.failure = None;
                let conn = self.start(opened);
                state.conns.push(conn);
            }
            Err(error) => {
                state.failures += 1;
                state.failure = Some((Instant::now(), error));
            }
        }
        drop(state);
        self.wake_all();
    }

    fn start(self: &Arc<Self>, opened: NewConnection) -> Arc<PooledConnection> {
        let (sender, status) = match opened {
            NewConnection::H2(sender, connection, executor) => {
                let ours = self.config.streams_max.max(1);
                let limit = move |connection: &Http2Connection| {
                    connection.current_max_send_streams().clamp(1, ours)
                };
                let status = ConnectionStatus::new(limit(&connection));
                status.proven.store(!self.profile.one_until_proven, Ordering::SeqCst);
                let publish = move |connection: &Http2Connection, status: &ConnectionStatus| {
                    let max = limit(connection);
                    status.max.swap(max, Ordering::SeqCst) < max
                };
                let driver = ConnectionDriver::new(self, &status, Some(executor));
                tokio::spawn(driver.drive(connection, publish));
                (RequestSender::H2(sender), status)
            }
            NewConnection::H1(sender, connection) => {
                let status = ConnectionStatus::new(1);
                let driver = ConnectionDriver::new(self, &status, None);
                tokio::spawn(driver.drive(connection, |_, _| false));
                (RequestSender::H1(Mutex::new(Some(sender))), status)
            }
        };
        Arc::new(PooledConnection { sender, status })
    }

    /// Wakes one waiting caller after a request has ended.
    pub(super) fn wake_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_one();
        }
    }

    /// Wakes all waiting callers after a change.
    pub(super) fn wake_all(&self) {
        self.changed.notify_waiters();
    }

    /// Removes a connection. Its requests in flight continue.
    pub(super) fn remove(&self, status: &Arc<ConnectionStatus>) {
        status.draining.store(true, Ordering::SeqCst);
        self.lock().conns.retain(|conn| !Arc::ptr_eq(&conn.status, status));
        self.wake_all();
    }

    /// Closes unused connections to make room for other origins.
    pub(super) fn close_idle(&self) {
        self.lock().conns.retain(|conn| conn.status.in_flight.load(Ordering::SeqCst) > 0);
    }

    /// Retires all open connections. Their requests in flight continue.
    pub(super) fn retire(&self) {
        let conns = std::mem::take(&mut self.lock().conns);
        conns.iter().for_each(|conn| conn.status.draining.store(true, Ordering::SeqCst));
        self.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The least loaded connection that takes one more request, and whether all are at four fifths of their limit.
fn least_loaded(conns: &[Arc<PooledConnection>]) -> (Option<Arc<PooledConnection>>, bool) {
    let mut best: Option<(usize, &Arc<PooledConnection>)> = None;
    let mut all_busy = true;
    for conn in conns {
        let in_flight = conn.status.in_flight.load(Ordering::SeqCst);
        let max = conn.status.room();
        // A connection whose limit is still unknown does not count as busy: the limit comes soon.
        all_busy &= in_flight * 5 >= max * 4 && (conn.status.is_limit_known() || !conn.is_http2());
        if in_flight < max && best.is_none_or(|(fewest, _)| in_flight < fewest) {
            best = Some((in_flight, conn));
        }
    }
    (best.map(|(_, conn)| conn.clone()), all_busy)
}

/// Counts one more for as long as it lives.
pub(super) struct CountGuard<C: Deref<Target = AtomicUsize>>(C);

impl<C: Deref<Target = AtomicUsize>> CountGuard<C> {
    pub(super) fn new(count: C) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl<C: Deref<Target = AtomicUsize>> Drop for CountGuard<C> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
