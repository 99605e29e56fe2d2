//! Strikes against addresses: list and forgive them. An address is named by its hash, because it may not
//! be registered.

use postrider_core::ports::store::{StrikeFilter, StruckAddress};
use postrider_core::{AddressHash, Strike};

use super::cursor;
use super::prelude::*;

/// A kind of strike against an address, counted since the address last worked.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct StrikeBody {
    /// `endpoint`, `mailbox`, `number`, `unreachable`, `blocked`, `device`, `key`, `host` or `failing`.
    pub kind: &'static str,
    pub count: u32,
    pub first_at: Time,
    pub last_at: Time,
    /// Whether the address is suspect because of it: ask its owner.
    pub suspect: bool,
}

impl From<Strike> for StrikeBody {
    fn from(strike: Strike) -> Self {
        Self {
            kind: strike.kind.name(),
            count: strike.count,
            first_at: strike.first_at.into(),
            last_at: strike.last_at.into(),
            suspect: strike.suspect,
        }
    }
}

/// An address with strikes.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = StruckBody)]
pub(crate) struct StruckAddressBody {
    /// The `address_hash` of its deliveries.
    pub hash: String,
    pub suspect: bool,
    pub strikes: Vec<StrikeBody>,
}

impl From<StruckAddress> for StruckAddressBody {
    fn from(struck: StruckAddress) -> Self {
        Self {
            hash: struck.hash.to_string(),
            suspect: struck.strikes.iter().any(|strike| strike.suspect),
            strikes: struck.strikes.into_iter().map(Into::into).collect(),
        }
    }
}

/// A page of addresses with strikes, by hash.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = StruckPage)]
pub(crate) struct StruckAddressPage {
    pub items: Vec<StruckAddressBody>,
    pub next: Option<String>,
}

/// Which addresses to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StrikeQuery {
    /// `true`: only suspect addresses.
    pub suspect: bool,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Addresses with strikes since they last worked.
#[utoipa::path(get, path = "/v1/strikes", tag = "addresses", params(StrikeQuery),
    responses((status = 200, body = StruckAddressPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<StrikeQuery>,
) -> ApiResult<Json<StruckAddressPage>> {
    let cursor = cursor::decode(query.cursor.as_deref(), |hash| parse_hash("cursor", hash).ok())?;
    let filter =
        StrikeFilter { suspect: query.suspect, cursor, limit: limit(query.limit)?, hash: None };
    let (items, next) = page(app.store.strikes(&access.tenant()?, filter).await?);
    Ok(Json(StruckAddressPage { items, next }))
}

/// Forget the strikes against an address. A suspect address becomes active again.
#[utoipa::path(delete, path = "/v1/strikes/{hash}", tag = "addresses", params(("hash" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn forgive(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(text): Path<String>,
) -> ApiResult<StatusCode> {
    let hash = parse_hash("hash", &text)?;
    if !app.store.forgive(&access.tenant, hash).await? {
        return Err(Problem::not_found("address with strikes", hash));
    }
    audit(&access.caller, "address.forgive", &hash, 1);
    Ok(StatusCode::NO_CONTENT)
}

/// The strikes against one address.
pub(crate) async fn of(
    app: &SharedState,
    tenant: &TenantId,
    hash: AddressHash,
) -> ApiResult<Vec<Strike>> {
    let filter = StrikeFilter { hash: Some(hash), limit: 1, ..StrikeFilter::default() };
    let found = app.store.strikes(tenant, filter).await?.items;
    Ok(found.into_iter().flat_map(|struck| struck.strikes).collect())
}

pub(crate) fn parse_hash(field: &str, text: &str) -> ApiResult<AddressHash> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let allowed = "an address hash of 32 hexadecimal digits";
    let number = number.ok_or_else(|| Problem::field(field, quoted(text), allowed))?;
    Ok(AddressHash(number.to_be_bytes()))
}
