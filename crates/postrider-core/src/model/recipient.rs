//! A person whom a tenant reaches, as the tenant knows them, and what is known of one of their addresses.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::time::Timestamp;
use crate::policy::audience::{Preferences, QuietInterval, ZoneName};

/// A recipient, without addresses: those are in the registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecipientProfile {
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Box<str>>,
    /// Their own; those of the tenant if absent. None at all if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<Vec<QuietInterval>>,
    #[serde(default)]
    pub preferences: Preferences,
    /// Other ids that stand for this recipient.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub attributes: Map<String, Value>,
}

/// That somebody agreed to get messages at an address. Holds no network address, also not hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentRecord {
    pub at: Timestamp,
    /// Which version of the wording they saw.
    pub wording: Box<str>,
    /// What they did, such as `ticked_box`.
    pub action: Box<str>,
    /// Where, such as the address of the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Box<str>>,
}

/// What is known about an address besides where it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressFacts {
    /// Wins over that of its recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Box<str>>,
    /// The newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consents: Vec<ConsentRecord>,
}
