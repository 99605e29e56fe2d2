//! Sections of the configuration: fields with a default and a description each. Struct, defaults and
//! reference page come from one declaration. Reads no file.

use std::fmt;

use postrider_core::FieldError;
use postrider_core::policy::limiter::Rate;
use serde::{Deserialize, Serialize};

use crate::definition::ChannelFacts;

/// One setting, as the reference page shows it.
#[derive(Debug, Clone, Copy)]
pub struct SettingInfo {
    pub name: &'static str,
    pub about: &'static [&'static str],
}

/// A section, as the reference page shows it.
#[derive(Debug, Clone, Copy)]
pub struct SectionInfo {
    pub name: &'static str,
    pub about: &'static [&'static str],
    pub settings: &'static [SettingInfo],
}

/// Declares a section: struct, defaults and entry in the reference.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident as $path:literal {
            $( $(#[doc = $doc:expr])+ $field:ident : $ty:ty = $default:expr ),* $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $name {
            pub const INFO: $crate::settings::SectionInfo = $crate::settings::SectionInfo {
                name: $path,
                about: &[$($about),+],
                settings: &[$($crate::settings::SettingInfo {
                    name: stringify!($field),
                    about: &[$($doc),+],
                }),*],
            };
        }
    };
}

/// The section of a channel. `channel_section!` implements it.
pub trait ChannelSection: Send + Sync {
    fn facts(&self) -> &'static ChannelFacts;

    /// For the reference page.
    fn section(&self) -> SectionInfo;

    /// The limits that all channels have. They are checked for all channels alike.
    fn limits(&self) -> ChannelLimits;
}

/// The limits that every channel has, as settings of its own section. `channel_section!` declares them there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelLimits {
    /// Calls in flight per lane provider.
    pub concurrency: usize,
    pub rate_per_s: f64,
    pub rate_burst: u32,
    pub rate_ramp_s: u32,
    /// 0 where the channel has no such limit.
    pub rate_per_credential_s: f64,
    /// 0 where the channel has no such limit.
    pub rate_per_address_s: f64,
    pub timeout_s: u64,
}

/// Declares the section of a channel: its own settings, then the limits. `$unit` and `$scope` say what the limits
/// count; with `+ per_address`, there are also limits per credential and per address. Needs the channel's `FACTS`.
macro_rules! channel_section {
    (
        $(#[doc = $about:literal])+
        $name:ident as $path:literal { $($own:tt)* }
        limits $unit:literal $scope:literal = $limits:expr
    ) => {
        $crate::settings::channel_section! {
            @ $(#[doc = $about])+ $name as $path { $($own)* } $unit $scope, $limits, {}
        }
    };
    (
        $(#[doc = $about:literal])+
        $name:ident as $path:literal { $($own:tt)* }
        limits + per_address $unit:literal $scope:literal = $limits:expr
    ) => {
        $crate::settings::channel_section! {
            @ $(#[doc = $about])+ $name as $path { $($own)* } $unit $scope, $limits, {
                #[doc = concat!(" ", $unit, " per second", $scope, " with one tenant's credential; 0 for no limit.")]
                rate_per_credential_s: f64,
                #[doc = concat!(" ", $unit, " per second to one address, one at a time; 0 for no limit.")]
                rate_per_address_s: f64,
            }
        }
    };
    (
        @ $(#[doc = $about:literal])+ $name:ident as $path:literal { $($own:tt)* }
        $unit:literal $scope:literal, $limits:expr,
        { $(#[doc = $doc:expr] $more:ident: $ty:ty,)* }
    ) => {
        $crate::section! {
            $(#[doc = $about])+
            $name as $path {
                $($own)*
                #[doc = concat!(" ", $unit, " in flight", $scope, ".")]
                concurrency: usize = $limits.concurrency,
                #[doc = concat!(" ", $unit, " per second", $scope, "; 0 for no limit.")]
                rate_per_s: f64 = $limits.rate_per_s,
                /// How many of them may come at once.
                rate_burst: u32 = $limits.rate_burst,
                /// After a rest, the rate grows from a tenth to the whole within this time; 0 for at once.
                rate_ramp_s: u32 = $limits.rate_ramp_s,
                $(#[doc = $doc] $more: $ty = $limits.$more,)*
                /// An attempt without an answer ends after this long.
                timeout_s: u64 = $limits.timeout_s,
            }
        }

        impl $crate::settings::ChannelSection for $name {
            fn facts(&self) -> &'static $crate::definition::ChannelFacts {
                &FACTS
            }

            fn section(&self) -> $crate::settings::SectionInfo {
                Self::INFO
            }

            #[allow(clippy::needless_update, reason = "some sections have all the limits")]
            fn limits(&self) -> $crate::settings::ChannelLimits {
                $crate::settings::ChannelLimits {
                    concurrency: self.concurrency,
                    rate_per_s: self.rate_per_s,
                    rate_burst: self.rate_burst,
                    rate_ramp_s: self.rate_ramp_s,
                    timeout_s: self.timeout_s,
                    $($more: self.$more,)*
                    ..$crate::settings::ChannelLimits::USUAL
                }
            }
        }
    };
}
pub(crate) use channel_section;

impl ChannelLimits {
    pub(crate) const USUAL: Self = Self {
        concurrency: 256,
        rate_per_s: 0.0,
        rate_burst: 10,
        rate_ramp_s: 0,
        rate_per_credential_s: 0.0,
        rate_per_address_s: 0.0,
        timeout_s: 30,
    };

    /// The same rules for every channel. Fields are named relative to the section.
    pub fn check(&self) -> Result<(), FieldError> {
        if self.timeout_s == 0 {
            return Err(FieldError::new("timeout_s", "0", "at least 1"));
        }
        check_rate("rate_per_credential_s", self.rate_per_credential_s)?;
        check_rate("rate_per_address_s", self.rate_per_address_s)?;
        check_rate("rate_per_s", self.rate_per_s)
    }

    /// The rate to one provider, if it is limited.
    pub fn rate(&self) -> Option<Rate> {
        rate(self.rate_per_s, self.rate_burst, self.rate_ramp_s)
    }

    /// The rate of one credential, if it is limited.
    pub fn credential_rate(&self) -> Option<Rate> {
        rate(self.rate_per_credential_s, self.rate_burst, self.rate_ramp_s)
    }

    /// The rate to one address, if it is limited.
    pub fn address_rate(&self) -> Option<Rate> {
        rate(self.rate_per_address_s, 1, 0)
    }
}

/// A rate limit; 0 is none.
pub fn rate(per_s: f64, burst: u32, ramp_s: u32) -> Option<Rate> {
    (per_s > 0.0).then_some(Rate { per_s, burst, ramp_s })
}

pub fn check_rate(field: &str, per_s: f64) -> Result<(), FieldError> {
    match per_s == 0.0 || (0.001..=1e6).contains(&per_s) {
        true => Ok(()),
        false => {
            let allowed = "0 (no limit), or 0.001 to 1000000";
            Err(FieldError::new(field, per_s.to_string(), allowed))
        }
    }
}

/// A text that no log, no error and no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
