//! Categories of a tenant, and what holds for its whole audience: zone, quiet hours and the default.

use std::collections::BTreeMap;

use postrider_core::policy::audience::{AudienceRules, Category, Purpose, QuietInterval};

use super::bodies::{ChoiceBody, locale, quiet_hours, zone};
use crate::api::prelude::*;

const CATEGORIES_MAX: usize = 200;
const TITLES_MAX: usize = 50;
const TITLE_BYTES_MAX: usize = 200;

/// What messages are about.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCategory, example = json!({"titles": {"en": "News", "de": "Neuigkeiten"}, "purpose": "marketing"}))]
pub(crate) struct CategoryRequest {
    /// Its name for people, by language.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub titles: BTreeMap<String, String>,
    /// `transactional` (sent unless the person said no; the default) or `marketing` (sent only if they said yes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// What holds for somebody who said nothing, instead of what the purpose says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<ChoiceBody>,
    /// Preferences and unsubscribes do not count, as for security codes.
    #[serde(default)]
    pub mandatory: bool,
}

/// A category with its name.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Category)]
pub(crate) struct CategoryBody {
    pub name: String,
    #[serde(flatten)]
    pub category: CategoryRequest,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CategoryList {
    /// By name.
    pub categories: Vec<CategoryBody>,
}

/// What holds for everybody whom a tenant reaches.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AudienceRules, example = json!({
    "zone": "Europe/Berlin", "quiet_hours": [{"days": ["sun", "mon", "tue"], "from": "22:00", "to": "07:00"}]
}))]
pub(crate) struct RulesBody {
    /// The zone of whoever has none of their own. Required with quiet hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// What holds for somebody who said nothing, in categories that do not say it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<ChoiceBody>,
    /// Local times in which people are left alone: from, up to (not including) to; `days` are those on which it begins.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub quiet_hours: Vec<Value>,
}

impl CategoryRequest {
    fn checked(self) -> ApiResult<Category> {
        if self.titles.len() > TITLES_MAX {
            let allowed = format!("at most {TITLES_MAX} languages");
            return Err(Problem::field("titles", self.titles.len().to_string(), allowed));
        }
        let mut titles = BTreeMap::new();
        for (language, title) in self.titles {
            let field = format!("titles.{}", shortened(&language));
            let is_fit = (1..=TITLE_BYTES_MAX).contains(&title.len());
            if !is_fit || title.chars().any(char::is_control) {
                let allowed = format!("1 to {TITLE_BYTES_MAX} bytes without control characters");
                return Err(Problem::field(field, format!("{} bytes", title.len()), allowed));
            }
            titles.insert(locale(&field, language)?, title.into());
        }
        let purpose = match self.purpose.as_deref() {
            None | Some("transactional") => Purpose::Transactional,
            Some("marketing") => Purpose::Marketing,
            Some(other) => {
                let allowed = "\"transactional\" or \"marketing\"";
                return Err(Problem::field("purpose", quoted(other), allowed));
            }
        };
        Ok(Category {
            titles,
            purpose,
            default: self.default.map(Into::into),
            mandatory: self.mandatory,
        })
    }
}

impl CategoryBody {
    fn new(name: &str, category: &Category) -> Self {
        let purpose = match category.purpose {
            Purpose::Transactional => "transactional",
            Purpose::Marketing => "marketing",
        };
        let titles = category.titles.iter();
        Self {
            name: name.to_owned(),
            category: CategoryRequest {
                titles: titles.map(|(of, title)| (of.to_string(), title.to_string())).collect(),
                purpose: Some(purpose.to_owned()),
                default: category.default.map(Into::into),
                mandatory: category.mandatory,
            },
        }
    }
}

impl From<&AudienceRules> for RulesBody {
    fn from(rules: &AudienceRules) -> Self {
        let quiet = |each: &QuietInterval| serde_json::to_value(each).unwrap_or_default();
        Self {
            zone: rules.zone.as_ref().map(|zone| zone.name().to_owned()),
            default: rules.default.map(Into::into),
            quiet_hours: rules.quiet_hours.iter().map(quiet).collect(),
        }
    }
}

/// The categories of the tenant.
#[utoipa::path(get, path = "/v1/categories", tag = "audience", responses((status = 200, body = CategoryList)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> ApiResult<Json<CategoryList>> {
    let rules = app.audience.rules(&access.tenant()?);
    let all = rules.categories.iter();
    let categories = all.map(|(name, category)| CategoryBody::new(name, category)).collect();
    Ok(Json(CategoryList { categories }))
}

/// One category.
#[utoipa::path(get, path = "/v1/categories/{name}", tag = "audience", params(("name" = String, Path)),
    responses((status = 200, body = CategoryBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(name): Path<String>,
) -> ApiResult<Json<CategoryBody>> {
    let rules = app.audience.rules(&access.tenant()?);
    let found = rules.categories.get(name.as_str());
    let found = found.ok_or_else(|| Problem::not_found("category", shortened(&name)))?;
    Ok(Json(CategoryBody::new(&name, found)))
}

/// Define a category, or replace its definition. It is in force at once, also for messages that wait.
#[utoipa::path(put, path = "/v1/categories/{name}", tag = "audience", params(("name" = String, Path)),
    request_body = CategoryRequest,
    responses((status = 200, body = CategoryBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(name): Path<String>,
    JsonBody(new): JsonBody<CategoryRequest>,
) -> ApiResult<Json<CategoryBody>> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_name) {
        let allowed = "1 to 64 letters, digits, '-', '_' and '.'";
        return Err(Problem::field("name", quoted(&name), allowed));
    }
    let category = new.checked()?;
    let body = CategoryBody::new(&name, &category);
    app.audience
        .change(&access.tenant, |rules| {
            rules.categories.insert(name.as_str().into(), category.clone());
            match rules.categories.len() {
                ..=CATEGORIES_MAX => Ok(()),
                many => {
                    let allowed = format!("at most {CATEGORIES_MAX} categories of a tenant");
                    Err(Problem::field("name", many.to_string(), allowed))
                }
            }
        })
        .await?;
    audit(&access.caller, "category.set", &name, 1);
    Ok(Json(body))
}

/// Delete a category. What people said about it stays, and counts again if it is defined again. Messages that wait
/// count as messages without a category.
#[utoipa::path(delete, path = "/v1/categories/{name}", tag = "audience", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn unset(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    let change = |rules: &mut AudienceRules| {
        let removed = rules.categories.remove(name.as_str());
        removed.map(drop).ok_or_else(|| Problem::not_found("category", shortened(&name)))
    };
    app.audience.change(&access.tenant, change).await?;
    audit(&access.caller, "category.delete", &name, 1);
    Ok(StatusCode::NO_CONTENT)
}

/// What holds for everybody whom the tenant reaches.
#[utoipa::path(get, path = "/v1/audience", tag = "audience", responses((status = 200, body = RulesBody)))]
pub(crate) async fn rules(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> ApiResult<Json<RulesBody>> {
    Ok(Json(RulesBody::from(&*app.audience.rules(&access.tenant()?))))
}

/// Set the zone, the quiet hours and the default of the tenant.
#[utoipa::path(put, path = "/v1/audience", tag = "audience", request_body = RulesBody,
    responses((status = 200, body = RulesBody), (status = "4XX", body = Problem)))]
pub(crate) async fn set_rules(
    State(app): State<SharedState>,
    access: ManageAccess,
    JsonBody(new): JsonBody<RulesBody>,
) -> ApiResult<Json<RulesBody>> {
    let zone = new.zone.map(|name| zone("zone", &name)).transpose()?;
    let quiet_hours = quiet_hours(new.quiet_hours)?;
    if zone.is_none() && !quiet_hours.is_empty() {
        let allowed = "a zone, because not everybody has one: an unknown zone would mean that nothing is sent";
        return Err(Problem::field("zone", "nothing", allowed));
    }
    let default = new.default.map(Into::into);
    let rules = app.audience.change(&access.tenant, |rules| {
        rules.zone.clone_from(&zone);
        rules.quiet_hours.clone_from(&quiet_hours);
        rules.default = default;
        Ok::<_, Problem>(RulesBody::from(&*rules))
    });
    let body = rules.await?;
    audit(&access.caller, "audience.set", &access.tenant, 1);
    Ok(Json(body))
}
