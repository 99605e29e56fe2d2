//! A channel's own form of an address, and how it is read from what is stored.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_core::{Attempt, ChannelKind, CheckedAddress, Outcome, Target};
use serde::{Deserialize, Serialize};

use crate::address::origin;
use crate::deliver::{Ended, ended};

/// The fields of one channel's addresses. Their names are stored: they never change.
pub trait ChannelTarget<'a>: Serialize + Deserialize<'a> {
    const KIND: ChannelKind;
    /// Whether the locator is a URL, and its origin the provider. Else the channel is the provider.
    const IS_URL: bool = false;

    /// The text that names this one address: a URL, a device's token, a phone number.
    fn into_locator(self) -> Cow<'a, str>;

    fn to_target(&self) -> Target {
        Target::new(Self::KIND, self)
    }
}

/// Implements [`ChannelTarget`] for the addresses of a module's `KIND`.
macro_rules! impl_target {
    ($target:ident, locator = $locator:ident, is_url = $is_url:literal) => {
        impl<'a> $crate::target::ChannelTarget<'a> for $target<'a> {
            const KIND: postrider_core::ChannelKind = super::KIND;
            const IS_URL: bool = $is_url;

            fn into_locator(self) -> std::borrow::Cow<'a, str> {
                self.$locator
            }
        }
    };
}
pub(crate) use impl_target;

/// An address that was checked.
pub(crate) fn checked<'a, T: ChannelTarget<'a>>(fields: T) -> CheckedAddress {
    let target = fields.to_target();
    let locator = fields.into_locator().into_owned();
    let provider = if T::IS_URL { origin(&locator) } else { T::KIND.name().into() };
    CheckedAddress { target, provider, locator }
}

/// The provider of a stored target.
pub(crate) fn provider_of<'a, T: ChannelTarget<'a>>(target: &'a Target) -> Arc<str> {
    match T::IS_URL {
        true => origin(&locator_of::<T>(target)),
        false => T::KIND.name().into(),
    }
}

/// The locator of a stored target; the whole text where it cannot be read.
pub(crate) fn locator_of<'a, T: ChannelTarget<'a>>(target: &'a Target) -> Cow<'a, str> {
    target.read::<T>().map_or(Cow::Borrowed(target.as_json()), T::into_locator)
}

/// The address of an attempt; an error ends the attempt.
pub(crate) fn target_of<'a, T: ChannelTarget<'a>>(attempt: &'a Attempt) -> Result<T, Ended> {
    if attempt.target.channel() != T::KIND {
        return Err(ended(Outcome::DropMessage, "wrong_channel"));
    }
    attempt.target.read().map_err(|_| ended(Outcome::DropMessage, "bad_address"))
}
