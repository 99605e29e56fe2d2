//! The routes of alerts, and a test of them. Shows no URL and no secret.

use super::prelude::*;
use crate::alerts::{self, AlertSubmission};

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertRouteList {
    /// By name.
    pub routes: Vec<AlertRouteBody>,
    /// The tenant whose deliveries alerts are.
    pub tenant: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertRouteBody {
    pub name: String,
    /// `webhook`, `slack`, `pagerduty` or `email`.
    pub kind: &'static str,
    /// `notice`, `warning` or `critical`: this and worse.
    pub severity: &'static str,
    /// The route that is used if this one fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// It is used only as a backup.
    pub is_backup: bool,
}

/// Which route to test.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AlertTestRequest {
    /// The name of a route; all if absent.
    pub route: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertTestResult {
    pub alerts: Vec<TestedRoute>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestedRoute {
    pub route: String,
    pub kind: &'static str,
    /// `dlv_…`, a delivery of the tenant `postrider-alerts`. Its state says whether the alert was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// Why it could not be put into the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The routes of alerts. They are set in the configuration.
#[utoipa::path(get, path = "/v1/alerts", tag = "problems",
    responses((status = 200, body = AlertRouteList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    _: ServerReadAccess,
) -> Json<AlertRouteList> {
    let section = app.config().alerts.clone();
    let first: Vec<_> = section.first_routes().map(|(name, _)| name.clone()).collect();
    let routes = section.routes.iter().map(|(name, route)| AlertRouteBody {
        name: name.clone(),
        kind: route.kind.name(),
        severity: route.severity.name(),
        backup: route.backup.clone(),
        is_backup: !first.contains(name),
    });
    Json(AlertRouteList { routes: routes.collect(), tenant: alerts::TENANT })
}

/// Send a test alert through every route, or through one.
#[utoipa::path(post, path = "/v1/alerts/test", tag = "problems", request_body = AlertTestRequest,
    responses((status = 200, body = AlertTestResult), (status = "4XX", body = Problem)))]
pub(crate) async fn test(
    State(app): State<SharedState>,
    access: AdminAccess,
    JsonBody(request): JsonBody<AlertTestRequest>,
) -> ApiResult<Json<AlertTestResult>> {
    let section = app.config().alerts.clone();
    let only = request.route.as_deref();
    if section.routes.is_empty() {
        let detail = "there is no route for alerts; add [alerts.routes.NAME] to the configuration (docs/alerts.md)";
        return Err(Problem::new(422, "no_route", "There is no route for alerts", detail));
    }
    if let Some(name) = only.filter(|name| !section.routes.contains_key(*name)) {
        let known: Vec<_> = section.routes.keys().map(String::as_str).collect();
        return Err(Problem::field("route", quoted(name), known.join(", ")));
    }
    let sent = alerts::send_test(&app, only).await;
    audit(&access.caller, "alerts.test", &only.unwrap_or("all routes"), sent.len() as u64);
    let tested = |sent: AlertSubmission| TestedRoute {
        route: sent.route,
        kind: sent.kind.name(),
        delivery: sent.delivery.as_ref().ok().map(ToString::to_string),
        refused: sent.delivery.err().map(|refusal| refusal.why),
    };
    Ok(Json(AlertTestResult { alerts: sent.into_iter().map(tested).collect() }))
}
