//! Watches whether our own network works, by what all origins together show. The rule is
//! [`OwnNetwork`](postrider_core::policy::own_network::OwnNetwork).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::policy::own_network::OwnNetwork;
use tokio::time::Instant;

use super::TransportError;

/// An origin that answers is noted at most so often.
const NOTED_EVERY: Duration = Duration::from_secs(4);

pub(super) struct NetworkWatch {
    start: Instant,
    signs: Mutex<OwnNetwork>,
}

impl Default for NetworkWatch {
    fn default() -> Self {
        Self { start: Instant::now(), signs: Mutex::default() }
    }
}

impl NetworkWatch {
    /// The origin answered. `noted_ms` remembers when that was last noted, so that most requests take no lock.
    pub(super) fn heard(&self, origin: u64, noted: &std::sync::atomic::AtomicU64, now: Instant) {
        use std::sync::atomic::Ordering::Relaxed;
        let at = self.at(now);
        let now_ms = at.0.unsigned_abs();
        let every = u64::try_from(NOTED_EVERY.as_millis()).unwrap_or(u64::MAX);
        let last = noted.load(Relaxed);
        if last == 0 || now_ms.saturating_sub(last) >= every {
            noted.store(now_ms, Relaxed);
            self.signs().heard(origin, at);
        }
    }

    /// Why a connection could not be opened. While our own network is down, nobody else is to blame.
    pub(super) fn judge(&self, origin: u64, error: TransportError) -> TransportError {
        let at = self.at(Instant::now());
        match error {
            TransportError::Unopened { detail, is_silent: true, .. }
                if self.signs().silent(origin, at) =>
            {
                let words = "this machine's network seems to be down: half of the hosts are silent";
                TransportError::local("network", format!("{words} ({detail})"))
            }
            TransportError::Unopened { is_silent: false, .. } => {
                self.signs().heard(origin, at);
                error
            }
            error => error,
        }
    }

    /// At least 1 ms, so that 0 can mean "never".
    fn at(&self, now: Instant) -> Timestamp {
        let ms = now.saturating_duration_since(self.start).as_millis();
        Timestamp(i64::try_from(ms).unwrap_or(i64::MAX).max(1))
    }

    fn signs(&self) -> MutexGuard<'_, OwnNetwork> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn silent() -> TransportError {
        TransportError::silent("connect", "timed out")
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_all_origins_is_our_own_trouble() {
        let watch = NetworkWatch::default();
        for origin in 0..9 {
            assert_eq!(watch.judge(origin, silent()), silent(), "few origins prove nothing");
        }
        assert!(matches!(watch.judge(9, silent()), TransportError::Local { code: "network", .. }));
        let refused = TransportError::unopened("connect", "connection refused");
        assert_eq!(watch.judge(10, refused.clone()), refused, "somebody answered");
    }

    #[tokio::test(start_paused = true)]
    async fn origins_that_answer_show_that_our_network_works() {
        let watch = NetworkWatch::default();
        for origin in 100..120 {
            watch.heard(origin, &AtomicU64::new(0), Instant::now());
        }
        assert!((0..10).all(|origin| watch.judge(origin, silent()) == silent()));
    }
}
