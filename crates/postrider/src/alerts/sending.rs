//! Puts alerts into the queue, and uses the backup of a route whose alert is not sent in time.

use std::time::Duration;

use postrider_core::policy::problems::{AlertEvent, ProblemRecord};
use postrider_core::ports::store::{Document, StoreResult};
use postrider_core::{DeliveryId, State, TenantId, Timestamp};
use postrider_dispatch::{RefusalKind, Submission};
use serde::{Deserialize, Serialize};

use super::text::AlertText;
use super::{TENANT, direct};
use crate::api::SharedState;
use crate::config::sections::{AlertPlace, AlertRoute, AlertRouteKind, AlertSection};
use crate::documents::overwrite;
use crate::problems::change_kept;

const PREFIX: &str = "alert/";
/// Alerts that nobody looks after any more are forgotten.
const KEPT: Duration = Duration::from_secs(3_600);

/// An alert whose route has a backup.
#[derive(Debug, Serialize, Deserialize)]
struct WatchedAlert {
    route: String,
    delivery: String,
    at: Timestamp,
    text: AlertText,
}

/// An alert that is in the queue, or why it is not.
#[derive(Debug)]
pub(crate) struct AlertSubmission {
    pub(crate) route: String,
    pub(crate) kind: AlertRouteKind,
    pub(crate) delivery: Result<DeliveryId, AlertRefusal>,
}

#[derive(Debug)]
pub(crate) struct AlertRefusal {
    pub(crate) why: String,
    /// If it is a refusal of the intake.
    kind: Option<RefusalKind>,
}

impl AlertRefusal {
    /// The message is right, and may be taken later.
    fn is_temporary(&self) -> bool {
        use RefusalKind::{
            QuotaExceeded, ServerFull, ShuttingDown, StoreFull, StoreUnavailable, TenantFull,
        };
        matches!(
            self.kind,
            Some(
                TenantFull
                    | QuotaExceeded
                    | ServerFull
                    | StoreFull
                    | ShuttingDown
                    | StoreUnavailable
            )
        )
    }

    fn is_of_store(&self) -> bool {
        matches!(self.kind, Some(RefusalKind::StoreFull | RefusalKind::StoreUnavailable))
    }
}

impl<T: ToString> From<T> for AlertRefusal {
    fn from(why: T) -> Self {
        Self { why: why.to_string(), kind: None }
    }
}

/// What came of an alert. Of several routes, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AlertResult {
    /// By these routes it cannot be sent.
    Refused,
    /// There is no room for it at present.
    Later,
    Told,
}

fn tenant() -> TenantId {
    TenantId::new(TENANT)
}

/// What links begin with.
fn link_base(app: &SharedState) -> String {
    let config = app.config();
    let own = || {
        let scheme = if config.server.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", app.listen_address().unwrap_or(config.server.listen))
    };
    config.alerts.link_base.clone().unwrap_or_else(own)
}

/// Sends what is due about these problems.
pub(crate) async fn send_due(app: &SharedState, records: &[ProblemRecord]) -> StoreResult<()> {
    let alerts = app.config().alerts.clone();
    if alerts.routes.is_empty() {
        return Ok(());
    }
    let now = app.clock.now();
    for record in records {
        let Some(event) = record.alert_due else { continue };
        let is_muted = record.is_muted(now);
        if is_muted && event == AlertEvent::Opened {
            // If it is still open when the mute ends, it is told then.
            continue;
        }
        let mut result = AlertResult::Refused;
        if !is_muted {
            let text = AlertText::new(record, event, &link_base(app));
            for (name, route) in alerts.first_routes() {
                if record.severity >= route.severity {
                    let of_route = send(app, &alerts, name, route, &text, record, records).await?;
                    result = result.max(of_route);
                }
            }
        }
        if result == AlertResult::Later {
            // It stays due, and is tried again at the next look.
            continue;
        }
        let is_told = result == AlertResult::Told;
        let told = |record: &mut ProblemRecord| {
            if record.alert_due == Some(event) {
                record.alert_due = None;
                record.alerted = event == AlertEvent::Opened && is_told;
            }
        };
        change_kept(&*app.store, &record.id, |_| true, told).await?;
    }
    Ok(())
}

/// By the route, or at once by its backup if the route itself is in trouble.
async fn send(
    app: &SharedState,
    alerts: &AlertSection,
    name: &str,
    route: &AlertRoute,
    text: &AlertText,
    record: &ProblemRecord,
    records: &[ProblemRecord],
) -> StoreResult<AlertResult> {
    let key = format!("{}/{}/{}", record.id, record.reopened, text.event.name());
    let backup = route.backup.as_ref().and_then(|name| alerts.routes.get_key_value(name));
    if let Some((backup_name, backup)) = backup
        && is_in_trouble(route, records).await
    {
        app.metrics.alert("backup");
        return Ok(tell(app, backup_name, backup, text, &key).await.0);
    }
    match (tell(app, name, route, text, &key).await, backup) {
        ((result, Some(id)), Some(_)) => {
            watch(app, name, id, text, &key).await?;
            Ok(result)
        }
        ((AlertResult::Told, _), _) => Ok(AlertResult::Told),
        ((result, _), Some((name, backup))) => {
            app.metrics.alert("backup");
            Ok(result.max(tell(app, name, backup, text, &key).await.0))
        }
        ((result, _), None) => Ok(result),
    }
}

/// Puts an alert into the queue. If the store does not take it, calls the route's place once without the queue.
async fn tell(
    app: &SharedState,
    name: &str,
    route: &AlertRoute,
    text: &AlertText,
    key: &str,
) -> (AlertResult, Option<DeliveryId>) {
    let refusal = match submit(app, name, route, text, key).await.delivery {
        Ok(id) => return (AlertResult::Told, Some(id)),
        Err(refusal) => refusal,
    };
    if refusal.is_of_store() {
        let submission = submission(app, name, route, text, key).await;
        let called = match &submission {
            Ok(submission) => direct::call(app, submission).await,
            Err(refusal) => Err(refusal.why.clone()),
        };
        match called {
            Ok(()) => {
                app.metrics.alert("direct");
                return (AlertResult::Told, None);
            }
            Err(why) => {
                tracing::error!(route = name, why, "an alert cannot be sent past the queue")
            }
        }
    }
    let result = if refusal.is_temporary() { AlertResult::Later } else { AlertResult::Refused };
    (result, None)
}

/// Whether a problem is open at the place that the route leads to.
async fn is_in_trouble(route: &AlertRoute, records: &[ProblemRecord]) -> bool {
    let target = place(route).await.map(|place| place.target).unwrap_or_default();
    let origin: String = target.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let channel = match route.kind {
        AlertRouteKind::Webhook => "webhook",
        AlertRouteKind::Slack => "chat",
        AlertRouteKind::PagerDuty => "http",
        AlertRouteKind::Email => "email",
    };
    let mut causes = records.iter().filter(|record| record.is_open() && record.key.kind.is_cause());
    causes.any(|record| {
        let is_there = route.kind == AlertRouteKind::Email || record.key.provider == origin;
        record.key.channel == channel && is_there
    })
}

async fn watch(
    app: &SharedState,
    route: &str,
    delivery: DeliveryId,
    text: &AlertText,
    key: &str,
) -> StoreResult<()> {
    let watched = WatchedAlert {
        route: route.to_owned(),
        delivery: delivery.to_string(),
        at: app.clock.now(),
        text: text.clone(),
    };
    let json = serde_json::to_string(&watched).unwrap_or_default();
    let name = format!("{PREFIX}{key}/{route}");
    app.store.put_document(&name, Some(&json), None, Some(KEPT)).await.map(drop)
}

/// Uses the backups of routes whose alerts failed or are not sent in time.
pub(crate) async fn follow_up(app: &SharedState) -> StoreResult<()> {
    let alerts = app.config().alerts.clone();
    for Document { name, json, .. } in app.store.documents(PREFIX).await? {
        let watched = json.and_then(|json| serde_json::from_str::<WatchedAlert>(&json).ok());
        let Some(watched) = watched else {
            overwrite(&*app.store, &name, None).await?;
            continue;
        };
        let found = match watched.delivery.parse::<DeliveryId>() {
            Ok(id) => app.store.delivery(Some(&tenant()), id).await?,
            Err(_) => None,
        };
        let state = found.map_or(State::Failed, |delivery| delivery.state);
        let is_sent = matches!(
            state,
            State::Sent | State::Delivered | State::Seen | State::Clicked | State::Dismissed
        );
        let waited = app.clock.now().since(watched.at);
        let is_late = waited >= Duration::from_secs(alerts.backup_after_s);
        if !is_sent && state.is_pending() && !is_late {
            continue;
        }
        let route = alerts.routes.get(&watched.route);
        let backup = route.and_then(|route| route.backup.as_ref());
        if let Some((backup, route)) = backup.and_then(|name| alerts.routes.get_key_value(name))
            && !is_sent
        {
            tracing::warn!(
                route = watched.route,
                backup,
                "an alert is not sent; its backup is used"
            );
            app.metrics.alert("backup");
            submit(app, backup, route, &watched.text, &name).await;
        }
        overwrite(&*app.store, &name, None).await?;
    }
    Ok(())
}

/// A test alert through every route, backups too, or through one.
pub(crate) async fn send_test(app: &SharedState, only: Option<&str>) -> Vec<AlertSubmission> {
    let alerts = app.config().alerts.clone();
    let now = app.clock.now();
    let text = AlertText::test(format!("test_{}", now.0), now.to_string(), &link_base(app));
    let mut sent = Vec::new();
    for (name, route) in &alerts.routes {
        if only.is_none_or(|only| only == name) {
            sent.push(submit(app, name, route, &text, &text.problem).await);
        }
    }
    sent
}

/// Puts an alert into the queue. The same alert is taken once, however often this is tried.
async fn submit(
    app: &SharedState,
    name: &str,
    route: &AlertRoute,
    text: &AlertText,
    key: &str,
) -> AlertSubmission {
    let delivery = submit_to(app, name, route, text, key).await;
    app.metrics.alert(if delivery.is_ok() { "queued" } else { "refused" });
    if let Err(AlertRefusal { why, .. }) = &delivery {
        tracing::error!(route = name, why, "an alert cannot be queued for this route");
    }
    AlertSubmission { route: name.to_owned(), kind: route.kind, delivery }
}

/// Where the route leads. A command that tells the secret may take its time.
async fn place(route: &AlertRoute) -> Result<AlertPlace, String> {
    let own = route.clone();
    let place = tokio::task::spawn_blocking(move || own.place()).await;
    place.map_err(|error| error.to_string())?
}

async fn submit_to(
    app: &SharedState,
    name: &str,
    route: &AlertRoute,
    text: &AlertText,
    key: &str,
) -> Result<DeliveryId, AlertRefusal> {
    let submission = submission(app, name, route, text, key).await?;
    let answer = app.intake.admit(&tenant(), vec![submission]).await.pop();
    let answer = answer.ok_or("the intake gave no answer")?;
    let answer =
        answer.map_err(|refusal| AlertRefusal { why: refusal.detail, kind: Some(refusal.kind) })?;
    Ok(*answer.deliveries.first().ok_or("the message has no delivery")?)
}

async fn submission(
    app: &SharedState,
    name: &str,
    route: &AlertRoute,
    text: &AlertText,
    key: &str,
) -> Result<Submission, AlertRefusal> {
    let place = place(route).await?;
    app.signing.ensure(&tenant()).await?;
    Ok(Submission {
        body: text.message(route.kind, &place).to_string().into(),
        idempotency_key: Some(format!("{key}/{name}")),
        traceparent: None,
    })
}
