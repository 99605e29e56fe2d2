//! A device as Firebase knows it: by a registration token, or by an installation id.

use std::sync::Arc;

use postrider_core::address::FcmDevice;
use postrider_core::content::Content;
use postrider_core::{ChannelKind, FieldError, Intake, Target, TenantId};
use serde::Deserialize;

use super::shape_error;
use crate::accounts::Accounts;
use crate::fcm::{Project, render};

pub struct FcmIntake {
    accounts: Arc<Accounts<Project>>,
}

impl FcmIntake {
    pub fn new(accounts: Arc<Accounts<Project>>) -> Self {
        Self { accounts }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    #[serde(rename = "channel")]
    _channel: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    fid: Option<String>,
    #[serde(default)]
    project: Option<String>,
}

const NAME_MAX: usize = 4096;

impl Intake for FcmIntake {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Fcm
    }

    fn serves(&self, tenant: &TenantId) -> bool {
        self.accounts.serves(tenant)
    }

    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>> {
        let shape = "token or fid, and optionally project";
        let device: Device = serde_json::from_str(address).map_err(|e| shape_error(&e, shape))?;
        let project = device.project.map(Into::into);
        let device = match (device.token, device.fid) {
            (Some(token), None) => FcmDevice::Token(check("token", token)?),
            (None, Some(fid)) => FcmDevice::Fid(check("fid", fid)?),
            (both, _) => {
                let found = if both.is_some() { "both token and fid" } else { "nothing" };
                return Err(vec![FieldError::new("token", found, "either token or fid")]);
            }
        };
        Ok(Target::Fcm { device, project })
    }

    fn provider(&self, _target: &Target) -> Arc<str> {
        ChannelKind::Fcm.name().into()
    }

    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        render::draft(content).map(|_| ())
    }

    fn ttl_s_max(&self) -> u32 {
        super::TTL_S_MAX
    }
}

/// Never repeats it: who knows a token can send to its device.
fn check(field: &str, name: String) -> Result<Box<str>, Vec<FieldError>> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_:.=%+/~".contains(&b);
    if !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(legal) {
        return Ok(name.into());
    }
    let allowed = "1 to 4096 letters, digits and -_:.=%+/~, as the app's Firebase SDK gives it";
    Err(vec![FieldError::new(field, format!("{} bytes of something else", name.len()), allowed)])
}
