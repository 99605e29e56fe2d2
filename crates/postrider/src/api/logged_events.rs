//! The log of events as pages and as a stream. Decides nothing about who may listen.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use postrider_channels::registry;
use postrider_core::ports::store::RollupOwner;

use super::OpenPermit;
use super::events::StreamEnd;
use super::prelude::*;
use crate::events::{EventPageLimits, EventPattern, EventPosition, LoggedEvent, oldest_event};

const PAGE_BYTES: usize = 1 << 20;
/// Events of one read of a stream.
const STREAM_PAGE: usize = 500;
/// What other servers write is looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const STREAM_TYPE: &str = "text/event-stream";

/// Which events of the log.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct LoggedEventQuery {
    /// The `next` of the page before, the `id` of an event of a stream, `start` for the oldest that is kept, or `now`.
    pub after: Option<String>,
    /// Such as `delivery.failed,address.*`.
    pub types: Option<String>,
    pub channel: Option<String>,
    pub class: Option<String>,
    pub tag: Option<String>,
    /// Of a page: 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Events, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LoggedEventPage {
    pub events: Vec<LoggedEvent>,
    /// The position behind this page: `after` of the next call.
    pub next: String,
    /// There are more at this moment. A page may be empty and still have a next one.
    pub has_more: bool,
}

/// A query that was understood.
pub(super) struct LogRequest {
    after: RequestedPosition,
    pattern: EventPattern,
    limit: usize,
    pub(super) is_stream: bool,
}

#[derive(Clone, Copy)]
enum RequestedPosition {
    Now,
    At(EventPosition),
}

impl LoggedEventQuery {
    /// None if the caller asks for what happens at this moment.
    pub(super) fn read(self, headers: &HeaderMap) -> ApiResult<Option<LogRequest>> {
        let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
        let accepts = |kind: &str| {
            let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            values.any(|value| value.contains(kind))
        };
        // A stream that was interrupted goes on behind its last event.
        let text = last.map(str::to_owned).or(self.after);
        let Some(text) = text else {
            let filters = [&self.types, &self.channel, &self.class, &self.tag];
            let is_filtered = filters.iter().any(|filter| filter.is_some()) || self.limit.is_some();
            if is_filtered || (accepts("application/json") && !accepts(STREAM_TYPE)) {
                let allowed =
                    "a position, start or now: filters and pages are of the log of events";
                return Err(Problem::field("after", "nothing", allowed));
            }
            return Ok(None);
        };
        let after = match text.as_str() {
            "now" => RequestedPosition::Now,
            "start" => RequestedPosition::At(EventPosition::START),
            position => RequestedPosition::At(position.parse().map_err(|_| {
                let allowed =
                    "the `next` of a page, the `id` of an event of a stream, start or now";
                Problem::field("after", quoted(position), allowed)
            })?),
        };
        let one = |value: Option<String>| value.into_iter().collect::<Vec<_>>();
        let types = self.types.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
        let pattern = EventPattern {
            types,
            channels: one(self.channel),
            classes: one(self.class),
            tags: one(self.tag),
        };
        check_pattern(&pattern, |field| match field {
            "channels" => "channel".to_owned(),
            "classes" => "class".to_owned(),
            "tags" => "tag".to_owned(),
            field => field.to_owned(),
        })?;
        let limit = limit(self.limit)?;
        Ok(Some(LogRequest { after, pattern, limit, is_stream: accepts(STREAM_TYPE) }))
    }
}

/// An error if an entry of a pattern cannot be used.
pub(super) fn check_pattern(
    pattern: &EventPattern,
    name: impl Fn(&str) -> String,
) -> ApiResult<()> {
    let kinds = registry::kinds();
    let channels: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    let checked = pattern.check(&channels);
    checked.map_err(|fault| Problem::field(name(fault.field), fault.found, fault.allowed))
}

/// An error if nobody has a subscription to the events of this view: then there is no log.
pub(super) fn check_logged(app: &SharedState, view: Option<&TenantId>) -> ApiResult<()> {
    if app.events.subscriptions.is_any_of(view) {
        return Ok(());
    }
    let detail = "events are logged only while there is a subscription to them; make one with \
                  `postrider events create` or POST /v1/event-subscriptions (without `url`, to read only)";
    Err(Problem::new(422, "no_event_subscription", "Events are not logged", detail))
}

fn owner(view: Option<&TenantId>) -> RollupOwner {
    view.cloned().map_or(RollupOwner::Everybody, RollupOwner::Tenant)
}

/// A caller that sees everything sees a problem once.
fn is_shown(view: Option<&TenantId>, event: &LoggedEvent) -> bool {
    view.is_some() || event.problem.is_none() || event.tenant.is_none()
}

async fn begin(app: &SharedState, request: &LogRequest) -> EventPosition {
    match request.after {
        RequestedPosition::Now => app.events.log.end().await,
        RequestedPosition::At(position) => position,
    }
}

pub(super) async fn page(
    app: &SharedState,
    view: Option<TenantId>,
    request: LogRequest,
) -> ApiResult<Json<LoggedEventPage>> {
    let limits = EventPageLimits { events: request.limit, bytes: PAGE_BYTES };
    let (of, after) = (owner(view.as_ref()), begin(app, &request).await);
    let is_asked =
        |event: &LoggedEvent| is_shown(view.as_ref(), event) && request.pattern.matches(event);
    let found = app.events.log.page(&of, after, limits, oldest_event(app), is_asked).await?;
    let events = found.events.into_iter().map(|(_, event)| event).collect();
    Ok(Json(LoggedEventPage { events, next: found.upto.to_string(), has_more: found.has_more }))
}

/// One caller that listens to the log.
struct LogListener {
    app: SharedState,
    view: Option<TenantId>,
    pattern: EventPattern,
    position: EventPosition,
    news: tokio::sync::watch::Receiver<i64>,
    waiting: VecDeque<(EventPosition, LoggedEvent)>,
    end: StreamEnd,
    _place: OpenPermit,
}

pub(super) async fn stream(
    app: SharedState,
    view: Option<TenantId>,
    request: LogRequest,
    end: StreamEnd,
    place: OpenPermit,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let news = app.events.log.news();
    let position = begin(&app, &request).await;
    let pattern = request.pattern;
    let waiting = VecDeque::new();
    let listener = LogListener { app, view, pattern, position, news, waiting, end, _place: place };
    let stream = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

impl LogListener {
    /// The next event; `None` when the stream has to end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((position, event)) = self.waiting.pop_front() {
                let data = serde_json::to_string(&event).unwrap_or_default();
                let event = Event::default().event(event.kind.name()).id(position.to_string());
                return Some(event.data(data));
            }
            self.news.borrow_and_update();
            if self.read().await {
                continue;
            }
            tokio::select! {
                () = self.end.wait() => return None,
                _ = tokio::time::timeout(LOOK_EVERY, self.news.changed()) => {}
            }
        }
    }

    /// Whether it is worth to look again at once.
    async fn read(&mut self) -> bool {
        let limits = EventPageLimits { events: STREAM_PAGE, bytes: PAGE_BYTES };
        let (of, view, pattern) = (owner(self.view.as_ref()), self.view.as_ref(), &self.pattern);
        let is_asked = |event: &LoggedEvent| is_shown(view, event) && pattern.matches(event);
        let oldest = oldest_event(&self.app);
        let log = &self.app.events.log;
        match log.page(&of, self.position, limits, oldest, is_asked).await {
            Ok(page) => {
                self.position = page.upto;
                self.waiting = page.events.into();
                !self.waiting.is_empty() || page.has_more
            }
            Err(error) => {
                tracing::warn!(%error, "events could not be read for a stream");
                false
            }
        }
    }
}
