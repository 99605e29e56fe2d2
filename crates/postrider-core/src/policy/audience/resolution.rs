//! The order in which it is decided whether a message may be sent: suppression, mandatory, the person's own words,
//! defaults.

use serde::{Deserialize, Serialize};

use super::category::{Category, Choice};
use super::preferences::Preferences;
use super::suppression::Suppression;
use crate::model::channel::ChannelKind;
use crate::model::delivery::names;
use crate::model::time::Timestamp;

names! {
    /// Why a message is not sent to an address, or not now.
    WithheldReason {
        Undeliverable = "undeliverable",
        Complaint = "complaint",
        Unsubscribed = "unsubscribed",
        Snoozed = "snoozed",
        OptedOut = "opted_out",
        NotOptedIn = "not_opted_in",
        QuietHours = "quiet_hours",
        UnknownZone = "unknown_zone",
    }
}

/// Why a message may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentGrounds {
    /// Its category is mandatory.
    Mandatory,
    /// The person said yes.
    SaidYes,
    /// The person said nothing, and the default is yes.
    ByDefault,
    /// It has no category, and the person did not say no to everything.
    NoCategory,
}

impl ConsentGrounds {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mandatory => "mandatory",
            Self::SaidYes => "said_yes",
            Self::ByDefault => "default",
            Self::NoCategory => "no_category",
        }
    }
}

/// What is to be sent: its category, if it has one, and the channel.
#[derive(Debug, Clone, Copy)]
pub struct ConsentQuestion<'a> {
    pub category: Option<(&'a str, &'a Category)>,
    /// The tenant's default for categories that name none.
    pub tenant_default: Option<Choice>,
    pub channel: ChannelKind,
    pub now: Timestamp,
}

/// Whether it may be sent, by what is known of the address and of its owner.
pub fn resolve(
    question: ConsentQuestion<'_>,
    suppression: Option<&Suppression>,
    preferences: Option<&Preferences>,
) -> Result<ConsentGrounds, WithheldReason> {
    let name = question.category.map(|(name, _)| name);
    let is_mandatory = question.category.is_some_and(|(_, category)| category.mandatory);
    if let Some(reason) = suppression.and_then(|known| known.covers(name, is_mandatory)) {
        return Err(reason);
    }
    if is_mandatory {
        return Ok(ConsentGrounds::Mandatory);
    }
    if preferences.is_some_and(|said| said.is_snoozed(name, question.now)) {
        return Err(WithheldReason::Snoozed);
    }
    match preferences.and_then(|said| said.choice(name, question.channel)) {
        Some(Choice::No) => return Err(WithheldReason::OptedOut),
        Some(Choice::Yes) => return Ok(ConsentGrounds::SaidYes),
        None => {}
    }
    let Some((_, category)) = question.category else { return Ok(ConsentGrounds::NoCategory) };
    match category.default_choice(question.tenant_default) {
        Choice::Yes => Ok(ConsentGrounds::ByDefault),
        Choice::No => Err(WithheldReason::NotOptedIn),
    }
}
