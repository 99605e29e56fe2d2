//! The channel that calls the origins of the simulated network.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider_core::{Attempt, Channel, ChannelKind, ChannelTraits, Finished};
use tokio::time::Instant;

use super::network::SimNetwork;

pub(crate) struct HarmChannel {
    pub kind: ChannelKind,
    pub network: Arc<SimNetwork>,
}

#[async_trait]
impl Channel for HarmChannel {
    fn kind(&self) -> ChannelKind {
        self.kind
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits::PLAIN
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        let calls: FuturesUnordered<_> = batch
            .iter()
            .map(|attempt| async move {
                let began = Instant::now();
                let report = self.network.call(attempt).await;
                let latency_ms = began.elapsed().as_millis() as u32;
                done(Finished { slot: attempt.slot, report, latency_ms, waited_ms: 0 });
            })
            .collect();
        calls.for_each(|()| std::future::ready(())).await;
    }
}
