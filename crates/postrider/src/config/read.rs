//! Reads a [`Config`] from any source of named values. Errors keep the line of what is wrong, which
//! `#[serde(flatten)]` would lose. Checks no value.

use std::fmt;
use std::sync::LazyLock;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{Config, sections};

/// Reads the fields of [`Config`] that are not channels.
macro_rules! own_fields {
    ($($field:ident)*) => {
        fn read_value<'de, A: MapAccess<'de>>(
            config: &mut Config,
            name: &str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match name {
                $(stringify!($field) => config.$field = map.next_value()?,)*
                channel => config.channels.read_value(channel, map)?,
            }
            Ok(())
        }
    };
}

own_fields! {
    server admin store encryption network dispatch breaker retry_budget strikes capacity limits
    receipts retention rollups problems alerts events traces log
    classes tenants accounts templates classify
}

/// The names of all fields.
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let tables = ["classes", "tenants", "accounts", "templates", "classify"];
    sections::all().iter().map(|section| section.name).chain(tables).collect()
});

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
        let mut config = Config::default();
        while let Some(FieldName(name)) = map.next_key()? {
            read_value(&mut config, name, &mut map)?;
        }
        Ok(config)
    }
}

/// A name that is known. An unknown one fails here, where its place in the text is known.
struct FieldName(&'static str);

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(FieldNameVisitor)
    }
}

struct FieldNameVisitor;

impl Visitor<'_> for FieldNameVisitor {
    type Value = FieldName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a section")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<FieldName, E> {
        let known = NAMES.iter().find(|known| **known == name);
        known.map(|name| FieldName(name)).ok_or_else(|| E::unknown_field(name, &NAMES))
    }
}
