//! After a rotation of the key for the hashes of endpoints: gives registered addresses hashes with the new key. Any
//! server may do it, also several at once, and it begins anew at each start while there is an older key.

use std::time::Duration;

use crate::api::SharedState;

/// Addresses between two pauses.
const AT_ONCE: usize = 200;
/// Leaves the store to others.
const PAUSE: Duration = Duration::from_millis(20);

/// Goes on with what an earlier run did not finish.
pub(crate) async fn rehash_if_needed(app: SharedState) {
    if app.signing.hash_keys().len() > 1 {
        rehash_addresses(app).await;
    }
}

/// Runs once through all addresses.
pub(crate) async fn rehash_addresses(app: SharedState) {
    match try_to_rehash(&app).await {
        Ok(0) => {}
        Ok(changed) => tracing::info!(changed, "addresses have hashes with the newest key"),
        Err(error) => {
            tracing::warn!(%error, "some addresses have hashes with an older key; the next start goes on");
        }
    }
}

async fn try_to_rehash(app: &SharedState) -> Result<u64, postrider_core::ports::store::StoreError> {
    let mut changed = 0;
    for own in app.store.holdings().await? {
        let mut cursor = None;
        loop {
            let (some, next) = app.intake.rehash(&own.tenant, cursor, AT_ONCE).await?;
            changed += some;
            let Some(next) = next else { break };
            cursor = Some(next);
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(changed)
}
