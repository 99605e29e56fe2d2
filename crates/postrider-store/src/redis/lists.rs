//! Accepts messages whose deliveries have keys of their own: all of them are new, or nothing is written.
//!
//! The keys are in several shards, so they are reserved one shard after the other. Whoever meets a reserved key waits
//! for its message. If that was not written for a minute, its writer is gone, and the key is free.

use std::time::Duration;

use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, Timestamp};

use super::accept_plan::PlannedAccept;
use super::failure::RedisResult;
use super::intake::{WrittenMessages, expires_at};
use super::keys::{AskedKey, StoredDedupKey};
use super::shared::RedisShared;

/// Who does not write the message of a reserved key so long is gone.
const WRITER_GONE_AFTER: Duration = Duration::from_secs(60);
/// How often and how long another writer is waited for.
const ROUNDS: u32 = 40;
const ROUND: Duration = Duration::from_millis(50);

/// What is known of a key that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyHolder {
    /// Its message is written.
    Message,
    /// Its message is being written.
    Writer,
    /// Its message was never written.
    Nobody,
}

impl RedisShared {
    /// Accepts a message with keys of its deliveries.
    pub(super) async fn accept_list(
        &self,
        new: &NewMessage,
    ) -> RedisResult<(StoreResult<Admission>, WrittenMessages)> {
        let lanes = self.lanes_of(std::slice::from_ref(new)).await?;
        for _ in 0..ROUNDS {
            let asked = new.member_keys.iter().map(|key| AskedKey { key: key.key, value: None });
            let known = self.reserve(&asked.collect::<Vec<_>>()).await?;
            let (repeats, is_contested) = self.repeats_among(new, &known).await?;
            if let Some(repeats) = repeats {
                return Ok((Ok(repeats), WrittenMessages::default()));
            }
            let now = self.clock.now();
            if !is_contested && let Some(done) = self.try_to_write_list(new, &lanes, now).await? {
                return Ok((Ok(done.0), done.1));
            }
            tokio::time::sleep(ROUND).await;
        }
        Ok((Err(contested()), WrittenMessages::default()))
    }

    /// The members that are repeats, and whether another writer has some of the keys. Keys of writers that are gone
    /// are freed.
    async fn repeats_among(
        &self,
        new: &NewMessage,
        known: &[Option<StoredDedupKey>],
    ) -> RedisResult<(Option<Admission>, bool)> {
        let (mut places, mut first, mut is_contested) = (Vec::new(), None, false);
        for (place, stored) in known.iter().enumerate() {
            let Some(stored) = stored else { continue };
            match self.holder_of(stored).await? {
                KeyHolder::Message => {
                    places.push(place);
                    first = first.or(Some(stored.message));
                }
                KeyHolder::Writer => is_contested = true,
                KeyHolder::Nobody => {
                    self.release_keys(&[(new.member_keys[place].key, *stored)]).await?
                }
            }
        }
        let repeats = first.map(|message| Admission::RepeatedMembers { places, message });
        Ok((repeats, is_contested))
    }

    pub(super) async fn holder_of(&self, stored: &StoredDedupKey) -> RedisResult<KeyHolder> {
        if stored.sealed {
            return Ok(KeyHolder::Message);
        }
        let written = self.delivery_ids(stored.message).await?.len();
        Ok(if written == stored.deliveries as usize {
            KeyHolder::Message
        } else if self.clock.now().since(stored.message.created_at()) < WRITER_GONE_AFTER {
            KeyHolder::Writer
        } else {
            KeyHolder::Nobody
        })
    }

    /// Reserves all keys and writes the message; `None` if another writer got one of the keys.
    async fn try_to_write_list(
        &self,
        new: &NewMessage,
        lanes: &super::intake::NumbersOfLanes,
        now: Timestamp,
    ) -> RedisResult<Option<(Admission, WrittenMessages)>> {
        let _write = self.load.begin_write();
        let message = self.mint(new, now);
        let value = |key: &DedupKey| StoredDedupKey {
            fingerprint: key.fingerprint,
            message,
            deliveries: new.deliveries.len() as u32,
            expires: (now + key.window).max(expires_at(new, now)).0,
            sealed: false,
        };
        let asked: Vec<_> = new
            .member_keys
            .iter()
            .map(|key| AskedKey { key: key.key, value: Some(value(key)) })
            .collect();
        let known = self.reserve(&asked).await?;
        let ours = asked.iter().zip(&known).filter(|(_, known)| known.is_none());
        let ours: Vec<_> = ours.filter_map(|(asked, _)| Some((asked.key, asked.value?))).collect();
        if ours.len() < asked.len() {
            self.release_keys(&ours).await?;
            return Ok(None);
        }
        let planned = [PlannedAccept::new(new, message, lanes, now)];
        self.write(&planned).await?;
        let deliveries = planned[0].deliveries.iter().map(|d| DeliveryId(d.id)).collect();
        let shared = planned.iter().filter(|m| m.shared.is_some()).map(|m| m.id.0).collect();
        let written = WrittenMessages { keys: ours, shared };
        Ok(Some((Admission::Accepted { message, deliveries }, written)))
    }
}

/// The answer to a message whose key another writer has.
pub(super) fn contested() -> StoreError {
    StoreError::Io {
        what: "another message with the same key is being written; send it again".to_owned(),
        cause: None,
    }
}
