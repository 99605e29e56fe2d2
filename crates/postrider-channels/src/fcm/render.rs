//! A message for FCM, from the common fields or from the caller's own `fcm.message`. The intake also uses it to refuse
//! what FCM would refuse. Pure.

use std::time::Duration;

use postrider_core::model::class::Urgency;
use postrider_core::model::content::Content;
use postrider_core::{Attempt, FieldError, Timestamp, model::json_fields, policy::ttl};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{FcmContent, FcmDevice, check};
use crate::webpush::{topic, urgency};

/// Keys and values together, for a message to one device.
pub(crate) const PAYLOAD_MAX: usize = 4096;

/// The message without its target, and without the fields that depend on the time.
pub(crate) fn draft(
    content: &Content<'_>,
    own: &FcmContent<'_>,
) -> Result<Map<String, Value>, Vec<FieldError>> {
    let message = own.message.map_or_else(|| common(content), own_message);
    let message = message.map_err(|error| vec![error])?;
    let mut errors = match own.message {
        Some(_) => check::own(&message),
        None => check::common_data(&message),
    };
    let len = payload_len(&message);
    if len > PAYLOAD_MAX {
        let field = if own.message.is_some() { "fcm.message" } else { "" };
        let allowed = format!("at most {PAYLOAD_MAX} bytes of keys and values");
        errors.push(FieldError::new(field, format!("{len} bytes"), allowed));
    }
    if errors.is_empty() { Ok(message) } else { Err(errors) }
}

fn own_message(raw: &RawValue) -> Result<Map<String, Value>, FieldError> {
    let wrong =
        |found: &str| FieldError::new("fcm.message", found, "an object: a Message of FCM HTTP v1");
    match serde_json::from_str(raw.get()) {
        Ok(Value::Object(message)) => Ok(message),
        Ok(other) => Err(wrong(json_fields::kind(&other))),
        Err(_) => Err(wrong("numbers or characters that nobody can read")),
    }
}

fn common(content: &Content<'_>) -> Result<Map<String, Value>, FieldError> {
    let mut message = Map::new();
    let mut notification = Map::new();
    for (name, text) in [("title", &content.title), ("body", &content.body)] {
        if let Some(text) = text {
            notification.insert(name.to_owned(), Value::from(&**text));
        }
    }
    if !notification.is_empty() {
        message.insert("notification".to_owned(), Value::Object(notification));
    }
    let mut data = match content.data_value()? {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, text_of(value))).collect()
        }
        Value::Null => Map::new(),
        // Anything but an object has no names of its own.
        other => Map::from_iter([("data".to_owned(), text_of(other))]),
    };
    if let Some(url) = &content.url {
        data.entry("url").or_insert_with(|| Value::from(&**url));
        if url.starts_with("https://") {
            message.insert("webpush".to_owned(), json!({"fcmOptions": {"link": url}}));
        }
    }
    if !data.is_empty() {
        message.insert("data".to_owned(), Value::Object(data));
    }
    Ok(message)
}

/// FCM takes only texts as data. Other values become JSON texts.
fn text_of(value: Value) -> Value {
    match value {
        Value::String(_) => value,
        other => Value::String(other.to_string()),
    }
}

/// The length of keys and values that reach a device: the common part and the largest part of a platform.
pub(crate) fn payload_len(message: &Map<String, Value>) -> usize {
    let part = |of: &Map<String, Value>, names: &[&str]| -> usize {
        names.iter().filter_map(|name| of.get(*name)).map(value_len).sum()
    };
    let own = |platform: &str| {
        let block = message.get(platform).and_then(Value::as_object);
        block.map_or(0, |block| part(block, &["notification", "data", "payload"]))
    };
    let largest = ["android", "apns", "webpush"].into_iter().map(own).max().unwrap_or(0);
    part(message, &["notification", "data"]) + largest
}

fn value_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_len).sum(),
        Value::Object(fields) => fields.iter().map(|(name, v)| name.len() + value_len(v)).sum(),
        other => other.to_string().len(),
    }
}

/// The body of the request at this time.
pub(super) fn finish(
    mut message: Map<String, Value>,
    device: &FcmDevice<'_>,
    attempt: &Attempt,
    now: Timestamp,
) -> String {
    let ttl_s = ttl::remaining_s(attempt.is_one_shot, attempt.expires_at, now);
    let urgency = urgency(attempt);
    let collapse = attempt.message.envelope.collapse_key.as_deref();
    android(block(&mut message, "android"), ttl_s, urgency, collapse);
    let is_silent = !shows_something(&message);
    apple(block(&mut message, "apns"), is_silent, ttl_s, attempt, urgency);
    let web = block(block(&mut message, "webpush"), "headers");
    at_most(web, "TTL", ttl_s.into());
    set(web, &["Urgency"], urgency.name());
    if let Some(key) = collapse {
        set(web, &["Topic"], topic(&attempt.message.tenant, key));
    }
    let (kind, name) = match device {
        FcmDevice::Token(name) => ("token", name),
        FcmDevice::Fid(name) => ("fid", name),
    };
    message.insert(kind.to_owned(), Value::from(&**name));
    json!({ "message": message }).to_string()
}

/// The object of this name, made if it is missing.
fn block<'a>(of: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = of.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(block) => block,
        _ => unreachable!("it was just made an object"),
    }
}

/// Sets the first of these spellings unless the caller has set one of them.
fn set(block: &mut Map<String, Value>, names: &[&str], value: impl Into<Value>) {
    if let (Some(name), false) = (names.first(), names.iter().any(|n| block.contains_key(*n))) {
        block.insert((*name).to_owned(), value.into());
    }
}

/// Sets a header to the caller's own number if that is smaller: a message never outlives its TTL.
fn at_most(headers: &mut Map<String, Value>, name: &str, most: i64) {
    let mut own = Vec::new();
    headers.retain(|key, value| {
        let is_it = key.eq_ignore_ascii_case(name);
        if is_it {
            own.extend(value.as_str().and_then(|text| text.trim().parse::<i64>().ok()));
        }
        !is_it
    });
    let least = own.into_iter().min().map_or(most, |own| own.clamp(0, most));
    headers.insert(name.to_owned(), least.to_string().into());
}

fn android(block: &mut Map<String, Value>, ttl_s: u32, urgency: Urgency, collapse: Option<&str>) {
    // The caller's own TTL may be shorter than the rest of the message's TTL, never longer.
    let own = block.get("ttl").and_then(Value::as_str).and_then(seconds);
    let ttl = Duration::from_secs(ttl_s.into()).min(own.unwrap_or(Duration::MAX));
    block.insert("ttl".to_owned(), Value::from(format!("{}s", ttl.as_secs())));
    let high = urgency == Urgency::High;
    set(block, &["priority"], if high { "HIGH" } else { "NORMAL" });
    if let Some(key) = collapse {
        set(block, &["collapseKey", "collapse_key"], key);
    }
}

/// `"3600s"`, also with a fraction.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let number: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(number).ok()
}

fn shows_something(message: &Map<String, Value>) -> bool {
    message.contains_key("notification")
        || message.get("apns").is_some_and(|a| a.pointer("/payload/aps/alert").is_some())
}

/// Without these headers, Apple would keep a message for 30 days, and would refuse data alone for its priority.
fn apple(
    apns: &mut Map<String, Value>,
    is_silent: bool,
    ttl_s: u32,
    attempt: &Attempt,
    urgency: Urgency,
) {
    if is_silent {
        set(apns, &["payload"], json!({"aps": {"content-available": 1}}));
    }
    let headers = block(apns, "headers");
    let expiration = if ttl_s == 0 { 0 } else { attempt.expires_at.as_secs() };
    at_most(headers, "apns-expiration", expiration);
    let soon = !is_silent && matches!(urgency, Urgency::High | Urgency::Normal);
    set(headers, &["apns-priority"], if soon { "10" } else { "5" });
    set(headers, &["apns-push-type"], if is_silent { "background" } else { "alert" });
    if let Some(key) = attempt.message.envelope.collapse_key.as_deref() {
        set(headers, &["apns-collapse-id"], crate::apns::collapse_id(&attempt.message.tenant, key));
    }
}

#[cfg(test)]
mod tests;
