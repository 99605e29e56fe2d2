//! What workers tell each other about accounts, whose work they share: that one fails, or wants to be left alone. And
//! the other ways in which workers share limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::policy::breaker::{BreakerCause, BreakerState};
use postrider_core::policy::work_share::WorkShare;
use postrider_core::ports::store::Store;
use postrider_core::{ChannelKind, Scope, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::rate_level::RateRequest;
use super::{CallEffect, Lanes, ProviderKey, Wakeup};
use crate::lanes::call::{BreakerScope, LaneEvent};

/// News that nobody has taken; any more are dropped.
const NEWS_MAX: usize = 1_000;

/// What a worker learned about an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginNews {
    /// It fails as a whole. Otherwise it wants to be left alone.
    pub is_down: bool,
    pub until: Timestamp,
}

/// News for the other workers.
#[derive(Default)]
pub(super) struct HealthNews {
    /// There are other workers.
    is_wanted: AtomicBool,
    list: Mutex<Vec<(ProviderKey, OriginNews)>>,
    wake: Notify,
}

impl HealthNews {
    /// Notes what concerns all calls through an account that worked so far.
    pub(super) fn note(&self, provider: &ProviderKey, effect: &CallEffect) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        let news = match effect.event {
            Some(LaneEvent::BreakerOpened { scope: BreakerScope::Provider, until }) => {
                OriginNews { is_down: true, until }
            }
            Some(LaneEvent::LeftAlone { scope: Scope::Host, until }) => {
                OriginNews { is_down: false, until }
            }
            _ => return,
        };
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < NEWS_MAX {
            list.push((provider.clone(), news));
            self.wake.notify_one();
        }
    }
}

impl Lanes {
    /// What was learned about accounts since the last call. Waits until there is something.
    pub async fn health_news(&self) -> Vec<((ChannelKind, Arc<str>), OriginNews)> {
        loop {
            let news = {
                let mut list = self.health.list.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *list)
            };
            if !news.is_empty() {
                return news;
            }
            self.health.wake.notified().await;
        }
    }

    /// Believes what another worker learned about an account. When that works again, this worker finds out itself.
    pub fn believe(&self, channel: ChannelKind, account: Arc<str>, news: OriginNews) {
        let now = self.clock.now();
        if news.until <= now {
            return;
        }
        let key = (channel, account);
        let provider = self.provider(&key, now);
        let mut gates = provider.gates();
        match news.is_down {
            true if gates.breaker.state() == BreakerState::Closed => {
                gates.breaker.open(BreakerCause::Failures, now, self.random.next());
            }
            true => return,
            false => gates.pause.extend(news.until),
        }
        drop(gates);
        self.wakeups.post(Wakeup::GatesChanged(key));
    }

    /// The part of all work that this worker has. Limits of accounts are split by it.
    pub fn work_share(&self) -> &Arc<WorkShare> {
        &self.share
    }

    /// This worker has this part of all work from now on. What waits for a limit is looked at again: the time that it
    /// was told was that of another part.
    pub(crate) fn set_part(&self, part: f64) {
        if self.share.set(part) {
            self.adopt_ceilings(&self.policies.now().limits);
            self.acted();
        }
    }

    /// From now on, rates are shared with other workers, which the returned task does through the store.
    pub fn share_rates(self: Arc<Self>, store: Arc<dyn Store>) -> impl Future<Output = ()> + Send {
        self.rates.share();
        self.health.is_wanted.store(true, Ordering::Relaxed);
        self.fetch_rates(store)
    }

    async fn fetch_rates(self: Arc<Self>, store: Arc<dyn Store>) {
        let mut is_failing = false;
        loop {
            self.rates.wanted().await;
            let mut grants = JoinSet::new();
            for RateRequest { name, rate, want } in self.rates.requests() {
                let store = store.clone();
                grants.spawn(async move {
                    let slice = store.grant(&name.to_string(), rate, want).await;
                    (name, slice)
                });
            }
            while let Some(granted) = grants.join_next().await {
                let Ok((name, slice)) = granted else { continue };
                match &slice {
                    Err(error) if !is_failing => {
                        tracing::error!(%error, "no calls of shared rates are given; will try again");
                    }
                    _ => {}
                }
                is_failing = slice.is_err();
                self.rates.give(&name, slice.ok(), self.clock.now());
            }
        }
    }
}
