//! Idempotency keys that are stored.

use std::collections::HashMap;

use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, MessageId, Timestamp};

use super::failure::PgResult;
use super::intake::delivery_range;
use super::session::PgSession;
use super::value::{PgId, get};

/// Stored keys with their messages.
#[derive(Default)]
pub(super) struct StoredKeys(HashMap<[u8; 16], StoredKey>);

struct StoredKey {
    fingerprint: Vec<u8>,
    message: MessageId,
    deliveries: Vec<DeliveryId>,
}

impl StoredKeys {
    pub(super) async fn read(
        session: &mut PgSession,
        keys: &[[u8; 16]],
        over_by: Timestamp,
    ) -> PgResult<Self> {
        let asked: Vec<_> = keys.iter().map(<[u8; 16]>::as_slice).collect();
        let select = "SELECT key, fingerprint, message, deliveries FROM dedup \
                      WHERE key = ANY($1) AND expires > $2";
        let mut known = HashMap::new();
        for row in session.rows(select, &[&asked, &over_by.0]).await? {
            let message = MessageId(get::<PgId>(&row, "message")?.0);
            let (first, last) = delivery_range(message, get::<i32>(&row, "deliveries")? as u32);
            let deliveries = DELIVERIES;
            let found = session.rows(deliveries, &[&first, &last, &PgId(message.0)]).await?;
            let ids = found.iter().map(|row| Ok(DeliveryId(get::<PgId>(row, "id")?.0)));
            let stored = StoredKey {
                fingerprint: get(&row, "fingerprint")?,
                message,
                deliveries: ids.collect::<PgResult<_>>()?,
            };
            let key: Vec<u8> = get(&row, "key")?;
            if let Ok(key) = key.try_into() {
                known.insert(key, stored);
            }
        }
        Ok(Self(known))
    }

    pub(super) fn repeated(&self, key: &DedupKey) -> Option<Admission> {
        let known = self.0.get(&key.key)?;
        let message = known.message;
        Some(match known.fingerprint == key.fingerprint {
            true => Admission::Duplicate { message, deliveries: known.deliveries.clone() },
            false => Admission::Conflict { message },
        })
    }

    pub(super) fn message_of(&self, key: &DedupKey) -> Option<MessageId> {
        self.0.get(&key.key).map(|known| known.message)
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = MessageId> {
        self.0.values().map(|known| known.message)
    }
}

const DELIVERIES: &str = "SELECT id FROM queue WHERE id BETWEEN $1 AND $2 AND message = $3 \
    UNION ALL SELECT id FROM dead WHERE id BETWEEN $1 AND $2 AND message = $3 \
    UNION ALL SELECT id FROM ledger WHERE id BETWEEN $1 AND $2 AND message = $3 ORDER BY id";
