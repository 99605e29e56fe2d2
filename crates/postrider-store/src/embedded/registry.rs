//! The registry: addresses and their strikes.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Address, AddressHash, AddressId, ChannelKind, KeyId};
use rusqlite::Params;

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::sql::rows::{optional_time, stored_target};
use crate::embedded::sql::strikes;
use crate::view::page;

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

    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool> {
        let row = (order_key(id.0) as i64, random_tail(id.0) as i64, tenant.as_str().to_owned());
        self.change("DELETE FROM address WHERE seq = ?1 AND tail = ?2 AND tenant = ?3", row).await
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

impl EmbeddedStore {
    /// Runs one statement in a transaction of its own. Answers whether it changed anything.
    async fn change(
        &self,
        text: &'static str,
        row: impl Params + Clone + Send + 'static,
    ) -> StoreResult<bool> {
        self.run_task(move |writer| {
            writer.transact_surely(|writer| {
                writer.effects.rows += 1;
                Ok(run(&writer.conn, text, row.clone())? > 0)
            })
        })
        .await
    }
}

impl Writer {
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
                "DELETE FROM gone WHERE tenant = ?1 AND hash = ?2",
                params![new.tenant.as_str(), new.hash.0],
            )?;
            writer.effects.gone.push((new.tenant.clone(), new.hash, false));
            if writer.shared.index().may_be_struck(&new.tenant, new.hash) {
                writer.forgive(&new.tenant, new.hash)?;
            }
            writer.effects.rows += 1;
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
