//! Preferences: a recipient's own words. A change of one choice deletes no other.

use super::bodies::{PreferencesBody, check_id};
use super::{merge, profiles};
use crate::api::prelude::*;

/// Replace everything that a recipient said.
#[utoipa::path(put, path = "/v1/recipients/{id}/preferences", tag = "audience", params(("id" = String, Path)),
    request_body = PreferencesBody,
    responses((status = 200, body = PreferencesBody), (status = "4XX", body = Problem)))]
pub(crate) async fn put(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(id): Path<String>,
    JsonBody(said): JsonBody<PreferencesBody>,
) -> ApiResult<Json<PreferencesBody>> {
    say(&app, &access, &id, |_| Ok(said.clone())).await
}

/// Change some of what a recipient said: what the body names is replaced, `null` removes (RFC 7396), and the rest
/// stays. The recipient is created if it is new.
#[utoipa::path(patch, path = "/v1/recipients/{id}/preferences", tag = "audience", params(("id" = String, Path)),
    request_body = PreferencesBody,
    responses((status = 200, body = PreferencesBody), (status = "4XX", body = Problem)))]
pub(crate) async fn patch(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(id): Path<String>,
    JsonBody(patch): JsonBody<Value>,
) -> ApiResult<Json<PreferencesBody>> {
    say(&app, &access, &id, |known| {
        let mut value = serde_json::to_value(known).unwrap_or_default();
        merge(&mut value, patch.clone());
        super::read(&value)
    })
    .await
}

async fn say(
    app: &SharedState,
    access: &AddressAccess,
    id: &str,
    wanted: impl Fn(PreferencesBody) -> ApiResult<PreferencesBody>,
) -> ApiResult<Json<PreferencesBody>> {
    check_id("id", id)?;
    let tenant = &access.tenant;
    let rules = app.audience.rules(tenant);
    let changed = profiles::change(app, tenant, id, true, |profile| {
        // What was said about a category that is not defined any more stays.
        let known: Vec<Box<str>> = profile.preferences.categories.keys().cloned().collect();
        let exists = |name: &str| {
            rules.categories.contains_key(name) || known.iter().any(|known| **known == *name)
        };
        let wanted = wanted(profile.preferences.clone().into())?;
        profile.preferences = wanted.checked(exists)?;
        Ok(())
    });
    let (_, profile, _) = changed.await?;
    audit(&access.caller, "recipient.preferences", tenant, 1);
    Ok(Json(profile.preferences.into()))
}
