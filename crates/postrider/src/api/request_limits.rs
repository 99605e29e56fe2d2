//! Limits of calls: per key and per address, in requests per second and at once, and for wrong keys. Nothing is locked
//! for a call that is within its limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Wrong keys from one address that are answered at once, and then one in this time.
const FAILURES_BURST: u32 = 20;
const FAILURE_EVERY: Duration = Duration::from_secs(3);
/// Addresses that are remembered, e.g. those with wrong keys.
const ADDRESSES_MAX: usize = 10_000;

/// A bucket of requests: the time at which it would be full again, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct RequestBucket(AtomicI64);

impl RequestBucket {
    /// Takes one request. The error is the time until there is another one.
    fn take(&self, every: Duration, burst: u32, now_us: i64) -> Result<(), Duration> {
        let every = i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1);
        let room = every.saturating_mul(i64::from(burst.max(1)));
        let take = |full: i64| {
            let after = full.max(now_us).saturating_add(every);
            (after.saturating_sub(now_us) <= room).then_some(after)
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(full) => {
                let wait = full.saturating_add(every).saturating_sub(now_us).saturating_sub(room);
                Err(Duration::from_micros(u64::try_from(wait).unwrap_or(0)))
            }
        }
    }

    /// The same for a rate; 0 for no limit.
    pub(crate) fn take_at(&self, per_s: f64, burst: u32) -> Result<(), Duration> {
        if per_s <= 0.0 {
            return Ok(());
        }
        self.take(Duration::from_secs_f64(1.0 / per_s), burst, now_us())
    }

    fn is_full(&self, now_us: i64) -> bool {
        self.0.load(Ordering::Relaxed) <= now_us
    }
}

/// Microseconds since the first call.
fn now_us() -> i64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// A number of things that are open at once.
#[derive(Debug, Default)]
pub(crate) struct OpenCount(AtomicUsize);

/// One of them; ends when it is dropped.
#[derive(Debug)]
pub struct OpenPermit(Arc<OpenCount>);

impl OpenCount {
    /// One more, if there are fewer than `max`; 0 for no limit.
    pub(crate) fn take(self: &Arc<Self>, max: usize) -> Option<OpenPermit> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let permit = OpenPermit(self.clone());
        (max == 0 || before < max).then_some(permit)
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of a call among those of its key. Its answer has it, too, so that it is held until the caller has read the
/// answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyCallPlace(Arc<OnceLock<Arc<OpenPermit>>>);

impl KeyCallPlace {
    pub(crate) fn hold(&self, place: Arc<OpenPermit>) {
        // A call has one key; the first place stands.
        let _ = self.0.set(place);
    }
}

/// What one key, or one address, is doing.
#[derive(Debug, Default)]
pub struct CallGate {
    pub(crate) requests: RequestBucket,
    pub(crate) calls: Arc<OpenCount>,
    pub(crate) streams: Arc<OpenCount>,
}

/// Addresses that called with wrong keys.
#[derive(Debug, Default)]
pub(crate) struct FailedSignIns(AddressBuckets);

impl FailedSignIns {
    /// Notes a wrong key. The error is the time that the address has to wait.
    pub(crate) fn note(&self, from: Option<IpAddr>) -> Result<(), Duration> {
        self.0.take(from, FAILURE_EVERY, FAILURES_BURST)
    }
}

/// A bucket for each of the addresses that call, as far as they are remembered.
#[derive(Debug, Default)]
pub(crate) struct AddressBuckets(Mutex<HashMap<IpAddr, RequestBucket>>);

impl AddressBuckets {
    /// Takes one request of an address, at a rate; 0 for no limit.
    pub(crate) fn take_at(
        &self,
        from: Option<IpAddr>,
        per_s: f64,
        burst: u32,
    ) -> Result<(), Duration> {
        match per_s > 0.0 {
            true => self.take(from, Duration::from_secs_f64(1.0 / per_s), burst),
            false => Ok(()),
        }
    }

    fn take(&self, from: Option<IpAddr>, every: Duration, burst: u32) -> Result<(), Duration> {
        let Some(from) = from else { return Ok(()) };
        let now = now_us();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ADDRESSES_MAX {
            known.retain(|_, bucket| !bucket.is_full(now));
        }
        if known.len() >= ADDRESSES_MAX {
            known.clear();
        }
        known.entry(network_of(from)).or_default().take(every, burst, now)
    }
}

/// The address, or the network of one customer: whoever has one IPv6 address has 2^64.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_its_burst_and_then_its_rate() {
        let (bucket, second) = (RequestBucket::default(), Duration::from_secs(1));
        let take = |now: i64| bucket.take(second, 3, now);
        for _ in 0..3 {
            assert_eq!(take(10), Ok(()));
        }
        assert_eq!(take(10), Err(second));
        assert_eq!(take(500_010), Err(second / 2));
        assert_eq!(take(1_000_010), Ok(()));
        assert!(take(1_000_010).is_err());
        assert!(!bucket.is_full(1_000_010) && bucket.is_full(9_000_000));
    }

    #[test]
    fn what_is_open_is_counted_until_it_ends() {
        let count = Arc::new(OpenCount::default());
        let (first, second) = (count.take(2), count.take(2));
        assert!(first.is_some() && second.is_some() && count.take(2).is_none());
        drop(first);
        assert!(count.take(2).is_some());
        assert!(count.take(0).is_some(), "0 is no limit");
    }

    #[test]
    fn an_address_that_guesses_has_to_wait_and_others_do_not() {
        let failed = FailedSignIns::default();
        let from = |text: &str| Some(text.parse().unwrap());
        for _ in 0..FAILURES_BURST {
            assert!(failed.note(from("192.0.2.1")).is_ok());
        }
        assert!(failed.note(from("192.0.2.1")).is_err());
        assert!(failed.note(from("192.0.2.2")).is_ok());
        for n in 0..FAILURES_BURST {
            assert!(failed.note(from(&format!("2001:db8::{n:x}"))).is_ok());
        }
        assert!(failed.note(from("2001:db8::ffff")).is_err(), "one network is one caller");
        assert!(failed.note(None).is_ok());
    }
}
