//! An Apple device: its token, the app's bundle id, and where it was registered.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ApnsContent, ApnsEnvironment, ApnsTarget, render};
use crate::address::{Serves, read, shown};
use crate::definition::intake_of;
use crate::target::checked;

pub struct ApnsIntake {
    pub serves: Serves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApnsDeviceRequest {
    #[serde(rename = "channel")]
    _channel: String,
    token: String,
    topic: String,
    environment: Option<String>,
}

/// Apple documents no length. This limit only refuses nonsense.
const TOKEN_MAX: usize = 512;
const TOPIC_MAX: usize = 255;

impl ChannelIntake for ApnsIntake {
    intake_of!(ApnsTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let shape = "token, topic, and optionally environment (production or sandbox)";
        let device: ApnsDeviceRequest = read(json, shape)?;
        let mut errors = Vec::new();
        let token = device.token;
        if let Some(found) = flaw(&token) {
            let allowed = "a device token in hexadecimal, two digits per byte, at most 256 bytes";
            errors.push(FieldError::new("token", found, allowed));
        }
        let topic = device.topic;
        let legal = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
        if topic.is_empty() || topic.len() > TOPIC_MAX || !topic.bytes().all(legal) {
            let allowed = "the app's bundle id, e.g. com.example.app";
            errors.push(FieldError::new("topic", format!("{:?}", shown(&topic)), allowed));
        }
        let environment = match device.environment.as_deref() {
            None => None,
            Some("production") => Some(ApnsEnvironment::Production),
            Some("sandbox") => Some(ApnsEnvironment::Sandbox),
            Some(other) => {
                let found = format!("{:?}", shown(other));
                errors.push(FieldError::new("environment", found, "production or sandbox"));
                None
            }
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let token = token.to_ascii_lowercase().into();
        let target = ApnsTarget { token, topic: topic.into(), environment, worked: None };
        Ok(checked(target))
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = ApnsContent::of(content).map_err(|error| vec![error])?;
        render::draft(content, &own).map(drop)
    }

    fn own_body<'a>(&self, content: &Content<'a>) -> Option<&'a RawValue> {
        ApnsContent::of(content).ok()?.payload
    }
}

/// What is wrong with a device token. Does not repeat it, because it is a secret.
fn flaw(token: &str) -> Option<String> {
    let odd = token.chars().filter(|c| !c.is_ascii_hexdigit()).count();
    match token.len() {
        0 => Some("an empty text".to_owned()),
        _ if odd > 0 => Some(format!("{odd} characters that are no hexadecimal digits")),
        len if len > TOKEN_MAX || len % 2 == 1 => Some(format!("{len} digits")),
        _ => None,
    }
}
