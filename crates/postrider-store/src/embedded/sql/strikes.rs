//! Strikes of addresses on disk. There are few, and the index in memory knows which addresses have any, so
//! that no other address costs a read or a write.

use postrider_core::model::decision::Decision;
use postrider_core::policy::strikes::{KEPT, NewStrike};
use postrider_core::ports::store::{
    AddressLearning, Page, StoreResult, StrikeFilter, StruckAddress,
};
use postrider_core::{AddressHash, AddressStatus, Strike, StrikeKind, Target, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::embedded::index::MemoryIndex;
use crate::embedded::index::delivery::StoredDelivery;
use crate::embedded::index::effects::TransactionEffects;
use crate::embedded::sql::error::{damaged, sql};
use crate::embedded::sql::rows::{get, to_json};
use crate::embedded::sql::settle::SettleRow;
use crate::embedded::writer::Writer;

/// Addresses that one step of a prune handles.
const PRUNED_AT_ONCE: u32 = 1_000;

pub(crate) fn load(conn: &Connection, index: &mut MemoryIndex) -> StoreResult<()> {
    for (tenant, hash) in addresses(conn, "SELECT DISTINCT tenant, hash FROM strike", [])? {
        index.mark_struck(&tenant, hash);
    }
    Ok(())
}

pub(crate) fn strikes_of(
    conn: &Connection,
    tenant: &TenantId,
    hash: AddressHash,
) -> StoreResult<Vec<Strike>> {
    let mut select = conn
        .prepare_cached("SELECT * FROM strike WHERE tenant = ?1 AND hash = ?2 ORDER BY kind")
        .map_err(sql)?;
    let mut rows = select.query(params![tenant.as_str(), hash.0]).map_err(sql)?;
    let mut strikes = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        strikes.push(strike(row)?);
    }
    Ok(strikes)
}

fn strike(row: &Row<'_>) -> StoreResult<Strike> {
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
    let found = addresses(
        conn,
        "SELECT DISTINCT tenant, hash FROM strike WHERE tenant = ?1 AND hash > ?2 \
         AND (?3 IS NULL OR hash = ?3) AND (?4 = 0 OR suspect = 1) ORDER BY hash LIMIT ?5",
        params![tenant.as_str(), after, one, which.suspect, most],
    )?;
    let more = found.len() > limit;
    let mut items = Vec::with_capacity(limit.min(found.len()));
    for (_, hash) in found.into_iter().take(limit) {
        items.push(StruckAddress { hash, strikes: strikes_of(conn, tenant, hash)? });
    }
    Ok(Page { next: items.last().filter(|_| more).map(|struck| struck.hash), items })
}

fn addresses(
    conn: &Connection,
    query: &str,
    row: impl rusqlite::Params,
) -> StoreResult<Vec<(TenantId, AddressHash)>> {
    let mut select = conn.prepare_cached(query).map_err(sql)?;
    let mut rows = select.query(row).map_err(sql)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let tenant = TenantId(get::<String>(row, "tenant")?.into());
        found.push((tenant, AddressHash(get(row, "hash")?)));
    }
    Ok(found)
}

impl Writer {
    /// Writes what a settlement says about its address. `struck` says that the address may have strikes.
    pub(crate) fn learn(
        &self,
        row: &SettleRow,
        delivery: &StoredDelivery,
        decision: &Decision,
        struck: bool,
        effects: &mut TransactionEffects,
    ) -> StoreResult<()> {
        let learned = &row.settlement.learned;
        if !struck && effects.struck.is_empty() && *learned == AddressLearning::default() {
            return Ok(());
        }
        let address = (delivery.message.tenant.clone(), delivery.hash);
        let struck = effects.struck.get(&address).copied().unwrap_or(struck);
        if struck && *decision == Decision::Done {
            self.forgive(&address.0, address.1, effects)?;
        }
        if let Some(strike) = learned.strike {
            self.strike(&address.0, address.1, strike, effects)?;
        }
        match learned.target.as_deref() {
            Some(target) => self.learn_target(&address.0, address.1, target, effects),
            None => Ok(()),
        }
    }

    fn strike(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        struck: NewStrike,
        effects: &mut TransactionEffects,
    ) -> StoreResult<()> {
        let known = strikes_of(&self.conn, tenant, hash)?;
        let strike = Strike::after(&known, struck.kind, self.shared.now());
        let row = params![
            tenant.as_str(),
            hash.0,
            strike.kind.code(),
            strike.count,
            strike.first_at.0,
            strike.last_at.0,
            strike.suspect || struck.suspect,
        ];
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO strike (tenant, hash, kind, count, first, last, suspect) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut insert| insert.execute(row))
            .map_err(sql)?;
        if struck.suspect {
            self.change_status(tenant, hash, (AddressStatus::Active, AddressStatus::Suspect))?;
        }
        effects.rows += 1;
        effects.struck.insert((tenant.clone(), hash), true);
        Ok(())
    }

    /// Deletes all strikes of an address; false if there were none.
    pub(crate) fn forgive(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        effects: &mut TransactionEffects,
    ) -> StoreResult<bool> {
        let forgotten = self
            .conn
            .prepare_cached("DELETE FROM strike WHERE tenant = ?1 AND hash = ?2")
            .and_then(|mut delete| delete.execute(params![tenant.as_str(), hash.0]))
            .map_err(sql)?;
        self.change_status(tenant, hash, (AddressStatus::Suspect, AddressStatus::Active))?;
        effects.rows += forgotten as u64;
        effects.struck.insert((tenant.clone(), hash), false);
        Ok(forgotten > 0)
    }

    fn change_status(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        (from, to): (AddressStatus, AddressStatus),
    ) -> StoreResult<()> {
        let row = params![tenant.as_str(), hash.0, to_json(&from)?, to_json(&to)?];
        self.conn
            .prepare_cached(
                "UPDATE address SET status = ?4 WHERE tenant = ?1 AND hash = ?2 AND status = ?3",
            )
            .and_then(|mut update| update.execute(row))
            .map_err(sql)?;
        Ok(())
    }

    fn learn_target(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        target: &Target,
        effects: &mut TransactionEffects,
    ) -> StoreResult<()> {
        effects.rows += 1;
        let row = params![tenant.as_str(), hash.0, target.as_json()];
        self.conn
            .prepare_cached(
                "UPDATE address SET target = ?3 \
                 WHERE tenant = ?1 AND hash = ?2 AND target IS NOT NULL",
            )
            .and_then(|mut update| update.execute(row))
            .map_err(sql)?;
        Ok(())
    }

    /// Deletes strikes that are too old to count. True if there is more.
    pub(crate) fn prune_strikes(&mut self) -> StoreResult<bool> {
        let limit = self.shared.now() - KEPT;
        let old = "SELECT DISTINCT tenant, hash FROM strike WHERE last <= ?1 LIMIT ?2";
        let found = addresses(&self.conn, old, params![limit.0, PRUNED_AT_ONCE])?;
        if found.is_empty() {
            return Ok(false);
        }
        let more = found.len() >= PRUNED_AT_ONCE as usize;
        self.transact_surely(|writer, effects| {
            for (tenant, hash) in &found {
                let row = params![tenant.as_str(), hash.0, limit.0];
                writer
                    .conn
                    .prepare_cached(
                        "DELETE FROM strike WHERE tenant = ?1 AND hash = ?2 AND last <= ?3",
                    )
                    .and_then(|mut delete| delete.execute(row))
                    .map_err(sql)?;
                let left = !strikes_of(&writer.conn, tenant, *hash)?.is_empty();
                effects.struck.insert((tenant.clone(), *hash), left);
                effects.rows += 1;
            }
            Ok(())
        })?;
        Ok(more)
    }
}
