//! What a message is about, and whom it would not reach as things are. The answer is for the caller: it is asked again
//! just before sending, and that one counts.

use std::sync::Arc;

use postrider_core::policy::audience::{IntendedSend, SendVerdict, WithheldReason};
use postrider_core::policy::ttl;
use postrider_core::ports::store::NewMessage;
use postrider_core::{Class, DeliveryId, TenantId, Timestamp};

use super::request::shorten;
use super::{IntakeRefusal, MessageIntake};
use crate::audience::ReachedPerson;
use crate::policies::Policy;

/// A delivery that would not be sent as things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldMember {
    pub delivery: DeliveryId,
    pub reason: WithheldReason,
}

/// The places of deliveries of one message that would not be sent.
pub(super) type Forecast = Vec<(usize, WithheldReason)>;

impl MessageIntake {
    /// The category of a message: its own, else that of its class where the tenant has it.
    pub(super) fn category(
        &self,
        tenant: &TenantId,
        class: &Class,
        named: Option<&str>,
    ) -> Result<Option<Box<str>>, IntakeRefusal> {
        if named.is_none() && class.category.is_none() {
            return Ok(None);
        }
        let rules = self.policies.audience().rules(tenant);
        let is_known =
            |name: &str| rules.as_ref().is_some_and(|rules| rules.categories.contains_key(name));
        match (named, class.category.as_deref()) {
            (Some(name), _) if is_known(name) => Ok(Some(name.into())),
            (Some(name), _) => {
                let names = rules.iter().flat_map(|rules| rules.categories.keys());
                let names: Vec<_> = names.map(|name| &**name).collect();
                let allowed = match names.is_empty() {
                    true => {
                        "no category: the tenant has none; define it with PUT /v1/categories/NAME"
                            .to_owned()
                    }
                    false => format!("a category of the tenant: {}", names.join(", ")),
                };
                Err(IntakeRefusal::field("category", shorten(name), allowed))
            }
            (None, Some(name)) => Ok(is_known(name).then(|| name.into())),
            (None, None) => Ok(None),
        }
    }

    /// The class of that name and the category of a message of it, as a message would get them.
    pub fn class_and_category(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
        category: Option<&str>,
    ) -> Result<(Arc<Class>, Option<Box<str>>), IntakeRefusal> {
        let class = super::class(&self.policies.now(), name)?;
        let category = self.category(tenant, &class, category)?;
        Ok((class, category))
    }

    /// For each message, who would not get it. Nothing if the tenant has no rules, or the store cannot tell.
    pub(super) async fn forecasts(
        &self,
        tenant: &TenantId,
        policy: &Policy,
        messages: &[NewMessage],
    ) -> Vec<Forecast> {
        let book = self.policies.audience();
        let Some(rules) = book.rules(tenant) else { return Vec::new() };
        let mut forecasts = Vec::with_capacity(messages.len());
        for message in messages {
            let person = |delivery: &postrider_core::ports::store::NewDelivery| ReachedPerson {
                recipient: delivery.recipient.clone(),
                hash: delivery.hash,
            };
            let people: Vec<_> = message.deliveries.iter().map(person).collect();
            let Ok(records) = book.look_up(tenant, &rules, &people).await else {
                return Vec::new();
            };
            let class: &Arc<Class> = policy.class_or_default(&message.class);
            let now = self.clock.now();
            let begins = message.send_at.map_or(now, |at| at.max(now));
            let expires_at =
                ttl::expires_at(now, message.send_at, message.ttl_s, message.now_or_never);
            let found = message.deliveries.iter().zip(&records).enumerate();
            let found = found.filter_map(|(place, (delivery, record))| {
                let send = IntendedSend {
                    category: message.envelope.category.as_deref(),
                    channel: delivery.lane.channel,
                    on_quiet: class.quiet_hours,
                    expires_at,
                    now: Timestamp(begins.0.saturating_add(self.clock.wall_offset_ms())),
                    random: 0.0,
                };
                match record.assess(&rules, send) {
                    SendVerdict::Withhold(reason) => Some((place, reason)),
                    SendVerdict::Expire => Some((place, WithheldReason::QuietHours)),
                    SendVerdict::Send(_) | SendVerdict::Wait { .. } => None,
                }
            });
            forecasts.push(found.collect());
        }
        forecasts
    }
}
