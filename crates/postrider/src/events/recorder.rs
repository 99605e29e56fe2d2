//! Logs what happens as events, if somebody wants them: of decisions before
//! they are written, of calls before they are answered. Sends nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::DeliveryId;
use postrider_core::ports::store::StoreError;
use postrider_dispatch::decision_log::{DecisionLog, DecisionNotice};

use super::{EventLog, EventSubscriptions, LoggedEvent, is_of_events};
use crate::telemetry::Metrics;

/// A store that fails delays the results of deliveries by at most about this time.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Deliveries of events whose end nobody looked at are forgotten when there are so many.
const FINISHED_MAX: usize = 10_000;

pub(crate) struct EventRecorder {
    pub(crate) log: Arc<EventLog>,
    pub(crate) subscriptions: Arc<EventSubscriptions>,
    metrics: Arc<Metrics>,
    /// Deliveries of events that ended on this server.
    finished: Mutex<Vec<DeliveryId>>,
}

impl EventRecorder {
    pub(crate) fn new(
        log: EventLog,
        subscriptions: EventSubscriptions,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (log, subscriptions) = (Arc::new(log), Arc::new(subscriptions));
        Self { log, subscriptions, metrics, finished: Mutex::default() }
    }

    /// A delivery ended. If it carried events, the next ones can go.
    pub(crate) fn note_finished(&self, tenant: &str, delivery: DeliveryId) {
        if is_of_events(tenant) {
            let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            if finished.len() < FINISHED_MAX {
                finished.push(delivery);
            }
            drop(finished);
            self.subscriptions.changed.notify_one();
        }
    }

    /// Deliveries of events that ended since the last call.
    pub(crate) fn take_finished(&self) -> Vec<DeliveryId> {
        std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Logs those of the events that somebody wants. Durable on return, unless the store fails for long.
    pub(crate) async fn note(&self, mut events: Vec<LoggedEvent>) {
        if !self.subscriptions.is_any() {
            return;
        }
        events.retain(|event| {
            let is_own = event.tenant.as_deref().is_some_and(is_of_events);
            !is_own && self.subscriptions.want(event)
        });
        if events.is_empty() {
            return;
        }
        match self.append(&events).await {
            Ok(()) => self.metrics.events("logged", events.len()),
            Err(error) => {
                self.metrics.events("lost", events.len());
                tracing::error!(%error, count = events.len(), "events could not be logged and are lost");
            }
        }
    }

    async fn append(&self, events: &[LoggedEvent]) -> Result<(), StoreError> {
        let (mut pause, mut waited) = (PAUSE_FIRST, Duration::ZERO);
        loop {
            match self.log.append(events).await {
                Err(error) if !matches!(error, StoreError::Closed) && waited < PATIENCE => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                done => return done,
            }
        }
    }
}

#[async_trait]
impl DecisionLog for EventRecorder {
    fn is_wanted(&self) -> bool {
        self.subscriptions.is_any()
    }

    async fn record(&self, notices: Vec<DecisionNotice<'_>>) {
        let of_others = notices.iter().filter(|notice| !is_of_events(notice.lane.tenant.as_str()));
        self.note(of_others.flat_map(LoggedEvent::of_decision).collect()).await;
    }
}
