//! The regions of a store that several servers share: the servers agree on their list, workers leave to each other what
//! is pinned, and every server knows which regions have no worker.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::bail;
use postrider_core::ports::store::{
    Consumer, DocumentVersion, PutResult, Store, StoreProblem, StoreResult,
};
use postrider_core::{RegionNumber, Timestamp};
use serde::{Deserialize, Serialize};

/// The document with the list.
const DOCUMENT: &str = "regions";
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Workers know a new region after this time, and hold nothing of it.
const KNOWN_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRegions {
    names: Vec<String>,
    /// When the last of them was added.
    since: i64,
}

async fn stored(store: &dyn Store) -> anyhow::Result<Option<(StoredRegions, DocumentVersion)>> {
    let found = store.documents(DOCUMENT).await?.into_iter().find(|found| found.name == DOCUMENT);
    let Some(document) = found else { return Ok(None) };
    let Some(json) = &document.json else { return Ok(None) };
    Ok(Some((serde_json::from_str(json)?, document.version)))
}

/// Writes the list of the configuration into the store, or refuses one that contradicts it. Returns when all workers
/// know of it. Answers how many regions there are.
pub(super) async fn agree(store: &dyn Store, names: &[String]) -> anyhow::Result<usize> {
    loop {
        let (known, version) = stored(store).await?.unwrap_or_default();
        let shared = known.names.len().min(names.len());
        if known.names[..shared] != names[..shared] {
            bail!(
                "store.regions = {names:?}: the store has {:?}; all servers have the same list, new names come at its end",
                known.names
            );
        }
        let now = store.clock().now();
        let since = if names.len() > known.names.len() {
            let new = StoredRegions { names: names.to_vec(), since: now.0 };
            let text = serde_json::to_string(&new)?;
            match store.put_document(DOCUMENT, Some(&text), Some(version), None).await? {
                PutResult::Written(_) => now,
                _ => continue,
            }
        } else {
            Timestamp(known.since)
        };
        if !names.is_empty() {
            tokio::time::sleep((since + KNOWN_AFTER).since(now)).await;
        }
        return Ok(names.len().max(known.names.len()));
    }
}

/// Knows which regions have no worker.
#[derive(Default)]
pub(crate) struct RegionWatch {
    names: Vec<String>,
    /// Each since when.
    unserved: RwLock<Vec<(String, Timestamp)>>,
}

impl RegionWatch {
    pub(super) fn new(names: &[String]) -> Self {
        Self { names: names.to_vec(), ..Self::default() }
    }

    /// Whether no worker of the region runs.
    pub(crate) fn is_unserved(&self, region: &str) -> bool {
        let unserved = self.unserved.read().unwrap_or_else(PoisonError::into_inner);
        unserved.iter().any(|(name, _)| name == region)
    }

    pub(crate) fn problems(&self) -> Vec<StoreProblem> {
        let unserved = self.unserved.read().unwrap_or_else(PoisonError::into_inner);
        let problem = |(name, since): &(String, Timestamp)| StoreProblem {
            code: "region_without_worker",
            since: *since,
            what: format!(
                "no worker of region {name} runs; what is pinned to it waits; start a worker with server.region = {name:?}"
            ),
        };
        unserved.iter().map(problem).collect()
    }

    /// Looks who is there, and tells the consumer which regions there are. Runs until it is aborted.
    pub(super) async fn run(
        self: Arc<Self>,
        store: Arc<dyn Store>,
        consumer: Option<Arc<dyn Consumer>>,
    ) {
        let mut every = tokio::time::interval(WATCH_EVERY);
        loop {
            every.tick().await;
            if let Some(consumer) = &consumer {
                match stored(&*store).await {
                    Ok(known) => {
                        consumer.set_regions(known.map_or(0, |(known, _)| known.names.len()))
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the regions of the store cannot be read")
                    }
                }
            }
            if let Err(error) = self.look(&*store).await {
                tracing::debug!(%error, "it is not known which regions have workers");
            }
        }
    }

    async fn look(&self, store: &dyn Store) -> StoreResult<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let served = store.worker_regions().await?;
        let now = store.clock().now();
        let is_unserved = |(place, _): &(usize, &String)| {
            RegionNumber::new(*place).is_none_or(|number| !served.contains(&number))
        };
        let names = self.names.iter().enumerate().filter(is_unserved).map(|(_, name)| name);
        let mut known = self.unserved.write().unwrap_or_else(PoisonError::into_inner);
        let since =
            |name: &String| known.iter().find(|(known, _)| known == name).map(|(_, at)| *at);
        let next: Vec<_> = names.map(|name| (name.clone(), since(name).unwrap_or(now))).collect();
        for (name, _) in next.iter().filter(|(name, _)| since(name).is_none()) {
            tracing::warn!(
                region = name,
                "no worker of the region runs; what is pinned to it waits"
            );
        }
        *known = next;
        Ok(())
    }
}
