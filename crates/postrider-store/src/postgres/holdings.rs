//! Counts what tenants keep.

use postrider_core::TenantId;
use postrider_core::ports::store::{Holdings, TenantHoldings};

use super::failure::PgResult;
use super::shared::PgShared;
use super::value::get;
use crate::holdings::HoldingSums;

/// A statement that counts by tenant, and where its counts go.
type PgCount = (&'static str, fn(&mut Holdings, [u64; 2]));

const COUNTED: [PgCount; 6] = [
    (
        "SELECT tenant, count(*) AS n, 0::bigint AS bytes FROM address GROUP BY tenant",
        |own, [n, _]| own.addresses = n,
    ),
    (
        "SELECT tenant, count(*) AS n, 0::bigint AS bytes FROM gone GROUP BY tenant",
        |own, [n, _]| own.gone_marks = n,
    ),
    (
        "SELECT tenant, count(DISTINCT hash) AS n, 0::bigint AS bytes FROM strike GROUP BY tenant",
        |own, [n, _]| own.strikes = n,
    ),
    (
        "SELECT l.tenant, count(*) AS n, 0::bigint AS bytes FROM lane l \
         WHERE EXISTS (SELECT 1 FROM shard s JOIN queue q ON q.shard = s.id AND q.lane = l.id) GROUP BY l.tenant",
        |own, [n, _]| own.lanes = n,
    ),
    (
        "SELECT tenant, count(*) AS n, coalesce(sum(bytes), 0)::bigint AS bytes FROM dead GROUP BY tenant",
        |own, [n, bytes]| {
            own.dead_letters = n;
            own.dead_letter_bytes += bytes;
        },
    ),
    (
        "SELECT tenant, 0::bigint AS n, coalesce(sum(bytes), 0)::bigint AS bytes FROM message \
         WHERE content IS NOT NULL AND id IN (SELECT message FROM dead WHERE shares_message) GROUP BY tenant",
        |own, [_, bytes]| own.dead_letter_bytes += bytes,
    ),
];

impl PgShared {
    pub(super) async fn holdings(&self) -> PgResult<Vec<TenantHoldings>> {
        let mut sums = HoldingSums::default();
        let mut session = self.pool.durable().await?;
        for (select, add) in COUNTED {
            for row in session.rows(select, &[]).await? {
                let count = |column| {
                    Ok::<_, super::failure::PgFailure>(get::<i64>(&row, column)?.unsigned_abs())
                };
                let tenant = TenantId::new(&get::<String>(&row, "tenant")?);
                add(sums.of(&tenant), [count("n")?, count("bytes")?]);
            }
        }
        Ok(sums.into_list())
    }
}
