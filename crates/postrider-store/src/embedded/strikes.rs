//! What addresses are blamed for, on disk. There are few: the board knows who is struck at all, so that
//! nobody else costs a read or a write.

use postrider_core::model::decision::Decision;
use postrider_core::policy::strikes::{KEPT, NewStrike};
use postrider_core::ports::store::{Learned, Page, StoreResult, StrikeFilter, StruckAddress};
use postrider_core::{AddressHash, AddressStatus, Strike, StrikeKind, Target, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};

use super::board::Board;
use super::draft::Draft;
use super::error::{damaged, sql};
use super::job::Job;
use super::rows::{get, to_json};
use super::settle::Verdict;
use super::writer::Writer;

/// Strikes that one step of a prune forgets.
const PRUNED_AT_ONCE: u32 = 1_000;

pub(super) fn load(conn: &Connection, board: &mut Board) -> StoreResult<()> {
    for (tenant, hash) in places(conn, "SELECT DISTINCT tenant, hash FROM strike", [])? {
        board.mark_struck(&tenant, hash);
    }
    Ok(())
}

pub(super) fn strikes_of(
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

pub(super) fn page(
    conn: &Connection,
    tenant: &TenantId,
    which: &StrikeFilter,
) -> StoreResult<Page<StruckAddress, AddressHash>> {
    let limit = which.limit.max(1);
    let most = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
    let after = which.cursor.map_or_else(Vec::new, |hash| hash.0.to_vec());
    let one = which.hash.map(|hash| hash.0);
    let found = places(
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

fn places(
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
    /// Writes down what a settlement says about its address. `struck` says that it was blamed before.
    pub(super) fn learn(
        &self,
        verdict: &Verdict,
        job: &Job,
        decision: &Decision,
        struck: bool,
        draft: &mut Draft,
    ) -> StoreResult<()> {
        let learned = &verdict.settlement.learned;
        if !struck && draft.struck.is_empty() && *learned == Learned::default() {
            return Ok(());
        }
        let place = (job.message.tenant.clone(), job.hash);
        let struck = draft.struck.get(&place).copied().unwrap_or(struck);
        if struck && *decision == Decision::Done {
            self.forgive(&place.0, place.1, draft)?;
        }
        if let Some(strike) = learned.strike {
            self.strike(&place.0, place.1, strike, draft)?;
        }
        match learned.target.as_deref() {
            Some(target) => self.learn_target(&place.0, place.1, target, draft),
            None => Ok(()),
        }
    }

    fn strike(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        struck: NewStrike,
        draft: &mut Draft,
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
            self.restate(tenant, hash, (AddressStatus::Active, AddressStatus::Suspect))?;
        }
        draft.rows += 1;
        draft.struck.insert((tenant.clone(), hash), true);
        Ok(())
    }

    /// Forgets all that an address is blamed for; false if there was nothing.
    pub(super) fn forgive(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        draft: &mut Draft,
    ) -> StoreResult<bool> {
        let forgotten = self
            .conn
            .prepare_cached("DELETE FROM strike WHERE tenant = ?1 AND hash = ?2")
            .and_then(|mut delete| delete.execute(params![tenant.as_str(), hash.0]))
            .map_err(sql)?;
        self.restate(tenant, hash, (AddressStatus::Suspect, AddressStatus::Active))?;
        draft.rows += forgotten as u64;
        draft.struck.insert((tenant.clone(), hash), false);
        Ok(forgotten > 0)
    }

    fn restate(
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
        draft: &mut Draft,
    ) -> StoreResult<()> {
        draft.rows += 1;
        let row = params![tenant.as_str(), hash.0, to_json(target)?];
        self.conn
            .prepare_cached(
                "UPDATE address SET target = ?3 \
                 WHERE tenant = ?1 AND hash = ?2 AND target IS NOT NULL",
            )
            .and_then(|mut update| update.execute(row))
            .map_err(sql)?;
        Ok(())
    }

    /// Forgets what is too old to be held against anyone. True if there is more.
    pub(super) fn prune_strikes(&mut self) -> StoreResult<bool> {
        let limit = self.shared.now() - KEPT;
        let old = "SELECT DISTINCT tenant, hash FROM strike WHERE last <= ?1 LIMIT ?2";
        let found = places(&self.conn, old, params![limit.0, PRUNED_AT_ONCE])?;
        if found.is_empty() {
            return Ok(false);
        }
        let more = found.len() >= PRUNED_AT_ONCE as usize;
        self.transact_surely(|writer, draft| {
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
                draft.struck.insert((tenant.clone(), *hash), left);
                draft.rows += 1;
            }
            Ok(())
        })?;
        Ok(more)
    }
}
