//! Addresses and their strikes.

use async_trait::async_trait;
use futures_util::future::try_join_all;
use postrider_core::ports::store::*;
use postrider_core::{
    Address, AddressHash, AddressId, AddressStatus, ChannelKind, KeyId, Target, TenantId, Timestamp,
};

use super::RedisStore;
use super::changes::{ShardChange, ShardChanges};
use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::marks::{KnownAddress, field_parts, strikes};
use super::names::{address_field, shard_of_address};
use super::pack::{bytes, int, list};
use super::row::{ByteReader, ByteWriter};
use super::shared::RedisShared;
use crate::progress::AddressEnd;
use crate::sharded::{SHARDS, ShardId, in_shard, shard_of};
use crate::view::page;
use postrider_core::model::id::order_key;

/// An address as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredAddress {
    pub(super) id: AddressId,
    pub(super) tenant: TenantId,
    pub(super) recipient: Option<String>,
    pub(super) channel: ChannelKind,
    pub(super) hash: AddressHash,
    pub(super) target: Option<String>,
    pub(super) status: AddressStatus,
    pub(super) gone_at: Option<i64>,
}

impl StoredAddress {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = ByteWriter::default();
        out.id(self.id.0);
        out.text(Some(self.tenant.as_str()));
        out.text(self.recipient.as_deref());
        out.text(Some(self.channel.name()));
        out.0.extend_from_slice(&self.hash.0);
        out.text(self.target.as_deref());
        out.number(match self.status {
            AddressStatus::Active => 0,
            AddressStatus::Suspect => 1,
            AddressStatus::Gone => 2,
            AddressStatus::Expired => 3,
        });
        out.maybe(self.gone_at);
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> RedisResult<Self> {
        let mut from = ByteReader(bytes);
        let id = AddressId(from.id()?);
        let tenant = TenantId(from.text()?.unwrap_or_default().into());
        let recipient = from.text()?;
        let channel = from.text()?.and_then(|name| ChannelKind::parse(&name));
        Ok(Self {
            id,
            tenant,
            recipient,
            channel: channel.ok_or_else(|| RedisFailure::damaged("the channel of an address"))?,
            hash: AddressHash(from.array()?),
            target: from.text()?,
            status: match from.number()? {
                1 => AddressStatus::Suspect,
                2 => AddressStatus::Gone,
                3 => AddressStatus::Expired,
                _ => AddressStatus::Active,
            },
            gone_at: from.maybe()?,
        })
    }

    pub(super) fn address(&self) -> Address {
        Address {
            id: self.id,
            tenant: self.tenant.clone(),
            recipient: self.recipient.as_deref().map(Into::into),
            channel: self.channel,
            hash: self.hash,
            target: self.target.as_deref().and_then(Target::from_stored),
            status: self.status,
            created_at: self.id.created_at(),
            gone_at: self.gone_at.map(Timestamp),
        }
    }

    /// In the lists of a tenant's addresses, and of a recipient's.
    fn members(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let ending = |mut member: Vec<u8>| {
            member.extend_from_slice(&self.id.0.to_be_bytes());
            member.extend_from_slice(&self.hash.0);
            member
        };
        let all = ending(list_name(&self.tenant, None));
        let own = self.recipient.as_deref().map(|name| ending(list_name(&self.tenant, Some(name))));
        (all, own)
    }
}

fn list_name(tenant: &TenantId, recipient: Option<&str>) -> Vec<u8> {
    let mut name = tenant.as_str().as_bytes().to_vec();
    name.push(0);
    if let Some(recipient) = recipient {
        name.extend_from_slice(recipient.as_bytes());
        name.push(0);
    }
    name
}

impl RedisShared {
    pub(super) fn write_address(
        &self,
        one: &mut ShardChange,
        all: &mut ShardChanges,
        before: &KnownAddress,
        after: &KnownAddress,
    ) {
        if before.address == after.address {
            return;
        }
        let [ad, ai, ar, al] =
            ["ad", "ai", "ar", "al"].map(|name| all.key(self.names.of(all.shard, name)));
        if let Some(old) = &before.address {
            let (listed, own) = old.members();
            one.run("HDEL", ad, &[&address_field(&old.tenant, &old.hash)]).run(
                "ZREM",
                ai,
                &[&listed],
            );
            if let Some(own) = own {
                one.run("ZREM", ar, &[&own]);
            }
            if after.address.is_none() && !after.is_moved {
                one.run("HDEL", al, &[&old.id.0.to_be_bytes()]);
            }
        }
        if let Some(new) = &after.address {
            let (listed, own) = new.members();
            let field = address_field(&new.tenant, &new.hash);
            one.run("HSET", ad, &[&field, &new.encode()]).run("ZADD", ai, &[b"0", &listed]);
            if let Some(own) = own {
                one.run("ZADD", ar, &[b"0", &own]);
            }
            if shard_of(new.id.0) == all.shard {
                one.run("HSET", al, &[&new.id.0.to_be_bytes(), &field]);
            }
        }
    }

    async fn put(&self, new: &NewAddress) -> RedisResult<(Address, bool)> {
        let id = AddressId(in_shard(self.new_id(), shard_of_address(&new.hash)));
        let write = |known: &mut KnownAddress| {
            let id = known.address.as_ref().map_or(id, |address| address.id);
            let end = AddressEnd::when_registered(known.marks.end);
            *known = KnownAddress::default();
            known.marks.end = end;
            known.address = Some(StoredAddress {
                id,
                tenant: new.tenant.clone(),
                recipient: new.recipient.as_deref().map(str::to_owned),
                channel: new.target.channel(),
                hash: new.hash,
                target: Some(new.target.as_json().to_owned()),
                status: AddressStatus::Active,
                gone_at: None,
            });
        };
        let (_, after) = self.change_address(&new.tenant, new.hash, None, write).await?;
        let address =
            after.address.ok_or_else(|| RedisFailure::damaged("an address was not written"))?;
        Ok((address.address(), address.id == id))
    }

    /// The tenant and the hash of an address.
    async fn locate(&self, id: AddressId) -> RedisResult<Option<(TenantId, AddressHash)>> {
        let key = self.names.of(shard_of(id.0), "al");
        let asked = words(&[b"HGET", key.as_bytes(), &id.0.to_be_bytes()]);
        bytes(self.link.ask(&asked).await?).map(|field| field_parts(&field)).transpose()
    }

    pub(super) async fn stored_address(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
    ) -> RedisResult<Option<StoredAddress>> {
        let key = self.names.of(shard_of_address(&hash), "ad");
        let asked = words(&[b"HGET", key.as_bytes(), &address_field(tenant, &hash)]);
        bytes(self.link.ask(&asked).await?).map(|value| StoredAddress::decode(&value)).transpose()
    }

    async fn find_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
    ) -> RedisResult<Option<StoredAddress>> {
        let Some((of, hash)) = self.locate(id).await? else { return Ok(None) };
        if of != *tenant {
            return Ok(None);
        }
        Ok(self.stored_address(tenant, hash).await?.filter(|address| address.id == id))
    }

    async fn delete(&self, tenant: &TenantId, id: AddressId, cancels: bool) -> RedisResult<bool> {
        let Some(found) = self.find_address(tenant, id).await? else { return Ok(false) };
        let key = order_key(self.new_id());
        let forget = |known: &mut KnownAddress| {
            let was_known = known.address.as_ref().is_some_and(|address| address.id == id);
            known.address = known.address.take().filter(|_| !was_known);
            if was_known && cancels {
                known.marks.end = Some(AddressEnd::when_deleted(known.marks.end, key));
            }
        };
        let (before, after) = self.change_address(tenant, found.hash, None, forget).await?;
        Ok(before.address.is_some() && after.address.is_none())
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> RedisResult<Option<AddressHash>> {
        for hash in hashes {
            let field = address_field(tenant, hash);
            for name in ["ad", "ga", "st"] {
                let key = self.names.of(shard_of_address(hash), name);
                let asked = words(&[b"HEXISTS", key.as_bytes(), &field]);
                if int(&self.link.ask(&asked).await?)? > 0 {
                    return Ok(Some(*hash));
                }
            }
        }
        Ok(None)
    }

    /// Writes the address under its new hash, then where its id leads, then removes the old one: whoever is
    /// interrupted can begin again.
    async fn rehash(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> RedisResult<bool> {
        let Some(found) = self.find_address(tenant, id).await? else { return Ok(false) };
        let of_other = |known: &StoredAddress| known.id != id;
        if found.hash == hash
            || self.stored_address(tenant, hash).await?.is_some_and(|a| of_other(&a))
        {
            return Ok(false);
        }
        let (old, _) = self.change_address(tenant, found.hash, None, |_| ()).await?;
        let Some(address) = old.address.filter(|address| address.id == id) else {
            return Ok(false);
        };
        let marks = old.marks;
        let write = |known: &mut KnownAddress| {
            known.marks = marks.clone();
            known.address = Some(StoredAddress { hash, ..address.clone() });
        };
        self.change_address(tenant, hash, None, write).await?;
        let (key, field) = (self.names.of(shard_of(id.0), "al"), address_field(tenant, &hash));
        let set: [&[u8]; 4] = [b"HSET", key.as_bytes(), &id.0.to_be_bytes(), &field];
        self.link.ask(&words(&set)).await?;
        let forget = |known: &mut KnownAddress| {
            *known = KnownAddress { is_moved: true, ..Default::default() }
        };
        self.change_address(tenant, found.hash, None, forget).await?;
        Ok(true)
    }

    /// Members of a sorted list in each shard, merged, after one of them.
    pub(super) async fn merged(
        &self,
        name: &str,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> RedisResult<Vec<(ShardId, Vec<u8>)>> {
        let limit_text = limit.to_string();
        let rest: [&[u8]; 5] = [from, to, b"LIMIT", b"0", limit_text.as_bytes()];
        let answers = self.of_each_shard("ZRANGEBYLEX", name, &rest).await?;
        let mut found = Vec::new();
        for (shard, answer) in (0..SHARDS).zip(answers) {
            found.extend(list(answer)?.into_iter().filter_map(bytes).map(|member| (shard, member)));
        }
        found.sort_unstable_by(|a, b| a.1.cmp(&b.1));
        found.truncate(limit);
        Ok(found)
    }

    async fn list_addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> RedisResult<Page<Address, AddressId>> {
        let limit = limit.max(1);
        let name = list_name(tenant, recipient);
        let (mut from, mut to) = (b"(".to_vec(), b"(".to_vec());
        from.extend_from_slice(&name);
        if let Some(cursor) = cursor {
            from.extend_from_slice(&cursor.0.to_be_bytes());
            from.extend_from_slice(&[255; 17]);
        }
        to.extend_from_slice(&name);
        to.extend_from_slice(&[255; 17]);
        let key = if recipient.is_some() { "ar" } else { "ai" };
        let members = self.merged(key, &from, &to, limit + 1).await?;
        let read = |(_, member): (ShardId, Vec<u8>)| async move {
            let at = member.len().saturating_sub(16);
            let hash = member[at..].try_into().map_err(|_| RedisFailure::damaged("an address"))?;
            self.stored_address(tenant, AddressHash(hash)).await
        };
        let found = try_join_all(members.into_iter().map(read)).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|stored| stored.address()).collect();
        Ok(page(found, limit, |address| address.id))
    }

    async fn list_strikes(
        &self,
        tenant: &TenantId,
        which: &StrikeFilter,
    ) -> RedisResult<Page<StruckAddress, AddressHash>> {
        let limit = which.limit.max(1);
        let mut found = Vec::new();
        let mut cursor = which.cursor;
        loop {
            let edge =
                |sign: &[u8], hash: &[u8]| [sign, tenant.as_str().as_bytes(), &[0], hash].concat();
            let (from, to) = match (which.hash, cursor) {
                (Some(hash), _) => (edge(b"[", &hash.0), edge(b"[", &hash.0)),
                (None, Some(cursor)) => (edge(b"(", &cursor.0), edge(b"(", &[255; 17])),
                (None, None) => (edge(b"[", &[]), edge(b"(", &[255; 17])),
            };
            let members = self.merged("si", &from, &to, limit + 1).await?;
            let count = members.len();
            for (shard, member) in members {
                let key = self.names.of(shard, "st");
                let asked = words(&[b"HGET", key.as_bytes(), &member]);
                let Some(text) = bytes(self.link.ask(&asked).await?) else { continue };
                let hash = field_parts(&member)?.1;
                cursor = Some(hash);
                let strikes = strikes(&text)?;
                if !which.suspect || strikes.iter().any(|strike| strike.suspect) {
                    found.push(StruckAddress { hash, strikes });
                }
            }
            if count <= limit || found.len() > limit || which.hash.is_some() {
                return Ok(page(found, limit, |struck| struck.hash));
            }
        }
    }
}

#[async_trait]
impl Registry for RedisStore {
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)> {
        Ok(self.shared.put(&new).await?)
    }

    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>> {
        Ok(self.shared.find_address(tenant, id).await?.map(|stored| stored.address()))
    }

    async fn delete_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        cancels: bool,
    ) -> StoreResult<bool> {
        Ok(self.shared.delete(tenant, id, cancels).await?)
    }

    async fn known_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        Ok(self.shared.known_hash(tenant, hashes).await?)
    }

    async fn rehash_address(
        &self,
        tenant: &TenantId,
        id: AddressId,
        hash: AddressHash,
    ) -> StoreResult<bool> {
        Ok(self.shared.rehash(tenant, id, hash).await?)
    }

    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>> {
        Ok(self.shared.list_addresses(tenant, recipient, cursor, limit).await?)
    }

    async fn strikes(
        &self,
        tenant: &TenantId,
        which: StrikeFilter,
    ) -> StoreResult<Page<StruckAddress, AddressHash>> {
        Ok(self.shared.list_strikes(tenant, &which).await?)
    }

    async fn forgive(&self, tenant: &TenantId, hash: AddressHash) -> StoreResult<bool> {
        Ok(self.shared.forgive_address(tenant, hash).await?)
    }

    fn new_key_id(&self) -> KeyId {
        KeyId(self.shared.new_id())
    }
}
