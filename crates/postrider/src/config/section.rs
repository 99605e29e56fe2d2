//! What a section of the configuration is made of: fields with a default and a sentence each, from
//! which struct, defaults and reference page all come.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One field, as the reference page shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub name: &'static str,
    pub about: &'static [&'static str],
}

/// A section, as the reference page shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionInfo {
    pub name: &'static str,
    pub about: &'static [&'static str],
    pub fields: &'static [Field],
}

/// Declares a section: its struct, its defaults and its entry in the reference come from one text.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident as $path:literal {
            $( $(#[doc = $doc:literal])+ $field:ident : $ty:ty = $default:expr ),* $(,)?
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
            pub(crate) const INFO: $crate::config::section::SectionInfo =
                $crate::config::section::SectionInfo {
                    name: $path,
                    about: &[$($about),+],
                    fields: &[$($crate::config::section::Field {
                        name: stringify!($field),
                        about: &[$($doc),+],
                    }),*],
                };
        }
    };
}
pub(super) use section;

/// A text that no log, no error and no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
