//! The registry: addresses, keys and settings.

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

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()> {
        self.run_task(move |writer| {
            writer.transact(|writer| {
                writer.effects.rows += 1;
                writer.insert_api_key(&key)
            })
        })
        .await
    }

    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool> {
        let row = (id.0.to_be_bytes(), self.shared.now().0);
        self.change("UPDATE api_key SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL", row).await
    }

    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>> {
        let select = "SELECT * FROM api_key ORDER BY id";
        self.shared.read(|conn, _| all_rows(conn, select, [], api_key)).await
    }

    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()> {
        self.run_task(move |writer| {
            writer.transact(|writer| {
                writer.effects.rows += 2;
                writer.put_signing_key(&key)
            })
        })
        .await
    }

    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>> {
        let select = "SELECT * FROM signing_key ORDER BY id";
        self.shared.read(|conn, _| all_rows(conn, select, [], signing_key)).await
    }

    async fn put_setting(&self, name: &str, json: Option<&str>) -> StoreResult<()> {
        let name = name.to_owned();
        let done = match json.map(str::to_owned) {
            Some(json) => {
                let insert = "INSERT OR REPLACE INTO setting (name, json) VALUES (?1, ?2)";
                self.change(insert, (name, json)).await
            }
            None => self.change("DELETE FROM setting WHERE name = ?1", (name,)).await,
        };
        done.map(drop)
    }

    async fn settings(&self) -> StoreResult<Vec<(String, String)>> {
        let select = "SELECT name, json FROM setting ORDER BY name";
        let pair = |row: &Row<'_>| Ok((get(row, 0)?, get(row, 1)?));
        self.shared.read(move |conn, _| all_rows(conn, select, [], pair)).await
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

    pub(crate) fn insert_api_key(&self, key: &ApiKey) -> StoreResult<()> {
        let row = params![
            key.id.0.to_be_bytes(),
            key.tenant.as_str(),
            key.name,
            to_json(&key.scope)?,
            key.secret_hash,
            key.created_at.0,
            key.revoked_at.map(|at| at.0),
        ];
        let insert = "INSERT OR REPLACE INTO api_key (id, tenant, name, scope, secret_hash, created, \
                      revoked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        run(&self.conn, insert, row).map(drop)
    }

    fn put_signing_key(&self, key: &SigningKey) -> StoreResult<()> {
        let kind = kind_name(key.kind);
        let retire = "UPDATE signing_key SET retired = ?3 \
                      WHERE tenant = ?1 AND kind = ?2 AND retired IS NULL";
        let now = self.shared.now().0;
        run(&self.conn, retire, params![key.tenant.as_str(), kind, now])?;
        self.insert_signing_key(key)
    }

    pub(crate) fn insert_signing_key(&self, key: &SigningKey) -> StoreResult<()> {
        let row = params![
            key.id.0.to_be_bytes(),
            key.tenant.as_str(),
            kind_name(key.kind),
            key.secret,
            key.created_at.0,
            key.retired_at.map(|at| at.0),
        ];
        let insert = "INSERT OR REPLACE INTO signing_key (id, tenant, kind, secret, created, \
                      retired) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        run(&self.conn, insert, row).map(drop)
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

pub(crate) fn api_key(row: &Row<'_>) -> StoreResult<ApiKey> {
    Ok(ApiKey {
        id: KeyId(u128::from_be_bytes(get(row, "id")?)),
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        name: get::<String>(row, "name")?.into(),
        scope: parse(&get::<String>(row, "scope")?, "an API key's scope")?,
        secret_hash: get(row, "secret_hash")?,
        created_at: Timestamp(get(row, "created")?),
        revoked_at: optional_time(row, "revoked")?,
    })
}

pub(crate) fn signing_key(row: &Row<'_>) -> StoreResult<SigningKey> {
    let kind = get::<String>(row, "kind")?;
    let kinds = [SigningKind::Vapid, SigningKind::Webhook, SigningKind::Hash];
    let kind = kinds.into_iter().find(|known| kind_name(*known) == kind);
    Ok(SigningKey {
        id: KeyId(u128::from_be_bytes(get(row, "id")?)),
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        kind: kind.ok_or_else(|| damaged("a signing key's kind"))?,
        secret: get(row, "secret")?,
        created_at: Timestamp(get(row, "created")?),
        retired_at: optional_time(row, "retired")?,
    })
}

pub(crate) fn kind_name(kind: SigningKind) -> &'static str {
    match kind {
        SigningKind::Vapid => "vapid",
        SigningKind::Webhook => "webhook",
        SigningKind::Hash => "hash",
    }
}
