//! Calls of providers about deliveries: the token says which delivery, and the channel checks that the provider made
//! the call. Knows no provider.

use axum::extract::Request;
use axum::http::HeaderMap;
use postrider_channels::callbacks::{
    CallbackCall, CallbackNews, CallbackRefusal, CallbackSuppression,
};
use postrider_core::DeliveryId;
use postrider_core::policy::audience::{Suppression, SuppressionMark};
use postrider_core::ports::store::NewReceipt;

use super::audience::suppressions::suppress;
use super::prelude::*;
use super::receipts::{RefusedReceipt, recorded};
use crate::receipts::CALLBACK_PATH;

/// The largest call.
const BODY_MAX: usize = 64 << 10;
/// Who said so, in the mark of a suppression.
const SOURCE: &str = "provider";

/// Take the call of a provider about a delivery. Needs no key: the provider signs it.
#[utoipa::path(post, path = "/v1/callbacks/{account}/{token}", tag = "deliveries", security(()),
    params(("account" = String, Path, description = "The name of the account"),
        ("token" = String, Path, description = "As the URL has it that the provider was given")),
    request_body(content = String, content_type = "application/x-www-form-urlencoded"),
    responses((status = 204, description = "It is recorded, was before, or says nothing new"),
        (status = 404, description = "No token of this server, or no such account", body = Problem),
        (status = 409, description = "The delivery is still being sent", body = Problem),
        (status = 410, description = "The token is too old, or the delivery is forgotten", body = Problem)))]
pub(crate) async fn call(
    State(app): State<SharedState>,
    Path((account, token)): Path<(String, String)>,
    request: Request,
) -> Response {
    match taken(&app, &account, &token, request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => refused.counted(&app).into_response(),
    }
}

async fn taken(
    app: &SharedState,
    account: &str,
    token: &str,
    request: Request,
) -> Result<(), RefusedReceipt> {
    let delivery = app.receipt_tokens.delivery(token, app.clock.now())?;
    let (parts, body) = request.into_parts();
    let body = super::extract::read_at_most(BODY_MAX, &parts.headers, body, app).await;
    let body = body.map_err(|problem| RefusedReceipt::new("malformed", problem))?;
    let public = app.config().server.public_url.clone().unwrap_or_default();
    let url = format!("{}{CALLBACK_PATH}{account}/{token}", public.trim_end_matches('/'));
    let news = read(app, account, (&url, &parts.headers), &body).await?;
    if let Some(kind) = news.receipt {
        recorded(app, NewReceipt { delivery, kind, at: None }).await?;
    }
    match news.suppression {
        Some(suppression) => suppressed(app, delivery, suppression).await,
        None => Ok(()),
    }
}

async fn read(
    app: &SharedState,
    account: &str,
    (url, headers): (&str, &HeaderMap),
    body: &[u8],
) -> Result<CallbackNews, RefusedReceipt> {
    let section = app.config().accounts.get(account).map(|section| section.channel);
    let callbacks = section.and_then(|channel| app.callbacks.get(&channel));
    let call = CallbackCall { url, headers, body };
    let read = match callbacks {
        Some(callbacks) => callbacks.read(account, call).await,
        None => Err(CallbackRefusal::NoAccount),
    };
    read.map_err(|why| match why {
        CallbackRefusal::NoAccount => {
            let detail = "no account of this name takes calls (callback_secret)";
            RefusedReceipt::new("forged", Problem::new(404, "not_found", "Not found", detail))
        }
        CallbackRefusal::Forged => {
            let detail = "the call is not signed by the provider";
            RefusedReceipt::new("forged", Problem::new(404, "not_found", "Not found", detail))
        }
        CallbackRefusal::NoSecret(why) => {
            tracing::error!(account, why, "the callback_secret of an account cannot be read");
            let detail = "the secret of the account cannot be read; call again later";
            RefusedReceipt::new("failed", Problem::new(503, "not_ready", "Not ready", detail))
        }
        CallbackRefusal::Malformed => {
            let detail = "a field is missing";
            RefusedReceipt::new("malformed", Problem::new(422, "invalid", "Not understood", detail))
        }
    })
}

/// Suppresses the address of a delivery.
async fn suppressed(
    app: &SharedState,
    delivery: DeliveryId,
    which: CallbackSuppression,
) -> Result<(), RefusedReceipt> {
    let failed = |problem| RefusedReceipt::new("failed", problem);
    let found = app.store.delivery(None, delivery).await.map_err(|error| failed(error.into()))?;
    let Some(found) = found else { return Ok(()) };
    let at = app.clock.now();
    let change = |known: &mut Suppression| {
        let mark = match which {
            CallbackSuppression::Undeliverable => &mut known.undeliverable,
            CallbackSuppression::Complaint => &mut known.complaint,
        };
        mark.get_or_insert_with(|| SuppressionMark { at, source: SOURCE.into() });
        Ok(())
    };
    suppress(app, &found.tenant, found.address_hash, change).await.map(drop).map_err(failed)
}
