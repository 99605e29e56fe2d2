//! All connections to one origin. Picks the least loaded one, opens another when all are busy, and lets callers
//! wait when no more may be opened.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::budget::ConnectionPermit;
use super::conn::{ConnectionStatus, PooledConnection, RequestSender, Slot};
use super::connect::{self, Http2Connection, NewConnection};
use super::driver::ConnectionDriver;
use super::opening_places::LastOpening;
use super::{ConnectionProfile, Origin, PoolResources, TransportError};

/// Connections to an HTTP/1.1 peer that may be opened at the same time, once it was reached.
const HTTP1_OPENING_MAX: usize = 8;
/// After this time a connection makes room for an origin that has none, even if its own origin could use it.
const TURN: Duration = Duration::from_secs(1);
/// For this long after there was no room for a further connection, none is tried.
const NO_ROOM_FOR: Duration = Duration::from_millis(100);
/// For this long after a failed connect, other callers get the same error without another try.
const FAILURE_REPEATED_FOR: Duration = Duration::from_millis(50);
const HTTP2_CONNECTIONS_MAX: usize = 8;
const HTTP1_CONNECTIONS_MAX: usize = 1024;

pub(super) struct Peer {
    pub(super) origin: Origin,
    /// A number that stands for the origin.
    number: u64,
    resources: Arc<PoolResources>,
    profile: ConnectionProfile,
    /// When the network watch last noted an answer.
    noted: AtomicU64,
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
    last_opening: LastOpening,
    /// When there was last no room for a further connection.
    no_room: Option<Instant>,
    /// How many connects have failed, ever, and when and why the last one did.
    failures: u64,
    failure: Option<(Instant, TransportError)>,
}

impl Peer {
    pub(super) fn new(
        origin: Origin,
        resources: Arc<PoolResources>,
        profile: ConnectionProfile,
    ) -> Self {
        let mut number = DefaultHasher::new();
        origin.authority().hash(&mut number);
        let state = PeerState { http1: !origin.is_https(), ..PeerState::default() };
        Self {
            origin,
            number: number.finish(),
            resources,
            profile,
            noted: AtomicU64::new(0),
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
        }
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
                return Err(self.no_connection());
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
            let is_first = state.conns.is_empty();
            let permit = self.resources.budget.try_permit();
            if permit.is_some() || is_first || has_passed(state.no_room, NO_ROOM_FOR) {
                state.opening += 1;
                tokio::spawn(self.clone().open(permit, is_first));
            }
        }
        Ok(best.map(|conn| {
            conn.status.in_flight.fetch_add(1, Ordering::SeqCst);
            Slot { conn, peer: self.clone() }
        }))
    }

    fn no_connection(&self) -> TransportError {
        let budget = &self.resources.budget;
        if budget.is_full() && self.lock().conns.is_empty() {
            let detail = format!("all {} connections of this server are in use", budget.max());
            return TransportError::local("connections", detail);
        }
        TransportError::local("busy", "no connection to this origin was free in time")
    }

    fn may_open(&self, state: &PeerState) -> bool {
        let config = &self.resources.config;
        let (max, at_once) = if state.http1 {
            (config.http1_connections_max.clamp(1, HTTP1_CONNECTIONS_MAX), HTTP1_OPENING_MAX)
        } else {
            (config.connections_max.clamp(1, HTTP2_CONNECTIONS_MAX), 1)
        };
        // An origin that may be dead holds one place at most.
        let is_reached = state.last_opening == LastOpening::Succeeded;
        let at_once = if is_reached { at_once } else { 1 };
        state.opening < at_once && state.conns.len() + state.opening < max
    }

    /// Opens a connection; `None` if there is no room or nobody waits for it any more.
    async fn connect(
        &self,
        permit: Option<ConnectionPermit>,
        is_first: bool,
    ) -> Result<Option<NewConnection>, TransportError> {
        let PoolResources { config, budget, handshakes, names, .. } = &*self.resources;
        let addresses = connect::addresses_of(&self.origin, config, names).await?;
        let has_waited = permit.is_none();
        // One opening for each waiting caller; others were served meanwhile.
        let is_wanted = || self.lock().opening <= self.waiting.load(Ordering::SeqCst);
        let permit = match permit {
            Some(permit) => Some(permit),
            None if is_first => budget.permit(is_wanted).await,
            None => budget.spare_permit(is_wanted).await,
        };
        let Some(permit) = permit else { return Ok(None) };
        let last = self.lock().last_opening;
        let _place = handshakes.place(last).await;
        if has_waited && !is_wanted() {
            return Ok(None);
        }
        connect::open(&self.origin, &addresses, &self.profile, config, permit).await.map(Some)
    }

    /// Runs as a task of its own, so that a caller that gives up does not cancel the connect.
    async fn open(self: Arc<Self>, permit: Option<ConnectionPermit>, is_first: bool) {
        let opened = self.connect(permit, is_first).await;
        let opened = opened.map_err(|error| self.resources.network.judge(self.number, error));
        if matches!(opened, Err(TransportError::Local { .. })) {
            self.resources.budget.idle.close_oldest();
        }
        let mut state = self.lock();
        state.opening -= 1;
        let mut started = None;
        match opened {
            Ok(Some(opened)) => {
                state.http1 = matches!(opened, NewConnection::H1(..));
                (state.last_opening, state.failure) = (LastOpening::Succeeded, None);
                let conn = self.start(opened);
                started = Some(conn.status.clone());
                state.conns.push(conn);
            }
            Ok(None) => state.no_room = Some(Instant::now()),
            Err(error) => {
                if !matches!(error, TransportError::Local { .. }) {
                    state.last_opening = LastOpening::Failed;
                }
                state.failures += 1;
                state.failure = Some((Instant::now(), error));
            }
        }
        drop(state);
        if let Some(status) = started {
            self.resources.budget.idle.list(&status, &self);
            self.answered(status.born);
        }
        self.wake_all();
    }

    fn start(self: &Arc<Self>, opened: NewConnection) -> Arc<PooledConnection> {
        let (sender, status) = match opened {
            NewConnection::H2(sender, connection, executor) => {
                let ours = self.resources.config.streams_max.max(1);
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

    /// The peer answered, so the network works.
    pub(super) fn answered(&self, now: Instant) {
        self.resources.network.heard(self.number, &self.noted, now);
    }

    /// A request has ended. Wakes one waiting caller, or makes room for another origin.
    pub(super) fn ended(self: &Arc<Self>, status: &Arc<ConnectionStatus>, was_last: bool) {
        let budget = &self.resources.budget;
        if was_last {
            budget.idle.list(status, self);
        }
        if budget.wants_room() {
            self.make_room(status);
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_one();
        }
    }

    /// Closes a connection for an origin that has none: if it is not needed here, or if it had its turn.
    fn make_room(&self, status: &Arc<ConnectionStatus>) {
        let mut state = self.lock();
        let is_unused = status.is_idle();
        let is_needed = self.waiting.load(Ordering::SeqCst) > 0 && state.conns.len() == 1;
        let had_its_turn = status.born.elapsed() >= TURN;
        let nth = state.conns.iter().position(|conn| Arc::ptr_eq(&conn.status, status));
        if let Some(nth) = nth
            && (had_its_turn || is_unused && !is_needed)
            && self.resources.budget.claim()
        {
            status.draining.store(true, Ordering::SeqCst);
            let closed = state.conns.swap_remove(nth);
            drop(state);
            drop(closed);
            self.wake_all();
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
        self.resources.budget.idle.remove(status);
        self.wake_all();
    }

    /// Closes a connection if it has no request in flight. False if it has one, or was closed before.
    pub(super) fn close_if_idle(&self, status: &Arc<ConnectionStatus>) -> bool {
        let mut state = self.lock();
        let is_this =
            |conn: &Arc<PooledConnection>| Arc::ptr_eq(&conn.status, status) && status.is_idle();
        let Some(nth) = state.conns.iter().position(is_this) else { return false };
        status.draining.store(true, Ordering::SeqCst);
        let closed = state.conns.swap_remove(nth);
        drop(state);
        drop(closed);
        true
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

fn has_passed(since: Option<Instant>, time: Duration) -> bool {
    since.is_none_or(|since| since.elapsed() >= time)
}

/// Counts one more for as long as it lives.
struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
