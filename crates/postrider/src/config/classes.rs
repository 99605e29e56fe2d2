//! Classes of the configuration: the built-in ones, with the fields that the file changes.

use std::collections::BTreeMap;

use postrider_core::Class;
use toml::{Table, Value};

use super::ConfigError;

const TTL_S_MAX: u32 = 2_419_200;

/// Adds the built-in classes. A class of the file changes only the fields that it names.
pub(super) fn complete(table: &mut Table) {
    let mut all = built_in();
    if let Some(Value::Table(given)) = table.remove("classes") {
        for (name, fields) in given {
            merge(all.entry(name).or_insert_with(|| Value::Table(Table::new())), fields);
        }
    }
    table.insert("classes".into(), Value::Table(all));
}

pub(super) fn check(classes: &BTreeMap<String, Class>) -> Result<(), ConfigError> {
    for (name, class) in classes {
        check_name("classes", name)?;
        let field = |field: &str| format!("classes.{name}.{field}");
        if class.ttl_s > TTL_S_MAX {
            let allowed = "0 to 2419200 (28 days)";
            return Err(ConfigError::invalid(&field("ttl_s"), class.ttl_s, allowed));
        }
        if let Some(wrong) = class.retry.validate().err().and_then(|e| e.into_iter().next()) {
            return Err(ConfigError::in_section(&field("retry"), wrong));
        }
    }
    Ok(())
}

pub(super) fn check_name(section: &str, name: &str) -> Result<(), ConfigError> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed) {
        return Ok(());
    }
    let field = format!("{section}.NAME");
    Err(ConfigError::invalid(&field, format!("{name:?}"), "1 to 64 letters, digits, - or _"))
}

fn built_in() -> Table {
    let mut table = Table::new();
    for class in Class::built_in() {
        if let Ok(Value::Table(fields)) = Value::try_from(&class) {
            table.insert(class.name.to_string(), Value::Table(fields));
        }
    }
    table
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Table(into), Value::Table(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(slot) => merge(slot, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (into, from) => *into = from,
    }
}
