//! Reads the addresses of the simulation: `https://p3.sim/t17/a5`. Checks nothing else; the intakes of
//! the real channels have their own tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::model::content::{Content, PartCheck};
use postrider_core::{
    ChannelIntake, ChannelKind, ChannelTraits, CheckedAddress, FieldError, Target,
};

pub(crate) struct SimIntake(pub ChannelKind);

/// The two channels of the simulation; they differ in their limits.
pub(crate) const KINDS: [ChannelKind; 2] =
    [ChannelKind::new("webhook"), ChannelKind::new("webpush")];

impl ChannelIntake for SimIntake {
    fn kind(&self) -> ChannelKind {
        self.0
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits::PLAIN
    }

    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        let wrong =
            || vec![FieldError::new("url", "something else", "an address of the simulation")];
        let (_, rest) = json.split_once("https://").ok_or_else(wrong)?;
        let (path, _) = rest.split_once('"').ok_or_else(wrong)?;
        let locator = format!("https://{path}");
        let target = Target::new(self.0, &BTreeMap::from([("url", &*locator)]));
        Ok(CheckedAddress { target, provider: origin(&locator), locator })
    }

    fn locator<'a>(&self, target: &'a Target) -> Cow<'a, str> {
        url(target).into()
    }

    fn provider(&self, target: &Target) -> Arc<str> {
        origin(url(target))
    }

    fn part_check(&self) -> PartCheck {
        |_| Ok(())
    }

    fn check(&self, _: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    fn method<'a>(&self, _: &'a Target) -> Cow<'a, str> {
        "POST".into()
    }
}

/// The URL of a simulated address.
pub(crate) fn url(target: &Target) -> &str {
    let fields: BTreeMap<&str, &str> = target.read().unwrap_or_default();
    fields.get("url").copied().unwrap_or_default()
}

fn origin(url: &str) -> Arc<str> {
    let host = url.split('/').nth(2).unwrap_or_default();
    format!("https://{host}").into()
}
