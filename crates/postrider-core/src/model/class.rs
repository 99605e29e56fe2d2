//! A class: a named bundle of TTL, priority, urgency, retry policy and what to do in doubt.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::message::Priority;
use crate::policy::audience::OnQuiet;
use crate::policy::backoff::RetryPolicy;

/// RFC 8030 urgency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Urgency {
    VeryLow,
    Low,
    #[default]
    Normal,
    High,
}

impl Urgency {
    pub fn name(self) -> &'static str {
        match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// What becomes of a delivery whose request left but was never answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnAmbiguous {
    /// Send again with the same idempotency key.
    #[default]
    Resend,
    /// Give it to a person: a dead letter with reason `ambiguous`.
    Park,
    /// Leave it at that: state `suppressed`, because what is held back is the duplicate. Claims
    /// neither that it was sent nor that it failed, and asks nobody to act.
    Drop,
}

/// What becomes of a due delivery while the breaker of its provider or credential is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenOpen {
    /// It waits in its lane.
    #[default]
    Wait,
    /// A dead letter with reason `refused`, at once.
    Reject,
    /// It goes to the next of its message's alternative addresses; waits if there is none.
    FallBack,
}

/// What becomes of a delivery that was tried and whose next retry would come too late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// A dead letter with reason `ttl`.
    #[default]
    DeadLetter,
    /// State `expired`, nothing more.
    Expire,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Class {
    #[serde(skip)]
    pub name: Arc<str>,
    pub ttl_s: u32,
    pub priority: Priority,
    pub urgency: Urgency,
    pub retry: RetryPolicy,
    pub on_ambiguous: OnAmbiguous,
    pub on_expiry: OnExpiry,
    pub when_open: WhenOpen,
    /// Retry refusals (400, 401, 403, 404, 413, 422), too, where the receiver is no provider.
    pub retry_all: bool,
    /// The category of messages that name none, where their tenant has one of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Arc<str>>,
    /// What becomes of its messages in quiet hours.
    pub quiet_hours: OnQuiet,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            name: "transactional".into(),
            ttl_s: 86_400,
            priority: Priority::Normal,
            urgency: Urgency::Normal,
            retry: RetryPolicy::default(),
            on_ambiguous: OnAmbiguous::default(),
            on_expiry: OnExpiry::default(),
            when_open: WhenOpen::default(),
            retry_all: false,
            category: None,
            quiet_hours: OnQuiet::default(),
        }
    }
}

impl Class {
    /// Whether a duplicate is worse than a loss: then it is durable that an attempt starts before it
    /// does, so that not even a crash leads to a second one unasked.
    pub fn sends_at_most_once(&self) -> bool {
        self.on_ambiguous != OnAmbiguous::Resend
    }

    /// The classes that exist without any configuration.
    pub fn built_in() -> Vec<Self> {
        let class = |name: &str, ttl_s, priority, urgency| Self {
            name: name.into(),
            ttl_s,
            priority,
            urgency,
            ..Self::default()
        };
        let urgent = |class: Self| Self { quiet_hours: OnQuiet::Ignore, ..class };
        vec![
            urgent(class("otp", 300, Priority::High, Urgency::High)),
            class("transactional", 86_400, Priority::Normal, Urgency::Normal),
            urgent(class("alert", 14_400, Priority::High, Urgency::High)),
            class("marketing", 172_800, Priority::Low, Urgency::Low),
        ]
    }
}
