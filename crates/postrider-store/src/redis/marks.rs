//! What is known about addresses besides their registration: gone marks and strikes. They are in the shard of the
//! address, not in that of a delivery.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use futures_util::future::try_join_all;
use postrider_core::policy::strikes::NewStrike;
use postrider_core::{
    AddressHash, AddressStatus, Decision, Strike, StrikeKind, Target, TenantId, Timestamp,
};

use super::changes::{ChangeResult, ShardChange, ShardChanges};
use super::failure::{RedisFailure, RedisResult};
use super::leasing::TRIES;
use super::link::words;
use super::names::{address_field, shard_of_address};
use super::pack::{bytes, int, list};
use super::registry::StoredAddress;
use super::row::RedisRow;
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::progress::AddressEnd;
use crate::sharded::{SHARDS, SettleItem, ShardId};

/// Gone mark and strikes of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressMarks {
    pub(super) end: Option<AddressEnd>,
    pub(super) strikes: Vec<Strike>,
}

/// `kind,count,first,last,suspect` for each, with semicolons between.
pub(super) fn strikes_text(strikes: &[Strike]) -> String {
    let one = |strike: &Strike| {
        let Strike { kind, count, first_at, last_at, suspect } = strike;
        format!("{},{count},{},{},{}", kind.code(), first_at.0, last_at.0, u8::from(*suspect))
    };
    strikes.iter().map(one).collect::<Vec<_>>().join(";")
}

pub(super) fn strikes(bytes: &[u8]) -> RedisResult<Vec<Strike>> {
    let strike = |part: &str| -> Option<Strike> {
        let numbers: Option<Vec<i64>> = part.split(',').map(|n| n.parse().ok()).collect();
        let [kind, count, first, last, suspect] = numbers?.try_into().ok()?;
        Some(Strike {
            kind: StrikeKind::from_code(u8::try_from(kind).ok()?)?,
            count: u32::try_from(count).ok()?,
            first_at: Timestamp(first),
            last_at: Timestamp(last),
            suspect: suspect == 1,
        })
    };
    let text = std::str::from_utf8(bytes).ok();
    let all: Option<Vec<_>> = text.and_then(|text| text.split(';').map(strike).collect());
    all.ok_or_else(|| RedisFailure::damaged("the strikes of an address"))
}

/// `1` for an address that is gone, else the order key below which messages are not sent.
pub(super) fn end_text(end: AddressEnd) -> String {
    end.deleted_before().unwrap_or(1).to_string()
}

/// The inverse of [`end_text`].
pub(super) fn address_end(text: &[u8]) -> RedisResult<AddressEnd> {
    let number: Option<u64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let number = number.ok_or_else(|| RedisFailure::damaged("the mark of an address"))?;
    Ok(AddressEnd::of_mark(Some(number).filter(|number| *number != 1)))
}

/// Everything about one address, as it is stored and as it shall be.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownAddress {
    pub(super) marks: AddressMarks,
    pub(super) address: Option<StoredAddress>,
    /// It has another hash now; its id leads there.
    pub(super) is_moved: bool,
}

impl KnownAddress {
    pub(super) fn forgive(&mut self) {
        self.marks.strikes.clear();
        if let Some(address) = &mut self.address
            && address.status == AddressStatus::Suspect
        {
            address.status = AddressStatus::Active;
        }
    }

    fn strike(&mut self, new: NewStrike, now: Timestamp) {
        let strikes = &mut self.marks.strikes;
        match strikes.iter_mut().find(|strike| strike.kind == new.kind) {
            Some(strike) => {
                strike.count += 1;
                strike.last_at = strike.last_at.max(now);
                strike.suspect |= new.suspect;
            }
            None => {
                let (kind, suspect) = (new.kind, new.suspect);
                strikes.push(Strike { kind, count: 1, first_at: now, last_at: now, suspect });
                strikes.sort_unstable_by_key(|strike| strike.kind.code());
            }
        }
        if let Some(address) = &mut self.address
            && new.suspect
            && address.status == AddressStatus::Active
        {
            address.status = AddressStatus::Suspect;
        }
    }

    fn mark_gone(&mut self, now: Timestamp) {
        self.marks.end = Some(AddressEnd::Gone);
        if let Some(address) = &mut self.address
            && address.status != AddressStatus::Gone
        {
            address.status = AddressStatus::Gone;
            address.gone_at = Some(now.0);
            address.target = None;
        }
    }

    fn learn(&mut self, target: &Target) {
        if let Some(address) = &mut self.address
            && address.target.is_some()
        {
            address.target = Some(target.as_json().to_owned());
        }
    }
}

impl RedisShared {
    /// Which shards have marks at all: mostly none has, and then nobody has to ask.
    pub(super) async fn read_marks(&self) -> RedisResult<()> {
        let mut marked = Vec::new();
        for name in ["ga", "st"] {
            let found = self.of_each_shard("EXISTS", name, &[]).await?;
            for (shard, found) in (0..).zip(found) {
                if int(&found)? > 0 {
                    marked.push(shard);
                }
            }
        }
        // Marks are added by this node at any time; they are taken out only by a prune.
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).extend(marked);
        Ok(())
    }

    pub(super) fn is_marked(&self, shard: ShardId) -> bool {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).contains(&shard)
    }

    fn note_marked(&self, shard: ShardId) {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).insert(shard);
    }

    /// The marks of the addresses of deliveries, in their order.
    pub(super) async fn marks_of(&self, rows: &[RedisRow]) -> RedisResult<Vec<AddressMarks>> {
        let mut marks = vec![AddressMarks::default(); rows.len()];
        let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            let shard = shard_of_address(&row.fixed.hash);
            if self.is_marked(shard) {
                by_shard.entry(shard).or_default().push(place);
            }
        }
        let read = |(shard, places): (ShardId, Vec<usize>)| async move {
            let fields: Vec<_> = places
                .iter()
                .map(|place| address_field(&rows[*place].fixed.tenant, &rows[*place].fixed.hash))
                .collect();
            let ask = |name: &str| {
                let key = self.names.of(shard, name);
                let mut parts: Vec<&[u8]> = vec![b"HMGET", key.as_bytes()];
                parts.extend(fields.iter().map(Vec::as_slice));
                words(&parts)
            };
            let gone = list(self.link.ask(&ask("ga")).await?)?;
            let struck = list(self.link.ask(&ask("st")).await?)?;
            let mut found = Vec::new();
            for ((place, gone), struck) in places.into_iter().zip(gone).zip(struck) {
                let struck = bytes(struck).map(|text| strikes(&text)).transpose()?;
                let end = bytes(gone).map(|text| address_end(&text)).transpose()?;
                found.push((place, AddressMarks { end, strikes: struck.unwrap_or_default() }));
            }
            Ok::<_, RedisFailure>(found)
        };
        for (place, found) in
            try_join_all(by_shard.into_iter().map(read)).await?.into_iter().flatten()
        {
            marks[place] = found;
        }
        Ok(marks)
    }

    /// Changes what is known about an address. Answers what was known before and is known now.
    pub(super) async fn change_address(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
        receipt: Option<u128>,
        change: impl Fn(&mut KnownAddress) + Send + Sync,
    ) -> RedisResult<(KnownAddress, KnownAddress)> {
        let (shard, field) = (shard_of_address(&hash), address_field(tenant, &hash));
        for _ in 0..TRIES {
            let (ga, st, ad) = (
                self.names.of(shard, "ga"),
                self.names.of(shard, "st"),
                self.names.of(shard, "ad"),
            );
            let get = |key: &str| words(&[b"HGET", key.as_bytes(), &field]);
            let gone = bytes(self.link.ask(&get(&ga)).await?);
            let struck = bytes(self.link.ask(&get(&st)).await?);
            let address = bytes(self.link.ask(&get(&ad)).await?);
            let before = KnownAddress {
                marks: AddressMarks {
                    end: gone.as_deref().map(address_end).transpose()?,
                    strikes: struck.as_deref().map_or(Ok(Vec::new()), strikes)?,
                },
                address: address.as_deref().map(StoredAddress::decode).transpose()?,
                is_moved: false,
            };
            let mut after = before.clone();
            change(&mut after);
            let mut all = ShardChanges::new(self, shard);
            if let Some(receipt) = receipt {
                all = all.with_receipt(receipt);
            }
            let (ga, st, ad) = (all.key(ga), all.key(st), all.key(ad));
            let mut one = ShardChange::default();
            one.if_field(ga, &field, gone.as_deref());
            one.if_field(st, &field, struck.as_deref());
            one.if_field(ad, &field, address.as_deref());
            self.write_marks(&mut one, &mut all, &field, &after.marks);
            self.write_address(&mut one, &mut all, &before, &after);
            if before.marks.end.is_some() != after.marks.end.is_some() {
                let mut counts = CountChanges::default();
                counts.add_gone_marks(tenant, if after.marks.end.is_some() { 1 } else { -1 });
                one.count(self, &mut all, &counts);
            }
            all.push(one);
            if !after.marks.strikes.is_empty() || after.marks.end.is_some() {
                self.note_marked(shard);
            }
            match self.apply(all).await?.first() {
                Some(ChangeResult::Outdated) => continue,
                _ => return Ok((before, after)),
            }
        }
        Err(RedisFailure::Busy)
    }

    fn write_marks(
        &self,
        one: &mut ShardChange,
        all: &mut ShardChanges,
        field: &[u8],
        marks: &AddressMarks,
    ) {
        let names = ["ga", "st", "si"].map(|name| self.names.of(all.shard, name));
        let [ga, st, si] = names.map(|name| all.key(name));
        match marks.end {
            Some(end) => one.run("HSET", ga, &[field, end_text(end).as_bytes()]),
            None => one.run("HDEL", ga, &[field]),
        };
        match marks.strikes.is_empty() {
            true => one.run("HDEL", st, &[field]).run("ZREM", si, &[field]),
            false => {
                let text = strikes_text(&marks.strikes);
                one.run("HSET", st, &[field, text.as_bytes()]).run("ZADD", si, &[b"0", field])
            }
        };
    }

    /// Writes what a settlement says about the address that it was sent to.
    pub(super) async fn learn_address(
        &self,
        item: &SettleItem,
        (tenant, hash): (&TenantId, AddressHash),
        decision: &Decision,
        receipt: u128,
        now: Timestamp,
    ) -> RedisResult<()> {
        let learned = &item.learned;
        let is_done = *decision == Decision::Done;
        let is_gone = *decision == Decision::MarkGone;
        let says_nothing = learned.strike.is_none() && learned.target.is_none() && !is_gone;
        if says_nothing && !(is_done && self.is_marked(shard_of_address(&hash))) {
            return Ok(());
        }
        let change = |known: &mut KnownAddress| {
            if is_done {
                known.forgive();
            }
            if let Some(new) = learned.strike {
                known.strike(new, now);
            }
            if let Some(target) = &learned.target {
                known.learn(target);
            }
            if is_gone {
                known.mark_gone(now);
            }
        };
        self.change_address(tenant, hash, Some(receipt), change).await.map(drop)
    }

    /// Deletes the strikes of an address. False if there were none.
    pub(super) async fn forgive_address(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
    ) -> RedisResult<bool> {
        let shard = shard_of_address(&hash);
        let (key, field) = (self.names.of(shard, "st"), address_field(tenant, &hash));
        let asked = words(&[b"HGET", key.as_bytes(), &field]);
        if bytes(self.link.ask(&asked).await?).is_none() {
            return Ok(false);
        }
        let (before, _) = self.change_address(tenant, hash, None, KnownAddress::forgive).await?;
        Ok(!before.marks.strikes.is_empty())
    }

    /// Deletes marks of addresses that were deleted long ago.
    pub(super) async fn prune_deleted_marks(&self, before: u64) -> RedisResult<()> {
        for shard in 0..SHARDS {
            if !self.is_marked(shard) {
                continue;
            }
            let key = self.names.of(shard, "ga");
            let mut cursor = b"0".to_vec();
            loop {
                let scan = words(&[b"HSCAN", key.as_bytes(), &cursor, b"COUNT", b"1000"]);
                let mut answer = list(self.link.ask(&scan).await?)?.into_iter();
                let next = answer.next().and_then(bytes);
                let found = answer.next().map(super::pack::pairs).transpose()?.unwrap_or_default();
                for (field, text) in found {
                    let is_old = |end: AddressEnd| end.deleted_before().is_some_and(|k| k < before);
                    if !is_old(address_end(&text)?) {
                        continue;
                    }
                    let (tenant, hash) = field_parts(&field)?;
                    let drop_old = |known: &mut KnownAddress| {
                        known.marks.end = known.marks.end.filter(|end| !is_old(*end));
                    };
                    self.change_address(&tenant, hash, None, drop_old).await?;
                }
                match next {
                    Some(next) if next != b"0" => cursor = next,
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Deletes strikes that are too old.
    pub(super) async fn prune_strikes(&self, before: Timestamp) -> RedisResult<()> {
        for shard in 0..SHARDS {
            if !self.is_marked(shard) {
                continue;
            }
            let key = self.names.of(shard, "st");
            let all = words(&[b"HGETALL", key.as_bytes()]);
            for (field, text) in super::pack::pairs(self.link.ask(&all).await?)? {
                if strikes(&text)?.iter().all(|strike| strike.last_at > before) {
                    continue;
                }
                let (tenant, hash) = field_parts(&field)?;
                let drop_old = |known: &mut KnownAddress| {
                    known.marks.strikes.retain(|strike| strike.last_at > before);
                };
                self.change_address(&tenant, hash, None, drop_old).await?;
            }
        }
        Ok(())
    }
}

/// The inverse of [`address_field`].
pub(super) fn field_parts(field: &[u8]) -> RedisResult<(TenantId, AddressHash)> {
    let damaged = || RedisFailure::damaged("the name of an address");
    let at = field.len().checked_sub(17).ok_or_else(damaged)?;
    let hash = field[at + 1..].try_into().map_err(|_| damaged())?;
    let tenant = String::from_utf8(field[..at].to_vec()).map_err(|_| damaged())?;
    Ok((TenantId(tenant.into()), AddressHash(hash)))
}
