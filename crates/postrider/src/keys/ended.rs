//! Tells long answers when the key that asked for them stops working. Ends nothing itself.

use std::time::Duration;

use postrider_core::KeyId;
use tokio::sync::watch;

use super::api::{ApiKeys, KeyRejection};

/// The longest wait before the time of an expiry is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The shortest one.
const PAUSE: Duration = Duration::from_millis(10);

/// Follows one key from the moment of its creation.
pub struct KeyEnd {
    key: Option<KeyId>,
    changes: watch::Receiver<()>,
}

impl KeyEnd {
    pub(super) fn new(key: Option<KeyId>, changes: watch::Receiver<()>) -> Self {
        Self { key, changes }
    }

    /// Returns when the key is revoked, deleted or expired. Can be called again after it was cancelled.
    pub async fn wait(&mut self, keys: &ApiKeys) -> KeyRejection {
        let Some(key) = self.key else { return std::future::pending().await };
        loop {
            self.changes.mark_unchanged();
            let left = match keys.time_left(key) {
                Ok(left) => left.unwrap_or(LOOK_AGAIN).clamp(PAUSE, LOOK_AGAIN),
                Err(rejection) => return rejection,
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                changed = self.changes.changed() => if changed.is_err() {
                    return KeyRejection::Unknown;
                },
            }
        }
    }
}
