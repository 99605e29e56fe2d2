//! Changes of one shard that a script writes, each only if what it was computed from is still so.

use std::collections::HashMap;

use redis::Value;

use super::failure::RedisResult;
use super::names::{RowPlace, minute, receipt_period};
use super::pack::{Packed, int, list};
use super::row::RedisRow;
use super::scripts::APPLY;
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::sharded::{NoteEntry, NoteKind, ShardId};

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeResult {
    Written,
    /// It is in flight.
    Leased,
    /// Something else was written meanwhile.
    Outdated,
    /// The shard has another holder.
    Fenced,
}

/// What a shared message is told, as the outbox of a shard has it.
pub(super) type OutboxEntry = (Vec<u8>, Vec<u8>);

/// Changes that one script call writes.
pub(super) struct ShardChanges {
    pub(super) shard: ShardId,
    keys: Vec<String>,
    places: HashMap<String, i64>,
    nonce: Option<i64>,
    receipt: Option<u128>,
    is_act: bool,
    changes: Vec<ShardChange>,
}

/// One change.
#[derive(Default)]
pub(super) struct ShardChange {
    checks: Vec<Packed>,
    leased: Option<(u128, i64)>,
    commands: Vec<Packed>,
    leased_commands: Vec<Packed>,
}

impl ShardChanges {
    pub(super) fn new(shared: &RedisShared, shard: ShardId) -> Self {
        let mut changes = Self {
            shard,
            keys: Vec::new(),
            places: HashMap::new(),
            nonce: None,
            receipt: None,
            is_act: false,
            changes: Vec::new(),
        };
        for name in ["h", "le"] {
            changes.key(shared.names.of(shard, name));
        }
        changes
    }

    /// Changes of what no shard has.
    pub(super) fn common(shared: &RedisShared) -> Self {
        Self::new(shared, super::names::COMMON)
    }

    /// Only as the holder with this number.
    pub(super) fn by_holder(mut self, nonce: i64) -> Self {
        self.nonce = Some(nonce);
        self
    }

    pub(super) fn with_receipt(mut self, receipt: u128) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// Operators act: no lease that saw the state before is written after.
    pub(super) fn by_operator(mut self) -> Self {
        self.is_act = true;
        self
    }

    pub(super) fn key(&mut self, name: String) -> i64 {
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        self.keys.push(name.clone());
        let place = self.keys.len() as i64;
        self.places.insert(name, place);
        place
    }

    pub(super) fn push(&mut self, change: ShardChange) {
        self.changes.push(change);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn command(name: &str, key: i64, rest: usize) -> Packed {
    let mut packed = Packed::new();
    packed.list(2 + rest).bytes(name).int(key);
    packed
}

/// Notes as holders read them: a digit for the kind, then the entries.
pub(super) fn note_bytes(kind: NoteKind, entries: &[NoteEntry]) -> Vec<u8> {
    let digit = match kind {
        NoteKind::Arrived => b'0',
        NoteKind::Returned => b'1',
        NoteKind::Removed => b'2',
    };
    let mut bytes = vec![digit];
    for entry in entries {
        bytes.extend(entry_bytes(entry));
    }
    bytes
}

pub(super) fn entry_bytes(entry: &NoteEntry) -> Vec<u8> {
    let mut bytes = entry.id.to_be_bytes().to_vec();
    bytes.extend_from_slice(&entry.lane.to_be_bytes());
    bytes.extend_from_slice(&entry.due.to_be_bytes());
    bytes.extend_from_slice(&entry.expires.to_be_bytes());
    bytes
}

/// A delivery in the set of those that expire.
pub(super) fn expiry_member(id: u128, lane: u32) -> Vec<u8> {
    let mut member = id.to_be_bytes().to_vec();
    member.extend_from_slice(&lane.to_be_bytes());
    member
}

/// A delivery in the outbox of its shard.
pub(super) fn outbox_field(message: u128, place: u32) -> Vec<u8> {
    let mut field = message.to_be_bytes().to_vec();
    field.extend_from_slice(&place.to_be_bytes());
    field
}

pub(super) fn needs_value(needs: u8, moves: u32) -> Vec<u8> {
    let mut value = vec![needs];
    value.extend_from_slice(&moves.to_be_bytes());
    value
}

impl ShardChange {
    /// Only if a field of a hash has this value, or is absent.
    pub(super) fn if_field(&mut self, key: i64, field: &[u8], value: Option<&[u8]>) -> &mut Self {
        let mut packed = Packed::new();
        packed.list(3).int(key).bytes(field).maybe(value);
        self.checks.push(packed);
        self
    }

    /// Only if it is not in flight.
    pub(super) fn unless_leased(&mut self, id: u128, free_batch: i64) -> &mut Self {
        self.leased = Some((id, free_batch));
        self
    }

    /// Any command with one key.
    pub(super) fn run(&mut self, name: &str, key: i64, arguments: &[&[u8]]) -> &mut Self {
        let mut packed = command(name, key, arguments.len());
        for argument in arguments {
            packed.bytes(argument);
        }
        self.commands.push(packed);
        self
    }

    /// If it is in flight, this instead.
    pub(super) fn if_leased(&mut self, name: &str, key: i64, arguments: &[&[u8]]) -> &mut Self {
        let mut packed = command(name, key, arguments.len());
        for argument in arguments {
            packed.bytes(argument);
        }
        self.leased_commands.push(packed);
        self
    }

    pub(super) fn put_row(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        place: RowPlace,
        row: &RedisRow,
    ) -> &mut Self {
        let key = all.key(shared.names.rows(all.shard, place, minute(row.id)));
        let minutes = all.key(shared.names.minutes(all.shard, place));
        let mut packed = command("row+", key, 4);
        packed.int(minutes).bytes(row.id.to_be_bytes()).bytes(row.encode()).int(minute(row.id));
        self.commands.push(packed);
        self
    }

    pub(super) fn remove_row(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        place: RowPlace,
        id: u128,
    ) -> &mut Self {
        let key = all.key(shared.names.rows(all.shard, place, minute(id)));
        let minutes = all.key(shared.names.minutes(all.shard, place));
        let mut packed = command("row-", key, 3);
        packed.int(minutes).bytes(id.to_be_bytes()).int(minute(id));
        self.commands.push(packed);
        self
    }

    /// It waits in a lane.
    pub(super) fn enter_lane(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        row: &RedisRow,
        lane: u32,
    ) -> &mut Self {
        let (id, names) = (row.id, &shared.names);
        let due = row.progress.due.0.to_string();
        let key = all.key(names.lane(all.shard, lane));
        self.run("ZADD", key, &[due.as_bytes(), &id.to_be_bytes()]);
        let lanes = all.key(names.of(all.shard, "ls"));
        self.run("SADD", lanes, &[lane.to_string().as_bytes()]);
        let expiry = all.key(names.of(all.shard, "x"));
        let expires = row.expires.to_string();
        self.run("ZADD", expiry, &[expires.as_bytes(), &expiry_member(id, lane)])
    }

    /// It does not wait in a lane any more.
    pub(super) fn leave_lane(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        id: u128,
        lane: u32,
    ) -> &mut Self {
        let key = all.key(shared.names.lane(all.shard, lane));
        let lanes = all.key(shared.names.of(all.shard, "ls"));
        let mut packed = command("lane-", key, 3);
        packed.int(lanes).bytes(id.to_be_bytes()).bytes(lane.to_string());
        self.commands.push(packed);
        let expiry = all.key(shared.names.of(all.shard, "x"));
        self.run("ZREM", expiry, &[&expiry_member(id, lane)])
    }

    pub(super) fn note(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        kind: NoteKind,
        entries: &[NoteEntry],
    ) -> &mut Self {
        let key = all.key(shared.names.of(all.shard, "n"));
        self.run("note", key, &[&note_bytes(kind, entries)])
    }

    pub(super) fn count(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        counts: &CountChanges,
    ) -> &mut Self {
        for (hash, field, by) in counts.changes() {
            let key = all.key(shared.names.of(all.shard, hash.name()));
            let mut packed = command("add", key, 2);
            packed.bytes(field).int(by);
            self.commands.push(packed);
        }
        self
    }

    /// Keeps in mind what a shared message is to be told.
    pub(super) fn send_out(
        &mut self,
        shared: &RedisShared,
        all: &mut ShardChanges,
        field: &[u8],
        needs: &[u8],
    ) -> &mut Self {
        let key = all.key(shared.names.of(all.shard, "o"));
        self.run("HSET", key, &[field, needs])
    }

    fn packed(&self) -> Packed {
        let mut packed = Packed::new();
        packed.list(4).list(self.checks.len());
        for check in self.checks.iter() {
            packed.append(check);
        }
        match self.leased {
            Some((id, free)) => packed.list(2).bytes(id.to_be_bytes()).int(free),
            None => packed.flag(false),
        };
        for commands in [&self.commands, &self.leased_commands] {
            packed.list(commands.len());
            for command in commands.iter() {
                packed.append(command);
            }
        }
        packed
    }
}

impl RedisShared {
    /// Writes changes. One result each, in order.
    pub(super) async fn apply(&self, mut all: ShardChanges) -> RedisResult<Vec<ChangeResult>> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let receipt = all.receipt.unwrap_or_else(|| self.new_id());
        let period = receipt_period(receipt);
        let receipts = all.key(self.names.receipts(all.shard, period));
        let periods = all.key(self.names.of(all.shard, "rb"));
        let mut packed = Packed::new();
        packed.list(5);
        match all.nonce {
            Some(nonce) => packed.bytes(nonce.to_string()),
            None => packed.flag(false),
        };
        packed.list(4).int(receipts).int(periods).bytes(receipt.to_be_bytes()).int(period);
        packed.flag(all.is_act).int(self.clock.now().0).list(all.changes.len());
        for change in all.changes.iter() {
            packed.append(&change.packed());
        }
        let answer = self.link.call_durably(&APPLY, &all.keys, &[&packed.into_bytes()]).await?;
        let results = results(answer)?;
        match results.first() {
            Some(-1) => Ok(vec![ChangeResult::Fenced; all.changes.len()]),
            _ => Ok(results.into_iter().map(result).collect()),
        }
    }
}

fn results(answer: Value) -> RedisResult<Vec<i64>> {
    list(answer)?.iter().map(int).collect()
}

fn result(code: i64) -> ChangeResult {
    match code {
        1 => ChangeResult::Written,
        2 => ChangeResult::Leased,
        _ => ChangeResult::Outdated,
    }
}
