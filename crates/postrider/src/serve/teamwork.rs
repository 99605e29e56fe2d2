//! What workers over one store share: rates, limits of accounts, and what each learned about an account. A server that
//! has its store alone does nothing of it.

use std::sync::Arc;

use postrider_core::ChannelKind;
use postrider_core::ports::store::{DocumentChanges, Store};
use postrider_dispatch::Lanes;
use tokio::task::JoinHandle;

/// Documents about accounts that fail: `health/<channel>/<account>`. They end by themselves.
const HEALTH: &str = "health/";

/// Starts the tasks of a worker.
pub(super) fn start(store: &Arc<dyn Store>, lanes: &Arc<Lanes>) -> [JoinHandle<()>; 2] {
    [
        tokio::spawn(lanes.clone().share_rates(store.clone())),
        tokio::spawn(tell_of_accounts(store.clone(), lanes.clone())),
    ]
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
