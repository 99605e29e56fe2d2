//! What holders read of their shards: what waits, what is new, and what expires.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;

use super::failure::{RedisFailure, RedisResult};
use super::link::{Patience, words};
use super::pack::{bytes, id, list, pairs, text_int};
use super::row::ByteReader;
use super::scripts::{CONFIRM, DUE};
use super::shared::RedisShared;
use crate::sharded::{
    HeldShard, LanePlace, NoteEntry, NoteKind, QueueEntry, QueueNote, ShardContent, ShardId,
    shard_of,
};

/// Notes of a shard that are read at once.
const NOTES_AT_ONCE: &[u8] = b"15";

fn note(value: &[u8]) -> RedisResult<QueueNote> {
    let mut from = ByteReader(value);
    let number = text_int(from.take(16)?)?;
    let kind = match from.byte()? {
        b'0' => NoteKind::Arrived,
        b'1' => NoteKind::Returned,
        _ => NoteKind::Removed,
    };
    let mut entries = Vec::with_capacity(from.0.len() / 36);
    while !from.0.is_empty() {
        let (id, lane) = (from.id()?, from.small()?);
        entries.push(NoteEntry { id, lane, due: from.number()?, expires: from.number()? });
    }
    Ok(QueueNote { number, kind, entries })
}

impl RedisShared {
    pub(super) async fn shard_content(&self, shards: &[ShardId]) -> RedisResult<ShardContent> {
        let read = try_join_all(shards.iter().map(|shard| self.content_of(*shard))).await?;
        let mut content = ShardContent::default();
        let mut lanes: BTreeMap<u32, i64> = BTreeMap::new();
        for one in read {
            for (lane, due) in one.lanes {
                let first = lanes.entry(lane).or_insert(due);
                *first = (*first).min(due);
            }
            content.crashed.extend(one.crashed);
            let expiries = [content.first_expiry, one.first_expiry];
            content.first_expiry = expiries.into_iter().flatten().min();
        }
        content.lanes = lanes.into_iter().collect();
        Ok(content)
    }

    async fn content_of(&self, shard: ShardId) -> RedisResult<ShardContent> {
        self.heard.forget(shard);
        self.empty_outbox(shard).await?;
        let mut content = ShardContent::default();
        for lane in self.lanes_in(shard).await? {
            let key = self.names.lane(shard, lane);
            let asked = words(&[b"ZRANGE", key.as_bytes(), b"0", b"0", b"WITHSCORES"]);
            if let Some((_, due)) = pairs(self.link.ask(&asked).await?)?.first() {
                content.lanes.push((lane, text_int(due)?));
            }
        }
        let key = self.names.of(shard, "cr");
        for (of, crashes) in pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)? {
            content.crashed.push((id(&of)?, text_int(&crashes)? as u32));
        }
        let first = self.expiring_in(shard, 1).await?;
        content.first_expiry = first.first().map(|(_, _, expires)| *expires);
        Ok(content)
    }

    /// The lanes of a shard that have deliveries.
    pub(super) async fn lanes_in(&self, shard: ShardId) -> RedisResult<Vec<u32>> {
        let key = self.names.of(shard, "ls");
        let found = list(self.link.ask(&words(&[b"SMEMBERS", key.as_bytes()])).await?)?;
        let number = |bytes: Vec<u8>| text_int(&bytes).map(|number| number as u32);
        found.into_iter().filter_map(bytes).map(number).collect()
    }

    pub(super) async fn read_notes(&self, shards: &[HeldShard]) -> RedisResult<Vec<QueueNote>> {
        let read = |shard: ShardId| async move {
            let Some(heard) = self.heard.worth_asking(shard) else { return Ok(Vec::new()) };
            let key = self.names.of(shard, "n");
            let asked = words(&[b"LRANGE", key.as_bytes(), b"0", NOTES_AT_ONCE]);
            let found = list(self.link.ask_for(Patience::None, &asked).await?)?;
            if found.is_empty() {
                self.heard.found_empty(shard, heard);
            }
            found
                .into_iter()
                .filter_map(bytes)
                .map(|value| note(&value))
                .collect::<RedisResult<Vec<_>>>()
        };
        let notes = try_join_all(shards.iter().map(|held| read(held.shard))).await?;
        Ok(notes.into_iter().flatten().collect())
    }

    pub(super) async fn confirm_notes(
        &self,
        shards: &[HeldShard],
        notes: &[QueueNote],
    ) -> RedisResult<()> {
        let mut last: BTreeMap<ShardId, i64> = BTreeMap::new();
        for note in notes {
            if let Some(entry) = note.entries.first() {
                let number = last.entry(shard_of(entry.id)).or_default();
                *number = (*number).max(note.number);
            }
        }
        let confirm = |(shard, number): (ShardId, i64)| async move {
            let held = shards.iter().find(|held| held.shard == shard);
            let Some(held) = held else { return Ok(()) };
            let keys = ["h", "n"].map(|name| self.names.of(shard, name));
            let (nonce, number) = (held.nonce.to_string(), number.to_string());
            let arguments = [nonce.as_bytes(), number.as_bytes()];
            self.link.call(Patience::Short, &CONFIRM, &keys, &arguments).await.map(drop)
        };
        try_join_all(last.into_iter().map(confirm)).await.map(drop)
    }

    pub(super) async fn due_entries(
        &self,
        shards: &[ShardId],
        lane: u32,
        (due, after): LanePlace,
        limit: usize,
    ) -> RedisResult<Vec<QueueEntry>> {
        let read = |shard: ShardId| async move {
            let key = [self.names.lane(shard, lane)];
            let (due, limit) = (due.to_string(), limit.to_string());
            let arguments = [due.as_bytes(), &after.to_be_bytes(), limit.as_bytes()];
            pairs(self.link.call(Patience::Short, &DUE, &key, &arguments).await?)
        };
        let found = try_join_all(shards.iter().map(|shard| read(*shard))).await?;
        let mut entries = Vec::new();
        for (of, due) in found.into_iter().flatten() {
            entries.push(QueueEntry {
                id: id(&of)?,
                lane,
                due: text_int(&due)?,
                expires: i64::MAX,
            });
        }
        entries.sort_unstable_by_key(|entry| (entry.due, entry.id));
        entries.truncate(limit);
        Ok(entries)
    }

    /// The first to expire: id, lane and expiry.
    async fn expiring_in(
        &self,
        shard: ShardId,
        limit: usize,
    ) -> RedisResult<Vec<(u128, u32, i64)>> {
        let (key, last) = (self.names.of(shard, "x"), (limit.max(1) - 1).to_string());
        let asked = words(&[b"ZRANGE", key.as_bytes(), b"0", last.as_bytes(), b"WITHSCORES"]);
        let read = |(member, expires): &(Vec<u8>, Vec<u8>)| {
            let mut from = ByteReader(member);
            Ok((from.id()?, from.small()?, text_int(expires)?))
        };
        pairs(self.link.ask(&asked).await?)?.iter().map(read).collect()
    }

    pub(super) async fn expiring_entries(
        &self,
        shards: &[ShardId],
        limit: usize,
    ) -> RedisResult<Vec<QueueEntry>> {
        let read = |shard: ShardId| self.expiring_in(shard, limit);
        let found = try_join_all(shards.iter().map(|shard| read(*shard))).await?;
        let mut first: Vec<_> = found.into_iter().flatten().collect();
        first.sort_unstable_by_key(|(id, _, expires)| (*expires, *id));
        first.truncate(limit);
        let due = |(id, lane, expires): (u128, u32, i64)| async move {
            let key = self.names.lane(shard_of(id), lane);
            let asked = words(&[b"ZSCORE", key.as_bytes(), &id.to_be_bytes()]);
            let due = bytes(self.link.ask(&asked).await?);
            let due = due.map(|due| text_int(&due)).transpose()?;
            Ok::<_, RedisFailure>(due.map(|due| QueueEntry { id, lane, due, expires }))
        };
        let entries = try_join_all(first.into_iter().map(due)).await?;
        Ok(entries.into_iter().flatten().collect())
    }
}
