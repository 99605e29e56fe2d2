//! A device as Firebase knows it: by a registration token, or by an installation id.

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, CheckedAddress, FieldError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{FcmContent, FcmDevice, FcmTarget, render};
use crate::address::{Serves, read, shown};
use crate::definition::intake_of;
use crate::target::checked;

pub struct FcmIntake {
    pub serves: Serves,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FcmDeviceRequest {
    #[serde(rename = "channel")]
    _channel: String,
    token: Option<String>,
    fid: Option<String>,
    project: Option<String>,
}

/// Google documents no length. These limits only refuse nonsense.
const NAME_MIN: usize = 8;
const NAME_MAX: usize = 4096;

impl ChannelIntake for FcmIntake {
    intake_of!(FcmTarget, serves);

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let shape = "token or fid, and optionally project";
        let FcmDeviceRequest { token, fid, project, .. } = read(json, shape)?;
        let mut errors = Vec::new();
        match (&token, &fid) {
            (Some(token), None) => errors.extend(flaw("token", token)),
            (None, Some(fid)) => errors.extend(flaw("fid", fid)),
            (both, _) => {
                let found = if both.is_some() { "both token and fid" } else { "nothing" };
                errors.push(FieldError::new("token", found, "either token or fid"));
            }
        }
        if let Some(wrong) = project.as_deref().filter(|name| !is_project(name)) {
            let allowed = "a Firebase project's id: 1 to 63 of a-z, 0-9, -, : and .";
            errors.push(FieldError::new("project", format!("{:?}", shown(wrong)), allowed));
        }
        let device = token.map(|token| FcmDevice::Token(token.into()));
        match device.or(fid.map(|fid| FcmDevice::Fid(fid.into()))) {
            Some(device) if errors.is_empty() => {
                let target = FcmTarget { device, project: project.map(Into::into) };
                Ok(checked(target))
            }
            _ => Err(errors),
        }
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let own = FcmContent::of(content).map_err(|error| vec![error])?;
        render::draft(content, &own).map(drop)
    }

    fn own_body<'a>(&self, content: &Content<'a>) -> Option<&'a RawValue> {
        FcmContent::of(content).ok()?.message
    }
}

/// What is wrong with a token or an id. Does not repeat it, because it is a secret.
fn flaw(field: &str, name: &str) -> Option<FieldError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_:.=%+/~".contains(c);
    let odd = name.chars().filter(|c| !legal(*c)).count();
    let found = match name.len() {
        _ if odd > 0 => format!("{odd} characters that are in no token"),
        NAME_MIN..=NAME_MAX => return None,
        len => format!("{len} characters"),
    };
    let allowed = "8 to 4096 letters, digits and -_:.=%+/~, as the app's Firebase SDK gives it";
    Some(FieldError::new(field, found, allowed))
}

fn is_project(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-:.".contains(&b);
    (1..=63).contains(&name.len()) && name.bytes().all(legal)
}
