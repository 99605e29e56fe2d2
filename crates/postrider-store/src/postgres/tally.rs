//! Counts by shard and tenant, as changes that one statement adds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use postrider_core::ports::store::Counts;
use postrider_core::{DeadReason, State, TenantId};
use tokio_postgres::Row;

use super::failure::PgResult;
use super::session::PgSession;
use super::value::get;
use crate::sharded::ShardId;
use crate::sharded::load::{LoadChange, PendingLoad};

const STATES: usize = 14;
const REASONS: usize = 6;
const FIELDS: usize = STATES + REASONS + 3;
const HELD: usize = STATES + REASONS;
const MESSAGES: usize = HELD + 1;
const BYTES: usize = HELD + 2;

/// The columns, in the order of the fields.
pub(super) static COLUMNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let states = (0..STATES).map(|code| format!("s{code}"));
    let reasons = (0..REASONS).map(|code| format!("d{code}"));
    let rest = ["held", "messages", "bytes"].map(str::to_owned);
    states.chain(reasons).chain(rest).collect()
});

/// The fields that change when deliveries are sent.
fn fields_of_sent() -> impl Iterator<Item = usize> {
    let pending = State::ALL.iter().filter(|state| state.is_pending());
    let states = pending.chain([&State::Sent]).map(|state| usize::from(state.code()));
    states.chain([HELD, BYTES])
}

/// Their columns.
pub(super) fn columns_of_sent() -> Vec<&'static str> {
    fields_of_sent().map(|field| COLUMNS[field].as_str()).collect()
}

/// Makes a statement live as long as the process: there are few.
pub(super) fn forever(sql: String) -> &'static str {
    Box::leak(sql.into_boxed_str())
}

/// `ON CONFLICT … DO UPDATE` that adds all columns.
pub(super) static ADD: LazyLock<String> = LazyLock::new(|| {
    let adds: Vec<_> = COLUMNS.iter().map(|c| format!("{c} = t.{c} + excluded.{c}")).collect();
    format!("ON CONFLICT (shard, tenant) DO UPDATE SET {}", adds.join(", "))
});

static UPSERT: LazyLock<&'static str> = LazyLock::new(|| {
    let columns = COLUMNS.join(", ");
    let from = (1..=FIELDS + 2).map(|n| match n {
        1 => "$1::smallint[]".to_owned(),
        2 => "$2::text[]".to_owned(),
        n => format!("${n}::bigint[]"),
    });
    let from: Vec<_> = from.collect();
    forever(format!(
        "INSERT INTO tally AS t (shard, tenant, {columns}) SELECT * FROM unnest({}) {}",
        from.join(", "),
        *ADD
    ))
});

/// Changes of counts.
#[derive(Debug, Default)]
pub(super) struct TallyChanges(BTreeMap<(ShardId, TenantId), [i64; FIELDS]>);

impl TallyChanges {
    fn of(&mut self, shard: ShardId, tenant: &TenantId) -> &mut [i64; FIELDS] {
        self.0.entry((shard, tenant.clone())).or_insert([0; FIELDS])
    }

    pub(super) fn add_state(&mut self, shard: ShardId, tenant: &TenantId, state: State, by: i64) {
        self.of(shard, tenant)[usize::from(state.code())] += by;
    }

    pub(super) fn add_dead(
        &mut self,
        shard: ShardId,
        tenant: &TenantId,
        reason: DeadReason,
        by: i64,
    ) {
        self.of(shard, tenant)[STATES + usize::from(reason.code())] += by;
    }

    pub(super) fn add_held(&mut self, shard: ShardId, tenant: &TenantId, by: i64) {
        self.of(shard, tenant)[HELD] += by;
    }

    pub(super) fn add_messages(&mut self, shard: ShardId, tenant: &TenantId, by: i64) {
        self.of(shard, tenant)[MESSAGES] += by;
    }

    pub(super) fn add_bytes(&mut self, shard: ShardId, tenant: &TenantId, by: i64) {
        self.of(shard, tenant)[BYTES] += by;
    }

    /// The same changes, all in one shard: only the sums over all shards count, and one row is written faster than
    /// many.
    pub(super) fn in_shard(self, shard: ShardId) -> Self {
        let mut merged = Self::default();
        for ((_, tenant), fields) in self.0 {
            let sums = merged.of(shard, &tenant);
            sums.iter_mut().zip(fields).for_each(|(sum, by)| *sum += by);
        }
        merged
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same changes as arrays, one per column.
    pub(super) fn arrays(&self) -> TallyArrays {
        let mut arrays = TallyArrays { fields: vec![Vec::new(); FIELDS], ..TallyArrays::default() };
        for ((shard, tenant), fields) in &self.0 {
            arrays.shards.push(*shard as i16);
            arrays.tenants.push(tenant.as_str().to_owned());
            for (array, by) in arrays.fields.iter_mut().zip(fields) {
                array.push(*by);
            }
        }
        arrays
    }

    pub(super) async fn write(&self, session: &mut PgSession) -> PgResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        let arrays = self.arrays();
        let mut values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
            vec![&arrays.shards, &arrays.tenants];
        values
            .extend(arrays.fields.iter().map(|f| f as &(dyn tokio_postgres::types::ToSql + Sync)));
        session.run(*UPSERT, &values).await.map(drop)
    }

    /// What the changes say about the load, after their commit.
    pub(super) fn change_load(&self, load: &PendingLoad) {
        for ((_, tenant), fields) in &self.0 {
            let pending = |state: &&State| state.is_pending();
            let states = State::ALL.iter().filter(pending);
            let deliveries = states.map(|state| fields[usize::from(state.code())]).sum();
            load.change(tenant, LoadChange { deliveries, bytes: fields[BYTES] });
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct TallyArrays {
    pub(super) shards: Vec<i16>,
    pub(super) tenants: Vec<String>,
    pub(super) fields: Vec<Vec<i64>>,
}

impl TallyArrays {
    /// Those of the columns that change when deliveries are sent.
    pub(super) fn of_sent(&self) -> impl Iterator<Item = &Vec<i64>> {
        fields_of_sent().map(|field| &self.fields[field])
    }
}

/// A row of sums as counts, without what is in flight.
pub(super) fn counts(row: &Row) -> PgResult<Counts> {
    let mut counts = Counts::default();
    let count = |column: &str| -> PgResult<u64> {
        Ok(u64::try_from(get::<i64>(row, column)?).unwrap_or(0))
    };
    for state in State::ALL {
        let n = count(&format!("s{}", state.code()))?;
        if n > 0 {
            counts.states.insert(*state, n);
        }
    }
    for reason in DeadReason::ALL {
        let n = count(&format!("d{}", reason.code()))?;
        if n > 0 {
            counts.dead.insert(*reason, n);
        }
    }
    counts.held = count("held")?;
    counts.messages = count("messages")?;
    Ok(counts)
}

/// A select of the sums of all columns, with unread arrivals. `$1` is a tenant, or null for all.
pub(super) static SUMS: LazyLock<&'static str> = LazyLock::new(|| {
    let sums: Vec<_> =
        COLUMNS.iter().map(|c| format!("coalesce(sum({c}), 0)::bigint AS {c}")).collect();
    let columns = COLUMNS.join(", ");
    let zero = |c: &String| match c.as_str() {
        "s0" => "u.n",
        "messages" => "u.firsts",
        "bytes" => "u.bytes",
        _ => "0",
    };
    let unread: Vec<_> = COLUMNS.iter().map(zero).collect();
    forever(format!(
        "SELECT {} FROM (SELECT tenant, {columns} FROM tally \
         UNION ALL SELECT l.tenant, {} FROM ({UNREAD}) AS u JOIN lane l ON l.id = u.lane) AS a \
         WHERE $1::text IS NULL OR tenant = $1",
        sums.join(", "),
        unread.join(", ")
    ))
});

/// What arrived and is not read yet, by lane: there are far fewer lanes than deliveries.
const UNREAD: &str = "SELECT u.lane, count(*) AS n, count(*) FILTER (WHERE u.first) AS firsts, \
    sum(u.bytes)::bigint AS bytes FROM inbox i \
    CROSS JOIN unnest(i.lanes, i.bytes, i.firsts) AS u (lane, bytes, first) WHERE i.kind = 0 GROUP BY u.lane";

/// Deliveries and bytes that are pending, by tenant.
pub(super) static LOADS: LazyLock<&'static str> = LazyLock::new(|| {
    forever(format!(
        "SELECT tenant, sum(n)::bigint AS n, sum(bytes)::bigint AS bytes FROM (\
         SELECT tenant, s0 + s1 + s2 + s3 AS n, bytes FROM tally \
         UNION ALL SELECT l.tenant, u.n, u.bytes FROM ({UNREAD}) AS u JOIN lane l ON l.id = u.lane) AS a \
         GROUP BY tenant"
    ))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_codes() {
        assert_eq!((State::ALL.len(), DeadReason::ALL.len()), (STATES, REASONS));
        assert!(State::ALL.iter().take(4).all(|state| state.is_pending()));
        assert_eq!(COLUMNS.len(), FIELDS);
    }
}
