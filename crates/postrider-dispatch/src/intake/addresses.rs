//! One address of a message, and where it may go instead: read, looked up and checked.

use postrider_core::model::class::WhenOpen;
use postrider_core::ports::store::{Alternative, NewDelivery};
use postrider_core::{AddressId, Class, Target, TenantId};

use super::request::{AddressRef, shorten};
use super::{IntakeRefusal, MessageIntake, below};

impl MessageIntake {
    /// A delivery to one address; `field` is what errors call it.
    pub(super) async fn delivery_to(
        &self,
        tenant: &TenantId,
        address: &AddressRef<'_>,
        class: &Class,
        field: &str,
    ) -> Result<NewDelivery, IntakeRefusal> {
        let text = match address {
            AddressRef::Inline(json) => {
                let address = self
                    .address(tenant, json)
                    .map_err(|errors| IntakeRefusal::invalid(below(field, errors)))?;
                return Ok(self.inline(tenant, address, class).await?);
            }
            AddressRef::Registered(text) => text,
        };
        let allowed = "the id of a registered address, adr_…";
        // What is no id may be an address, which is not repeated.
        let found =
            if text.starts_with("adr_") { shorten(text) } else { "another text".to_owned() };
        let unknown = || IntakeRefusal::field(field, found.clone(), allowed);
        let id: AddressId = text.parse().map_err(|_| unknown())?;
        let address = self.store.address(tenant, id).await?.ok_or_else(unknown)?;
        self.registered(address, class).ok_or_else(|| {
            let allowed = "an active address; register the new subscription";
            IntakeRefusal::field(field, format!("{id}, which is gone"), allowed)
        })
    }

    /// Where a delivery may go instead. Refused where its class would never send it there.
    pub(super) async fn alternatives(
        &self,
        tenant: &TenantId,
        fallback: &[AddressRef<'_>],
        class: &Class,
    ) -> Result<Vec<Alternative>, IntakeRefusal> {
        if !fallback.is_empty() && class.when_open != WhenOpen::FallBack {
            let found = format!("the class {:?}, which does not fall back", class.name);
            let allowed = "a class with when_open = \"fall_back\", or no fallback";
            return Err(IntakeRefusal::field("to.fallback", found, allowed));
        }
        let mut alternatives = Vec::with_capacity(fallback.len());
        for (n, address) in fallback.iter().enumerate() {
            let field = format!("to.fallback[{n}]");
            let found = self.delivery_to(tenant, address, class, &field).await?;
            alternatives.push(Alternative {
                lane: found.lane,
                target: found.target,
                hash: found.hash,
                address: found.address,
                address_since: found.address_since,
            });
        }
        Ok(alternatives)
    }
}

/// Where deliveries may go.
pub(super) fn targets(deliveries: &[NewDelivery]) -> impl Iterator<Item = &Target> {
    deliveries.iter().flat_map(|delivery| {
        let others = delivery.alternatives.iter().map(|other| &*other.target);
        std::iter::once(&*delivery.target).chain(others)
    })
}
