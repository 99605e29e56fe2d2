//! An attempt of a message that the store has no room for, such as a message about the store itself. Makes the attempt;
//! does not send it and keeps nothing.

use std::time::Duration;

use aws_lc_rs::rand;
use postrider_core::model::id::{from_order_key, order_key_at};
use postrider_core::model::message::Message;
use postrider_core::ports::channel::Attempt;
use postrider_core::{DeliveryId, MessageId, TenantId};

use super::refusal::IntakeRefusal;
use super::{MessageIntake, Submission};

impl MessageIntake {
    /// The only attempt of a message to its first address. It is over after `within`.
    pub async fn unstored_attempt(
        &self,
        tenant: &TenantId,
        submission: &Submission,
        within: Duration,
    ) -> Result<Attempt, IntakeRefusal> {
        let policy = self.policies.now();
        let new = self.prepare(&policy, tenant, submission).await;
        let new = new.map_err(|refused| refused.refusal)?;
        let Some(delivery) = new.deliveries.into_iter().next() else {
            return Err(IntakeRefusal::field("to", "nobody", "one address"));
        };
        let now = self.clock.wall();
        let mut tail = [0; 8];
        // Without randomness, the id is that of the time.
        let _ = rand::fill(&mut tail);
        let id = from_order_key(order_key_at(now), u64::from_ne_bytes(tail));
        let message = Message {
            id: MessageId(id),
            tenant: tenant.clone(),
            class: new.class.clone(),
            created_at: now,
            expires_at: now + within,
            ttl_s: new.ttl_s,
            envelope: new.envelope,
            content: new.content,
        };
        Ok(Attempt {
            delivery: DeliveryId(id),
            message: message.into(),
            class: policy.class_or_default(&new.class).clone(),
            target: delivery.target,
            number: 1,
            now,
            expires_at: now + within,
            is_one_shot: true,
            address_since: None,
            resign: false,
            replays: 0,
            account: None,
            span: None,
            slot: 0,
        })
    }
}
