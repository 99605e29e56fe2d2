//! The secrets with which the receiver of a subscription verifies its events.

use super::auth::EventAccess;
use super::event_subscriptions::find;
use super::prelude::*;
use super::signing_keys::{WebhookSecretList, rotation_limits, secret_list};
use crate::keys::SigningKind;

/// The secrets of a subscription, the active one first.
#[utoipa::path(get, path = "/v1/event-subscriptions/{id}/secrets", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = WebhookSecretList), (status = 404, body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: EventAccess,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let found = find(&app, access.view.as_ref(), &id)?;
    let sender = found.sender();
    app.signing.ensure(&sender).await?;
    audit(&access.caller, "webhook_secrets.read", &*found, 1);
    Ok(secret_list(&app, &sender, found.url.as_deref()))
}

/// Create a new secret. The old one signs beside it for a while (24 h by default).
#[utoipa::path(post, path = "/v1/event-subscriptions/{id}/secrets/rotate", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = WebhookSecretList), (status = "4XX", body = Problem)))]
pub(crate) async fn rotate(
    State(app): State<SharedState>,
    access: EventAccess,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let found = find(&app, access.view.as_ref(), &id)?;
    let sender = found.sender();
    let limits = rotation_limits(&app, &sender, SigningKind::Webhook);
    app.signing.rotate(&sender, SigningKind::Webhook, &limits).await?;
    app.lanes.credential_renewed(&sender);
    audit(&access.caller, "event_subscription.rotate_secret", &*found, 1);
    Ok(secret_list(&app, &sender, found.url.as_deref()))
}
