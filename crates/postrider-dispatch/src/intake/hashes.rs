//! Hashes of endpoints, and their keys: the newest one for what is new, older ones for what is known by them.

use std::sync::{Arc, PoisonError};

use aws_lc_rs::hmac;
use postrider_core::ports::store::StoreResult;
use postrider_core::{AddressHash, AddressId, TenantId};

use super::MessageIntake;

impl MessageIntake {
    /// From now on, endpoints are hashed with the first of these keys; the others are for what is known already.
    pub fn use_hash_keys(&self, keys: &[Vec<u8>]) {
        *self.hash_keys.write().unwrap_or_else(PoisonError::into_inner) = hmac_keys(keys);
    }

    /// The hash of an endpoint: with the newest key, unless it is known by one of an older key.
    pub(super) async fn hash(&self, tenant: &TenantId, locator: &str) -> StoreResult<AddressHash> {
        let keys = self.hash_keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((first, older)) = keys.split_first() else { return Ok(AddressHash([0; 16])) };
        let newest = hash_with(first, locator);
        if older.is_empty() {
            return Ok(newest);
        }
        let hashes = self.hashes(locator);
        if let Some(known) = self.store.known_hash(tenant, &hashes).await? {
            return Ok(known);
        }
        Ok(self.policies.audience().suppressed_hash(tenant, &hashes).await?.unwrap_or(newest))
    }

    /// With every key, the newest first.
    fn hashes(&self, locator: &str) -> Vec<AddressHash> {
        let keys = self.hash_keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        keys.iter().map(|key| hash_with(key, locator)).collect()
    }

    /// Gives the addresses of a tenant hashes with the newest key: those behind the cursor, at most so many. Answers
    /// how many had another one, and where to go on.
    pub async fn rehash(
        &self,
        tenant: &TenantId,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<(u64, Option<AddressId>)> {
        let page = self.store.addresses(tenant, None, cursor, limit).await?;
        let mut changed = 0;
        for address in page.items {
            let Some(target) = &address.target else { continue };
            let Some(channel) = self.channel(target.channel()) else { continue };
            let newest = self.hashes(&channel.locator(target)).first().copied();
            let Some(newest) = newest.filter(|newest| *newest != address.hash) else { continue };
            // What is known of it is there before its new hash is.
            let book = self.policies.audience();
            book.copy_facts(tenant, address.hash, newest).await?;
            let done = self.store.rehash_address(tenant, address.id, newest).await?;
            if done {
                book.forget_facts(tenant, address.hash).await?;
            }
            changed += u64::from(done);
        }
        Ok((changed, page.next))
    }
}

pub(super) fn hmac_keys(keys: &[Vec<u8>]) -> Arc<[hmac::Key]> {
    keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key)).collect()
}

fn hash_with(key: &hmac::Key, locator: &str) -> AddressHash {
    let tag = hmac::sign(key, locator.as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&tag.as_ref()[..16]);
    AddressHash(hash)
}
