//! Facts about a registered address: its zone and locale where they differ from its owner's, and that its owner agreed.

use postrider_core::AddressId;
use postrider_core::model::recipient::{AddressFacts, ConsentRecord};
use postrider_core::ports::store::{EntryKey, EntryKind, EntryVersion};

use super::bodies::{locale, zone};
use super::profiles::{check_room, contended, entry, put, read};
use crate::api::parameters;
use crate::api::prelude::*;

const TEXT_BYTES_MAX: usize = 1_024;
/// The newest consents that are kept.
const CONSENTS_MAX: usize = 20;
const TRIES: usize = 16;

/// What is known about an address.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAddressFacts, example = json!({
    "zone": "America/New_York",
    "consent": {"wording": "2026-03", "action": "ticked_box", "page": "https://example.com/signup"}
}))]
pub(crate) struct FactsRequest {
    /// Wins over the zone of its recipient.
    #[serde(default)]
    pub zone: Option<String>,
    #[serde(default)]
    pub locale: Option<String>,
    /// A new consent. Older ones stay, the newest 20.
    #[serde(default)]
    pub consent: Option<ConsentRequest>,
}

/// That somebody agreed. Holds no network address, also not hashed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewConsent)]
pub(crate) struct ConsentRequest {
    /// When; now if absent.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub at: Option<String>,
    /// Which version of the wording they saw.
    pub wording: String,
    /// What they did, such as `ticked_box`.
    pub action: String,
    /// Where, such as the URL of the page.
    #[serde(default)]
    pub page: Option<String>,
}

/// What is known about an address besides where it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AddressFacts)]
pub(crate) struct FactsBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// The newest last.
    pub consents: Vec<ConsentBody>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Consent)]
pub(crate) struct ConsentBody {
    pub at: Time,
    pub wording: String,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

impl From<AddressFacts> for FactsBody {
    fn from(facts: AddressFacts) -> Self {
        let consent = |record: ConsentRecord| ConsentBody {
            at: record.at.into(),
            wording: record.wording.into(),
            action: record.action.into(),
            page: record.page.map(Into::into),
        };
        Self {
            zone: facts.zone.map(|zone| zone.name().to_owned()),
            locale: facts.locale.map(Into::into),
            consents: facts.consents.into_iter().map(consent).collect(),
        }
    }
}

/// Set the zone and the locale of an address, and add a consent.
#[utoipa::path(put, path = "/v1/addresses/{id}/facts", tag = "addresses", params(("id" = String, Path)),
    request_body = FactsRequest,
    responses((status = 200, body = FactsBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: AddressAccess,
    Path(text): Path<String>,
    JsonBody(new): JsonBody<FactsRequest>,
) -> ApiResult<Json<FactsBody>> {
    let id: AddressId = parameters::id("id", &text)?;
    let tenant = &access.tenant;
    let address = app.store.address(tenant, id).await?;
    let address = address.ok_or_else(|| Problem::not_found("address", id))?;
    let zone = new.zone.map(|name| zone("zone", &name)).transpose()?;
    let locale = new.locale.map(|name| locale("locale", name)).transpose()?;
    let consent = new.consent.map(|consent| checked(&app, consent)).transpose()?;
    let key = EntryKey::new(tenant, EntryKind::AddressFacts, &address.hash.to_string());
    for _ in 0..TRIES {
        let found = entry(&app, key.clone()).await?;
        let version = found.as_ref().map_or(EntryVersion::NONE, |found| found.version);
        let mut facts: AddressFacts = found.as_ref().map(read).transpose()?.unwrap_or_default();
        facts.zone.clone_from(&zone);
        facts.locale.clone_from(&locale);
        facts.consents.extend(consent.clone());
        let surplus = facts.consents.len().saturating_sub(CONSENTS_MAX);
        facts.consents.drain(..surplus);
        if found.is_none() {
            check_room(&app, tenant, 1)?;
            app.audience.note_kind(tenant, EntryKind::AddressFacts).await?;
        }
        if put(&app, key.clone(), &facts, version).await? {
            app.quotas.note_entries(tenant, i64::from(found.is_none()));
            audit(&access.caller, "address.facts", &id, 1);
            return Ok(Json(facts.into()));
        }
    }
    Err(contended())
}

fn checked(app: &SharedState, new: ConsentRequest) -> ApiResult<ConsentRecord> {
    let text = |field: &str, text: String| {
        let is_fit = (1..=TEXT_BYTES_MAX).contains(&text.len());
        if is_fit && !text.chars().any(char::is_control) {
            return Ok(text.into_boxed_str());
        }
        let allowed = format!("1 to {TEXT_BYTES_MAX} bytes without control characters");
        Err(Problem::field(format!("consent.{field}"), format!("{} bytes", text.len()), allowed))
    };
    Ok(ConsentRecord {
        at: parameters::time("consent.at", new.at)?.unwrap_or_else(|| app.clock.wall()),
        wording: text("wording", new.wording)?,
        action: text("action", new.action)?,
        page: new.page.map(|page| text("page", page)).transpose()?,
    })
}

/// What is known about an address.
pub(crate) async fn of(
    app: &SharedState,
    tenant: &TenantId,
    hash: postrider_core::AddressHash,
) -> ApiResult<Option<FactsBody>> {
    if !app.audience.rules(tenant).has_address_facts {
        return Ok(None);
    }
    let key = EntryKey::new(tenant, EntryKind::AddressFacts, &hash.to_string());
    let found = entry(app, key).await?;
    Ok(found.as_ref().map(read::<AddressFacts>).transpose()?.map(Into::into))
}
