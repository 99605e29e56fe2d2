//! `GET /v1/events`: what happens to deliveries, live, as server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use postrider_core::TenantId;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::SharedState;
use super::auth::ReadAccess;
use crate::telemetry::EventBody;

/// One caller that listens.
struct EventListener {
    events: Receiver<EventBody>,
    draining: watch::Receiver<bool>,
    view: Option<TenantId>,
}

/// Attempts, final states and what stops or starts a provider's lanes, as they happen: server-sent
/// events named `attempted`, `finished`, `lane` and, for a listener that was too slow, `missed` with
/// how many. Nothing is kept for later.
#[utoipa::path(get, path = "/v1/events", tag = "overview",
    responses((status = 200, body = EventBody, content_type = "text/event-stream")))]
pub(crate) async fn events(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let listening = EventListener {
        events: app.metrics.events.listen(),
        draining: app.draining.subscribe(),
        view: access.view,
    };
    let stream = stream::unfold(listening, |mut listening| async {
        let event = listening.next().await?;
        Some((Ok(event), listening))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

impl EventListener {
    /// The next event that the caller may see; `None` when the server ends.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let heard = tokio::select! {
                heard = self.events.recv() => heard,
                _ = self.draining.wait_for(|draining| *draining) => return None,
            };
            match heard {
                Ok(event) if event.is_seen_by(self.view.as_ref()) => {
                    let data = serde_json::to_string(&event).unwrap_or_default();
                    return Some(Event::default().event(event.kind).data(data));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(n)) => {
                    return Some(Event::default().event("missed").data(n.to_string()));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
