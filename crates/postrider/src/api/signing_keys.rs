//! Our own signing keys: VAPID public keys and webhook secrets, with rotation.

use postrider_channels::webhook::WebhookSecret;

use super::prelude::*;
use crate::keys::{RotationLimits, SigningKind};
use crate::quotas::limits_of;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VapidBody {
    /// `key_…`
    pub id: String,
    /// The `applicationServerKey` for a browser.
    pub public_key: String,
    pub active: bool,
    pub created_at: Time,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VapidList {
    /// The active one first.
    pub keys: Vec<VapidBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookSecretBody {
    /// `key_…`
    pub id: String,
    /// `whsec_…`: a receiver verifies signatures with it.
    pub secret: String,
    /// `whpk_…`: a receiver verifies `v1a` signatures with it, if the server has `webhook.ed25519`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    pub active: bool,
    pub created_at: Time,
    /// When it was replaced. It goes on signing beside the new secret for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Time>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookSecretList {
    /// The active one first.
    pub secrets: Vec<WebhookSecretBody>,
}

/// The tenant's VAPID public keys, the active one first.
#[utoipa::path(get, path = "/v1/vapid", tag = "keys", responses((status = 200, body = VapidList)))]
pub(crate) async fn vapid(
    State(app): State<SharedState>,
    access: PublicKeyAccess,
) -> ApiResult<Json<VapidList>> {
    app.signing.ensure(&access.tenant).await?;
    Ok(Json(vapid_list(&app, &access.tenant)))
}

/// Create a new active VAPID key. Subscriptions made with older keys keep working.
#[utoipa::path(post, path = "/v1/vapid/rotate", tag = "keys", responses((status = 200, body = VapidList), (status = 403, body = Problem)))]
pub(crate) async fn rotate_vapid(
    State(app): State<SharedState>,
    access: ManageAccess,
) -> ApiResult<Json<VapidList>> {
    let limits = rotation_limits(&app, &access.tenant, SigningKind::Vapid);
    app.signing.rotate(&access.tenant, SigningKind::Vapid, &limits).await?;
    app.lanes.credential_renewed(&access.tenant);
    audit(&access.caller, "vapid.rotate", &access.tenant, 1);
    Ok(Json(vapid_list(&app, &access.tenant)))
}

/// For which address.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct WebhookSecretQuery {
    /// The URL of a webhook: its own secrets are shown instead of the tenant's, from which they are made.
    pub url: Option<String>,
}

/// The tenant's webhook secrets that are in use, or those of one address, the active one first.
#[utoipa::path(get, path = "/v1/webhook-secrets", tag = "keys", params(WebhookSecretQuery), responses((status = 200, body = WebhookSecretList), (status = 403, body = Problem)))]
pub(crate) async fn webhook(
    State(app): State<SharedState>,
    access: ManageAccess,
    StrictQuery(query): StrictQuery<WebhookSecretQuery>,
) -> ApiResult<Response> {
    app.signing.ensure(&access.tenant).await?;
    audit(&access.caller, "webhook_secrets.read", &access.tenant, 1);
    Ok(secret_list(&app, &access.tenant, query.url.as_deref()))
}

/// Create a new active webhook secret. The old one signs beside it for a while (24 h by default).
#[utoipa::path(post, path = "/v1/webhook-secrets/rotate", tag = "keys", responses((status = 200, body = WebhookSecretList), (status = 403, body = Problem)))]
pub(crate) async fn rotate_webhook(
    State(app): State<SharedState>,
    access: ManageAccess,
) -> ApiResult<Response> {
    let limits = rotation_limits(&app, &access.tenant, SigningKind::Webhook);
    app.signing.rotate(&access.tenant, SigningKind::Webhook, &limits).await?;
    app.lanes.credential_renewed(&access.tenant);
    audit(&access.caller, "webhook_secrets.rotate", &access.tenant, 1);
    Ok(secret_list(&app, &access.tenant, None))
}

pub(super) fn rotation_limits(
    app: &SharedState,
    tenant: &TenantId,
    kind: SigningKind,
) -> RotationLimits {
    let limits = limits_of(&app.config(), tenant);
    let keys_max = match kind {
        SigningKind::Vapid => limits.vapid_keys_max,
        SigningKind::Webhook | SigningKind::Hash => limits.webhook_secrets_max,
    };
    RotationLimits { keys_max, per_minute: limits.rotations_per_minute }
}

fn vapid_list(app: &SharedState, tenant: &TenantId) -> VapidList {
    let keys = app.signing.list(tenant, SigningKind::Vapid).into_iter();
    let keys = keys.map(|key| VapidBody {
        id: key.id.to_string(),
        public_key: key.text,
        active: key.active,
        created_at: key.created_at.into(),
    });
    VapidList { keys: keys.collect() }
}

pub(super) fn secret_list(app: &SharedState, tenant: &TenantId, url: Option<&str>) -> Response {
    let url = url.filter(|_| app.config().channels.webhook.secret_per_address);
    let secrets = app.signing.list(tenant, SigningKind::Webhook).into_iter();
    let secrets = secrets.map(|key| WebhookSecretBody {
        id: key.id.to_string(),
        public_key: WebhookSecret::parse(&key.text).ok().and_then(|secret| secret.public_key()),
        secret: match url.map(|url| (url, WebhookSecret::parse(&key.text))) {
            Some((url, Ok(shared))) => WebhookSecret::show(&shared.raw_for_address(url)),
            _ => key.text,
        },
        active: key.active,
        created_at: key.created_at.into(),
        retired_at: key.retired_at.map(Into::into),
    });
    let body = WebhookSecretList { secrets: secrets.collect() };
    ([("cache-control", "no-store")], Json(body)).into_response()
}
