//! Keeps one connection going, publishes what its peer allows, and retires it when it is old or
//! unused. Sends nothing itself.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::PoolConfig;
use super::conn::Meta;
use super::peer::Peer;
use super::progress::Executor;

pub(super) struct Driver {
    peer: Weak<Peer>,
    meta: Arc<Meta>,
    config: Arc<PoolConfig>,
    /// Says when the connection has made progress, where polling it does not.
    executor: Option<Executor>,
    _open: Open,
}

impl Driver {
    pub(super) fn new(peer: &Arc<Peer>, meta: &Arc<Meta>) -> Self {
        Self {
            peer: Arc::downgrade(peer),
            meta: meta.clone(),
            config: peer.config().clone(),
            executor: None,
            _open: Open::new(peer.open_count()),
        }
    }

    pub(super) fn told_by(self, executor: Executor) -> Self {
        Self { executor: Some(executor), ..self }
    }

    /// Polls the connection until it ends. `publish` writes the peer's limit down and says whether
    /// it has grown.
    pub(super) async fn drive<C: Future + Unpin>(
        self,
        mut connection: C,
        publish: impl Fn(&C, &Meta) -> bool,
    ) {
        let pause = (self.config.idle_timeout() / 2).max(Duration::from_millis(500));
        let check = sleep(pause);
        tokio::pin!(check);
        std::future::poll_fn(|cx| {
            if let Some(executor) = self.executor.as_ref().filter(|_| !self.meta.is_told()) {
                executor.wake_next(cx.waker());
            }
            if Pin::new(&mut connection).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if publish(&connection, &self.meta)
                && let Some(peer) = self.peer.upgrade()
            {
                peer.ring();
            }
            while check.as_mut().poll(cx).is_ready() {
                if is_stale(&self.meta, &self.config) {
                    self.retire();
                }
                check.as_mut().reset(Instant::now() + pause);
            }
            Poll::Pending
        })
        .await;
        // GOAWAY, a lost connection or our own wish: either way it takes no more requests.
        self.retire();
    }

    fn retire(&self) {
        if let Some(peer) = self.peer.upgrade() {
            peer.remove(&self.meta);
        }
    }
}

fn is_stale(meta: &Meta, config: &PoolConfig) -> bool {
    let idle = meta.in_flight.load(Ordering::SeqCst) == 0
        && meta.last_answer().elapsed() >= config.idle_timeout();
    idle || meta.born.elapsed() >= config.age_max()
}

/// Counts a connection as open for as long as it lives.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(age_s: u64, in_flight: usize) -> bool {
        let mut meta = Meta::new(1);
        let own = Arc::get_mut(&mut meta).unwrap();
        own.born = Instant::now() - Duration::from_secs(age_s);
        own.in_flight = AtomicUsize::new(in_flight);
        is_stale(&meta, &PoolConfig::default())
    }

    #[test]
    fn an_unused_connection_is_retired_after_a_while_and_any_when_it_is_old() {
        assert!(!stale(299, 0));
        assert!(stale(300, 0));
        assert!(!stale(300, 1), "in use");
        assert!(stale(3600, 1), "old");
    }
}
