//! Bodies of recipients and preferences, and the bounds of what they may hold.

use std::collections::BTreeMap;

use postrider_channels::registry;
use postrider_core::model::recipient::RecipientProfile;
use postrider_core::policy::audience::{
    CategoryPreference, Choice, Preferences, QUIET_INTERVALS_MAX, QuietInterval, ZoneName,
};
use postrider_core::{ChannelKind, Timestamp};

use crate::api::parameters;
use crate::api::prelude::*;
use crate::api::views::AddressBody;

const NAME_MAX: usize = 256;
/// Bytes of the attributes of a recipient, as JSON.
const ATTRIBUTES_BYTES_MAX: usize = 8 * 1024;
pub(super) const ALIASES_MAX: usize = 16;
/// Choices of one person.
const CHOICES_MAX: usize = 500;

/// `yes` or `no`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChoiceBody {
    Yes,
    No,
}

impl From<ChoiceBody> for Choice {
    fn from(body: ChoiceBody) -> Self {
        match body {
            ChoiceBody::Yes => Self::Yes,
            ChoiceBody::No => Self::No,
        }
    }
}

impl From<Choice> for ChoiceBody {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Yes => Self::Yes,
            Choice::No => Self::No,
        }
    }
}

/// What a person said. Any `no` that covers a message wins over every `yes`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Preferences, example = json!({"categories": {"news": {"choice": "no"}}, "channels": {"sms": "no"}}))]
pub(crate) struct PreferencesBody {
    /// For everything that is not mandatory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<ChoiceBody>,
    /// By channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChoiceBody>,
    /// By category.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, CategoryPreferenceBody>,
    /// Nothing that is not mandatory before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub snooze_until: Option<String>,
}

/// What a person said about a category.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CategoryPreference)]
pub(crate) struct CategoryPreferenceBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceBody>,
    /// By channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChoiceBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub snooze_until: Option<String>,
}

fn times(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn choices(of: BTreeMap<ChannelKind, Choice>) -> BTreeMap<String, ChoiceBody> {
    of.into_iter().map(|(kind, choice)| (kind.to_string(), choice.into())).collect()
}

impl From<Preferences> for PreferencesBody {
    fn from(said: Preferences) -> Self {
        let category = |own: CategoryPreference| CategoryPreferenceBody {
            choice: own.choice.map(Into::into),
            channels: choices(own.channels),
            snooze_until: times(own.snooze_until),
        };
        let categories = said.categories.into_iter();
        Self {
            all: said.all.map(Into::into),
            channels: choices(said.channels),
            categories: categories.map(|(name, own)| (name.into(), category(own))).collect(),
            snooze_until: times(said.snooze_until),
        }
    }
}

impl PreferencesBody {
    /// Checked against the channels and the categories that exist.
    pub(super) fn checked(self, known: impl Fn(&str) -> bool) -> ApiResult<Preferences> {
        let mut categories = BTreeMap::new();
        for (name, own) in self.categories {
            let field = format!("categories.{}", shortened(&name));
            if !known(&name) {
                let allowed = "a category of the tenant; see GET /v1/categories";
                return Err(Problem::field(field, "an unknown category", allowed));
            }
            let snooze_until =
                parameters::time(&format!("{field}.snooze_until"), own.snooze_until)?;
            let own = CategoryPreference {
                choice: own.choice.map(Into::into),
                channels: channels(&format!("{field}.channels"), own.channels)?,
                snooze_until,
            };
            categories.insert(name.into(), own);
        }
        let said = Preferences {
            all: self.all.map(Into::into),
            channels: channels("channels", self.channels)?,
            categories,
            snooze_until: parameters::time("snooze_until", self.snooze_until)?,
        };
        match said.size() {
            ..=CHOICES_MAX => Ok(said),
            many => {
                let allowed = format!("at most {CHOICES_MAX} choices");
                Err(Problem::field("categories", format!("{many} choices"), allowed))
            }
        }
    }
}

fn channels(
    field: &str,
    said: BTreeMap<String, ChoiceBody>,
) -> ApiResult<BTreeMap<ChannelKind, Choice>> {
    let all = registry::kinds();
    let one = |(name, choice): (String, ChoiceBody)| {
        let kind = all.iter().copied().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| {
            let names: Vec<_> = all.iter().map(ChannelKind::name).collect();
            Problem::field(field, quoted(&name), format!("channels: {}", names.join(", ")))
        })?;
        Ok((kind, choice.into()))
    };
    said.into_iter().map(one).collect()
}

/// A recipient as it is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRecipient, example = json!({
    "zone": "Europe/Berlin", "locale": "de", "attributes": {"plan": "pro"}, "aliases": ["anon-7f3a"],
    "quiet_hours": [{"from": "22:00", "to": "07:00"}]
}))]
pub(crate) struct RecipientRequest {
    /// A time zone of the IANA database, such as `Europe/Berlin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Such as `de-AT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// What else you know: at most 8 KiB of JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub attributes: Map<String, Value>,
    /// Their own; those of the tenant if absent, and none at all if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub quiet_hours: Option<Vec<Value>>,
    /// Other ids that stand for this recipient, at most 16. A recipient of that id is merged into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl RecipientRequest {
    pub(super) fn of(profile: &RecipientProfile) -> Self {
        let quiet = |each: &QuietInterval| serde_json::to_value(each).unwrap_or_default();
        Self {
            zone: profile.zone.as_ref().map(|zone| zone.name().to_owned()),
            locale: profile.locale.as_deref().map(str::to_owned),
            attributes: profile.attributes.clone(),
            quiet_hours: profile.quiet_hours.as_ref().map(|all| all.iter().map(quiet).collect()),
            aliases: profile.aliases.iter().map(|alias| alias.to_string()).collect(),
        }
    }

    /// Everything but preferences and times.
    pub(super) fn checked(self, id: &str) -> ApiResult<RecipientProfile> {
        let mut aliases: Vec<Box<str>> = Vec::new();
        for alias in self.aliases {
            check_id("aliases", &alias)?;
            if alias != id && !aliases.iter().any(|known| **known == *alias) {
                aliases.push(alias.into());
            }
        }
        if aliases.len() > ALIASES_MAX {
            let allowed = format!("at most {ALIASES_MAX}");
            return Err(Problem::field("aliases", format!("{} ids", aliases.len()), allowed));
        }
        let bytes = serde_json::to_string(&self.attributes).map_or(usize::MAX, |text| text.len());
        if bytes > ATTRIBUTES_BYTES_MAX {
            let allowed = format!("at most {ATTRIBUTES_BYTES_MAX} bytes of JSON");
            return Err(Problem::field("attributes", format!("{bytes} bytes"), allowed));
        }
        Ok(RecipientProfile {
            zone: self.zone.map(|name| zone("zone", &name)).transpose()?,
            locale: self.locale.map(|name| locale("locale", name)).transpose()?,
            quiet_hours: self.quiet_hours.map(quiet_hours).transpose()?,
            aliases,
            attributes: self.attributes,
            ..RecipientProfile::default()
        })
    }
}

/// A recipient. Its addresses are listed where one recipient is asked for.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Recipient)]
pub(crate) struct RecipientBody {
    pub id: String,
    #[serde(flatten)]
    pub profile: RecipientRequest,
    pub preferences: PreferencesBody,
    pub created_at: Time,
    pub updated_at: Time,
    /// The first hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<AddressBody>>,
}

impl RecipientBody {
    pub(super) fn new(id: &str, profile: RecipientProfile) -> Self {
        Self {
            id: id.to_owned(),
            profile: RecipientRequest::of(&profile),
            preferences: profile.preferences.into(),
            created_at: profile.created_at.into(),
            updated_at: profile.updated_at.into(),
            addresses: None,
        }
    }
}

pub(super) fn check_id(field: &str, id: &str) -> ApiResult<()> {
    if (1..=NAME_MAX).contains(&id.len()) && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let found = format!("{} bytes: {}", id.len(), quoted(id));
    Err(Problem::field(field, found, "1 to 256 bytes without control characters"))
}

pub(super) fn zone(field: &str, name: &str) -> ApiResult<ZoneName> {
    let allowed = "a time zone of the IANA database, such as \"Europe/Berlin\"";
    ZoneName::parse(name).ok_or_else(|| Problem::field(field, quoted(name), allowed))
}

pub(super) fn locale(field: &str, name: String) -> ApiResult<Box<str>> {
    let is_part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if name.len() <= 35 && name.split('-').all(is_part) {
        return Ok(name.into());
    }
    Err(Problem::field(field, quoted(&name), "a language tag such as \"de\" or \"pt-BR\""))
}

pub(super) fn quiet_hours(written: Vec<Value>) -> ApiResult<Vec<QuietInterval>> {
    if written.len() > QUIET_INTERVALS_MAX {
        let allowed = format!("at most {QUIET_INTERVALS_MAX} intervals");
        return Err(Problem::field("quiet_hours", written.len().to_string(), allowed));
    }
    let one = |(n, value): (usize, Value)| {
        postrider_core::model::json_fields::read(&value.to_string(), "days, from, to").map_err(
            |error| {
                let error = error.below(&format!("quiet_hours[{n}]"));
                Problem::field(error.field, error.found, error.allowed)
            },
        )
    };
    written.into_iter().enumerate().map(one).collect()
}
