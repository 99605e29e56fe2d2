//! An entry of the audit log, and how it is chained to the one before.

use aws_lc_rs::digest;
use postrider_core::ports::store::AuditRecord;
use postrider_core::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The hash before the first entry.
pub(crate) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What happened, before it has its place in the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NewAuditEntry {
    pub(crate) at: Timestamp,
    /// The id of the acting key.
    pub(crate) key: Option<String>,
    /// The tenant acted upon; absent for the whole server.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) address: Option<String>,
    pub(crate) action: String,
    pub(crate) subject: Option<String>,
    pub(crate) filter: Option<Value>,
    pub(crate) count: u64,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) outcome: String,
}

/// Who did what, and with what outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Entries are numbered without a gap.
    pub number: u64,
    /// A random name.
    pub id: String,
    /// RFC 3339 in UTC.
    pub at: String,
    /// The id of the acting key; absent if it is not known or the server acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The tenant acted upon; absent for what concerns the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The IP address of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Such as `key.create`; the method and the path for a refused or failed call.
    pub action: String,
    /// What was acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Which things were chosen, where a filter did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Value>,
    /// How many things were acted upon, or how many calls were refused.
    pub count: u64,
    /// A setting before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// A setting after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
    /// `done`, or `refused` or `failed` with the status of the answer.
    pub outcome: String,
    /// The hash of the entry before.
    pub previous: String,
}

/// An entry as it is stored and exported: its exact text, and the SHA-256 of that.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChainedEntry {
    pub(crate) hash: String,
    pub(crate) entry: Box<RawValue>,
}

impl ChainedEntry {
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(crate) fn read(&self) -> Result<AuditEntry, serde_json::Error> {
        serde_json::from_str(self.entry.get())
    }
}

impl NewAuditEntry {
    /// The record behind the entry with this number and hash, and its own hash.
    pub(crate) fn chained(
        &self,
        number: u64,
        previous: &str,
        id: &str,
    ) -> Result<(AuditRecord, String), serde_json::Error> {
        let entry = AuditEntry {
            number,
            id: id.to_owned(),
            at: self.at.to_string(),
            key: self.key.clone(),
            tenant: self.tenant.as_ref().map(|tenant| tenant.to_string()),
            address: self.address.clone(),
            action: self.action.clone(),
            subject: self.subject.clone().filter(|subject| !subject.is_empty()),
            filter: self.filter.clone(),
            count: self.count,
            before: self.before.clone(),
            after: self.after.clone(),
            outcome: self.outcome.clone(),
            previous: previous.to_owned(),
        };
        let entry = serde_json::value::to_raw_value(&entry)?;
        let hash = hash_of(entry.get());
        let text = serde_json::to_string(&ChainedEntry { hash: hash.clone(), entry })?;
        Ok((AuditRecord { number, at: self.at, tenant: self.tenant.clone(), text }, hash))
    }
}

/// The SHA-256 of an entry's text, in hexadecimal.
pub(crate) fn hash_of(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
