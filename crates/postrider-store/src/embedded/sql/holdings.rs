//! Counts what tenants keep on disk. Each statement reads on its own, so that no read lasts long.

use postrider_core::ports::store::{Holdings, TenantHoldings};

use super::prelude::*;
use crate::holdings::HoldingSums;

/// A statement that counts by tenant, and where its counts go.
type DiskCount = (&'static str, fn(&mut Holdings, [u64; 2]));

const COUNTED: [DiskCount; 6] = [
    ("SELECT tenant, count(*), 0 FROM address GROUP BY tenant", |own, [n, _]| own.addresses = n),
    ("SELECT tenant, count(*), 0 FROM entry GROUP BY tenant", |own, [n, _]| own.entries = n),
    ("SELECT tenant, count(*), 0 FROM gone GROUP BY tenant", |own, [n, _]| own.gone_marks = n),
    (
        "SELECT tenant, count(*), 0 FROM (SELECT DISTINCT tenant, hash FROM strike) GROUP BY tenant",
        |own, [n, _]| own.strikes = n,
    ),
    // The lengths are in the heads of the rows: no body is read.
    (
        "SELECT l.tenant, count(*), sum(coalesce(octet_length(d.target), 0) + coalesce(octet_length(d.body), 0)) \
         FROM dead_letter x JOIN delivery d ON d.seq = x.seq JOIN lane l ON l.id = d.lane GROUP BY l.tenant",
        |own, [n, bytes]| {
            own.dead_letters = n;
            own.dead_letter_bytes += bytes;
        },
    ),
    (
        "SELECT m.tenant, 0, sum(octet_length(m.content)) FROM message m WHERE m.content IS NOT NULL \
         AND m.seq IN (SELECT d.message FROM dead_letter x JOIN delivery d ON d.seq = x.seq) GROUP BY m.tenant",
        |own, [_, bytes]| own.dead_letter_bytes += bytes,
    ),
];

/// Adds what the tables say.
pub(crate) fn read(conn: &Connection, mut sums: HoldingSums) -> StoreResult<Vec<TenantHoldings>> {
    for (select, add) in COUNTED {
        let rows = all_rows(conn, select, [], |row| {
            let counts = [unsigned(row, 1)?, unsigned(row, 2)?];
            Ok((TenantId::new(&get::<String>(row, 0)?), counts))
        })?;
        for (tenant, counts) in rows {
            add(sums.of(&tenant), counts);
        }
    }
    Ok(sums.into_list())
}
