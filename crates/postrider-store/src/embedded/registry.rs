//! The registry: addresses and their strikes.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, ChannelKind, KeyId};

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::sql::rows::{optional_time, stored_target};
use crate::embedded::sql::strikes;
use crate::progress::DELETED_MARKS_KEPT;
use crate::view::page;
use postrider_core::model::id::order_key_at;

#[async_trait]
impl Registry for EmbeddedStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        self.run_task(move |writer| writer.put_address(&new)).await
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
                let query = match recipient {
                    None => {
                        "SELECT * FROM address WHERE tenant = ?1 AND seq > ?2 AND ?4 IS NULL \
                         ORDER BY seq LIMIT ?3"
                    }
                    Some(_) => {
                        "SELECT * FROM address WHERE tenant = ?1 AND seq > ?2 AND recipient = ?4 \
                         ORDER BY seq LIMIT ?3"
                    }
                };
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
        if !self.reserve.is_whole() {
            return Err(DiskReserve::refusal());
        }
        let active = to_json(&postrider_core::AddressStatus::Active)?;
        self.transact(|writer| {
            let now = writer.shared.now();
            let id = AddressId(writer.shared.ids().next(now));
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
                &writer.conn,
                "INSERT INTO address (seq, tail, tenant, recipient, channel, hash, target, status) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, hash) DO UPDATE SET \
                 recipient = excluded.recipient, channel = excluded.channel, \
                 target = excluded.target, status = excluded.status, gone_at = NULL RETURNING *",
                row,
                address,
            )?;
            run(
                &writer.conn,
                "DELETE FROM gone WHERE tenant = ?1 AND hash = ?2 AND deleted_before IS NULL",
                params![new.tenant.as_str(), new.hash.0],
            )?;
            let marked = "SELECT 1 FROM gone WHERE tenant = ?1 AND hash = ?2";
            let place = params![new.tenant.as_str(), new.hash.0];
            let is_marked = value::<i64>(&writer.conn, marked, place)?.is_some();
            writer.effects.gone.push((new.tenant.clone(), new.hash, is_marked));
            if writer.shared.index().may_be_struck(&new.tenant, new.hash) {
                writer.forgive(&new.tenant, new.hash)?;
            }
            let address = found.ok_or_else(|| damaged("an address"))?;
            let is_new = address.id == id;
            Ok((address, is_new))
        })
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
