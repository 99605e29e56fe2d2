//! `GET /v1/events`: server-sent events about deliveries and lanes as they happen.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::OpenPermit;
use super::prelude::*;
use crate::keys::KeyEnd;
use crate::telemetry::EventBody;

/// One caller that listens to events.
struct EventListener {
    events: Receiver<EventBody>,
    draining: watch::Receiver<bool>,
    app: SharedState,
    /// Tells when the caller's key stops working.
    key_end: KeyEnd,
    _place: OpenPermit,
    view: Option<TenantId>,
}

/// Events as they happen: `attempted`, `finished`, `lane` (a provider's lanes stop or start) and
/// `address` (a strike). A listener that is too slow gets `missed` with a count. Events are not
/// stored. The stream ends when the key is revoked or expires.
#[utoipa::path(get, path = "/v1/events", tag = "overview",
    responses((status = 200, body = EventBody, content_type = "text/event-stream"), (status = 429, body = Problem)))]
pub(crate) async fn events(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let max = app.config().server.key_event_streams_max.max(1);
    let place = access.caller.gate.streams.take(max).ok_or_else(|| {
        app.metrics.call_limited("stream");
        let detail = "this key has as many event streams as server.key_event_streams_max allows";
        Problem::too_many(detail, Duration::from_secs(4))
    })?;
    let listener = EventListener {
        events: app.metrics.events.subscribe(),
        draining: app.draining.subscribe(),
        key_end: app.keys.end_of(&access.caller),
        app,
        _place: place,
        view: access.view,
    };
    let stream = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

impl EventListener {
    /// The next event that the caller may see; `None` when the server shuts down or the key stops working.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                biased;
                _ = self.key_end.wait(&self.app.keys) => return None,
                received = self.events.recv() => received,
                _ = self.draining.wait_for(|draining| *draining) => return None,
            };
            match received {
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
