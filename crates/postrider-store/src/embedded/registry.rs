//! The registry: addresses, keys and settings.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::id::{from_order_key, order_key, random_tail};
use postrider_core::ports::store::{
    ApiKey, NewAddress, Page, Registry, SigningKey, SigningKind, StoreResult, StrikeFilter,
    StruckAddress,
};
use postrider_core::{Address, AddressHash, AddressId, ChannelKind, KeyId, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::embedded::EmbeddedStore;
use crate::embedded::reserve::DiskReserve;
use crate::embedded::sql::error::{damaged, sql};
use crate::embedded::sql::rows::{get, parse, stored_target, to_json};
use crate::embedded::sql::strikes;
use crate::embedded::writer::Writer;

#[async_trait]
impl Registry for EmbeddedStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        self.run_task(move |writer| writer.put_address(&new)).await
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        let tenant = tenant.clone();
        self.shared
            .read(move |conn, _| {
                let found = select_addresses(
                    conn,
                    "SELECT * FROM address WHERE seq = ?1 AND tenant = ?2",
                    params![order_key(id.0) as i64, tenant.as_str()],
                )?;
                Ok(found.into_iter().find(|address| address.id == id))
            })
            .await
    }

    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool> {
        let row = (order_key(id.0) as i64, random_tail(id.0) as i64, tenant.as_str().to_owned());
        self.run_task(move |writer| {
            writer.transact_surely(|writer, effects| {
                effects.rows += 1;
                let delete = "DELETE FROM address WHERE seq = ?1 AND tail = ?2 AND tenant = ?3";
                Ok(writer.conn.execute(delete, params![row.0, row.1, row.2]).map_err(sql)? > 0)
            })
        })
        .await
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
                let mut items = select_addresses(conn, query, row)?;
                let more = items.len() > limit;
                items.truncate(limit);
                Ok(Page { next: items.last().filter(|_| more).map(|a| a.id), items })
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
        self.run_task(move |writer| {
            writer.transact_surely(|writer, effects| writer.forgive(&tenant, hash, effects))
        })
        .await
    }

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()> {
        let scope = to_json(&key.scope)?;
        self.run_task(move |writer| {
            writer.transact(|writer, effects| {
                effects.rows += 1;
                let row = params![
                    key.id.0.to_be_bytes(),
                    key.tenant.as_str(),
                    key.name,
                    scope,
                    key.secret_hash,
                    key.created_at.0,
                    key.revoked_at.map(|at| at.0),
                ];
                let insert = "INSERT OR REPLACE INTO api_key (id, tenant, name, scope, \
                              secret_hash, created, revoked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                writer.conn.execute(insert, row).map_err(sql).map(drop)
            })
        })
        .await
    }

    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool> {
        self.run_task(move |writer| {
            writer.transact_surely(|writer, effects| {
                effects.rows += 1;
                let row = params![id.0.to_be_bytes(), writer.shared.now().0];
                let update = "UPDATE api_key SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
                Ok(writer.conn.execute(update, row).map_err(sql)? > 0)
            })
        })
        .await
    }

    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>> {
        self.shared
            .read(|conn, _| select(conn, "SELECT * FROM api_key ORDER BY id", [], api_key))
            .await
    }

    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()> {
        self.run_task(move |writer| {
            writer.transact(|writer, effects| {
                effects.rows += 2;
                writer.put_signing_key(&key)
            })
        })
        .await
    }

    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>> {
        self.shared
            .read(|conn, _| select(conn, "SELECT * FROM signing_key ORDER BY id", [], signing_key))
            .await
    }

    async fn put_setting(&self, name: &str, json: Option<&str>) -> StoreResult<()> {
        let (name, json) = (name.to_owned(), json.map(str::to_owned));
        self.run_task(move |writer| {
            writer.transact_surely(|writer, effects| {
                effects.rows += 1;
                let done = match &json {
                    Some(json) => writer.conn.execute(
                        "INSERT OR REPLACE INTO setting (name, json) VALUES (?1, ?2)",
                        params![name, json],
                    ),
                    None => writer.conn.execute("DELETE FROM setting WHERE name = ?1", [&name]),
                };
                done.map(drop).map_err(sql)
            })
        })
        .await
    }

    async fn settings(&self) -> StoreResult<Vec<(String, String)>> {
        self.shared
            .read(|conn, _| {
                let mut select = conn
                    .prepare_cached("SELECT name, json FROM setting ORDER BY name")
                    .map_err(sql)?;
                let rows =
                    select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql)?;
                rows.collect::<Result<_, _>>().map_err(sql)
            })
            .await
    }

    fn new_key_id(&self) -> KeyId {
        KeyId(self.shared.ids().next(self.shared.now()))
    }
}

impl Writer {
    fn put_address(&mut self, new: &NewAddress) -> StoreResult<(Address, bool)> {
        if !self.reserve.is_whole() {
            return Err(DiskReserve::refusal());
        }
        let active = to_json(&postrider_core::AddressStatus::Active)?;
        self.transact(|writer, effects| {
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
            let found = select_addresses(
                &writer.conn,
                "INSERT INTO address (seq, tail, tenant, recipient, channel, hash, target, status) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (tenant, hash) DO UPDATE SET \
                 recipient = excluded.recipient, channel = excluded.channel, \
                 target = excluded.target, status = excluded.status, gone_at = NULL RETURNING *",
                row,
            )?;
            writer
                .conn
                .prepare_cached("DELETE FROM gone WHERE tenant = ?1 AND hash = ?2")
                .and_then(|mut delete| delete.execute(params![new.tenant.as_str(), new.hash.0]))
                .map_err(sql)?;
            effects.registered.push((new.tenant.clone(), new.hash));
            if writer.shared.index().may_be_struck(&new.tenant, new.hash) {
                writer.forgive(&new.tenant, new.hash, effects)?;
            }
            effects.rows += 1;
            let address = found.into_iter().next().ok_or_else(|| damaged("an address"))?;
            let is_new = address.id == id;
            Ok((address, is_new))
        })
    }

    fn put_signing_key(&self, key: &SigningKey) -> StoreResult<()> {
        let kind = kind_name(key.kind);
        let retire = "UPDATE signing_key SET retired = ?3 \
                      WHERE tenant = ?1 AND kind = ?2 AND retired IS NULL";
        let now = self.shared.now().0;
        self.conn.execute(retire, params![key.tenant.as_str(), kind, now]).map_err(sql)?;
        let row = params![
            key.id.0.to_be_bytes(),
            key.tenant.as_str(),
            kind,
            key.secret,
            key.created_at.0,
            key.retired_at.map(|at| at.0),
        ];
        let insert = "INSERT OR REPLACE INTO signing_key (id, tenant, kind, secret, created, \
                      retired) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.conn.execute(insert, row).map_err(sql).map(drop)
    }
}

fn select<T>(
    conn: &Connection,
    query: &str,
    row: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> StoreResult<T>,
) -> StoreResult<Vec<T>> {
    let mut select = conn.prepare_cached(query).map_err(sql)?;
    let mut rows = select.query(row).map_err(sql)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        items.push(read(row)?);
    }
    Ok(items)
}

fn select_addresses(
    conn: &Connection,
    query: &str,
    row: impl rusqlite::Params,
) -> StoreResult<Vec<Address>> {
    select(conn, query, row, address)
}

fn address(row: &Row<'_>) -> StoreResult<Address> {
    let seq = get::<i64>(row, "seq")? as u64;
    let id = AddressId(from_order_key(seq, get::<i64>(row, "tail")? as u64));
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
        gone_at: get::<Option<i64>>(row, "gone_at")?.map(Timestamp),
    })
}

fn api_key(row: &Row<'_>) -> StoreResult<ApiKey> {
    Ok(ApiKey {
        id: KeyId(u128::from_be_bytes(get(row, "id")?)),
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        name: get::<String>(row, "name")?.into(),
        scope: parse(&get::<String>(row, "scope")?, "an API key's scope")?,
        secret_hash: get(row, "secret_hash")?,
        created_at: Timestamp(get(row, "created")?),
        revoked_at: get::<Option<i64>>(row, "revoked")?.map(Timestamp),
    })
}

fn signing_key(row: &Row<'_>) -> StoreResult<SigningKey> {
    let kind = get::<String>(row, "kind")?;
    let kinds = [SigningKind::Vapid, SigningKind::Webhook, SigningKind::Hash];
    let kind = kinds.into_iter().find(|known| kind_name(*known) == kind);
    Ok(SigningKey {
        id: KeyId(u128::from_be_bytes(get(row, "id")?)),
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        kind: kind.ok_or_else(|| damaged("a signing key's kind"))?,
        secret: get(row, "secret")?,
        created_at: Timestamp(get(row, "created")?),
        retired_at: get::<Option<i64>>(row, "retired")?.map(Timestamp),
    })
}

fn kind_name(kind: SigningKind) -> &'static str {
    match kind {
        SigningKind::Vapid => "vapid",
        SigningKind::Webhook => "webhook",
        SigningKind::Hash => "hash",
    }
}
