//! Keeps signed VAPID tokens by key and origin, in shards with a lock each. Never signs.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::KeyId;

use super::vapid::VapidToken;

/// As many tokens as this are kept in any case.
const TOKENS_MIN: usize = 65_536;
const SHARDS: usize = 64;
/// A quarter more than its part of the minimum, because shards fill unevenly.
const SHARD_MAX: usize = TOKENS_MIN / SHARDS * 5 / 4;
/// Tokens that a full shard forgets at once, so that it is not searched for every new token.
const FORGOTTEN: usize = SHARD_MAX / 16;

/// A bounded cache. A full shard forgets its least recently used tokens.
pub(super) struct VapidTokenCache {
    hasher: RandomState,
    shards: Box<[Mutex<VapidTokenShard>]>,
}

#[derive(Default)]
struct VapidTokenShard {
    /// By the hash of key and origin. Of two with the same hash, the later one is kept.
    tokens: HashMap<u64, CachedVapidToken>,
    uses: u64,
}

struct CachedVapidToken {
    key: KeyId,
    origin: Box<str>,
    token: Arc<VapidToken>,
    last_use: u64,
}

impl VapidTokenCache {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    pub(super) fn find(&self, key: KeyId, origin: &str) -> Option<Arc<VapidToken>> {
        let hash = self.hasher.hash_one((key, origin));
        self.shard(hash).find(hash, key, origin)
    }

    /// Stores what `choose` makes of the present token, and returns it. Holds the shard's lock meanwhile.
    pub(super) fn replace(
        &self,
        key: KeyId,
        origin: &str,
        choose: impl FnOnce(Option<Arc<VapidToken>>) -> Arc<VapidToken>,
    ) -> Arc<VapidToken> {
        let hash = self.hasher.hash_one((key, origin));
        let mut shard = self.shard(hash);
        let token = choose(shard.find(hash, key, origin));
        shard.insert(hash, key, origin, token.clone());
        token
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, VapidTokenShard> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VapidTokenShard {
    fn find(&mut self, hash: u64, key: KeyId, origin: &str) -> Option<Arc<VapidToken>> {
        let found = self.tokens.get_mut(&hash)?;
        if found.key != key || *found.origin != *origin {
            return None;
        }
        self.uses += 1;
        found.last_use = self.uses;
        Some(found.token.clone())
    }

    fn insert(&mut self, hash: u64, key: KeyId, origin: &str, token: Arc<VapidToken>) {
        self.uses += 1;
        let last_use = self.uses;
        let cached = CachedVapidToken { key, origin: origin.into(), token, last_use };
        self.tokens.insert(hash, cached);
        if self.tokens.len() > SHARD_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.tokens.values().map(|cached| cached.last_use).collect();
        let (_, &mut first_kept, _) = uses.select_nth_unstable(FORGOTTEN);
        self.tokens.retain(|_, cached| cached.last_use >= first_kept);
    }
}

#[cfg(test)]
impl VapidTokenCache {
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().tokens.len()).sum()
    }

    pub(super) fn is_locked(&self) -> bool {
        self.shards.iter().any(|shard| shard.try_lock().is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{VapidKey, VapidSubject};
    use super::super::vapid::VapidTokens;
    use super::*;
    use crate::pool::Origin;
    use postrider_core::Timestamp;

    const ORIGIN: &str = "https://push.example";

    fn token() -> Arc<VapidToken> {
        let tokens = VapidTokens::new(VapidSubject::parse("mailto:ops@example.com").unwrap());
        let key = VapidKey::generate(KeyId(1)).unwrap();
        tokens.get(&key, &Origin::parse(ORIGIN).unwrap(), Timestamp(0), false).unwrap()
    }

    #[test]
    fn the_tokens_of_65_536_keys_are_all_kept() {
        let (cache, token) = (VapidTokenCache::new(), token());
        for n in 0..TOKENS_MIN {
            cache.replace(KeyId(n as u128), ORIGIN, |_| token.clone());
        }
        assert_eq!(cache.len(), TOKENS_MIN);
        assert!((0..TOKENS_MIN).all(|n| cache.find(KeyId(n as u128), ORIGIN).is_some()));
    }

    #[test]
    fn a_full_cache_forgets_what_was_not_used_for_longest() {
        let (cache, token) = (VapidTokenCache::new(), token());
        for n in 0..3 * TOKENS_MIN {
            cache.replace(KeyId(n as u128), ORIGIN, |_| token.clone());
            assert!(cache.find(KeyId(0), ORIGIN).is_some(), "a token in use was forgotten");
        }
        assert!((TOKENS_MIN..=SHARDS * SHARD_MAX).contains(&cache.len()), "{}", cache.len());
        assert!(cache.find(KeyId(1), ORIGIN).is_none());
    }
}
