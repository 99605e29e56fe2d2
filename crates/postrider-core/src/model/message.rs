//! A message: what a caller hands in once, however many addresses it goes to.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::id::MessageId;
use crate::model::time::Timestamp;
use crate::policy::backoff::RetryPolicy;

/// Whose work it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub Arc<str>);

impl TenantId {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

/// Everything about a message but its content and audience. Small; kept as long as the ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse_key: Option<Box<str>>,
    /// The caller's own key; a channel may forward it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<Box<str>>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Box<str>>,
    /// Which run of the campaign it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign_run: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compliance: Vec<Box<str>>,
    /// A retry policy for this message alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The caller's W3C `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Box<str>>,
}

impl Envelope {
    /// By what a store finds the message: its tags, and a mark for its campaign.
    pub fn marks(&self) -> Vec<Box<str>> {
        let campaign = self.campaign.as_deref().map(campaign_mark);
        self.tags.iter().cloned().chain(campaign).collect()
    }
}

/// No tag has a control character.
pub fn campaign_mark(campaign: &str) -> Box<str> {
    format!("campaign\u{1f}{campaign}").into()
}

/// A message as stored and as every one of its deliveries refers to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: MessageId,
    pub tenant: TenantId,
    pub class: Arc<str>,
    pub created_at: Timestamp,
    /// Fixed at ingestion: nothing is sent at or after it.
    pub expires_at: Timestamp,
    /// The TTL that `expires_at` was made from; 0 means "now or never".
    pub ttl_s: u32,
    pub envelope: Envelope,
    /// The content as JSON text, as validated at the intake ([`crate::model::content::Content`]).
    pub content: Arc<str>,
}
