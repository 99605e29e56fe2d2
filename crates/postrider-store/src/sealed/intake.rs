//! The way in: bodies, addresses and recipients are sealed before the store inside sees them.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;

use super::SealedStore;
use super::cipher::FieldKind;

impl SealedStore {
    async fn seal_message(&self, mut new: NewMessage) -> StoreResult<NewMessage> {
        let tenant = new.tenant.clone();
        new.content = self.keys.seal(&tenant, FieldKind::Content, &new.content).await?.into();
        for delivery in &mut new.deliveries {
            delivery.target = Arc::new(self.keys.seal_target(&tenant, &delivery.target).await?);
            delivery.recipient =
                self.keys.seal_recipient(&tenant, delivery.recipient.as_ref()).await?;
            for other in &mut delivery.alternatives {
                other.target = Arc::new(self.keys.seal_target(&tenant, &other.target).await?);
            }
        }
        Ok(new)
    }
}

#[async_trait]
impl Intake for SealedStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let count = messages.len();
        let mut sealed = Vec::with_capacity(count);
        for message in messages {
            match self.seal_message(message).await {
                Ok(message) => sealed.push(message),
                Err(error) => return (0..count).map(|_| Err(error.clone())).collect(),
            }
        }
        self.inner.accept(sealed).await
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        self.inner.repeats(keys).await
    }

    fn takes_work(&self) -> StoreResult<()> {
        self.inner.takes_work()
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.inner.load(tenant)
    }
}
