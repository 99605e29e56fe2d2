//! How far a subscription is: a document that only the server changes that sends.

use std::time::Duration;

use postrider_core::ports::store::{DocumentVersion, Documents, StoreResult};
use postrider_core::{DeliveryId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{EventPosition, EventSubscription};
use crate::documents::overwrite;

const PREFIX: &str = "event-state/";

/// As the store keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RelayState {
    /// Everything up to here was received.
    pub(crate) position: String,
    /// The page that is being sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sending: Option<SendingPage>,
    /// How often a page was given up since the last one that was received.
    pub(crate) failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<Timestamp>,
    /// Nothing is sent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resume_at: Option<Timestamp>,
    /// Why nothing is sent any more, until the subscription is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) received_at: Option<Timestamp>,
    /// Events that were received.
    pub(crate) received: u64,
    /// The change of the subscription that was seen last.
    pub(crate) applied: Timestamp,
    #[serde(skip)]
    is_changed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendingPage {
    pub(crate) upto: String,
    pub(crate) events: u64,
    pub(crate) delivery: DeliveryId,
}

pub(super) fn state_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

impl RelayState {
    /// Of a subscription that was never looked at.
    pub(crate) fn begin(subscription: &EventSubscription) -> Self {
        let (position, applied) = (subscription.start.clone(), subscription.changed_at);
        Self { position, applied, ..Self::default() }
    }

    /// A change of the subscription makes a new beginning after failures.
    pub(crate) fn apply(&mut self, subscription: &EventSubscription) {
        if self.applied != subscription.changed_at {
            self.applied = subscription.changed_at;
            (self.failing_since, self.resume_at, self.stopped) = (None, None, None);
            self.is_changed = true;
        }
    }

    pub(crate) fn begin_page(&mut self, page: SendingPage) {
        (self.sending, self.is_changed) = (Some(page), true);
    }

    pub(crate) fn received(&mut self, page: &SendingPage, now: Timestamp) {
        self.position.clone_from(&page.upto);
        self.received = self.received.saturating_add(page.events);
        (self.sending, self.failures, self.received_at) = (None, 0, Some(now));
        (self.failing_since, self.resume_at, self.is_changed) = (None, None, true);
    }

    /// The page was given up; it is sent again after a pause.
    pub(crate) fn failed(&mut self, now: Timestamp, pause: Duration) {
        self.failures = self.failures.saturating_add(1);
        (self.sending, self.resume_at, self.is_changed) = (None, Some(now + pause), true);
        self.failing_since.get_or_insert(now);
    }

    /// The page goes again at once, under another key.
    pub(crate) fn renew_key(&mut self) {
        (self.failures, self.is_changed) = (self.failures.saturating_add(1), true);
    }

    pub(crate) fn stop(&mut self, why: &str) {
        (self.stopped, self.is_changed) = (Some(why.to_owned()), true);
    }

    pub(crate) fn rest_until(&mut self, at: Timestamp) {
        self.resume_at = Some(at);
    }

    /// Whether there is something to write.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The same after it was written.
    pub(crate) fn unchanged(self) -> Self {
        Self { is_changed: false, ..self }
    }

    /// The state in one word.
    pub(crate) fn name(&self, subscription: &EventSubscription) -> &'static str {
        match self {
            _ if subscription.url.is_none() => "read_only",
            Self { stopped: Some(_), .. } => "stopped",
            _ if !subscription.enabled => "paused",
            Self { failing_since: Some(_), .. } => "failing",
            _ => "active",
        }
    }

    /// That of a subscription; none if it was never looked at.
    pub(crate) async fn load(
        store: &(impl Documents + ?Sized),
        id: &str,
    ) -> StoreResult<Option<Self>> {
        let name = state_name(id);
        let found = store.documents(&name).await?;
        let own = found.into_iter().find(|document| document.name == name);
        let json = own.and_then(|document| document.json);
        Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
    }

    pub(crate) async fn save(
        &self,
        store: &(impl Documents + ?Sized),
        id: &str,
    ) -> StoreResult<DocumentVersion> {
        let json = serde_json::to_string(self).unwrap_or_default();
        overwrite(store, &state_name(id), Some(&json)).await
    }

    /// The latest position of all, so that new events come behind it.
    pub(crate) async fn latest(store: &(impl Documents + ?Sized)) -> StoreResult<EventPosition> {
        let mut latest = EventPosition::START;
        for document in store.documents(PREFIX).await? {
            let state = document.json.and_then(|json| serde_json::from_str::<Self>(&json).ok());
            let Some(state) = state else { continue };
            let sending = state.sending.map(|page| page.upto);
            for text in [Some(state.position), sending].into_iter().flatten() {
                latest = latest.max(text.parse().unwrap_or_default());
            }
        }
        Ok(latest)
    }
}
