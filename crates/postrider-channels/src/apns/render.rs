//! A notification for Apple, from the common fields or from the caller's own `apns.payload`. The intake also uses it to
//! refuse what Apple would refuse. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use postrider_core::model::content::Content;
use postrider_core::{FieldError, TenantId, model::json_fields};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ApnsContent;

const PAYLOAD_MAX: usize = 4096;
const VOIP_PAYLOAD_MAX: usize = 5120;
/// `apns-collapse-id` in bytes.
const COLLAPSE_ID_MAX: usize = 64;

/// `apns-push-type`, with what it adds to the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PushType {
    pub(crate) name: &'static str,
    suffix: &'static str,
}

const ALERT: PushType = PushType { name: "alert", suffix: "" };
const BACKGROUND: PushType = PushType { name: "background", suffix: "" };
const MDM: PushType = PushType { name: "mdm", suffix: "" };
const TYPES: [PushType; 11] = [
    ALERT,
    BACKGROUND,
    PushType { name: "voip", suffix: ".voip" },
    PushType { name: "complication", suffix: ".complication" },
    PushType { name: "fileprovider", suffix: ".pushkit.fileprovider" },
    PushType { name: "location", suffix: ".location-query" },
    PushType { name: "liveactivity", suffix: ".push-type.liveactivity" },
    PushType { name: "pushtotalk", suffix: ".voip-ptt" },
    PushType { name: "widgets", suffix: ".push-type.widgets" },
    PushType { name: "controls", suffix: ".push-type.controls" },
    MDM,
];

impl PushType {
    pub(crate) fn is_background(self) -> bool {
        self == BACKGROUND
    }

    pub(crate) fn payload_max(self) -> usize {
        if self.name == "voip" { VOIP_PAYLOAD_MAX } else { PAYLOAD_MAX }
    }

    /// The topic of this type for an app.
    pub(crate) fn topic(self, bundle: &str) -> Cow<'_, str> {
        if bundle.ends_with(self.suffix) {
            Cow::Borrowed(bundle)
        } else {
            Cow::Owned(format!("{bundle}{}", self.suffix))
        }
    }
}

/// A notification without what depends on its delivery.
#[derive(Debug)]
pub(crate) struct ApnsDraft {
    pub(crate) payload: Bytes,
    pub(crate) push_type: PushType,
    /// The caller's own.
    pub(crate) priority: Option<i64>,
}

pub(crate) fn draft(
    content: &Content<'_>,
    own: &ApnsContent<'_>,
) -> Result<ApnsDraft, Vec<FieldError>> {
    let payload = own.payload.map_or_else(|| common(content), own_payload);
    let (payload, shape) = payload.map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let push_type = push_type(own, shape, &mut errors);
    check_priority(own.priority, push_type, &mut errors);
    let max = push_type.payload_max();
    if payload.len() > max {
        let field = if own.payload.is_some() { "apns.payload" } else { "" };
        let allowed = format!("at most {max} bytes of JSON for push type {}", push_type.name);
        errors.push(FieldError::new(field, format!("{} bytes", payload.len()), allowed));
    }
    let draft = ApnsDraft { payload, push_type, priority: own.priority };
    if errors.is_empty() { Ok(draft) } else { Err(errors) }
}

/// The properties of a payload that decide about its push type.
#[derive(Clone, Copy)]
struct PayloadShape {
    /// Has an alert, a badge or a sound.
    is_noticed: bool,
    wakes: bool,
    is_mdm: bool,
}

/// The caller's own payload, byte for byte.
fn own_payload(raw: &RawValue) -> Result<(Bytes, PayloadShape), FieldError> {
    let wrong = |found| {
        let allowed = "a JSON object with an object `aps` in it";
        FieldError::new("apns.payload", found, allowed)
    };
    let payload = match serde_json::from_str(raw.get()) {
        Ok(Value::Object(payload)) => payload,
        Ok(other) => return Err(wrong(json_fields::kind(&other))),
        Err(_) => return Err(wrong("numbers or characters that nobody can read")),
    };
    let shape = match payload.get("aps") {
        Some(Value::Object(aps)) => PayloadShape {
            is_noticed: ["alert", "badge", "sound"].iter().any(|k| aps.contains_key(*k)),
            wakes: aps.get("content-available").and_then(Value::as_u64) == Some(1),
            is_mdm: false,
        },
        Some(other) => {
            return Err(FieldError::new("apns.payload.aps", json_fields::kind(other), "an object"));
        }
        // MDM's payload is `{"mdm": …}`.
        None if payload.contains_key("mdm") => {
            PayloadShape { is_noticed: true, wakes: false, is_mdm: true }
        }
        None => return Err(wrong("no aps")),
    };
    Ok((Bytes::copy_from_slice(raw.get().as_bytes()), shape))
}

fn common(content: &Content<'_>) -> Result<(Bytes, PayloadShape), FieldError> {
    let mut alert = Map::new();
    for (name, text) in [("title", &content.title), ("body", &content.body)] {
        if let Some(text) = text {
            alert.insert(name.to_owned(), Value::from(&**text));
        }
    }
    let is_noticed = !alert.is_empty();
    let aps = if is_noticed { json!({ "alert": alert }) } else { json!({"content-available": 1}) };
    let mut payload = Map::from_iter([("aps".to_owned(), aps)]);
    if let Some(url) = &content.url {
        payload.insert("url".to_owned(), Value::from(&**url));
    }
    if content.data.is_some() {
        payload.insert("data".to_owned(), content.data_value()?);
    }
    let payload = Value::Object(payload).to_string().into();
    Ok((payload, PayloadShape { is_noticed, wakes: !is_noticed, is_mdm: false }))
}

fn push_type(own: &ApnsContent<'_>, shape: PayloadShape, errors: &mut Vec<FieldError>) -> PushType {
    let told = match shape {
        PayloadShape { is_mdm: true, .. } => MDM,
        PayloadShape { is_noticed: false, wakes: true, .. } => BACKGROUND,
        _ => ALERT,
    };
    let Some(name) = own.push_type.as_deref() else { return told };
    let Some(known) = TYPES.into_iter().find(|known| known.name == name) else {
        let names = TYPES.map(|known| known.name).join(", ");
        let found: String = name.chars().filter(|c| !c.is_control()).take(32).collect();
        let found = format!("{found:?}");
        errors.push(FieldError::new("apns.push_type", found, format!("one of {names}")));
        return told;
    };
    if shape.is_mdm != (known == MDM) {
        let allowed = "push type mdm for a payload {\"mdm\": …}, and for no other";
        errors.push(FieldError::new("apns.push_type", known.name, allowed));
    }
    if known.is_background() && (shape.is_noticed || !shape.wakes) {
        let allowed =
            "for push type background: aps with content-available 1 and no alert, badge or sound";
        errors.push(FieldError::new("apns.payload", "something else", allowed));
    }
    known
}

fn check_priority(priority: Option<i64>, push_type: PushType, errors: &mut Vec<FieldError>) {
    let Some(priority) = priority else { return };
    let allowed = match (priority, push_type.is_background()) {
        (5, true) | (1 | 5 | 10, false) => return,
        (_, true) => "5: Apple takes background pushes with no other priority",
        _ => "10 (now), 5 (when it suits the device) or 1 (without waking it)",
    };
    errors.push(FieldError::new("apns.priority", priority.to_string(), allowed));
}

/// A collapse key as Apple takes it: itself where it fits, else a hash of it.
pub(crate) fn collapse_id(tenant: &TenantId, key: &str) -> String {
    let fits = key.len() <= COLLAPSE_ID_MAX && key.bytes().all(|b| (0x21..0x7f).contains(&b));
    if fits { key.to_owned() } else { crate::webpush::topic(tenant, key) }
}

#[cfg(test)]
mod tests;
