//! Reads deliveries newest first: minute by minute, over all shards.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::future::try_join_all;
use postrider_core::model::id::{from_order_key, order_key_at};
use postrider_core::model::message::Envelope;
use postrider_core::ports::store::{DeliveryFilter, Page};
use postrider_core::{Delivery, DeliveryId, MessageId, State, Timestamp};

use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::messages::tag_member;
use super::names::{MINUTE_MS, RowPlace, minute};
use super::pack::{byte_list, bytes, id, list, text_int};
use super::row::{RedisRow, parse};
use super::shared::RedisShared;
use crate::sharded::{SHARDS, ShardId, shard_of};
use crate::view::{self, SHOWN};

/// Deliveries that one call looks at: a rare match costs several short calls.
const READ_MAX: usize = 20_000;
/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 500;
/// Minutes of a shard that are listed at once.
const MINUTES_AT_ONCE: &[u8] = b"500";

/// Where deliveries of a minute are.
pub(super) type MinutePlace = (ShardId, RowPlace);

/// The end of the last lease of each delivery that is leased, by shard.
#[derive(Default)]
pub(super) struct LeaseEnds(HashMap<ShardId, HashMap<u128, (i64, i64)>>);

/// Which ids are looked at.
#[derive(Debug, Clone, Copy)]
struct IdBounds {
    from: u128,
    below: u128,
}

impl IdBounds {
    fn new(filter: &DeliveryFilter, cursor: Option<DeliveryId>) -> Self {
        let at = |at: Timestamp| from_order_key(order_key_at(at), 0);
        let until = filter.until.map_or(u128::MAX, at);
        Self {
            from: filter.since.map_or(0, at),
            below: until.min(cursor.map_or(u128::MAX, |id| id.0)),
        }
    }

    fn contains(&self, id: u128) -> bool {
        id >= self.from && id < self.below
    }

    fn minutes(&self) -> (i64, i64) {
        let last = if self.below == u128::MAX { i64::MAX / MINUTE_MS } else { minute(self.below) };
        (if self.from == 0 { 0 } else { minute(self.from) }, last)
    }
}

fn places(filter: &DeliveryFilter, dead: bool) -> Vec<RowPlace> {
    use RowPlace::*;
    match filter.state {
        _ if dead => vec![Dead],
        _ if filter.held => vec![Queue],
        Some(State::Failed) => vec![Dead, Ledger],
        Some(state) if state.is_pending() => vec![Queue],
        Some(_) => vec![Ledger],
        None if filter.reason.is_some() => vec![Dead, Ledger],
        None => vec![Queue, Dead, Ledger],
    }
}

impl RedisShared {
    pub(super) async fn ids_of_minute(
        &self,
        shard: ShardId,
        place: RowPlace,
        minute: i64,
    ) -> RedisResult<Vec<u128>> {
        let key = self.names.rows(shard, place, minute);
        let found = list(self.link.ask(&words(&[b"HKEYS", key.as_bytes()])).await?)?;
        found.into_iter().filter_map(bytes).map(|field| id(&field)).collect()
    }

    /// The newest minute of each shard.
    pub(super) async fn newest_minutes(&self, place: RowPlace) -> RedisResult<Vec<(ShardId, i64)>> {
        self.edge_minutes(place, b"-1").await
    }

    pub(super) async fn oldest_minutes(&self, place: RowPlace) -> RedisResult<Vec<(ShardId, i64)>> {
        self.edge_minutes(place, b"0").await
    }

    async fn edge_minutes(&self, place: RowPlace, at: &[u8]) -> RedisResult<Vec<(ShardId, i64)>> {
        let ask = |shard: ShardId| async move {
            let key = self.names.minutes(shard, place);
            self.link.ask(&words(&[b"ZRANGE", key.as_bytes(), at, at])).await
        };
        let mut found = Vec::new();
        for (shard, answer) in (0..SHARDS).zip(try_join_all((0..SHARDS).map(ask)).await?) {
            for minute in byte_list(answer)?.into_iter().flatten() {
                found.push((shard, text_int(&minute)?));
            }
        }
        Ok(found)
    }

    /// Minutes of a shard, oldest first.
    pub(super) async fn minutes_upto(
        &self,
        shard: ShardId,
        place: RowPlace,
        last: i64,
    ) -> RedisResult<Vec<i64>> {
        let (key, last) = (self.names.minutes(shard, place), last.to_string());
        let asked = words(&[b"ZRANGEBYSCORE", key.as_bytes(), b"-inf", last.as_bytes()]);
        let found = byte_list(self.link.ask(&asked).await?)?;
        found.into_iter().flatten().map(|minute| text_int(&minute)).collect()
    }

    /// Rows with these ids, in their order; those that are not there are left out.
    pub(super) async fn rows(
        &self,
        shard: ShardId,
        place: RowPlace,
        minute: i64,
        ids: &[u128],
    ) -> RedisResult<Vec<(RedisRow, Vec<u8>)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.names.rows(shard, place, minute);
        let fields: Vec<_> = ids.iter().map(|id| id.to_be_bytes()).collect();
        let mut parts: Vec<&[u8]> = vec![b"HMGET", key.as_bytes()];
        parts.extend(fields.iter().map(<[u8; 16]>::as_slice));
        let found = byte_list(self.link.ask(&words(&parts)).await?)?;
        let rows = ids.iter().zip(found).filter_map(|(id, bytes)| Some((*id, bytes?)));
        rows.map(|(id, bytes)| Ok((RedisRow::decode(id, &bytes)?, bytes))).collect()
    }

    /// Minutes that have deliveries, newest first, each with where; and the last minute that is complete.
    async fn list_minutes(
        &self,
        places: &[RowPlace],
        (first, last): (i64, i64),
    ) -> RedisResult<(BTreeMap<i64, Vec<MinutePlace>>, i64)> {
        let (first_text, last_text) = (first.to_string(), last.to_string());
        let ask = |(shard, place): MinutePlace| {
            let (first, last) = (first_text.as_bytes(), last_text.as_bytes());
            async move {
                let key = self.names.minutes(shard, place);
                let parts: [&[u8]; 7] = [
                    b"ZREVRANGEBYSCORE",
                    key.as_bytes(),
                    last,
                    first,
                    b"LIMIT",
                    b"0",
                    MINUTES_AT_ONCE,
                ];
                let found = byte_list(self.link.ask(&words(&parts)).await?)?;
                let found = found.into_iter().flatten().map(|minute| text_int(&minute));
                Ok::<_, RedisFailure>(((shard, place), found.collect::<RedisResult<Vec<_>>>()?))
            }
        };
        let all = places.iter().flat_map(|place| (0..SHARDS).map(move |shard| (shard, *place)));
        let mut minutes: BTreeMap<i64, Vec<MinutePlace>> = BTreeMap::new();
        let mut complete_from = first;
        for (at, found) in try_join_all(all.map(ask)).await? {
            if found.len() == 500 {
                complete_from = complete_from.max(found.last().copied().unwrap_or(first));
            }
            found.into_iter().for_each(|minute| minutes.entry(minute).or_default().push(at));
        }
        Ok((minutes, complete_from))
    }

    /// A page of deliveries, newest first.
    pub(super) async fn page(
        &self,
        filter: &DeliveryFilter,
        dead: bool,
    ) -> RedisResult<Page<Delivery, DeliveryId>> {
        let limit = if filter.limit == 0 { SHOWN } else { filter.limit };
        let places = places(filter, dead);
        if let Some(message) = filter.message {
            return self.page_of_messages(filter, &places, vec![message], limit).await;
        }
        if let (Some(tenant), Some(mark)) = (&filter.tenant, filter.marks().first()) {
            let messages = self.tagged(&tag_member(tenant, mark, None)).await?;
            return self.page_of_messages(filter, &places, messages, limit).await;
        }
        let mut bounds = IdBounds::new(filter, filter.cursor);
        let (mut items, mut looked_at) = (Vec::new(), 0);
        let mut ends = LeaseEnds::default();
        loop {
            let (minutes, complete_from) = self.list_minutes(&places, bounds.minutes()).await?;
            for (minute, at) in
                minutes.iter().rev().take_while(|(minute, _)| **minute >= complete_from)
            {
                for (row, _) in
                    self.newest_of_minute(*minute, at, &bounds, limit, &mut looked_at).await?
                {
                    bounds.below = row.id;
                    if let Some(found) = self.matching(filter, &row, &mut ends).await? {
                        items.push(found);
                    }
                    if items.len() > limit {
                        return Ok(view::page(items, limit, |delivery| delivery.id));
                    }
                }
                if looked_at >= READ_MAX {
                    return Ok(Page { items, next: Some(DeliveryId(bounds.below)) });
                }
            }
            let (first, _) = bounds.minutes();
            if complete_from <= first {
                return Ok(view::page(items, limit, |delivery| delivery.id));
            }
            bounds.below = bounds
                .below
                .min(from_order_key(order_key_at(Timestamp(complete_from * MINUTE_MS)), 0));
        }
    }

    /// Rows of a minute, newest first. It is read in parts, as many as are needed.
    async fn newest_of_minute(
        &self,
        minute: i64,
        at: &[MinutePlace],
        bounds: &IdBounds,
        _limit: usize,
        looked_at: &mut usize,
    ) -> RedisResult<Vec<(RedisRow, RowPlace)>> {
        let ask = |(shard, place): MinutePlace| async move {
            let ids = self.ids_of_minute(shard, place, minute).await?;
            Ok::<_, RedisFailure>(ids.into_iter().map(move |id| (id, place)).collect::<Vec<_>>())
        };
        let found = try_join_all(at.iter().map(|at| ask(*at))).await?;
        let mut ids: BTreeMap<u128, RowPlace> = BTreeMap::new();
        for (id, place) in found.into_iter().flatten().filter(|(id, _)| bounds.contains(*id)) {
            // One that moves at this moment is read where it goes.
            ids.entry(id).and_modify(|known| *known = (*known).max(place)).or_insert(place);
        }
        let newest: Vec<_> = ids.into_iter().rev().collect();
        *looked_at += newest.len();
        let mut rows = Vec::with_capacity(newest.len());
        for part in newest.chunks(ROWS_AT_ONCE) {
            let mut by_place: BTreeMap<MinutePlace, Vec<u128>> = BTreeMap::new();
            for (id, place) in part {
                by_place.entry((shard_of(*id), *place)).or_default().push(*id);
            }
            let read = |((shard, place), ids): (MinutePlace, Vec<u128>)| async move {
                let rows = self.rows(shard, place, minute, &ids).await?;
                Ok::<_, RedisFailure>(
                    rows.into_iter().map(move |(row, _)| (row, place)).collect::<Vec<_>>(),
                )
            };
            let read = try_join_all(by_place.into_iter().map(read)).await?;
            rows.extend(read.into_iter().flatten());
        }
        rows.sort_unstable_by_key(|(row, _)| std::cmp::Reverse(row.id));
        Ok(rows)
    }

    /// A delivery as it is shown, if the filter fits.
    async fn matching(
        &self,
        filter: &DeliveryFilter,
        row: &RedisRow,
        ends: &mut LeaseEnds,
    ) -> RedisResult<Option<Delivery>> {
        if filter.tenant.as_ref().is_some_and(|tenant| *tenant != row.fixed.tenant) {
            return Ok(None);
        }
        if filter.recipient.is_some()
            && filter.recipient.as_deref() != row.fixed.recipient.as_deref()
        {
            return Ok(None);
        }
        let delivery = self.view_row(row, ends).await?;
        if !view::matches(filter, &delivery) {
            return Ok(None);
        }
        let marks = filter.marks();
        Ok((marks.is_empty() || self.has_marks(row, &marks).await?).then_some(delivery))
    }

    pub(super) async fn view_row(
        &self,
        row: &RedisRow,
        ends: &mut LeaseEnds,
    ) -> RedisResult<Delivery> {
        let end = match row.progress.state.is_pending() {
            true => self.lease_end(row, ends).await?,
            false => None,
        };
        let lane = self.lane_of(row.fixed.lane).await?;
        row.view(&lane, end, self.clock.now().0)
    }

    async fn lease_end(&self, row: &RedisRow, ends: &mut LeaseEnds) -> RedisResult<Option<i64>> {
        let shard = shard_of(row.id);
        if let std::collections::hash_map::Entry::Vacant(new) = ends.0.entry(shard) {
            let mut of_shard: HashMap<u128, (i64, i64)> = HashMap::new();
            for lease in self.leases(shard).await? {
                for id in lease.ids {
                    let last = of_shard.entry(id).or_default();
                    *last = (*last).max((lease.batch, lease.until));
                }
            }
            new.insert(of_shard);
        }
        let last = ends.0.get(&shard).and_then(|of_shard| of_shard.get(&row.id));
        Ok(last.filter(|(batch, _)| *batch > row.free_batch).map(|(_, until)| *until))
    }

    async fn has_marks(&self, row: &RedisRow, asked: &[Box<str>]) -> RedisResult<bool> {
        let has = |envelope: &Envelope| {
            let marks = envelope.marks();
            asked.iter().all(|mark| marks.contains(mark))
        };
        if row.shares_message {
            let message = self.shared_message(row.fixed.message.0).await?;
            return Ok(message.is_some_and(|message| has(&message.message.envelope)));
        }
        let Some(json) = &row.fixed.envelope else { return Ok(false) };
        Ok(has(&parse(json, "an envelope")?))
    }

    /// Messages with a tag, newest first.
    async fn tagged(&self, name: &[u8]) -> RedisResult<Vec<MessageId>> {
        let mut from = b"[".to_vec();
        from.extend_from_slice(name);
        let mut to = b"(".to_vec();
        to.extend_from_slice(name);
        to.extend_from_slice(&[255; 17]);
        let answers = self.of_each_shard("ZRANGEBYLEX", "g", &[&from, &to]).await?;
        let mut found = BTreeSet::new();
        for answer in answers {
            for member in byte_list(answer)?.into_iter().flatten() {
                let at = member.len().saturating_sub(16);
                found.insert(MessageId(id(&member[at..])?));
            }
        }
        Ok(found.into_iter().rev().collect())
    }

    async fn page_of_messages(
        &self,
        filter: &DeliveryFilter,
        places: &[RowPlace],
        messages: Vec<MessageId>,
        limit: usize,
    ) -> RedisResult<Page<Delivery, DeliveryId>> {
        let bounds = IdBounds::new(filter, filter.cursor);
        let mut items: Vec<Delivery> = Vec::new();
        let mut ends = LeaseEnds::default();
        for message in messages {
            // The deliveries of a message have the ids after it.
            if message.0 >= bounds.below {
                continue;
            }
            let (_, rows) = self.rows_of_message(message).await?;
            for (place, row) in rows {
                if places.contains(&place)
                    && bounds.contains(row.id)
                    && let Some(found) = self.matching(filter, &row, &mut ends).await?
                {
                    items.push(found);
                }
            }
            if items.len() > limit {
                break;
            }
        }
        items.sort_unstable_by_key(|delivery| std::cmp::Reverse(delivery.id));
        Ok(view::page(items, limit, |delivery| delivery.id))
    }
}
