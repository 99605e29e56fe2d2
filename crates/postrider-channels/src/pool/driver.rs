//! Polls one connection, publishes the limits of its peer, and retires it when it is old or unused. Sends no
//! request itself.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::conn::ConnectionStatus;
use super::peer::Peer;
use super::progress::Executor;

/// A connection unused for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A connection older than this takes no new requests.
const AGE_MAX: Duration = Duration::from_secs(3_600);
const CHECK_INTERVAL: Duration = Duration::from_secs(150);

pub(super) struct ConnectionDriver {
    peer: Weak<Peer>,
    status: Arc<ConnectionStatus>,
    /// Wakes the driver when an HTTP/2 connection has read something.
    executor: Option<Executor>,
}

impl ConnectionDriver {
    pub(super) fn new(
        peer: &Arc<Peer>,
        status: &Arc<ConnectionStatus>,
        executor: Option<Executor>,
    ) -> Self {
        Self { peer: Arc::downgrade(peer), status: status.clone(), executor }
    }

    /// Polls the connection until it ends. `publish` stores the peer's limit and returns whether it has grown.
    pub(super) async fn drive<C: Future + Unpin>(
        self,
        mut connection: C,
        publish: impl Fn(&C, &ConnectionStatus) -> bool,
    ) {
        let check = sleep(CHECK_INTERVAL);
        tokio::pin!(check);
        std::future::poll_fn(|cx| {
            if let Some(executor) = self.executor.as_ref().filter(|_| !self.status.is_limit_known())
            {
                executor.wake_next(cx.waker());
            }
            if Pin::new(&mut connection).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if publish(&connection, &self.status)
                && let Some(peer) = self.peer.upgrade()
            {
                peer.wake_all();
            }
            while check.as_mut().poll(cx).is_ready() {
                if is_stale(&self.status) {
                    self.retire();
                }
                check.as_mut().reset(Instant::now() + CHECK_INTERVAL);
            }
            Poll::Pending
        })
        .await;
        // The connection has ended, for whatever reason, and takes no more requests.
        self.retire();
    }

    fn retire(&self) {
        if let Some(peer) = self.peer.upgrade() {
            peer.remove(&self.status);
        }
    }
}

fn is_stale(status: &ConnectionStatus) -> bool {
    let idle = status.in_flight.load(Ordering::SeqCst) == 0
        && status.last_answer().elapsed() >= IDLE_TIMEOUT;
    idle || status.born.elapsed() >= AGE_MAX
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn stale(age_s: u64, in_flight: usize) -> bool {
        let mut status = ConnectionStatus::new(1);
        let own = Arc::get_mut(&mut status).unwrap();
        own.born = Instant::now() - Duration::from_secs(age_s);
        own.in_flight = AtomicUsize::new(in_flight);
        is_stale(&status)
    }

    #[test]
    fn an_unused_connection_is_retired_after_a_while_and_any_when_it_is_old() {
        assert!(!stale(299, 0));
        assert!(stale(300, 0));
        assert!(!stale(300, 1), "in use");
        assert!(stale(3600, 1), "old");
    }
}
