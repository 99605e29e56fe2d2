//! Addresses and their strikes.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{
    Address, AddressHash, AddressId, AddressStatus, ChannelKind, KeyId, Target, TenantId, Timestamp,
};
use tokio_postgres::Row;

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::rows::hash;
use super::strikes::{forgive, strike};
use super::value::{PgId, get};
use crate::view::page;
use postrider_core::model::id::order_key;

pub(super) fn status_name(status: AddressStatus) -> &'static str {
    match status {
        AddressStatus::Active => "active",
        AddressStatus::Suspect => "suspect",
        AddressStatus::Gone => "gone",
        AddressStatus::Expired => "expired",
    }
}

pub(super) fn address(row: &Row) -> PgResult<Address> {
    let id = AddressId(get::<PgId>(row, "id")?.0);
    let status = match get::<&str>(row, "status")? {
        "suspect" => AddressStatus::Suspect,
        "gone" => AddressStatus::Gone,
        "expired" => AddressStatus::Expired,
        _ => AddressStatus::Active,
    };
    let channel = ChannelKind::parse(get(row, "channel")?);
    Ok(Address {
        id,
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        recipient: get::<Option<String>>(row, "recipient")?.map(Into::into),
        channel: channel.ok_or_else(|| PgFailure::damaged("the channel of an address"))?,
        hash: hash(get(row, "hash")?)?,
        target: get::<Option<&str>>(row, "target")?.and_then(Target::from_stored),
        status,
        created_at: id.created_at(),
        gone_at: get::<Option<i64>>(row, "gone_at")?.map(Timestamp),
    })
}

impl PostgresStore {
    async fn write_address(&self, new: &NewAddress) -> PgResult<(Address, bool)> {
        let id = PgId(self.shared.new_id());
        let (tenant, place) = (new.tenant.as_str(), new.hash.0.as_slice());
        let mut session = self.shared.pool.durable().await?;
        session.begin().await?;
        let upsert = "INSERT INTO address AS a (id, tenant, recipient, channel, hash, target, status) \
                      VALUES ($1, $2, $3, $4, $5, $6, 'active') ON CONFLICT (tenant, hash) DO UPDATE SET \
                      recipient = excluded.recipient, channel = excluded.channel, \
                      target = excluded.target, status = 'active', gone_at = NULL RETURNING *";
        let (recipient, channel) = (new.recipient.as_deref(), new.target.channel());
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&id, &tenant, &recipient, &channel.name(), &place, &new.target.as_json()];
        let row = session.first(upsert, &values).await?;
        let row = row.ok_or_else(|| PgFailure::damaged("an address was not written"))?;
        let delete = "DELETE FROM gone WHERE hash = $1 AND tenant = $2 AND deleted_before IS NULL";
        session.run(delete, &[&place, &tenant]).await?;
        let delete = "DELETE FROM strike WHERE hash = $1 AND tenant = $2";
        session.run(delete, &[&place, &tenant]).await?;
        session.commit().await?;
        let address = address(&row)?;
        let is_new = address.id.0 == id.0;
        Ok((address, is_new))
    }

    async fn first_known(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> PgResult<Option<AddressHash>> {
        let mut session = self.shared.pool.durable().await?;
        let select = "SELECT EXISTS (SELECT 1 FROM address WHERE tenant = $1 AND hash = $2) \
                      OR EXISTS (SELECT 1 FROM gone WHERE tenant = $1 AND hash = $2) \
                      OR EXISTS (SELECT 1 FROM strike WHERE tenant = $1 AND hash = $2) AS known";
        for hash in hashes {
            let row = session.first(select, &[&tenant.as_str(), &hash.0.as_slice()]).await?;
            if row.map(|row| get::<bool>(&row, "known")).transpose()?.unwrap_or(false) {
                return Ok(Some(*hash));
            }
        }
        Ok(None)
    }

    async fn move_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> PgResult<bool> {
        let (tenant, new) = (tenant.as_str(), hash.0.as_slice());
        let mut session = self.shared.pool.durable().await?;
        session.begin().await?;
        let select = "SELECT hash FROM address WHERE id = $1 AND tenant = $2 AND NOT EXISTS \
                      (SELECT 1 FROM address WHERE tenant = $2 AND hash = $3) FOR UPDATE";
        let Some(row) = session.first(select, &[&PgId(id.0), &tenant, &new]).await? else {
            session.roll_back().await?;
            return Ok(false);
        };
        let old: Vec<u8> = get(&row, "hash")?;
        let update = "UPDATE address SET hash = $3 WHERE tenant = $1 AND hash = $2";
        session.run(update, &[&tenant, &old, &new]).await?;
        for delete in [
            "DELETE FROM gone WHERE tenant = $1 AND hash = $2",
            "DELETE FROM strike WHERE tenant = $1 AND hash = $2",
        ] {
            session.run(delete, &[&tenant, &new]).await?;
        }
        for update in [
            "UPDATE gone SET hash = $3 WHERE tenant = $1 AND hash = $2",
            "UPDATE strike SET hash = $3 WHERE tenant = $1 AND hash = $2",
        ] {
            session.run(update, &[&tenant, &old, &new]).await?;
        }
        session.commit().await?;
        Ok(true)
    }

    async fn read_addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> PgResult<Page<Address, AddressId>> {
        let limit = limit.max(1);
        let mut session = self.shared.pool.durable().await?;
        let after = PgId(cursor.map_or(0, |id| id.0));
        let rows = match recipient {
            Some(recipient) => {
                let select = "SELECT * FROM address WHERE tenant = $1 AND recipient = $2 AND id > $3 \
                              ORDER BY id LIMIT $4";
                let more = limit as i64 + 1;
                session.rows(select, &[&tenant.as_str(), &recipient, &after, &more]).await?
            }
            None => {
                let select =
                    "SELECT * FROM address WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3";
                session.rows(select, &[&tenant.as_str(), &after, &(limit as i64 + 1)]).await?
            }
        };
        let found = rows.iter().map(address).collect::<PgResult<_>>()?;
        Ok(page(found, limit, |address| address.id))
    }

    async fn read_strikes(
        &self,
        tenant: &TenantId,
        which: &StrikeFilter,
    ) -> PgResult<Page<StruckAddress, AddressHash>> {
        let limit = which.limit.max(1);
        let mut session = self.shared.pool.durable().await?;
        let select = "SELECT s.* FROM (SELECT hash FROM strike WHERE tenant = $1 \
                      AND ($2::bytea IS NULL OR hash = $2) AND ($3::bytea IS NULL OR hash > $3) \
                      GROUP BY hash HAVING NOT $4 OR bool_or(suspect) ORDER BY hash LIMIT $5) AS h \
                      JOIN strike s ON s.hash = h.hash AND s.tenant = $1 ORDER BY s.hash, s.kind";
        let one = which.hash.as_ref().map(|hash| hash.0.as_slice());
        let after = which.cursor.as_ref().map(|hash| hash.0.as_slice());
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&tenant.as_str(), &one, &after, &which.suspect, &(limit as i64 + 1)];
        let mut found: Vec<StruckAddress> = Vec::new();
        for row in session.rows(select, &values).await? {
            let of = hash(get(&row, "hash")?)?;
            match found.last_mut().filter(|last| last.hash == of) {
                Some(last) => last.strikes.push(strike(&row)?),
                None => found.push(StruckAddress { hash: of, strikes: vec![strike(&row)?] }),
            }
        }
        Ok(page(found, limit, |struck| struck.hash))
    }
}

#[async_trait]
impl Registry for PostgresStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        Ok(self.write_address(&new).await?)
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        let mut session = self.shared.pool.durable().await?;
        let select = "SELECT * FROM address WHERE id = $1 AND tenant = $2";
        let row = session.first(select, &[&PgId(id.0), &tenant.as_str()]).await?;
        Ok(row.map(|row| address(&row)).transpose()?)
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        let key = order_key(self.shared.new_id()) as i64;
        let mut session = self.shared.pool.durable().await?;
        let delete = "WITH a AS (DELETE FROM address WHERE id = $1 AND tenant = $2 RETURNING hash, tenant), \
                      m AS (INSERT INTO gone AS g (hash, tenant, deleted_before) SELECT hash, tenant, $3 FROM a \
                      WHERE $4 ON CONFLICT (hash, tenant) DO UPDATE SET deleted_before = excluded.deleted_before \
                      WHERE g.deleted_before IS NOT NULL) SELECT 1 FROM a";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&PgId(id.0), &tenant.as_str(), &key, &cancels];
        Ok(session.first(delete, &values).await?.is_some())
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        Ok(self.first_known(tenant, hashes).await?)
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        Ok(self.move_address(tenant, id, hash).await?)
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        Ok(self.read_addresses(tenant, recipient, cursor, limit).await?)
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        Ok(self.read_strikes(tenant, &which).await?)
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        let mut session = self.shared.pool.durable().await?;
        session.begin().await?;
        let struck = forgive(&mut session, tenant, hash).await?;
        session.commit().await?;
        Ok(struck)
    }

    fn new_key_id(&self) -> KeyId {
        KeyId(self.shared.new_id())
    }
}
