//! The whole question: may this be sent to this person at this address now, later or not at all?

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::category::{Category, Choice};
use super::quiet_hours::{OnQuiet, QuietInterval, ZoneName, quiet_until, release_at};
use super::resolution::{ConsentGrounds, ConsentQuestion, WithheldReason, resolve};
use super::suppression::Suppression;
use crate::model::channel::ChannelKind;
use crate::model::recipient::{AddressFacts, RecipientProfile};
use crate::model::time::Timestamp;
use crate::policy::ttl;

/// What a tenant says about its audience.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AudienceRules {
    /// The zone of whoever has none of their own. Required with quiet hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneName>,
    /// What holds for somebody who said nothing, in categories that do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Choice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quiet_hours: Vec<QuietInterval>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Box<str>, Category>,
    /// There are recipients, suppressions or facts of addresses: without any, nothing is looked up.
    #[serde(default)]
    pub has_recipients: bool,
    #[serde(default)]
    pub has_suppressions: bool,
    #[serde(default)]
    pub has_address_facts: bool,
}

/// What is known of a person and of one of their addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownPerson<'a> {
    pub suppression: Option<&'a Suppression>,
    pub profile: Option<&'a RecipientProfile>,
    pub facts: Option<&'a AddressFacts>,
}

/// A message to one address.
#[derive(Debug, Clone, Copy)]
pub struct IntendedSend<'a> {
    pub category: Option<&'a str>,
    pub channel: ChannelKind,
    pub on_quiet: OnQuiet,
    pub expires_at: Timestamp,
    pub now: Timestamp,
    /// From 0 up to 1: which part of the spread at the end of quiet hours is its own.
    pub random: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendVerdict {
    Send(ConsentGrounds),
    /// It is not sent.
    Withhold(WithheldReason),
    /// It is sent later: quiet hours end before.
    Wait {
        until: Timestamp,
    },
    /// Quiet hours last until it is too late.
    Expire,
}

/// Whether and when a message may be sent. A category that is not defined any more counts as none.
pub fn assess(
    rules: &AudienceRules,
    person: KnownPerson<'_>,
    send: IntendedSend<'_>,
) -> SendVerdict {
    let category = send.category.and_then(|name| Some((name, rules.categories.get(name)?)));
    let IntendedSend { channel, now, .. } = send;
    let question = ConsentQuestion { category, tenant_default: rules.default, channel, now };
    let preferences = person.profile.map(|profile| &profile.preferences);
    let grounds = match resolve(question, person.suppression, preferences) {
        Ok(grounds) => grounds,
        Err(reason) => return SendVerdict::Withhold(reason),
    };
    quiet_verdict(rules, person, send).unwrap_or(SendVerdict::Send(grounds))
}

/// What quiet hours make of a message; `None` if nothing.
fn quiet_verdict(
    rules: &AudienceRules,
    person: KnownPerson<'_>,
    send: IntendedSend<'_>,
) -> Option<SendVerdict> {
    if send.on_quiet == OnQuiet::Ignore {
        return None;
    }
    let own = person.profile.and_then(|profile| profile.quiet_hours.as_deref());
    let intervals = own.unwrap_or(&rules.quiet_hours);
    if intervals.is_empty() {
        return None;
    }
    let of_address = person.facts.and_then(|facts| facts.zone.as_ref());
    let of_recipient = person.profile.and_then(|profile| profile.zone.as_ref());
    let Some(zone) = of_address.or(of_recipient).or(rules.zone.as_ref()) else {
        // What time it is for them is not known, so that it may be night.
        return Some(SendVerdict::Withhold(WithheldReason::UnknownZone));
    };
    let end = quiet_until(intervals, zone, send.now)?;
    Some(match send.on_quiet {
        OnQuiet::Drop => SendVerdict::Withhold(WithheldReason::QuietHours),
        _ if ttl::is_over(send.expires_at, end) => SendVerdict::Expire,
        _ => {
            // The spread must not let it expire.
            let last = Timestamp(send.expires_at.0.saturating_sub(1_000)).max(end);
            SendVerdict::Wait { until: release_at(end, send.random).min(last) }
        }
    })
}
