//! The names of keys. All keys of a shard are in one slot of a cluster, by the part in braces.

use postrider_core::{AddressHash, DeliveryId, TenantId};

use crate::sharded::{SHARDS, ShardId};

/// Deliveries are kept by the minute of their acceptance.
pub(super) const MINUTE_MS: i64 = 60_000;
/// Idempotency keys are kept by the half day of their end.
pub(super) const KEYS_MS: i64 = 43_200_000;
/// Receipts are kept by so long.
pub(super) const RECEIPTS_MS: i64 = 300_000;

/// The minute in which a delivery was accepted.
pub(super) fn minute(id: u128) -> i64 {
    DeliveryId(id).created_at().0.div_euclid(MINUTE_MS)
}

pub(super) fn receipt_period(receipt: u128) -> i64 {
    DeliveryId(receipt).created_at().0.div_euclid(RECEIPTS_MS)
}

/// The places of deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RowPlace {
    Queue,
    Dead,
    Ledger,
}

impl RowPlace {
    pub(super) const ALL: [Self; 3] = [Self::Queue, Self::Dead, Self::Ledger];

    fn letter(self) -> char {
        match self {
            Self::Queue => 'q',
            Self::Dead => 'd',
            Self::Ledger => 'l',
        }
    }
}

/// Stands for the keys that no shard has.
pub(super) const COMMON: ShardId = ShardId::MAX;

fn tag(shard: ShardId) -> String {
    if shard == COMMON { "d".to_owned() } else { shard.to_string() }
}

/// Makes the names of keys.
#[derive(Debug, Clone)]
pub(super) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn channel(&self) -> String {
        format!("{}:news", self.prefix)
    }

    /// A key of a shard.
    pub(super) fn of(&self, shard: ShardId, name: &str) -> String {
        format!("{}:{{{}}}:{name}", self.prefix, tag(shard))
    }

    /// A key that no shard has.
    pub(super) fn common(&self, name: &str) -> String {
        self.of(COMMON, name)
    }

    /// The deliveries of a minute.
    pub(super) fn rows(&self, shard: ShardId, place: RowPlace, minute: i64) -> String {
        format!("{}:{{{}}}:{}:{minute}", self.prefix, tag(shard), place.letter())
    }

    /// The minutes that a place has.
    pub(super) fn minutes(&self, shard: ShardId, place: RowPlace) -> String {
        format!("{}:{{{}}}:{}b", self.prefix, tag(shard), place.letter())
    }

    pub(super) fn lane(&self, shard: ShardId, lane: u32) -> String {
        format!("{}:{{{}}}:z:{lane}", self.prefix, tag(shard))
    }

    pub(super) fn keys(&self, shard: ShardId, period: i64) -> String {
        format!("{}:{{{}}}:k:{period}", self.prefix, tag(shard))
    }

    pub(super) fn receipts(&self, shard: ShardId, period: i64) -> String {
        format!("{}:{{{}}}:r:{period}", self.prefix, tag(shard))
    }

    /// A message that several deliveries share.
    pub(super) fn message(&self, shard: ShardId, id: u128) -> String {
        format!("{}:{{{}}}:m:{id:032x}", self.prefix, tag(shard))
    }

    /// What its deliveries need.
    pub(super) fn needs(&self, shard: ShardId, id: u128) -> String {
        format!("{}:{{{}}}:f:{id:032x}", self.prefix, tag(shard))
    }
}

/// A name that nobody else has.
pub(super) fn random_name() -> String {
    let mut bytes = [0; 8];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        tracing::error!("the system gives no random numbers");
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The shard of an idempotency key.
pub(super) fn shard_of_key(key: &[u8; 16]) -> ShardId {
    ShardId::from(key[15]) % SHARDS
}

/// The shard of an address and of what is known about it.
pub(super) fn shard_of_address(hash: &AddressHash) -> ShardId {
    hash.0.last().map_or(0, |byte| ShardId::from(*byte)) % SHARDS
}

/// A tenant's address.
pub(super) fn address_field(tenant: &TenantId, hash: &AddressHash) -> Vec<u8> {
    let mut field = tenant.as_str().as_bytes().to_vec();
    field.push(0);
    field.extend_from_slice(&hash.0);
    field
}
