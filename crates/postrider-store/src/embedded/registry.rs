//! The registry: addresses and their strikes.

use std::iter;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, ChannelKind, KeyId};

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::requests::{SharedRow, WriterRequest};
use crate::embedded::reserve::DiskReserve;
use crate::embedded::sql::rows::{optional_time, stored_target};
use crate::embedded::sql::strikes;
use crate::progress::DELETED_MARKS_KEPT;
use crate::view::page;
use postrider_core::model::id::order_key_at;

const ADDRESSES: &str = "SELECT * FROM address WHERE tenant = ?1 AND seq > ?2 AND ?4 IS NULL \
                         ORDER BY seq LIMIT ?3";
const ADDRESSES_OF_RECIPIENT: &str = "SELECT * FROM address WHERE tenant = ?1 AND seq > ?2 \
                                      AND recipient = ?4 ORDER BY seq LIMIT ?3";

#[async_trait]
impl Registry for EmbeddedStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        let row = iter::once(Ok(NewAddressRow(new)));
        let answers = self.writer.write(row, WriterRequest::Register).await;
        answers.into_iter().next().unwrap_or(Err(StoreError::Closed))
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        let tenant = tenant.clone();
        let select = "SELECT * FROM address WHERE seq = ?1 AND tenant = ?2";
        self.shared
            .read(move |conn, _| {
                let row = params![order_key(id.0) as i64, tenant.as_str()];
                Ok(first_row(conn, select, row, address)?.filter(|address| address.id == id))
            })
            .await
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        let tenant = tenant.clone();
        let delete = move |writer: &mut Writer| {
            writer.transact_surely(|writer| writer.delete_address(&tenant, id, cancels))
        };
        self.run_task(delete).await
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        let (tenant, hashes) = (tenant.clone(), hashes.to_vec());
        let select = "SELECT EXISTS (SELECT 1 FROM address WHERE tenant = ?1 AND hash = ?2) \
                      OR EXISTS (SELECT 1 FROM gone WHERE tenant = ?1 AND hash = ?2) \
                      OR EXISTS (SELECT 1 FROM strike WHERE tenant = ?1 AND hash = ?2)";
        self.shared
            .read(move |conn, _| {
                for hash in hashes {
                    let row = params![tenant.as_str(), hash.0];
                    if value::<bool>(conn, select, row)?.unwrap_or(false) {
                        return Ok(Some(hash));
                    }
                }
                Ok(None)
            })
            .await
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        let tenant = tenant.clone();
        let rehash = move |writer: &mut Writer| {
            writer.transact_surely(|writer| writer.rehash_address(&tenant, id, hash))
        };
        self.run_task(rehash).await
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        let limit = limit.max(1);
        let (tenant, recipient) = (tenant.clone(), recipient.map(str::to_owned));
        let after = cursor.map_or(-1, |id| order_key(id.0) as i64);
        let most = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
        self.shared
            .read(move |conn, _| {
                let query = if recipient.is_none() { ADDRESSES } else { ADDRESSES_OF_RECIPIENT };
                let row = params![tenant.as_str(), after, most, recipient];
                Ok(page(all_rows(conn, query, row, address)?, limit, |address| address.id))
            })
            .await
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        let tenant = tenant.clone();
        self.shared.read(move |conn, _| strikes::page(conn, &tenant, &which)).await
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        let tenant = tenant.clone();
        self.run_task(move |writer| writer.transact_surely(|writer| writer.forgive(&tenant, hash)))
            .await
    }

    fn new_key_id(&self) -> KeyId {
        KeyId(self.shared.ids().next(self.shared.now()))
    }
}

impl Writer {
    fn delete_address(
        &mut self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        let delete =
            "DELETE FROM address WHERE seq = ?1 AND tail = ?2 AND tenant = ?3 RETURNING hash";
        let row = params![order_key(id.0) as i64, random_tail(id.0) as i64, tenant.as_str()];
        let Some(hash) = first_row(&self.conn, delete, row, |row| get::<[u8; 16]>(row, 0))? else {
            return Ok(false);
        };
        if cancels {
            let now = self.shared.now();
            let key = order_key(self.shared.ids().next(now));
            let mark = "INSERT INTO gone (tenant, hash, deleted_before) VALUES (?1, ?2, ?3) \
                        ON CONFLICT (tenant, hash) DO UPDATE SET deleted_before = excluded.deleted_before \
                        WHERE deleted_before IS NOT NULL";
            run(&self.conn, mark, params![tenant.as_str(), hash, key as i64])?;
            self.effects.gone.push((tenant.clone(), AddressHash(hash), true));
        }
        Ok(true)
    }

    fn rehash_address(
        &mut self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        let (seq, tail) = (order_key(id.0) as i64, random_tail(id.0) as i64);
        let select = "SELECT hash FROM address WHERE seq = ?1 AND tail = ?2 AND tenant = ?3";
        let row = params![seq, tail, tenant.as_str()];
        let Some(old) = first_row(&self.conn, select, row, |row| get::<[u8; 16]>(row, 0))? else {
            return Ok(false);
        };
        let update = "UPDATE OR IGNORE address SET hash = ?3 WHERE tenant = ?1 AND hash = ?2";
        if run(&self.conn, update, params![tenant.as_str(), old, hash.0])? == 0 {
            return Ok(false);
        }
        let update = "UPDATE OR REPLACE gone SET hash = ?3 WHERE tenant = ?1 AND hash = ?2";
        if run(&self.conn, update, params![tenant.as_str(), old, hash.0])? > 0 {
            self.effects.gone.push((tenant.clone(), hash, true));
        }
        let update = "UPDATE OR REPLACE strike SET hash = ?3 WHERE tenant = ?1 AND hash = ?2";
        if run(&self.conn, update, params![tenant.as_str(), old, hash.0])? > 0 {
            self.effects.struck.insert((tenant.clone(), hash), true);
        }
        Ok(true)
    }

    /// Deletes marks of addresses that were deleted long ago. True if there are more.
    pub(crate) fn prune_deleted_marks(&mut self) -> StoreResult<bool> {
        const AT_ONCE: usize = 1_000;
        let before = order_key_at(self.shared.earliest() - DELETED_MARKS_KEPT) as i64;
        self.transact_surely(|writer| {
            let delete = "DELETE FROM gone WHERE (tenant, hash) IN (SELECT tenant, hash FROM gone \
                          WHERE deleted_before < ?1 LIMIT ?2)";
            let deleted = run(&writer.conn, delete, params![before, AT_ONCE as i64])?;
            Ok(deleted == AT_ONCE)
        })
    }

    fn put_address(&mut self, new: &NewAddress) -> StoreResult<(Address, bool)> {
        let active = to_json(&postrider_core::AddressStatus::Active)?;
        let id = AddressId(self.shared.ids().next(self.shared.now()));
        let channel = new.target.channel();
        let row = params![
            order_key(id.0) as i64,
            random_tail(id.0) as i64,
            new.tenant.as_str(),
            new.recipient.as_deref(),
            channel.name(),
            new.hash.0,
            new.target.as_json(),
            active,
        ];
        let found = first_row(
            &self.conn,
            "INSERT INTO address (seq, tail, tenant, recipient, channel, hash, target, status) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, hash) DO UPDATE SET \
             recipient = excluded.recipient, channel = excluded.channel, \
             target = excluded.target, status = excluded.status, gone_at = NULL RETURNING *",
            row,
            address,
        )?;
        run(
            &self.conn,
            "DELETE FROM gone WHERE tenant = ?1 AND hash = ?2 AND deleted_before IS NULL",
            params![new.tenant.as_str(), new.hash.0],
        )?;
        let marked = "SELECT 1 FROM gone WHERE tenant = ?1 AND hash = ?2";
        let place = params![new.tenant.as_str(), new.hash.0];
        let is_marked = value::<i64>(&self.conn, marked, place)?.is_some();
        self.effects.gone.push((new.tenant.clone(), new.hash, is_marked));
        // Results of the same transaction may have struck it.
        let name = (new.tenant.clone(), new.hash);
        let is_struck = self.effects.struck.get(&name) == Some(&true);
        if is_struck || self.shared.index().may_be_struck(&new.tenant, new.hash) {
            self.forgive(&new.tenant, new.hash)?;
        }
        let address = found.ok_or_else(|| damaged("an address"))?;
        let is_new = address.id == id;
        Ok((address, is_new))
    }
}

/// An address to be registered. Many share a transaction, so that a flood of them holds up nobody.
pub(crate) struct NewAddressRow(NewAddress);

impl SharedRow for NewAddressRow {
    type Answer = (Address, bool);
    const IS_NEW_WORK: bool = true;

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<(Address, bool)>> {
        rows.iter().map(|row| writer.put_address(&row.0)).collect()
    }

    /// New work does not use the reserve.
    fn transact(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<(Address, bool)>> {
        if !writer.reserve.is_whole() {
            return Err(DiskReserve::refusal());
        }
        writer.transact(|writer| Self::write(rows, writer))
    }
}

pub(crate) fn address(row: &Row<'_>) -> StoreResult<Address> {
    let id = AddressId(row_id(row)?);
    let target: Option<String> = get(row, "target")?;
    let channel = ChannelKind::parse(&get::<String>(row, "channel")?);
    Ok(Address {
        id,
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        recipient: get::<Option<String>>(row, "recipient")?.map(Arc::from),
        channel: channel.ok_or_else(|| damaged("an address's channel"))?,
        hash: AddressHash(get(row, "hash")?),
        target: target.map(|text| stored_target(&text, "an address")).transpose()?,
        status: parse(&get::<String>(row, "status")?, "an address's status")?,
        created_at: id.created_at(),
        gone_at: optional_time(row, "gone_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sql::schema::open_writer;

    #[test]
    fn a_page_of_addresses_reads_no_rows_of_others_and_none_before_its_begin() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        for (query, found_by) in [
            (ADDRESSES, "INDEX address_tenant (tenant=? AND rowid>?)"),
            (
                ADDRESSES_OF_RECIPIENT,
                "INDEX address_recipient (tenant=? AND recipient=? AND rowid>?)",
            ),
        ] {
            let mut select = conn.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let rows = select.query_map(params![1, 1, 1, 1], |row| row.get(3)).unwrap();
            let plan: Vec<String> = rows.collect::<Result<_, _>>().unwrap();
            assert_eq!(plan.len(), 1, "nothing is sorted: {plan:?}");
            assert!(plan[0].contains(found_by), "{plan:?}");
        }
    }
}
