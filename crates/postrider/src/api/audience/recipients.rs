//! Recipients: create, show, change, list and delete them.

use postrider_core::model::recipient::RecipientProfile;
use postrider_core::ports::store::{EntryFilter, EntryKey, EntryKind};

use super::bodies::{RecipientBody, RecipientRequest, check_id};
use super::profiles::{self, FoundProfile, read};
use super::{merge, merging};
use crate::api::cursor;
use crate::api::prelude::*;

/// Addresses that are shown with a recipient, or read at once.
const ADDRESSES: usize = 100;

/// A page of recipients, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecipientPage {
    pub items: Vec<RecipientBody>,
    pub next: Option<String>,
}

/// Which recipients to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct RecipientQuery {
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Recipients, by id.
#[utoipa::path(get, path = "/v1/recipients", tag = "audience", params(RecipientQuery),
    responses((status = 200, body = RecipientPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<RecipientQuery>,
) -> ApiResult<Json<RecipientPage>> {
    let after = cursor::decode(query.cursor.as_deref(), |id| Some(id.into()))?;
    let limit = limit(query.limit)?;
    let kind = EntryKind::Recipient;
    let filter = EntryFilter { tenant: access.tenant()?, kind, after, limit };
    let found = app.store.list_entries(filter).await?;
    let body = |entry: &_| -> ApiResult<_> {
        let entry: &postrider_core::ports::store::StoredEntry = entry;
        Ok(RecipientBody::new(&entry.key.key, read(entry)?))
    };
    let items = found.items.iter().map(body).collect::<ApiResult<_>>()?;
    Ok(Json(RecipientPage { items, next: found.next.map(|id| cursor::encode(&id)) }))
}

/// One recipient, with preferences and addresses. An alias stands for its recipient.
#[utoipa::path(get, path = "/v1/recipients/{id}", tag = "audience", params(("id" = String, Path)),
    responses((status = 200, body = RecipientBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<RecipientBody>> {
    let tenant = access.tenant()?;
    let FoundProfile { id, profile, .. } = profiles::must_find(&app, &tenant, &id).await?;
    let addresses = app.store.addresses(&tenant, Some(&id), None, ADDRESSES).await?;
    let addresses = Some(addresses.items.into_iter().map(Into::into).collect());
    Ok(Json(RecipientBody { addresses, ..RecipientBody::new(&id, profile) }))
}

/// Create a recipient, or replace what is known of it. Preferences stay: they have a call of their own.
#[utoipa::path(put, path = "/v1/recipients/{id}", tag = "audience", params(("id" = String, Path)),
    request_body = RecipientRequest,
    responses((status = 200, body = RecipientBody), (status = 201, description = "It is new", body = RecipientBody), (status = "4XX", body = Problem)))]
pub(crate) async fn put(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(id): Path<String>,
    JsonBody(new): JsonBody<RecipientRequest>,
) -> ApiResult<Response> {
    check_id("id", &id)?;
    let wanted = new.checked(&id)?;
    let (body, is_new) = write(&app, &access.tenant, &id, true, |_| Ok(wanted.clone())).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    audit(&access.caller, "recipient.put", &access.tenant, 1);
    Ok((status, Json(body)).into_response())
}

/// Change a recipient: what the body names is replaced, and `null` removes (RFC 7396).
#[utoipa::path(patch, path = "/v1/recipients/{id}", tag = "audience", params(("id" = String, Path)),
    request_body = RecipientRequest,
    responses((status = 200, body = RecipientBody), (status = "4XX", body = Problem)))]
pub(crate) async fn patch(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(id): Path<String>,
    JsonBody(patch): JsonBody<Value>,
) -> ApiResult<Json<RecipientBody>> {
    check_id("id", &id)?;
    let changed = |known: &RecipientProfile| {
        let mut value = serde_json::to_value(RecipientRequest::of(known)).unwrap_or_default();
        merge(&mut value, patch.clone());
        super::read::<RecipientRequest>(&value)?.checked(&id)
    };
    let (body, _) = write(&app, &access.tenant, &id, false, changed).await?;
    audit(&access.caller, "recipient.patch", &access.tenant, 1);
    Ok(Json(body))
}

/// Writes what is wanted of a recipient, and settles its aliases.
async fn write(
    app: &SharedState,
    tenant: &TenantId,
    id: &str,
    makes: bool,
    wanted: impl Fn(&RecipientProfile) -> ApiResult<RecipientProfile>,
) -> ApiResult<(RecipientBody, bool)> {
    let known = profiles::find(app, tenant, id).await?;
    let (id, before) = match known {
        Some(known) => (known.id, known.profile),
        None => (id.into(), RecipientProfile::default()),
    };
    merging::check_aliases(app, tenant, &id, &wanted(&before)?.aliases).await?;
    let mut aliases = Vec::new();
    let (id, mut profile, is_new) = profiles::change(app, tenant, &id, makes, |profile| {
        let new = wanted(profile)?;
        aliases.clone_from(&new.aliases);
        aliases.retain(|alias| **alias != *id);
        *profile = RecipientProfile {
            preferences: std::mem::take(&mut profile.preferences),
            created_at: profile.created_at,
            // Others are added when they stand for this recipient.
            aliases: aliases
                .iter()
                .filter(|alias| profile.aliases.contains(alias))
                .cloned()
                .collect(),
            ..new
        };
        Ok(())
    })
    .await?;
    if before.aliases != aliases {
        merging::settle_aliases(app, tenant, &id, &before.aliases, &aliases).await?;
        let add = |profile: &mut RecipientProfile| {
            profile.aliases.clone_from(&aliases);
            Ok(())
        };
        profile = profiles::change(app, tenant, &id, false, add).await?.1;
    }
    Ok((RecipientBody::new(&id, profile), is_new))
}

/// Delete a recipient with its preferences, aliases and addresses. What is queued for its addresses is cancelled. What
/// was sent stays in the list of deliveries until its retention ends.
#[utoipa::path(delete, path = "/v1/recipients/{id}", tag = "audience", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn delete(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let tenant = &access.tenant;
    let found = profiles::find(&app, tenant, &id).await?;
    let own = found.as_ref().map_or_else(|| id.as_str().into(), |found| found.id.clone());
    let mut deleted = 0;
    // Whoever has no profile may still have addresses. Each round deletes what it read.
    loop {
        let page = app.store.addresses(tenant, Some(&own), None, ADDRESSES).await?.items;
        if page.is_empty() {
            break;
        }
        for address in page {
            let facts = EntryKey::new(tenant, EntryKind::AddressFacts, &address.hash.to_string());
            profiles::delete(&app, vec![facts]).await?;
            if app.store.delete_address(tenant, address.id, true).await? {
                app.quotas.note_addresses(tenant, -1);
                deleted += 1;
            }
        }
    }
    if found.is_none() && deleted == 0 {
        return Err(Problem::not_found("recipient", shortened(&id)));
    }
    let aliases = found.map(|found| found.profile.aliases).unwrap_or_default();
    let mut keys: Vec<_> =
        aliases.iter().map(|alias| EntryKey::new(tenant, EntryKind::Alias, alias)).collect();
    keys.push(EntryKey::new(tenant, EntryKind::Recipient, &own));
    let entries = keys.len() as i64;
    profiles::delete(&app, keys).await?;
    app.quotas.note_entries(tenant, -entries);
    audit(&access.caller, "recipient.delete", tenant, deleted + 1);
    Ok(StatusCode::NO_CONTENT)
}
