//! Where a message goes: a channel, and the address as that channel stores it.

use std::fmt;
use std::sync::Arc;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::model::channel::ChannelKind;
use crate::model::id::AddressId;
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// A validated address to deliver to: a JSON object whose field `channel` names its channel. Only the
/// channel reads the other fields; stores keep the text as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    channel: ChannelKind,
    json: Box<str>,
}

/// How every stored target begins.
const TAG: &str = r#"{"channel":""#;

impl Target {
    /// `fields` is the channel's own struct, without the channel's name.
    pub fn new(channel: ChannelKind, fields: &impl Serialize) -> Self {
        // Plain structs of texts and numbers: writing them cannot fail.
        let fields = serde_json::to_string(fields).unwrap_or_default();
        let inner = fields.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let mut json = String::with_capacity(fields.len() + TAG.len() + 20);
        json.push_str(TAG);
        json.push_str(channel.name());
        json.push('"');
        if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
            json.push(',');
            json.push_str(inner);
        }
        json.push('}');
        Self { channel, json: json.into() }
    }

    /// What a store has kept, which was validated when it came in. `None` if it names no channel.
    pub fn from_stored(json: &str) -> Option<Self> {
        Some(Self { channel: channel_of(json)?, json: json.into() })
    }

    pub fn channel(&self) -> ChannelKind {
        self.channel
    }

    /// The text as it is stored.
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// The fields as the channel's own struct.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.json)
    }
}

fn channel_of(json: &str) -> Option<ChannelKind> {
    #[derive(Deserialize)]
    struct ChannelTag {
        channel: ChannelKind,
    }
    match json.strip_prefix(TAG).and_then(|rest| rest.split_once('"')) {
        Some((name, _)) => ChannelKind::parse(name),
        None => serde_json::from_str::<ChannelTag>(json).ok().map(|tag| tag.channel),
    }
}

/// An address is a secret: logs see its channel only.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.channel)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.json).map_err(S::Error::custom)?;
        raw.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        let channel = channel_of(raw.get())
            .ok_or_else(|| serde::de::Error::custom("an address without a channel"))?;
        Ok(Self { channel, json: raw.into() })
    }
}

/// A keyed hash of an address's locator. It may be kept after the address is gone, and is all that a
/// log may show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddressHash(pub [u8; 16]);

impl AddressHash {
    /// A number that stands for the address.
    pub fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for AddressHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for AddressHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressStatus {
    Active,
    Suspect,
    Gone,
    Expired,
}

/// A registered address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub id: AddressId,
    pub tenant: TenantId,
    pub recipient: Option<Arc<str>>,
    pub channel: ChannelKind,
    pub hash: AddressHash,
    /// Erased when the address is gone.
    pub target: Option<Target>,
    pub status: AddressStatus,
    pub created_at: Timestamp,
    pub gone_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ChannelKind = ChannelKind::new("pigeon");

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct PigeonTarget<'a> {
        loft: &'a str,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ring: Option<u32>,
    }

    #[test]
    fn a_target_is_stored_with_its_channel_first_and_read_unchanged() {
        let fields = PigeonTarget { loft: "Nr. 4", ring: Some(7) };
        let target = Target::new(KIND, &fields);
        assert_eq!(target.as_json(), r#"{"channel":"pigeon","loft":"Nr. 4","ring":7}"#);
        assert_eq!(Target::from_stored(target.as_json()), Some(target.clone()));
        assert_eq!(target.read::<PigeonTarget<'_>>().unwrap(), fields);
        assert_eq!(format!("{target:?}"), "Target(pigeon)");
    }

    #[test]
    fn a_target_stands_in_other_documents_as_it_is() {
        let stored = r#"[{"channel":"pigeon","loft":"a"},{"loft":"b","channel":"pigeon"}]"#;
        let targets: Vec<Target> = serde_json::from_str(stored).unwrap();
        assert!(targets.iter().all(|target| target.channel() == KIND));
        assert_eq!(serde_json::to_string(&targets).unwrap(), stored);
    }

    #[test]
    fn what_names_no_channel_is_no_target() {
        for text in ["{}", "", r#"{"channel":7}"#, r#"{"channel":"Not A Name"}"#] {
            assert_eq!(Target::from_stored(text), None, "{text}");
        }
    }
}
