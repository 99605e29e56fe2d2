//! The channels by name and by kind. The list itself is in `lib.rs`.

use std::sync::LazyLock;

pub use crate::ChannelSections;
use crate::definition::ChannelDefinition;
use postrider_core::ChannelKind;
use postrider_core::model::content::ContentSchema;

/// Makes the settings of all channels from one line per channel.
macro_rules! channels {
    ($($kind:ident: $section:ty,)*) => {
        /// The sections of all channels. With default settings, it is the list of channels.
        #[derive(Debug, Clone, Default, serde::Serialize)]
        pub struct ChannelSections {
            $(pub $kind: $section,)*
        }

        impl ChannelSections {
            pub fn iter(&self) -> impl Iterator<Item = &dyn $crate::ChannelDefinition> {
                [$(&self.$kind as &dyn $crate::ChannelDefinition),*].into_iter()
            }

            /// Reads the section that is called `name` from the value that follows in `map`.
            pub fn read_value<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match name {
                    $(stringify!($kind) => self.$kind = map.next_value()?,)*
                    other => return Err(serde::de::Error::custom(format!("no channel {other}"))),
                }
                Ok(())
            }
        }
    };
}

pub(crate) use channels;

/// Every channel, with default settings.
pub fn all() -> impl Iterator<Item = &'static dyn ChannelDefinition> {
    static ALL: LazyLock<ChannelSections> = LazyLock::new(ChannelSections::default);
    ALL.iter()
}

/// The names of all channels.
pub fn kinds() -> Vec<ChannelKind> {
    all().map(|channel| channel.kind()).collect()
}

/// What content may have.
pub fn content_schema() -> ContentSchema {
    all().map(|channel| (channel.kind(), channel.facts().part_check)).collect()
}

/// The channel of this kind, with default settings.
pub fn definition(kind: ChannelKind) -> Option<&'static dyn ChannelDefinition> {
    all().find(|channel| channel.kind() == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_called_the_same_everywhere() {
        let sections = serde_json::to_value(ChannelSections::default()).unwrap();
        for channel in all() {
            let kind = channel.kind();
            let name = kind.name();
            assert_eq!(channel.section().name, name);
            assert!(sections.get(name).is_some(), "{name} is listed under another name");
            assert!(
                crate::answers::services().iter().any(|service| service.starts_with(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_default_settings_of_every_channel_are_valid() {
        for channel in all() {
            assert_eq!(channel.check(), Ok(()));
            assert_eq!(channel.limits().check(), Ok(()));
        }
    }
}
