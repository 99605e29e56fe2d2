//! How much is pending for each provider. Asks the store for its lanes, and not for every scrape: over a database, a
//! list of many lanes is work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{LaneDepth, Store, StoreResult};
use postrider_core::{ChannelKind, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A list serves for so long at least.
const KEPT_MIN: Duration = Duration::from_secs(1);
/// And for so many times as long as it took to make it.
const KEPT_FACTOR: u32 = 20;
/// Lanes that are looked at, the deepest first.
const LANES_MAX: usize = 200_000;

/// What is pending for one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderDepth {
    pub channel: ChannelKind,
    pub provider: Arc<str>,
    /// Those that are being sent count, too.
    pub pending: u64,
    /// When the first of those becomes or became due that are not being sent.
    pub next_due: Option<Timestamp>,
}

/// The last list, and until when it serves.
#[derive(Default)]
pub struct DepthCache(Mutex<Option<(Instant, Arc<[ProviderDepth]>)>>);

impl DepthCache {
    pub async fn read(&self, store: &dyn Store) -> StoreResult<Arc<[ProviderDepth]>> {
        let mut last = self.0.lock().await;
        let began = Instant::now();
        if let Some((until, depths)) = last.as_ref()
            && began < *until
        {
            return Ok(depths.clone());
        }
        let depths: Arc<[_]> = by_provider(store.lanes(None, LANES_MAX).await?).into();
        let kept = (began.elapsed() * KEPT_FACTOR).max(KEPT_MIN);
        *last = Some((Instant::now() + kept, depths.clone()));
        Ok(depths)
    }
}

fn by_provider(lanes: Vec<LaneDepth>) -> Vec<ProviderDepth> {
    let mut sums: HashMap<(ChannelKind, Arc<str>), (u64, Option<Timestamp>)> = HashMap::new();
    for lane in lanes {
        let sum = sums.entry((lane.key.channel, lane.key.provider.clone())).or_default();
        sum.0 += lane.pending + lane.in_flight;
        sum.1 = [sum.1, lane.next_due].into_iter().flatten().min();
    }
    let depth = |((channel, provider), (pending, next_due))| ProviderDepth {
        channel,
        provider,
        pending,
        next_due,
    };
    let mut depths: Vec<_> = sums.into_iter().map(depth).collect();
    // Beyond the bound of labels, the deepest keep theirs.
    depths.sort_by(|a, b| b.pending.cmp(&a.pending).then_with(|| a.provider.cmp(&b.provider)));
    depths
}

#[cfg(test)]
mod tests {
    use postrider_core::{LaneId, LaneKey, TenantId};

    use super::*;

    #[test]
    fn the_lanes_of_a_provider_are_added_up() {
        let lane = |id, provider: &str, pending, due| LaneDepth {
            id: LaneId(id),
            key: Arc::new(LaneKey {
                tenant: TenantId::new(&format!("t{id}")),
                channel: postrider_channels::webhook::KIND,
                provider: provider.into(),
                class: "otp".into(),
            }),
            pending,
            in_flight: 1,
            next_due: due,
        };
        let (early, late) = (Some(Timestamp(5)), Some(Timestamp(9)));
        let lanes = vec![lane(1, "a", 3, late), lane(2, "b", 9, None), lane(3, "a", 2, early)];
        let depth = |provider: &str, pending, next_due| ProviderDepth {
            channel: postrider_channels::webhook::KIND,
            provider: provider.into(),
            pending,
            next_due,
        };
        assert_eq!(by_provider(lanes), [depth("b", 10, None), depth("a", 7, early)]);
    }
}
