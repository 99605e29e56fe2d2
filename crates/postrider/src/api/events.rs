//! `GET /v1/events`: server-sent events about deliveries and lanes as they happen. With a position, the
//! [log of events](super::logged_events) instead.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::logged_events::{LoggedEventPage, LoggedEventQuery};
use super::prelude::*;
use super::{OpenPermit, logged_events};
use crate::keys::KeyEnd;
use crate::telemetry::EventBody;

/// One caller that listens to events.
struct EventListener {
    events: Receiver<EventBody>,
    end: StreamEnd,
    _place: OpenPermit,
    view: Option<TenantId>,
}

/// Events. With `after` or `Last-Event-ID`: from the log, as a page of JSON or, with `Accept: text/event-stream`, as a
/// stream that goes on; each has its position as `id`. The log is kept while there is a subscription to its events, and
/// for `events.kept_h`. Without a position: a stream of what happens at this moment: `attempted`, `finished`, `lane` (a
/// provider's lanes stop or start) and `address` (a strike), which is not stored; a listener that is too slow gets
/// `missed` with a count. A stream ends when the key is revoked or expires.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(LoggedEventQuery, ("Last-Event-ID" = Option<String>, Header, description = "As `after`, for streams")),
    responses((status = 200, description = "A page, or a stream of `EventBody` or `LoggedEvent`",
            content((LoggedEventPage = "application/json"), (EventBody = "text/event-stream"))),
        (status = "4XX", body = Problem)))]
pub(crate) async fn events(
    State(app): State<SharedState>,
    access: ReadAccess,
    headers: HeaderMap,
    StrictQuery(query): StrictQuery<LoggedEventQuery>,
) -> ApiResult<Response> {
    let request = query.read(&headers)?;
    let Some(request) = request else { return Ok(live(app, access)?.into_response()) };
    logged_events::check_logged(&app, access.view.as_ref())?;
    if !request.is_stream {
        return Ok(logged_events::page(&app, access.view, request).await?.into_response());
    }
    let place = place(&app, &access)?;
    let stop = StreamEnd::new(&app, &access);
    Ok(logged_events::stream(app, access.view, request, stop, place).await.into_response())
}

fn place(app: &SharedState, access: &ReadAccess) -> ApiResult<OpenPermit> {
    let max = app.config().server.key_event_streams_max.max(1);
    access.caller.gate.streams.take(max).ok_or_else(|| {
        app.metrics.call_limited("stream");
        let detail = "this key has as many event streams as server.key_event_streams_max allows";
        Problem::too_many(detail, Duration::from_secs(4))
    })
}

/// Tells when a stream has to end: the server shuts down, or the key stops working.
pub(super) struct StreamEnd {
    draining: watch::Receiver<bool>,
    key_end: KeyEnd,
    app: SharedState,
}

impl StreamEnd {
    fn new(app: &SharedState, access: &ReadAccess) -> Self {
        let draining = app.draining.subscribe();
        Self { draining, key_end: app.keys.end_of(&access.caller), app: app.clone() }
    }

    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.key_end.wait(&self.app.keys) => {}
            _ = self.draining.wait_for(|draining| *draining) => {}
        }
    }
}

fn live(
    app: SharedState,
    access: ReadAccess,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let place = place(&app, &access)?;
    let listener = EventListener {
        events: app.metrics.events.subscribe(),
        end: StreamEnd::new(&app, &access),
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
                () = self.end.wait() => return None,
                received = self.events.recv() => received,
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
