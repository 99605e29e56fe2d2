//! Suppressions of addresses: three kinds, each with its own reach. An address is named by its hash, which stays when
//! the address is deleted.

use postrider_core::policy::audience::{Suppression, SuppressionMark};
use postrider_core::ports::store::{EntryFilter, EntryKey, EntryKind, EntryVersion, StoredEntry};
use postrider_core::{AddressHash, AddressId};

use super::profiles::{check_room, contended, delete as delete_entries, entry, put, read};
use crate::api::prelude::*;
use crate::api::strikes::parse_hash;
use crate::api::{cursor, parameters};

const SOURCE: &str = "api";
const KINDS: &str = "\"undeliverable\", \"complaint\" or \"unsubscribe\"";
/// Others may change the same entry at the same time.
const TRIES: usize = 16;
/// Unsubscribed categories of one address.
const CATEGORIES_MAX: usize = 200;

/// What is not sent to an address.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Suppression)]
pub(crate) struct SuppressionBody {
    /// The `address_hash` of its deliveries.
    pub hash: String,
    /// Since when nothing is sent there, because nothing arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undeliverable: Option<MarkBody>,
    /// Since when nothing is sent there, because its owner complained or answered STOP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complaint: Option<MarkBody>,
    /// Since when nothing is sent that is not mandatory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribed: Option<MarkBody>,
    /// Since when nothing of these categories is sent.
    pub categories: std::collections::BTreeMap<String, MarkBody>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuppressionMark)]
pub(crate) struct MarkBody {
    pub at: Time,
    /// Such as `api` or `link`.
    pub source: String,
}

impl From<SuppressionMark> for MarkBody {
    fn from(mark: SuppressionMark) -> Self {
        Self { at: mark.at.into(), source: mark.source.into() }
    }
}

impl SuppressionBody {
    fn new(hash: &str, known: Suppression) -> Self {
        let categories = known.categories.into_iter();
        Self {
            hash: hash.to_owned(),
            undeliverable: known.undeliverable.map(Into::into),
            complaint: known.complaint.map(Into::into),
            unsubscribed: known.unsubscribed.map(Into::into),
            categories: categories.map(|(name, mark)| (name.into(), mark.into())).collect(),
        }
    }
}

/// A page of suppressions, by hash.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SuppressionPage {
    pub items: Vec<SuppressionBody>,
    pub next: Option<String>,
}

/// Which suppressions to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct SuppressionQuery {
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// An address, and what is not to be sent there.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSuppression, example = json!({
    "address": {"channel": "webhook", "url": "https://example.com/hooks/orders"}, "kind": "unsubscribe"
}))]
pub(crate) struct SuppressionRequest {
    /// An address as in a message, or the id of a registered one, or its hash.
    #[schema(value_type = Object)]
    pub address: Value,
    /// `undeliverable`, `complaint` or `unsubscribe`.
    pub kind: String,
    /// With `unsubscribe`: only this category; everything that is not mandatory if absent.
    #[serde(default)]
    pub category: Option<String>,
}

/// Suppressions, by the hash of the address.
#[utoipa::path(get, path = "/v1/suppressions", tag = "audience", params(SuppressionQuery),
    responses((status = 200, body = SuppressionPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<SuppressionQuery>,
) -> ApiResult<Json<SuppressionPage>> {
    let after = cursor::decode(query.cursor.as_deref(), |hash| {
        parse_hash("cursor", hash).ok().map(|hash| hash.to_string().into())
    })?;
    let (kind, limit) = (EntryKind::Suppression, limit(query.limit)?);
    let filter = EntryFilter { tenant: access.tenant()?, kind, after, limit };
    let found = app.store.list_entries(filter).await?;
    let body = |entry: &StoredEntry| Ok(SuppressionBody::new(&entry.key.key, read(entry)?));
    let items = found.items.iter().map(body).collect::<ApiResult<_>>()?;
    Ok(Json(SuppressionPage { items, next: found.next.map(|hash| cursor::encode(&hash)) }))
}

/// What is not sent to one address.
#[utoipa::path(get, path = "/v1/suppressions/{hash}", tag = "audience", params(("hash" = String, Path)),
    responses((status = 200, body = SuppressionBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(text): Path<String>,
) -> ApiResult<Json<SuppressionBody>> {
    let hash = parse_hash("hash", &text)?;
    let key = key(&access.tenant()?, hash);
    let found = entry(&app, key).await?;
    let found = found.ok_or_else(|| Problem::not_found("suppression of", hash))?;
    Ok(Json(SuppressionBody::new(&found.key.key, read(&found)?)))
}

/// Suppress an address. It is asked before every send, also of messages that wait. Suppressions of other kinds stay.
#[utoipa::path(post, path = "/v1/suppressions", tag = "audience", request_body = SuppressionRequest,
    responses((status = 200, body = SuppressionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: AddressAccess,
    JsonBody(new): JsonBody<SuppressionRequest>,
) -> ApiResult<Json<SuppressionBody>> {
    let tenant = &access.tenant;
    if let Some(name) = &new.category {
        let is_known = app.audience.rules(tenant).categories.contains_key(name.as_str());
        if new.kind != "unsubscribe" || !is_known {
            let allowed = "a category of the tenant, and only with the kind \"unsubscribe\"";
            return Err(Problem::field("category", quoted(name), allowed));
        }
    }
    let hash = hash_of(&app, tenant, &new.address).await?;
    let now = app.clock.now();
    let known = suppress(&app, tenant, hash, |known| {
        let mark = || Some(SuppressionMark { at: now, source: SOURCE.into() });
        match (new.kind.as_str(), &new.category) {
            ("undeliverable", _) => known.undeliverable = known.undeliverable.take().or_else(mark),
            ("complaint", _) => known.complaint = known.complaint.take().or_else(mark),
            ("unsubscribe", None) => known.unsubscribed = known.unsubscribed.take().or_else(mark),
            ("unsubscribe", Some(name)) => {
                if known.categories.len() >= CATEGORIES_MAX {
                    let allowed = format!("at most {CATEGORIES_MAX} categories of an address");
                    return Err(Problem::field("category", quoted(name), allowed));
                }
                known
                    .categories
                    .entry(name.as_str().into())
                    .or_insert_with(|| SuppressionMark { at: now, source: SOURCE.into() });
            }
            (other, _) => return Err(Problem::field("kind", quoted(other), KINDS)),
        }
        Ok(())
    });
    let known = known.await?;
    audit(&access.caller, "suppression.create", &hash, 1);
    Ok(Json(SuppressionBody::new(&hash.to_string(), known)))
}

/// Lift every suppression of an address. Only somebody who has the owner's new consent should do that.
#[utoipa::path(delete, path = "/v1/suppressions/{hash}", tag = "audience", params(("hash" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn delete(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(text): Path<String>,
) -> ApiResult<StatusCode> {
    let hash = parse_hash("hash", &text)?;
    let key = key(&access.tenant, hash);
    if entry(&app, key.clone()).await?.is_none() {
        return Err(Problem::not_found("suppression of", hash));
    }
    delete_entries(&app, vec![key]).await?;
    app.quotas.note_entries(&access.tenant, -1);
    audit(&access.caller, "suppression.delete", &hash, 1);
    Ok(StatusCode::NO_CONTENT)
}

fn key(tenant: &TenantId, hash: AddressHash) -> EntryKey {
    EntryKey::new(tenant, EntryKind::Suppression, &hash.to_string())
}

/// Changes the suppression of an address.
pub(crate) async fn suppress(
    app: &SharedState,
    tenant: &TenantId,
    hash: AddressHash,
    mut change: impl FnMut(&mut Suppression) -> ApiResult<()>,
) -> ApiResult<Suppression> {
    for _ in 0..TRIES {
        let found = entry(app, key(tenant, hash)).await?;
        let version = found.as_ref().map_or(EntryVersion::NONE, |found| found.version);
        let mut known: Suppression = found.as_ref().map(read).transpose()?.unwrap_or_default();
        change(&mut known)?;
        if found.is_none() {
            check_room(app, tenant, 1)?;
            app.audience.note_kind(tenant, EntryKind::Suppression).await?;
        }
        if put(app, key(tenant, hash), &known, version).await? {
            app.quotas.note_entries(tenant, i64::from(found.is_none()));
            return Ok(known);
        }
    }
    Err(contended())
}

/// The hash of an address as a caller names it.
async fn hash_of(app: &SharedState, tenant: &TenantId, address: &Value) -> ApiResult<AddressHash> {
    let Some(text) = address.as_str() else {
        let checked = app.intake.check_address(tenant, address.to_string().as_bytes()).await;
        return Ok(checked.map_err(below_address)?.hash);
    };
    if !text.starts_with("adr_") {
        return parse_hash("address", text);
    }
    let id: AddressId = parameters::id("address", text)?;
    let found = app.store.address(tenant, id).await?;
    Ok(found.ok_or_else(|| Problem::not_found("address", id))?.hash)
}

fn below_address(
    mut refusal: postrider_dispatch::IntakeRefusal,
) -> postrider_dispatch::IntakeRefusal {
    for error in &mut refusal.errors {
        error.field = format!("address.{}", error.field);
    }
    refusal
}
