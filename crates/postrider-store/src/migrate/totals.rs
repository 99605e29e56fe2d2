//! Counts and checksums of records. They do not depend on the order of the records, which every engine chooses itself.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use postrider_core::ports::store::{RecordKind, StoreError, StoreRecord, StoreResult};
use serde::{Deserialize, Serialize};

/// The records of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordTotal {
    pub count: u64,
    /// The sum of the first half of each record's SHA-256.
    pub checksum: u128,
}

/// The records of all kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordTotals(BTreeMap<RecordKind, RecordTotal>);

impl RecordTotals {
    pub(super) fn add(&mut self, record: &StoreRecord) -> StoreResult<()> {
        let (kind, digest) = digest_of(record)?;
        let total = self.0.entry(kind).or_default();
        total.count += 1;
        total.checksum = total.checksum.wrapping_add(digest);
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.0.values().map(|total| total.count).sum()
    }

    /// All kinds, also those without records.
    pub fn all(&self) -> impl Iterator<Item = (RecordKind, RecordTotal)> + '_ {
        RecordKind::ALL.iter().map(|kind| (*kind, self.of(*kind)))
    }

    fn of(&self, kind: RecordKind) -> RecordTotal {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// The first kind that differs.
    pub(super) fn difference(&self, expected: &Self) -> Option<String> {
        let (kind, expected) = expected.all().find(|(kind, total)| self.of(*kind) != *total)?;
        let found = self.of(kind);
        Some(format!(
            "it has {} {} with the checksum {:032x}, not {} with {:032x}",
            found.count,
            kind.name(),
            found.checksum,
            expected.count,
            expected.checksum
        ))
    }
}

impl Serialize for RecordTotal {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.count, format!("{:032x}", self.checksum)).serialize(to)
    }
}

impl<'de> Deserialize<'de> for RecordTotal {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (count, checksum): (u64, String) = Deserialize::deserialize(from)?;
        let checksum = u128::from_str_radix(&checksum, 16).map_err(serde::de::Error::custom)?;
        Ok(Self { count, checksum })
    }
}

fn digest_of(record: &StoreRecord) -> StoreResult<(RecordKind, u128)> {
    let (kind, bytes) = match record {
        StoreRecord::Document(document) => (RecordKind::Document, bytes(document)?),
        StoreRecord::Lane(lane) => (RecordKind::Lane, bytes(lane)?),
        StoreRecord::Address(address) => {
            let target = address.target.as_ref().map(|target| target.as_json());
            let fields = (address.id, &address.tenant, &address.recipient, address.channel);
            let rest = (address.hash, target, address.status, address.gone_at);
            (RecordKind::Address, bytes(&(fields, rest))?)
        }
        StoreRecord::GoneMark { tenant, hash, deleted_before } => {
            (RecordKind::GoneMark, bytes(&(tenant, hash, deleted_before))?)
        }
        StoreRecord::Strike { tenant, hash, strike } => {
            let times = (strike.first_at, strike.last_at);
            let fields = (tenant, hash, strike.kind.code(), strike.count, times, strike.suspect);
            (RecordKind::Strike, bytes(&fields)?)
        }
        StoreRecord::Message(message) => (RecordKind::Message, bytes(message)?),
        StoreRecord::Delivery(delivery) => (RecordKind::Delivery, bytes(delivery)?),
        StoreRecord::IdempotencyKey(key) => (RecordKind::IdempotencyKey, bytes(key)?),
        StoreRecord::Audit(entry) => (RecordKind::Audit, bytes(entry)?),
        StoreRecord::Entry(entry) => (RecordKind::Entry, bytes(entry)?),
        StoreRecord::Rollup(part) => (RecordKind::Rollup, bytes(part)?),
    };
    let digest = digest::digest(&digest::SHA256, &bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&digest.as_ref()[..16]);
    Ok((kind, u128::from_be_bytes(half)))
}

fn bytes(fields: &impl Serialize) -> StoreResult<Vec<u8>> {
    serde_json::to_vec(fields).map_err(|error| StoreError::io("cannot write JSON", error))
}

#[cfg(test)]
mod tests {
    use postrider_core::ports::store::DocumentRecord;

    use super::*;

    #[test]
    fn a_lost_or_changed_record_is_noticed_and_the_order_does_not_matter() {
        let setting = |name: &str, json: &str| {
            let (name, json) = (name.to_owned(), json.to_owned());
            StoreRecord::Document(DocumentRecord { name, json, expires_at: None })
        };
        let totals = |records: &[StoreRecord]| {
            let mut totals = RecordTotals::default();
            records.iter().for_each(|record| totals.add(record).unwrap());
            totals
        };
        let all = totals(&[setting("a", "1"), setting("b", "2")]);
        assert_eq!(totals(&[setting("b", "2"), setting("a", "1")]).difference(&all), None);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<RecordTotals>(&text).unwrap(), all);
        for other in [totals(&[setting("a", "1")]), totals(&[setting("a", "1"), setting("b", "3")])]
        {
            let found = other.difference(&all).unwrap();
            assert!(found.contains("documents with the checksum"), "{found}");
        }
    }
}
