//! Our connections to the origins: how many there may be, and which one is closed for another.

use std::time::Duration;

use tokio::time::sleep;

use super::{HTTP1_MAX, NetworkState, OriginState, SimNetwork};
use crate::harm::plan::OriginPlan;
use crate::rng::SimRng;

impl SimNetwork {
    /// A connection of ours to the origin: one that is idle, or a new one if there may be more.
    pub(super) async fn connect(
        &self,
        origin: u32,
        plan: OriginPlan,
        rng: &mut SimRng,
    ) -> Result<SimConnection<'_>, ()> {
        loop {
            if let Some(is_new) = self.take_connection(origin, plan)? {
                let mut connection = SimConnection { network: self, origin, opening_ms: 0 };
                if is_new {
                    let ms = (plan.median_ms * (1.0 + rng.unit())).max(1.0) as u64;
                    connection.opening_ms = ms as i64;
                    sleep(Duration::from_millis(ms)).await;
                }
                return Ok(connection);
            }
            // As many as one origin may have are busy.
            let freed = self.state().origins.entry(origin).or_default().freed.clone();
            freed.notified().await;
        }
    }

    /// Whether the connection taken is a new one; `None` to wait for one of the origin's own.
    fn take_connection(&self, origin: u32, plan: OriginPlan) -> Result<Option<bool>, ()> {
        let mut state = self.state();
        let NetworkState { origins, open, idle, .. } = &mut *state;
        let own = origins.entry(origin).or_default();
        let is_idle = if plan.http1 { own.busy < own.connections } else { own.connections > 0 };
        if !is_idle {
            if plan.http1 && own.connections >= HTTP1_MAX {
                return Ok(None);
            }
            if *open >= self.plan.connections_max {
                // Closes the connection that was idle for the longest time.
                let closed = std::iter::from_fn(|| idle.pop_front()).find(|other| {
                    let is_idle = |o: &OriginState| o.has_idle(self.plan.origin(*other).http1);
                    *other != origin && origins.get(other).is_some_and(is_idle)
                });
                let Some(other) = closed.and_then(|other| origins.get_mut(&other)) else {
                    return Err(());
                };
                *open -= 1;
                other.connections -= 1;
            }
            *open += 1;
            origins.entry(origin).or_default().connections += 1;
        }
        origins.entry(origin).or_default().busy += 1;
        Ok(Some(!is_idle))
    }
}

/// A place on a connection.
pub(super) struct SimConnection<'a> {
    network: &'a SimNetwork,
    origin: u32,
    /// How long it took to open it, if it is new.
    pub(super) opening_ms: i64,
}

impl Drop for SimConnection<'_> {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let own = state.origins.entry(self.origin).or_default();
        own.busy -= 1;
        own.freed.notify_one();
        if own.has_idle(self.network.plan.origin(self.origin).http1) {
            state.idle.push_back(self.origin);
        }
    }
}
