//! Sign-in of the status page: one-time codes instead of keys in links.

use std::time::Duration;

use postrider_core::KeyId;

use super::auth::{AnyAccess, CallerIp, wrong_code};
use super::prelude::*;
use crate::keys::Caller;
use crate::keys::session::{self, SignIn};

/// A one-time code.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignInCodeBody {
    /// `code_…`: works once. The status page takes it as `/#code=code_…`.
    pub code: String,
    /// Seconds until it ends.
    pub valid_s: u64,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInRequest {
    /// `code_…`
    pub code: String,
}

/// A session of the status page.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionBody {
    /// Stands for the key that made the code, and ends with it.
    pub key: String,
    pub expires_at: Time,
}

/// Create a one-time code that opens the status page with the rights of this key.
#[utoipa::path(post, path = "/v1/sign-in-codes", tag = "keys",
    responses((status = 201, body = SignInCodeBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: AnyAccess,
) -> ApiResult<Response> {
    if access.caller.is_session {
        let detail = "a session makes no codes, so that it ends in its time; use the key itself";
        return Err(Problem::new(403, "forbidden", "The key may not do this", detail));
    }
    let valid_s = app.config().server.sign_in_code_s;
    let valid = Duration::from_secs(valid_s);
    let Caller { key, tenant, all_tenants, .. } = &access.caller;
    let tenant = (!all_tenants).then(|| tenant.clone());
    let sign_in = SignIn { key: key.map(|key| key.0), tenant };
    let code = app.sign_in_codes.make(&*app.store, &sign_in, valid).await?;
    audit(&access.caller, "sign_in_code.create", &access.caller.tenant, 1);
    Ok((StatusCode::CREATED, Json(SignInCodeBody { code, valid_s })).into_response())
}

/// Exchange a one-time code for a session. Needs no key.
#[utoipa::path(post, path = "/v1/sign-in", tag = "keys", security(()), request_body = SignInRequest,
    responses((status = 200, body = SessionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn exchange(
    State(app): State<SharedState>,
    CallerIp(from): CallerIp,
    JsonBody(request): JsonBody<SignInRequest>,
) -> ApiResult<Json<SessionBody>> {
    let Some(sign_in) = session::take_code(&*app.store, &request.code).await? else {
        return Err(wrong_code(&app, from));
    };
    let until = app.clock.now() + Duration::from_secs(app.config().server.session_s);
    let key = app.keys.session(sign_in.key.map(KeyId), until);
    let key = key.ok_or_else(|| {
        Problem::new(503, "not_ready", "Not ready", "the server is starting; try again")
    })?;
    Ok(Json(SessionBody { key, expires_at: until.into() }))
}
