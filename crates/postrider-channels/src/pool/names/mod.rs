//! Addresses of names, asked for once at a time and kept for a while. Knows no protocol: a [`NameLookup`] asks.
//!
//! An entry takes about 300 bytes, so a full cache takes about 10 MB.

mod dns;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

pub(super) use dns::DnsLookup;

use super::TransportError;
use super::connect::NO_SUCH_HOST;
use super::opening_places::{LastOpening, OpeningPlaces};

/// Addresses are kept as long as their record says, within these bounds.
const KEPT_MIN: Duration = Duration::from_secs(1);
const KEPT_MAX: Duration = Duration::from_secs(300);
const NO_SUCH_NAME_KEPT_MAX: Duration = Duration::from_secs(60);
const FAILURE_KEPT: Duration = Duration::from_secs(5);
/// Old addresses are used for so long while no new ones are to be had.
const STALE_USED_FOR: Duration = Duration::from_secs(3_600);
const NAMES_MAX: usize = 32_768;
/// Entries that are looked at when a name is added: more than one, so that old ones become fewer.
const LOOKED_AT: usize = 2;

/// Asks for the addresses of a name.
pub(super) trait NameLookup: Send + Sync + 'static {
    fn look_up(&self, name: &str) -> impl Future<Output = LookupResult> + Send;
}

pub(super) type LookupResult = Result<NameAnswer, LookupFailure>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameAnswer {
    pub(super) addresses: Arc<[IpAddr]>,
    pub(super) valid_for: Duration,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LookupFailure {
    /// The name does not exist, for so long.
    NoSuchName { valid_for: Duration },
    /// The name's own servers fail.
    Failed,
    /// No name server of ours answers.
    Local(String),
}

impl From<LookupFailure> for TransportError {
    fn from(failure: LookupFailure) -> Self {
        match failure {
            LookupFailure::NoSuchName { .. } => {
                Self::unopened(NO_SUCH_HOST, "the name does not exist")
            }
            LookupFailure::Failed => Self::unopened("dns", "the name could not be resolved"),
            LookupFailure::Local(detail) => Self::local("resolver", detail),
        }
    }
}

pub(super) struct NameCache<L> {
    lookup: L,
    places: OpeningPlaces,
    names: Mutex<KnownNames>,
}

#[derive(Default)]
struct KnownNames {
    entries: HashMap<Arc<str>, NameEntry>,
    /// The order in which entries are looked at to forget old ones.
    round: VecDeque<Arc<str>>,
}

#[derive(Default)]
struct NameEntry {
    /// The last answer, and until when it is used without asking again.
    answer: Option<(LookupResult, Instant)>,
    /// The last addresses, and when they came to their end.
    addresses: Option<(NameAnswer, Instant)>,
    /// The lookup under way, which all callers share.
    pending: Option<Shared<BoxFuture<'static, LookupResult>>>,
}

impl<L: NameLookup> NameCache<L> {
    pub(super) fn new(lookup: L) -> Arc<Self> {
        Arc::new(Self { lookup, places: OpeningPlaces::default(), names: Mutex::default() })
    }

    pub(super) async fn resolve(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Arc<[IpAddr]>, LookupFailure> {
        let pending = {
            let mut names = self.names();
            let entry = names.entry(name);
            match &entry.answer {
                Some((answer, until)) if Instant::now() < *until => {
                    return answer.clone().map(|answer| answer.addresses);
                }
                _ => entry.pending.get_or_insert_with(|| self.start(name)).clone(),
            }
        };
        pending.await.map(|answer| answer.addresses)
    }

    /// The lookup is a task of its own, so that a caller that gives up does not stop it for the others.
    fn start(self: &Arc<Self>, name: &str) -> Shared<BoxFuture<'static, LookupResult>> {
        let (cache, name) = (self.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            let last = cache.names().last_lookup(&name);
            let _place = cache.places.place(last).await;
            let answer = cache.lookup.look_up(&name).await;
            cache.names().settle(&name, answer, Instant::now())
        });
        let ended = |_| Err(LookupFailure::Local("the lookup was stopped".to_owned()));
        async move { task.await.unwrap_or_else(ended) }.boxed().shared()
    }

    fn names(&self) -> MutexGuard<'_, KnownNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownNames {
    fn entry(&mut self, name: &str) -> &mut NameEntry {
        if !self.entries.contains_key(name) {
            self.forget_some();
            let key = Arc::<str>::from(name);
            self.round.push_back(key.clone());
            self.entries.insert(key, NameEntry::default());
        }
        self.entries.entry(Arc::from(name)).or_default()
    }

    fn last_lookup(&self, name: &str) -> LastOpening {
        let answer = self.entries.get(name).and_then(|entry| entry.answer.as_ref());
        match answer {
            None => LastOpening::Unknown,
            Some((Ok(_), _)) => LastOpening::Succeeded,
            Some((Err(_), _)) => LastOpening::Failed,
        }
    }

    /// Keeps an answer, and returns what callers get: old addresses if no new ones are to be had.
    fn settle(&mut self, name: &str, answer: LookupResult, now: Instant) -> LookupResult {
        let entry = self.entry(name);
        entry.pending = None;
        let (answer, kept) = match answer {
            Ok(answer) => {
                let kept = answer.valid_for.clamp(KEPT_MIN, KEPT_MAX);
                entry.addresses = Some((answer.clone(), now + kept));
                (Ok(answer), kept)
            }
            Err(LookupFailure::NoSuchName { valid_for }) => {
                let kept = valid_for.clamp(KEPT_MIN, NO_SUCH_NAME_KEPT_MAX);
                (Err(LookupFailure::NoSuchName { valid_for }), kept)
            }
            Err(failure) => {
                let stale = entry.addresses.as_ref();
                let usable = stale.filter(|(_, end)| now < *end + STALE_USED_FOR);
                (usable.map(|(answer, _)| answer.clone()).ok_or(failure), FAILURE_KEPT)
            }
        };
        entry.answer = Some((answer.clone(), now + kept));
        answer
    }

    /// Looks at the next entries, and forgets those that are of no use; one in any case if there are too many.
    fn forget_some(&mut self) {
        let now = Instant::now();
        for _ in 0..LOOKED_AT {
            let Some(key) = self.round.pop_front() else { return };
            let is_full = self.entries.len() >= NAMES_MAX;
            let is_kept =
                |entry: &NameEntry| entry.pending.is_some() || !is_full && entry.is_useful(now);
            if self.entries.get(&key).is_some_and(is_kept) {
                self.round.push_back(key);
            } else {
                self.entries.remove(&key);
            }
        }
    }
}

impl NameEntry {
    fn is_useful(&self, now: Instant) -> bool {
        let is_fresh = self.answer.as_ref().is_some_and(|(_, until)| now < *until);
        is_fresh || self.addresses.as_ref().is_some_and(|(_, end)| now < *end + STALE_USED_FOR)
    }
}

#[cfg(test)]
mod tests;
