//! Reads the addresses of the simulation: `https://p3.sim/t17/a5`. Checks nothing else; the intakes of
//! the real channels have their own tests.

use std::sync::Arc;

use postrider_core::model::content::Content;
use postrider_core::{ChannelIntake, ChannelKind, FieldError, Target};

pub(crate) struct SimIntake(pub ChannelKind);

/// The two channels of the simulation; they differ in their limits.
pub(crate) const KINDS: [ChannelKind; 2] = [ChannelKind::Webhook, ChannelKind::Webpush];

impl ChannelIntake for SimIntake {
    fn kind(&self) -> ChannelKind {
        self.0
    }

    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>> {
        let wrong =
            || vec![FieldError::new("url", "something else", "an address of the simulation")];
        let (_, rest) = address.split_once("https://").ok_or_else(wrong)?;
        let (path, _) = rest.split_once('"').ok_or_else(wrong)?;
        let url: Box<str> = format!("https://{path}").into();
        Ok(match self.0 {
            ChannelKind::Webpush => Target::Webpush {
                endpoint: url,
                p256dh: "".into(),
                auth: "".into(),
                vapid_key: None,
            },
            _ => Target::Webhook { url, secrets: Vec::new() },
        })
    }

    fn provider(&self, target: &Target) -> Arc<str> {
        let url = target.place();
        let host = url.split('/').nth(2).unwrap_or_default();
        format!("https://{host}").into()
    }

    fn check(&self, _: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    fn ttl_s_max(&self) -> u32 {
        postrider_core::policy::ttl::MAX_S
    }
}
