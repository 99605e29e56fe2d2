//! New messages as they are to be written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use postrider_core::ports::store::{NewDelivery, NewMessage};
use postrider_core::{LaneKey, MessageId, TenantId, Timestamp};

use super::changes::entry_bytes;
use super::messages::{SharedMessage, tag_members};
use super::names::{RowPlace, minute};
use super::pack::Packed;
use super::row::{FixedPart, RedisRow, RowPayload, delivery_id};
use super::shared::RedisShared;
use crate::progress::{DeliveryMark, StoredProgress, stored_message};
use crate::sharded::{NoteEntry, ShardId, json_unless};

/// A message, and the rows of its deliveries.
pub(super) struct PlannedAccept {
    pub(super) id: MessageId,
    pub(super) tenant: TenantId,
    /// Absent if it has one delivery, which has everything.
    pub(super) shared: Option<SharedMessage>,
    pub(super) deliveries: Vec<PlannedDelivery>,
    /// Tags of a message with one delivery.
    tags: Vec<Vec<u8>>,
    /// Of bodies and addresses.
    pub(super) bytes: i64,
    /// Nobody repeats it after this time, if its writing is interrupted: its key has ended, or it has none.
    pub(super) repeated_until: Timestamp,
}

pub(super) struct PlannedDelivery {
    pub(super) id: u128,
    row: Vec<u8>,
    lane: u32,
    tenant: TenantId,
    due: i64,
    expires: i64,
    bytes: i64,
}

impl PlannedAccept {
    pub(super) fn new(
        new: &NewMessage,
        id: MessageId,
        lanes: &HashMap<Arc<LaneKey>, u32>,
        now: Timestamp,
    ) -> Self {
        let message = stored_message(new, id, now);
        let (envelope, expires_at) = (json_unless(&new.envelope), message.expires_at);
        let is_shared = new.deliveries.len() > 1;
        let ids: Vec<_> =
            (0..).zip(&new.deliveries).map(|(n, each)| delivery_id(id.0, n, each)).collect();
        let body = new.content.len() as i64;
        let mut bytes = if is_shared { body } else { 0 };
        let mut deliveries = Vec::with_capacity(ids.len());
        for (delivery, id) in new.deliveries.iter().zip(&ids) {
            let lane = lanes.get(&delivery.lane).copied().unwrap_or_default();
            let row = new_row(new, delivery, *id, &message, lane, envelope.as_deref(), now);
            bytes += row.fixed.bytes;
            deliveries.push(PlannedDelivery {
                id: *id,
                lane,
                tenant: delivery.lane.tenant.clone(),
                due: row.progress.due.0,
                expires: row.expires,
                bytes: row.fixed.bytes,
                row: row.encode(),
            });
        }
        let tags = match is_shared {
            true => Vec::new(),
            false => tag_members(&new.tenant, &new.envelope.marks(), id.0),
        };
        let shared = is_shared.then_some(SharedMessage {
            envelope,
            count: ids.len() as u32,
            deliveries: ids,
            has_content: true,
            message,
        });
        let key_ends = new.dedup.as_ref().map(|key| (now + key.window).max(expires_at));
        let repeated_until = key_ends.unwrap_or(now);
        Self { id, tenant: new.tenant.clone(), shared, deliveries, tags, bytes, repeated_until }
    }
}

fn new_row(
    new: &NewMessage,
    delivery: &NewDelivery,
    id: u128,
    message: &postrider_core::Message,
    lane: u32,
    envelope: Option<&str>,
    now: Timestamp,
) -> RedisRow {
    let is_lone = new.deliveries.len() == 1;
    let target = delivery.target.as_json();
    let body = if is_lone { new.content.len() } else { 0 };
    let has_own_class = is_lone && new.class != delivery.lane.class;
    RedisRow {
        id,
        progress: StoredProgress::new(new.send_at.map_or(now, |at| at.max(now)), now),
        mark: DeliveryMark::default(),
        discarded: false,
        shares_message: !is_lone,
        moves: 0,
        expires: message.expires_at.0,
        free_batch: 0,
        fixed: FixedPart {
            message: message.id,
            lane,
            tenant: delivery.lane.tenant.clone(),
            hash: delivery.hash,
            bytes: (target.len() + body) as i64,
            address: delivery.address,
            address_since: delivery.address_since.map(|at| at.0),
            recipient: delivery.recipient.as_deref().map(str::to_owned),
            retry: None,
            class: has_own_class.then(|| new.class.to_string()),
            ttl_s: is_lone.then_some(new.ttl_s),
            envelope: envelope.filter(|_| is_lone).map(str::to_owned),
            message_expires: None,
        },
        payload: RowPayload {
            target: Some(target.to_owned()),
            body: is_lone.then(|| new.content.to_string()),
            alternatives: json_unless(&delivery.alternatives),
        },
        log: String::new(),
    }
}

/// Keys and values of the script that writes deliveries of one shard.
pub(super) fn put_call(
    shared: &RedisShared,
    shard: ShardId,
    part: &[(&PlannedAccept, &PlannedDelivery)],
) -> (Vec<String>, Vec<u8>) {
    let names = &shared.names;
    let mut keys: Vec<_> =
        ["h", "n", "x", "t", "tp", "tb", "qb", "ls", "g"].map(|name| names.of(shard, name)).into();
    let (mut minutes, mut lanes) = (BTreeMap::new(), BTreeMap::new());
    let mut tenants: Vec<&str> = Vec::new();
    let mut tenant_places: HashMap<&str, i64> = HashMap::new();
    for (_, delivery) in part {
        minutes.entry(minute(delivery.id)).or_insert_with_key(|minute| {
            keys.extend(RowPlace::ALL.map(|place| names.rows(shard, place, *minute)));
            keys.len() as i64 - 2
        });
        lanes.entry(delivery.lane).or_insert_with_key(|lane| {
            keys.push(names.lane(shard, *lane));
            keys.len() as i64
        });
        tenant_places.entry(delivery.tenant.as_str()).or_insert_with_key(|tenant| {
            tenants.push(tenant);
            tenants.len() as i64
        });
    }
    let mut packed = Packed::new();
    packed.list(2).list(tenants.len());
    for tenant in tenants.iter() {
        packed.bytes(tenant);
    }
    packed.list(part.len());
    for (message, delivery) in part {
        let PlannedDelivery { id, lane, due, expires, bytes, .. } = *delivery;
        let at = minute(*id);
        packed.list(13).bytes(id.to_be_bytes()).int(minutes[&at]).int(at);
        packed.int(lanes[lane]).int(i64::from(*lane)).int(*due).int(*expires);
        packed.bytes(&delivery.row);
        let entry = NoteEntry { id: *id, lane: *lane, due: *due, expires: *expires };
        packed.bytes(entry_bytes(&entry)).int(tenant_places[delivery.tenant.as_str()]);
        packed.int(*bytes).int(i64::from(message.shared.is_none())).list(message.tags.len());
        for tag in message.tags.iter() {
            packed.bytes(tag);
        }
    }
    (keys, packed.into_bytes())
}
