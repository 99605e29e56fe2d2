//! Pauses of providers and accounts: an operator's order that holds every lane that goes there, of all tenants. A
//! paused account is not chosen; another one takes over where there is one. Decides nothing about deliveries.

use postrider_channels::registry;
use postrider_core::ChannelKind;
use postrider_dispatch::lanes::{OperatorOrder, PausedProvider};

use super::lanes::PauseRequest;
use super::parameters::channel;
use super::prelude::*;
use crate::live::OrderedProvider;

/// Every server keeps each pause in memory.
const PAUSES_MAX: usize = 500;
const NAME_MAX: usize = 256;

/// An operator's order, with its author, its reason and its end.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ProviderPauseBody {
    /// The id of a key.
    pub by: String,
    pub at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ends by itself; absent if it holds until it is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

impl From<&OperatorOrder> for ProviderPauseBody {
    fn from(order: &OperatorOrder) -> Self {
        Self {
            by: order.by.to_string(),
            at: order.at.into(),
            reason: order.reason.as_deref().map(str::to_owned),
            until: order.until.map(Into::into),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PausedProviderBody {
    pub channel: String,
    /// An origin, as lanes have it, or the name of an account.
    pub provider: String,
    /// It is an account.
    pub is_account: bool,
    pub paused: ProviderPauseBody,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PausedProviderList {
    /// By channel and name.
    pub providers: Vec<PausedProviderBody>,
}

/// Which provider, why, and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderPauseRequest {
    /// Such as `webhook`.
    pub channel: String,
    /// As lanes have it, e.g. `https://hooks.example.com`.
    pub provider: String,
    /// At most 200 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// In seconds, at most 30 days. If absent, until it is resumed.
    #[serde(default)]
    pub for_s: Option<u64>,
}

/// Which provider.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderResumeRequest {
    /// Such as `webhook`.
    pub channel: String,
    /// As lanes have it, e.g. `https://hooks.example.com`.
    pub provider: String,
}

fn has_accounts(kind: ChannelKind) -> bool {
    let found = registry::all().find(|channel| channel.facts().kind == kind);
    found.is_some_and(|channel| channel.facts().accounts.is_some())
}

/// A provider without accounts. Whether anything was ever sent there is not asked.
fn named(channel_name: String, provider: String) -> ApiResult<OrderedProvider> {
    let kind = channel(Some(channel_name))?;
    let kind = kind.ok_or_else(|| Problem::field("channel", "nothing", "a channel"))?;
    if has_accounts(kind) {
        let allowed =
            "a channel without accounts; an account is paused by POST /v1/accounts/{name}/pause";
        return Err(Problem::field("channel", quoted(kind.name()), allowed));
    }
    let length = provider.chars().count();
    if length == 0 || length > NAME_MAX || provider.chars().any(char::is_control) {
        let allowed = format!("the provider of a lane, 1 to {NAME_MAX} characters");
        return Err(Problem::field("provider", quoted(&provider), allowed));
    }
    Ok(OrderedProvider { channel: kind, name: provider.into() })
}

fn body(paused: &PausedProvider) -> PausedProviderBody {
    PausedProviderBody {
        channel: paused.channel.to_string(),
        provider: paused.provider.to_string(),
        is_account: has_accounts(paused.channel),
        paused: (&paused.order).into(),
    }
}

pub(super) fn all(app: &SharedState) -> PausedProviderList {
    PausedProviderList { providers: app.lanes.paused_providers().iter().map(body).collect() }
}

/// Pauses a provider or an account; the audit log says why and until when.
pub(super) async fn order_pause(
    app: &SharedState,
    access: &AdminAccess,
    action: &'static str,
    provider: &OrderedProvider,
    request: PauseRequest,
) -> ApiResult<()> {
    let paused = app.lanes.paused_providers();
    let is_this = |other: &PausedProvider| {
        other.channel == provider.channel && *other.provider == *provider.name
    };
    if paused.len() >= PAUSES_MAX && !paused.iter().any(is_this) {
        let detail = format!("{PAUSES_MAX} providers and accounts are paused; resume some");
        return Err(Problem::new(409, "too_many_pauses", "Too many providers are paused", detail));
    }
    let order = request.order(app.order(&access.caller))?;
    let noted = serde_json::json!({"reason": order.reason.as_deref(), "until": order.until.map(Time::from)});
    app.operator.pause_provider(provider, order).await?;
    audit(&access.caller, action, &subject(provider), 1);
    note_audit(|draft| draft.after = Some(noted));
    Ok(())
}

pub(super) async fn order_resume(
    app: &SharedState,
    access: &AdminAccess,
    action: &'static str,
    provider: &OrderedProvider,
) -> ApiResult<()> {
    let was_paused = app.operator.resume_provider(provider).await?;
    audit(&access.caller, action, &subject(provider), u64::from(was_paused));
    Ok(())
}

fn subject(provider: &OrderedProvider) -> String {
    format!("{}/{}", provider.channel, provider.name)
}

/// Providers and accounts that an operator paused.
#[utoipa::path(get, path = "/v1/providers/paused", tag = "lanes",
    responses((status = 200, body = PausedProviderList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    _: ServerReadAccess,
) -> Json<PausedProviderList> {
    Json(all(&app))
}

/// Pause a provider without accounts, such as the host of webhooks: send nothing there, of any tenant, until it is
/// resumed or the time is over, also after a restart.
#[utoipa::path(post, path = "/v1/providers/pause", tag = "lanes", request_body = ProviderPauseRequest,
    responses((status = 200, body = PausedProviderList), (status = "4XX", body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: AdminAccess,
    JsonBody(request): JsonBody<ProviderPauseRequest>,
) -> ApiResult<Json<PausedProviderList>> {
    let provider = named(request.channel, request.provider)?;
    let wanted = PauseRequest { reason: request.reason, for_s: request.for_s };
    order_pause(&app, &access, "provider.pause", &provider, wanted).await?;
    Ok(Json(all(&app)))
}

/// Resume a paused provider.
#[utoipa::path(post, path = "/v1/providers/resume", tag = "lanes", request_body = ProviderResumeRequest,
    responses((status = 200, body = PausedProviderList), (status = "4XX", body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: AdminAccess,
    JsonBody(request): JsonBody<ProviderResumeRequest>,
) -> ApiResult<Json<PausedProviderList>> {
    let provider = named(request.channel, request.provider)?;
    order_resume(&app, &access, "provider.resume", &provider).await?;
    Ok(Json(all(&app)))
}
