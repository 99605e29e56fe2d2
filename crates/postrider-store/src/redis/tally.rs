//! Counts by shard and tenant, as changes that a script adds.

use std::collections::BTreeMap;

use postrider_core::ports::store::Counts;
use postrider_core::{DeadReason, State, TenantId};
use redis::Value;

use super::failure::RedisResult;
use super::pack::{pairs, text_int};
use super::row::RedisRow;
use crate::progress::StoredProgress;
use crate::sharded::load::{LoadChange, PendingLoad};

/// The kind of the bytes of dead letters. A body that several deliveries share is not in it.
pub(super) const DEAD_BYTES: &str = "db";
/// The kind of the marks of addresses that are gone.
pub(super) const GONE_MARKS: &str = "g";

/// The hashes of counts of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CountHash {
    /// Everything, by kind and tenant.
    All,
    /// Pending deliveries by tenant, and their bytes. A tenant without any is not in it.
    Pending,
    Bytes,
}

impl CountHash {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "t",
            Self::Pending => "tp",
            Self::Bytes => "tb",
        }
    }
}

/// Changes of the counts of one shard.
#[derive(Debug, Default, Clone)]
pub(super) struct CountChanges(BTreeMap<(CountHash, String), i64>);

impl CountChanges {
    fn add(&mut self, hash: CountHash, field: String, by: i64) {
        *self.0.entry((hash, field)).or_default() += by;
    }

    pub(super) fn add_state(&mut self, tenant: &TenantId, state: State, by: i64) {
        self.add(CountHash::All, format!("s{}:{}", state.code(), tenant.as_str()), by);
        if state.is_pending() {
            self.add(CountHash::Pending, tenant.as_str().to_owned(), by);
        }
    }

    pub(super) fn add_dead(&mut self, tenant: &TenantId, reason: DeadReason, by: i64) {
        self.add(CountHash::All, format!("d{}:{}", reason.code(), tenant.as_str()), by);
    }

    pub(super) fn add_dead_bytes(&mut self, tenant: &TenantId, by: i64) {
        self.add(CountHash::All, format!("{DEAD_BYTES}:{}", tenant.as_str()), by);
    }

    pub(super) fn add_gone_marks(&mut self, tenant: &TenantId, by: i64) {
        self.add(CountHash::All, format!("{GONE_MARKS}:{}", tenant.as_str()), by);
    }

    pub(super) fn add_held(&mut self, tenant: &TenantId, by: i64) {
        self.add(CountHash::All, format!("h:{}", tenant.as_str()), by);
    }

    pub(super) fn add_messages(&mut self, tenant: &TenantId, by: i64) {
        self.add(CountHash::All, format!("m:{}", tenant.as_str()), by);
    }

    pub(super) fn add_bytes(&mut self, tenant: &TenantId, by: i64) {
        self.add(CountHash::Bytes, tenant.as_str().to_owned(), by);
    }

    /// A delivery goes from one state to another.
    pub(super) fn add_move(
        &mut self,
        from: &StoredProgress,
        to: &StoredProgress,
        tenant: &TenantId,
        bytes: i64,
    ) {
        self.add_state(tenant, from.state, -1);
        self.add_state(tenant, to.state, 1);
        self.add_held(tenant, i64::from(to.is_held()) - i64::from(from.is_held()));
        match (from.state.is_pending(), to.state.is_pending()) {
            (true, false) => self.add_bytes(tenant, -bytes),
            (false, true) => self.add_bytes(tenant, bytes),
            _ => {}
        }
        if let Some(reason) = to.reason.filter(|_| to.state == State::Failed) {
            self.add_dead(tenant, reason, 1);
            self.add_dead_bytes(tenant, bytes);
        }
    }

    pub(super) fn add_row_move(&mut self, row: &RedisRow, to: &StoredProgress) {
        self.add_move(&row.progress, to, &row.fixed.tenant, row.fixed.bytes);
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = (CountHash, &str, i64)> {
        let changes = self.0.iter().filter(|(_, by)| **by != 0);
        changes.map(|((hash, field), by)| (*hash, field.as_str(), *by))
    }

    /// What the changes say about the load, after they are written.
    pub(super) fn change_load(&self, load: &PendingLoad) {
        for (hash, tenant, by) in self.changes() {
            let change = match hash {
                CountHash::All => continue,
                CountHash::Pending => LoadChange { deliveries: by, bytes: 0 },
                CountHash::Bytes => LoadChange { deliveries: 0, bytes: by },
            };
            load.change(&TenantId(tenant.into()), change);
        }
    }
}

/// Adds the counts of a shard, of one tenant or of all.
pub(super) fn add_counts(
    sums: &mut SummedCounts,
    value: Value,
    tenant: Option<&TenantId>,
) -> RedisResult<()> {
    for (field, count) in pairs(value)? {
        let Ok(field) = String::from_utf8(field) else { continue };
        let Some((kind, of)) = field.split_once(':') else { continue };
        if tenant.is_none_or(|tenant| tenant.as_str() == of) {
            *sums.0.entry(kind.to_owned()).or_default() += text_int(&count)?;
        }
    }
    Ok(())
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(super) struct SummedCounts(pub(super) BTreeMap<String, i64>);

impl SummedCounts {
    fn get(&self, kind: &str) -> u64 {
        self.0.get(kind).map_or(0, |count| u64::try_from(*count).unwrap_or(0))
    }

    /// Without what is in flight.
    pub(super) fn counts(&self) -> Counts {
        let mut counts =
            Counts { messages: self.get("m"), held: self.get("h"), ..Counts::default() };
        for state in State::ALL {
            let n = self.get(&format!("s{}", state.code()));
            if n > 0 {
                counts.states.insert(*state, n);
            }
        }
        for reason in DeadReason::ALL {
            let n = self.get(&format!("d{}", reason.code()));
            if n > 0 {
                counts.dead.insert(*reason, n);
            }
        }
        counts
    }
}
