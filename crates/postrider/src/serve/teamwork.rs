//! What workers over one store share: rates, limits of accounts, and what each learned about an account. A server that
//! has its store alone does nothing of it.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::ChannelKind;
use postrider_core::policy::work_share::WorkShare;
use postrider_core::ports::store::{Consumer, DocumentChanges, Store};
use postrider_dispatch::Lanes;
use tokio::task::JoinHandle;

/// Documents about accounts that fail: `health/<channel>/<account>`. They end by themselves.
const HEALTH: &str = "health/";
/// How often a worker looks which part of the work it has.
const PART_EVERY: Duration = Duration::from_millis(500);

/// Starts the tasks of a worker.
pub(super) fn start(
    store: &Arc<dyn Store>,
    lanes: &Arc<Lanes>,
    consumer: &Arc<dyn Consumer>,
    share: Arc<WorkShare>,
) -> [JoinHandle<()>; 3] {
    share.set(consumer.part());
    lanes.set_part(consumer.part());
    [
        tokio::spawn(lanes.clone().share_rates(store.clone())),
        tokio::spawn(tell_of_accounts(store.clone(), lanes.clone())),
        tokio::spawn(watch_part(lanes.clone(), consumer.clone(), share)),
    ]
}

async fn watch_part(lanes: Arc<Lanes>, consumer: Arc<dyn Consumer>, share: Arc<WorkShare>) {
    let mut often = tokio::time::interval(PART_EVERY);
    loop {
        often.tick().await;
        let part = consumer.part();
        share.set(part);
        lanes.set_part(part);
    }
}

/// Writes down what this worker learns about accounts.
async fn tell_of_accounts(store: Arc<dyn Store>, lanes: Arc<Lanes>) {
    loop {
        for ((channel, account), news) in lanes.health_news().await {
            let ttl = news.until.since(store.clock().now());
            let Ok(text) = serde_json::to_string(&news) else { continue };
            let name = format!("{HEALTH}{channel}/{account}");
            if let Err(error) = store.put_document(&name, Some(&text), None, Some(ttl)).await {
                tracing::warn!(%error, account = &*account, "other workers cannot be told that an account fails");
            }
        }
    }
}

/// Believes what workers wrote down about accounts.
pub(super) fn follow(lanes: &Lanes, changes: &DocumentChanges) {
    for document in &changes.documents {
        let Some(name) = document.name.strip_prefix(HEALTH) else { continue };
        let Some(text) = &document.json else { continue };
        let Some((channel, account)) = name.split_once('/') else { continue };
        let (channel, news) = (ChannelKind::parse(channel), serde_json::from_str(text));
        match (channel, news) {
            (Some(channel), Ok(news)) => lanes.believe(channel, account.into(), news),
            _ => tracing::debug!(document = document.name, "not understood"),
        }
    }
}

/// Believes what was written down before this start.
pub(super) async fn restore(store: &dyn Store, lanes: &Lanes) -> anyhow::Result<()> {
    let documents = store.documents(HEALTH).await?;
    let upto = postrider_core::ports::store::DocumentVersion::NONE;
    follow(lanes, &DocumentChanges { upto, documents, complete: false });
    Ok(())
}
