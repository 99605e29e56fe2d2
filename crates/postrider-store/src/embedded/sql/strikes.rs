//! Strikes of addresses on disk. There are few, and the index in memory knows which addresses have any, so
//! that no other address costs a read or a write.

use postrider_core::policy::strikes::{KEPT, NewStrike};
use postrider_core::ports::store::{AddressLearning, Page, StrikeFilter, StruckAddress};
use postrider_core::{AddressHash, AddressStatus, Decision, Strike, StrikeKind};

use super::prelude::*;
use crate::embedded::index::MemoryIndex;
use crate::embedded::index::delivery::StoredDelivery;
use crate::embedded::problems::ProblemList;
use crate::embedded::sql::open::from_both_ends;
use crate::embedded::sql::settle::SettleRow;
use crate::view;

/// Addresses that one step of a prune handles.
const PRUNED_AT_ONCE: u32 = 1_000;

pub(crate) fn load(
    conn: &Connection,
    index: &mut MemoryIndex,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let keys = ("strike", "SELECT DISTINCT tenant, hash FROM strike", "tenant, hash");
    from_both_ends(conn, keys, problems, now, |row| {
        let (tenant, hash) = tenant_and_hash(row)?;
        index.set_struck(&tenant, hash, true);
        Ok(())
    })
}

pub(crate) fn strikes_of(
    conn: &Connection,
    tenant: &TenantId,
    hash: AddressHash,
) -> StoreResult<Vec<Strike>> {
    let select = "SELECT * FROM strike WHERE tenant = ?1 AND hash = ?2 ORDER BY kind";
    all_rows(conn, select, params![tenant.as_str(), hash.0], strike)
}

pub(crate) fn strike(row: &Row<'_>) -> StoreResult<Strike> {
    let kind = StrikeKind::from_code(get(row, "kind")?);
    Ok(Strike {
        kind: kind.ok_or_else(|| damaged("a strike's kind"))?,
        count: get(row, "count")?,
        first_at: Timestamp(get(row, "first")?),
        last_at: Timestamp(get(row, "last")?),
        suspect: get(row, "suspect")?,
    })
}

pub(crate) fn page(
    conn: &Connection,
    tenant: &TenantId,
    which: &StrikeFilter,
) -> StoreResult<Page<StruckAddress, AddressHash>> {
    let limit = which.limit.max(1);
    let most = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
    let after = which.cursor.map_or_else(Vec::new, |hash| hash.0.to_vec());
    let one = which.hash.map(|hash| hash.0);
    let found = all_rows(
        conn,
        "SELECT DISTINCT tenant, hash FROM strike WHERE tenant = ?1 AND hash > ?2 \
         AND (?3 IS NULL OR hash = ?3) AND (?4 = 0 OR suspect = 1) ORDER BY hash LIMIT ?5",
        params![tenant.as_str(), after, one, which.suspect, most],
        tenant_and_hash,
    )?;
    let Page { items, next } = view::page(found, limit, |(_, hash)| *hash);
    let struck = |(_, hash)| Ok(StruckAddress { hash, strikes: strikes_of(conn, tenant, hash)? });
    Ok(Page { items: items.into_iter().map(struck).collect::<StoreResult<_>>()?, next })
}

/// Reads the columns `tenant` and `hash`.
pub(crate) fn tenant_and_hash(row: &Row<'_>) -> StoreResult<(TenantId, AddressHash)> {
    Ok((TenantId(get::<String>(row, "tenant")?.into()), AddressHash(get(row, "hash")?)))
}

impl Writer {
    /// Writes what a settlement says about its address. `struck` says that the address may have strikes.
    pub(crate) fn learn(
        &mut self,
        row: &SettleRow,
        delivery: &StoredDelivery,
        decision: &Decision,
        struck: bool,
    ) -> StoreResult<()> {
        let learned = &row.settlement.learned;
        if !struck && self.effects.struck.is_empty() && *learned == AddressLearning::default() {
            return Ok(());
        }
        let address = (delivery.message.tenant.clone(), delivery.hash);
        let struck = self.effects.struck.get(&address).copied().unwrap_or(struck);
        if struck && *decision == Decision::Done {
            self.forgive(&address.0, address.1)?;
        }
        if let Some(strike) = learned.strike {
            self.strike(&address.0, address.1, strike)?;
        }
        if let Some(target) = &learned.target {
            let row = params![address.0.as_str(), address.1.0, target.as_json()];
            let update = "UPDATE address SET target = ?3 \
                          WHERE tenant = ?1 AND hash = ?2 AND target IS NOT NULL";
            run(&self.conn, update, row)?;
        }
        Ok(())
    }

    pub(crate) fn put_strike(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        strike: &Strike,
    ) -> StoreResult<()> {
        let put = "INSERT OR REPLACE INTO strike (tenant, hash, kind, count, first, last, suspect) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let row = params![
            tenant.as_str(),
            hash.0,
            strike.kind.code(),
            strike.count,
            strike.first_at.0,
            strike.last_at.0,
            strike.suspect,
        ];
        run(&self.conn, put, row).map(drop)
    }

    fn strike(
        &mut self,
        tenant: &TenantId,
        hash: AddressHash,
        struck: NewStrike,
    ) -> StoreResult<()> {
        let known = strikes_of(&self.conn, tenant, hash)?;
        let mut strike = Strike::after(&known, struck.kind, self.shared.now());
        strike.suspect |= struck.suspect;
        self.put_strike(tenant, hash, &strike)?;
        if struck.suspect {
            self.change_status(tenant, hash, (AddressStatus::Active, AddressStatus::Suspect))?;
        }
        self.effects.struck.insert((tenant.clone(), hash), true);
        Ok(())
    }

    /// Deletes all strikes of an address; false if there were none.
    pub(crate) fn forgive(&mut self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        let forgotten = run(
            &self.conn,
            "DELETE FROM strike WHERE tenant = ?1 AND hash = ?2",
            params![tenant.as_str(), hash.0],
        )?;
        self.change_status(tenant, hash, (AddressStatus::Suspect, AddressStatus::Active))?;
        self.effects.struck.insert((tenant.clone(), hash), false);
        Ok(forgotten > 0)
    }

    fn change_status(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        (from, to): (AddressStatus, AddressStatus),
    ) -> StoreResult<()> {
        let row = params![tenant.as_str(), hash.0, to_json(&from)?, to_json(&to)?];
        run(
            &self.conn,
            "UPDATE address SET status = ?4 WHERE tenant = ?1 AND hash = ?2 AND status = ?3",
            row,
        )?;
        Ok(())
    }

    /// Deletes strikes that are too old to count. True if there is more.
    pub(crate) fn prune_strikes(&mut self) -> StoreResult<bool> {
        let limit = self.shared.earliest() - KEPT;
        let old = "SELECT DISTINCT tenant, hash FROM strike WHERE last <= ?1 LIMIT ?2";
        let found = all_rows(&self.conn, old, params![limit.0, PRUNED_AT_ONCE], tenant_and_hash)?;
        if found.is_empty() {
            return Ok(false);
        }
        let more = found.len() >= PRUNED_AT_ONCE as usize;
        self.transact_surely(|writer| {
            for (tenant, hash) in &found {
                let row = params![tenant.as_str(), hash.0, limit.0];
                run(
                    &writer.conn,
                    "DELETE FROM strike WHERE tenant = ?1 AND hash = ?2 AND last <= ?3",
                    row,
                )?;
                let left = !strikes_of(&writer.conn, tenant, *hash)?.is_empty();
                writer.effects.struck.insert((tenant.clone(), *hash), left);
            }
            Ok(())
        })?;
        Ok(more)
    }
}
