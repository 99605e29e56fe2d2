//! What an operator can do with an account: verify it at its provider, pause and resume it. Sends no message.

use postrider_channels::accounts::health::{Finding, Verdict};

use super::accounts::AccountBody;
use super::lanes::PauseRequest;
use super::prelude::*;
use super::provider_pauses::{order_pause, order_resume};
use crate::live::OrderedProvider;

/// What the checks of an account found: those of `postrider doctor`, made by the running server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountVerification {
    pub account: String,
    pub channel: String,
    /// No check failed.
    pub ok: bool,
    pub at: Time,
    pub findings: Vec<FindingBody>,
}

/// What one check found, and what helps. Never has a secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingBody {
    /// Such as `credential` or `token`; docs/doctor.md lists them.
    pub check: String,
    /// `ok`, `skipped`, `warn` or `fail`.
    pub verdict: &'static str,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl From<Finding> for FindingBody {
    fn from(finding: Finding) -> Self {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Skipped => "skipped",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        let Finding { check, found, remedy, .. } = finding;
        Self { check, verdict, found, remedy }
    }
}

/// Ask the provider whether an account works: its credential is read, and the calls that `postrider doctor` makes are
/// made now, without a message. An account can be verified every ten seconds.
#[utoipa::path(post, path = "/v1/accounts/{name}/verify", tag = "lanes", params(("name" = String, Path)),
    responses((status = 200, body = AccountVerification), (status = "4XX", body = Problem)))]
pub(crate) async fn verify(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<AccountVerification>> {
    let account = find(&app, &name)?;
    app.watch.take_verification(&account.name).map_err(|wait| {
        app.metrics.call_limited("verify");
        Problem::too_many(
            "this account was verified just now; each call is one to its provider",
            wait,
        )
    })?;
    let findings = app.watch.examine(&account.name).await;
    let ok = findings.iter().all(|finding| finding.verdict < Verdict::Fail);
    audit(&access.caller, "account.verify", &account.name, 1);
    note_audit(|draft| draft.after = Some(serde_json::json!({"ok": ok})));
    Ok(Json(AccountVerification {
        account: account.name.to_string(),
        channel: account.channel.to_string(),
        ok,
        at: app.clock.now().into(),
        findings: findings.into_iter().map(Into::into).collect(),
    }))
}

/// Pause an account: it is not chosen any more, until it is resumed or the time is over, also after a restart.
#[utoipa::path(post, path = "/v1/accounts/{name}/pause", tag = "lanes", params(("name" = String, Path)),
    request_body = PauseRequest,
    responses((status = 200, body = AccountBody), (status = "4XX", body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<Option<PauseRequest>>,
) -> ApiResult<Json<AccountBody>> {
    let account = find(&app, &name)?;
    let wanted = request.unwrap_or_default();
    order_pause(&app, &access, "account.pause", &account, wanted).await?;
    shown(&app, &account)
}

/// Use a paused account again.
#[utoipa::path(post, path = "/v1/accounts/{name}/resume", tag = "lanes", params(("name" = String, Path)),
    responses((status = 200, body = AccountBody), (status = "4XX", body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<AccountBody>> {
    let account = find(&app, &name)?;
    order_resume(&app, &access, "account.resume", &account).await?;
    shown(&app, &account)
}

/// Accounts have different names, whatever their channels are.
fn find(app: &SharedState, name: &str) -> ApiResult<OrderedProvider> {
    let views = app.account_views().into_iter();
    let mut named = views.filter(|view| *view.name == *name);
    let found = named.next().ok_or_else(|| Problem::not_found("account", shortened(name)))?;
    Ok(OrderedProvider { channel: found.channel, name: found.name })
}

fn shown(app: &SharedState, account: &OrderedProvider) -> ApiResult<Json<AccountBody>> {
    let found = app.account_bodies().into_iter().find(|body| *body.name == *account.name);
    found.map(Json).ok_or_else(|| Problem::not_found("account", &account.name))
}
