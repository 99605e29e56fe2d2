//! Counts what tenants keep.

use postrider_core::TenantId;
use postrider_core::ports::store::{Holdings, TenantHoldings};

use super::failure::PgResult;
use super::shared::PgShared;
use super::value::get;
use crate::holdings::HoldingSums;

/// A statement that counts by tenant, and where its counts go.
type PgCount = (&'static str, fn(&mut Holdings, [u64; 2]));

const COUNTED: [PgCount; 7] = [
    (
        "SELECT tenant, count(*) AS n, 0::bigint AS bytes FROM address GROUP BY tenant",
        |own, [n, _]| own.addresses = n,
    ),
    (
        "SELECT tenant, count(*) AS n, 0::bigint AS bytes FROM entry GROUP BY tenant",
        |own, [n, _]| own.entries = n,
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
        // From one lane of a shard to the next, so that it does not matter how much waits.
        "WITH RECURSIVE f AS (SELECT s.id AS shard, n.lane FROM shard s CROSS JOIN LATERAL \
           (SELECT lane FROM queue WHERE shard = s.id ORDER BY lane LIMIT 1) AS n \
         UNION ALL SELECT f.shard, n.lane FROM f CROSS JOIN LATERAL (SELECT q.lane FROM queue q \
           WHERE q.shard = f.shard AND q.lane > f.lane ORDER BY q.lane LIMIT 1) AS n) \
         SELECT l.tenant, count(*) AS n, 0::bigint AS bytes FROM (SELECT DISTINCT lane FROM f) AS f \
         JOIN lane l ON l.id = f.lane GROUP BY l.tenant",
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
        for (tenant, count) in self.lanes.numbered(&mut session).await? {
            sums.note_numbered_lanes(&tenant, count);
        }
        Ok(sums.into_list())
    }
}
