//! The numbers of lanes, which never change, and which lanes this node knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::{ChannelKind, LaneKey, TenantId};
use tokio_postgres::Row;

use super::failure::{PgFailure, PgResult};
use super::session::PgSession;
use super::value::get;

#[derive(Default)]
pub(super) struct KnownLaneTable(Mutex<KnownLanes>);

#[derive(Default)]
struct KnownLanes {
    numbers: HashMap<Arc<LaneKey>, u32>,
    keys: HashMap<u32, Arc<LaneKey>>,
    /// How many lanes of each tenant have a number, and the highest number that was counted. No lane is ever deleted,
    /// so only higher numbers are counted the next time. A number that was given earlier and committed later is left
    /// out until the next start.
    counted: (i32, HashMap<TenantId, u64>),
}

impl KnownLaneTable {
    fn known(&self) -> MutexGuard<'_, KnownLanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key(&self, number: u32) -> Option<Arc<LaneKey>> {
        self.known().keys.get(&number).cloned()
    }

    /// Whether all of them are known.
    pub(super) fn knows(&self, numbers: &[u32]) -> bool {
        let known = self.known();
        numbers.iter().all(|number| known.keys.contains_key(number))
    }

    /// The numbers of these lanes, if all are known.
    pub(super) fn known_numbers(&self, keys: &[Arc<LaneKey>]) -> Option<Vec<u32>> {
        let known = self.known();
        keys.iter().map(|key| known.numbers.get(key).copied()).collect()
    }

    fn note(&self, row: &Row) -> PgResult<()> {
        let channel: String = get(row, "channel")?;
        let channel =
            ChannelKind::parse(&channel).ok_or_else(|| PgFailure::damaged("a lane's channel"))?;
        let key = Arc::new(LaneKey {
            tenant: TenantId(get::<String>(row, "tenant")?.into()),
            channel,
            provider: get::<String>(row, "provider")?.into(),
            class: get::<String>(row, "class")?.into(),
        });
        let number = get::<i32>(row, "id")? as u32;
        let mut known = self.known();
        known.numbers.insert(key.clone(), number);
        known.keys.insert(number, key);
        Ok(())
    }

    /// How many lanes of each tenant have a number.
    pub(super) async fn numbered(
        &self,
        session: &mut PgSession,
    ) -> PgResult<HashMap<TenantId, u64>> {
        let (from, mut counts) = self.known().counted.clone();
        let select =
            "SELECT tenant, count(*) AS n, max(id) AS last FROM lane WHERE id > $1 GROUP BY tenant";
        let (rows, mut last) = (session.rows(select, &[&from]).await?, from);
        for row in &rows {
            let tenant = TenantId(get::<String>(row, "tenant")?.into());
            *counts.entry(tenant).or_default() += get::<i64>(row, "n")?.unsigned_abs();
            last = last.max(get::<i32>(row, "last")?);
        }
        self.known().counted = (last, counts.clone());
        Ok(counts)
    }

    /// Reads lanes that are not known yet.
    pub(super) async fn learn(&self, session: &mut PgSession, numbers: &[u32]) -> PgResult<()> {
        let unknown: Vec<_> = {
            let known = self.known();
            let unknown = numbers.iter().filter(|number| !known.keys.contains_key(number));
            unknown.map(|number| *number as i32).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let select = "SELECT * FROM lane WHERE id = ANY($1)";
        let rows = session.rows(select, &[&unknown]).await?;
        rows.iter().try_for_each(|row| self.note(row))
    }

    /// The number of each lane. A new lane gets one.
    pub(super) async fn numbers(
        &self,
        session: &mut PgSession,
        keys: &[Arc<LaneKey>],
    ) -> PgResult<Vec<u32>> {
        if let Some(numbers) = self.known_numbers(keys) {
            return Ok(numbers);
        }
        let mut new: Vec<_> = {
            let known = self.known();
            keys.iter().filter(|key| !known.numbers.contains_key(*key)).cloned().collect()
        };
        // In one order everywhere, so that nobody waits for each other.
        new.sort_unstable();
        new.dedup();
        let tenants: Vec<_> = new.iter().map(|key| key.tenant.as_str()).collect();
        let channels: Vec<_> = new.iter().map(|key| key.channel.name()).collect();
        let providers: Vec<_> = new.iter().map(|key| &*key.provider).collect();
        let classes: Vec<_> = new.iter().map(|key| &*key.class).collect();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&tenants, &channels, &providers, &classes];
        let insert = "INSERT INTO lane (tenant, channel, provider, class) \
                      SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) \
                      ON CONFLICT DO NOTHING";
        session.run(insert, &values).await?;
        let select = "SELECT l.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) \
                      AS u (tenant, channel, provider, class) \
                      JOIN lane l USING (tenant, channel, provider, class)";
        let rows = session.rows(select, &values).await?;
        rows.iter().try_for_each(|row| self.note(row))?;
        self.known_numbers(keys).ok_or_else(|| PgFailure::damaged("a lane has no number"))
    }
}
