//! The deliveries that a list looks at, newest first or oldest first: those of a tenant or of some lanes by the order
//! of the ledger, and dead letters by the list of them. Never looks at the rows of deliveries.

use std::ops::ControlFlow;

use postrider_core::ports::store::DeliveryFilter;

use super::shared::StoreShared;
use super::sql::ledger_order::unpack;
use super::sql::prelude::*;
use super::sql::statement::is_local;

/// Blocks of the order, and entries of them, that one call reads.
const BLOCKS_MAX: usize = 4_000;
const ENTRIES_MAX: usize = 1_000_000;
/// Dead letters that one call looks at.
const DEAD_MAX: usize = 100_000;

/// Where a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchEnd {
    /// There is nothing more.
    Complete,
    /// The visitor wants no more.
    Stopped,
    /// The bound of a call: newest first, everything from this sequence on was looked at; oldest first, everything
    /// before it.
    At(u64),
    /// The order cannot be used.
    Unusable,
}

/// The lanes that can have a match, by their numbers.
struct LaneSet {
    fits: Vec<bool>,
    /// The lanes of the tenant, also those that do not fit; all lanes without a tenant.
    of_tenant: Vec<bool>,
    tenant: Option<u32>,
    /// All lanes of the tenant, or of all.
    is_whole: bool,
}

impl LaneSet {
    /// `None` if no lane fits.
    fn of(shared: &StoreShared, filter: &DeliveryFilter) -> Option<Self> {
        let index = shared.index();
        let tenant = match &filter.tenant {
            Some(name) => Some(index.tenants.number(name)?),
            None => None,
        };
        let mut fits = vec![false; index.lane_numbers_end() as usize];
        let (mut of_tenant, mut some) = (fits.clone(), false);
        // There can be very many lanes, and others wait for the index.
        let own = tenant.map(|tenant| index.lanes_of(tenant));
        let all = tenant.is_none().then(|| index.named_lanes());
        for (lane, key) in own.into_iter().flatten().chain(all.into_iter().flatten()) {
            let fit = filter.fits_lane(key);
            fits[lane as usize] = fit;
            of_tenant[lane as usize] = true;
            some |= fit;
        }
        let is_whole =
            filter.channel.is_none() && filter.provider.is_none() && filter.class.is_none();
        some.then_some(Self { fits, of_tenant, tenant, is_whole })
    }

    fn contains(&self, lane: u32) -> bool {
        self.fits.get(lane as usize).copied().unwrap_or(false)
    }
}

/// Whether a filter names a tenant or a part of a lane.
pub(crate) fn is_by_lane(filter: &DeliveryFilter) -> bool {
    filter.tenant.is_some()
        || filter.channel.is_some()
        || filter.provider.is_some()
        || filter.class.is_some()
}

/// Visits the deliveries of the lanes that fit, newest first.
pub(crate) fn visit_newest(
    conn: &Connection,
    shared: &StoreShared,
    filter: &DeliveryFilter,
    range: (u64, u64),
    mut visit: impl FnMut(u64) -> StoreResult<ControlFlow<()>>,
) -> StoreResult<SearchEnd> {
    let Some(lanes) = LaneSet::of(shared, filter) else {
        return Ok(SearchEnd::Complete);
    };
    let tail_from = shared.order_tail().from();
    let changed = match lanes.is_whole {
        true => Vec::new(),
        false => lane_changes(conn, (tail_from, range.1))?,
    };
    let (tail_from, newest) = {
        let tail = shared.order_tail();
        if !tail.is_usable() {
            return Ok(SearchEnd::Unusable);
        }
        // A delivery that changed its lane may be in any other one of its tenant.
        let fits = |(seq, lane): (u64, u32)| {
            lanes.contains(lane)
                || (lanes.of_tenant.get(lane as usize) == Some(&true)
                    && changed.binary_search(&seq).is_ok())
        };
        (tail.from(), tail.matching(range, fits))
    };
    for seq in newest.into_iter().rev() {
        if visit(seq)?.is_break() {
            return Ok(SearchEnd::Stopped);
        }
    }
    match visit_blocks(conn, &lanes, (range.0, range.1.min(tail_from)), visit) {
        Err(error) if is_local(&error) => Ok(SearchEnd::Unusable),
        done => done,
    }
}

/// Deliveries in a range that changed their lane, by sequence.
fn lane_changes(conn: &Connection, (from, before): (u64, u64)) -> StoreResult<Vec<u64>> {
    let select = "SELECT seq FROM lane_change WHERE seq >= ?1 AND seq < ?2 ORDER BY seq";
    all_rows(conn, select, [from as i64, before as i64], |row| unsigned(row, 0))
}

fn visit_blocks(
    conn: &Connection,
    lanes: &LaneSet,
    (from, before): (u64, u64),
    mut visit: impl FnMut(u64) -> StoreResult<ControlFlow<()>>,
) -> StoreResult<SearchEnd> {
    let select =
        "SELECT first, behind FROM ledger_block WHERE first < ?1 ORDER BY first DESC LIMIT ?2";
    let blocks = all_rows(conn, select, [before as i64, BLOCKS_MAX as i64], |row| {
        Ok((unsigned(row, 0)?, unsigned(row, 1)?))
    })?;
    let is_all = blocks.len() < BLOCKS_MAX;
    let (mut read, mut reached) = (0, before);
    for (first, behind) in blocks {
        if behind <= from {
            return Ok(SearchEnd::Complete);
        }
        if read >= ENTRIES_MAX {
            return Ok(SearchEnd::At(reached));
        }
        let mut seqs = read_block(conn, lanes, (first, behind), &mut read)?;
        seqs.retain(|seq| (from..before).contains(seq));
        for seq in seqs.into_iter().rev() {
            if visit(seq)?.is_break() {
                return Ok(SearchEnd::Stopped);
            }
        }
        reached = first;
    }
    Ok(if is_all { SearchEnd::Complete } else { SearchEnd::At(reached) })
}

/// Those of a block that can match, oldest first.
fn read_block(
    conn: &Connection,
    lanes: &LaneSet,
    (first, behind): (u64, u64),
    read: &mut usize,
) -> StoreResult<Vec<u64>> {
    let changed = match lanes.is_whole {
        true => Vec::new(),
        false => lane_changes(conn, (first, behind))?,
    };
    let select = match lanes.tenant {
        Some(_) => "SELECT entries FROM ledger_block_tenant WHERE first = ?1 AND tenant = ?2",
        None => "SELECT entries FROM ledger_block_tenant WHERE first = ?1 AND ?2 IS NULL",
    };
    let mut seqs = Vec::new();
    all_rows(conn, select, params![first as i64, lanes.tenant], |row| {
        let bytes = row.get_ref(0).map_err(sql)?.as_blob().map_err(damaged)?;
        let entries = unpack(first, bytes)?;
        *read += entries.len();
        let fits = |(seq, lane): &(u64, u32)| {
            lanes.is_whole || lanes.contains(*lane) || changed.binary_search(seq).is_ok()
        };
        seqs.extend(entries.into_iter().filter(fits).map(|(seq, _)| seq));
        Ok(())
    })?;
    if lanes.tenant.is_none() {
        seqs.sort_unstable();
    }
    Ok(seqs)
}

const DEAD_NEWEST: &str = "SELECT seq, lane, reason FROM dead_letter \
                           WHERE seq >= ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
const DEAD_OLDEST: &str = "SELECT seq, lane, reason FROM dead_letter \
                           WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3";
const DEAD_NEWEST_OF_TENANT: &str = "SELECT seq, lane, reason FROM dead_letter \
                                     WHERE tenant = ?4 AND seq >= ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
const DEAD_OLDEST_OF_TENANT: &str = "SELECT seq, lane, reason FROM dead_letter \
                                     WHERE tenant = ?4 AND seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3";

/// Visits the dead letters that can match.
pub(crate) fn visit_dead(
    conn: &Connection,
    shared: &StoreShared,
    filter: &DeliveryFilter,
    (from, before): (u64, u64),
    oldest_first: bool,
    mut visit: impl FnMut(u64) -> StoreResult<ControlFlow<()>>,
) -> StoreResult<SearchEnd> {
    let lanes = match is_by_lane(filter) {
        true => match LaneSet::of(shared, filter) {
            Some(lanes) => Some(lanes),
            None => return Ok(SearchEnd::Complete),
        },
        false => None,
    };
    let tenant = lanes.as_ref().and_then(|lanes| lanes.tenant);
    let select = match (tenant, oldest_first) {
        (None, false) => DEAD_NEWEST,
        (None, true) => DEAD_OLDEST,
        (Some(_), false) => DEAD_NEWEST_OF_TENANT,
        (Some(_), true) => DEAD_OLDEST_OF_TENANT,
    };
    let (first, behind, most) = (from as i64, before as i64, DEAD_MAX as i64);
    let mut statement = conn.prepare_cached(select).map_err(sql)?;
    let mut rows = match tenant {
        None => statement.query(params![first, behind, most]),
        Some(tenant) => statement.query(params![first, behind, most, tenant]),
    }
    .map_err(sql)?;
    let reason = filter.reason.map(|reason| reason.code());
    let (mut seen, mut last) = (0, 0);
    while let Some(row) = rows.next().map_err(sql)? {
        let (seq, lane, of): (u64, Option<u32>, Option<u8>) =
            (unsigned(row, 0)?, get(row, 1)?, get(row, 2)?);
        (seen, last) = (seen + 1, seq);
        let fits = lanes.as_ref().is_none_or(|lanes| lane.is_none_or(|lane| lanes.contains(lane)))
            && (reason.is_none() || of.is_none() || reason == of);
        if fits && visit(seq)?.is_break() {
            return Ok(SearchEnd::Stopped);
        }
    }
    Ok(match seen == DEAD_MAX {
        true => SearchEnd::At(if oldest_first { last + 1 } else { last }),
        false => SearchEnd::Complete,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sql::schema::open_writer;

    #[test]
    fn dead_letters_are_read_in_their_order_and_only_those_of_the_tenant() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        for (select, by) in [
            (DEAD_NEWEST, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (DEAD_OLDEST, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (DEAD_NEWEST_OF_TENANT, "INDEX dead_letter_tenant (tenant=? AND seq>? AND seq<?)"),
            (DEAD_OLDEST_OF_TENANT, "INDEX dead_letter_tenant (tenant=? AND seq>? AND seq<?)"),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {select}")).unwrap();
            let values = vec![0_i64; plan.parameter_count()];
            let rows =
                plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).unwrap();
            let plan: Vec<String> = rows.collect::<Result<_, _>>().unwrap();
            assert!(plan.len() == 1 && plan[0].contains(by), "{plan:?}");
        }
    }
}
