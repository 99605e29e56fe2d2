//! The variables of one rendering as the engine reads them. Every item that the engine touches is counted, also in
//! comparisons; a missing variable is noted when it is used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::Value as Json;

use super::record::RenderRecord;

/// The record's own name among the variables; no template can write it.
const RECORD: &str = " record";

/// The record of the rendering that is under way.
pub(super) fn record(state: &State<'_, '_>) -> Result<Arc<RenderRecord>, Error> {
    let found = state.lookup(RECORD).and_then(|value| value.downcast_object::<RecordHandle>());
    let lost = || Error::new(ErrorKind::InvalidOperation, "a rendering without a record");
    found.map(|handle| handle.0.clone()).ok_or_else(lost)
}

#[derive(Debug)]
struct RecordHandle(Arc<RenderRecord>);

impl Object for RecordHandle {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// The variables as one value.
pub(super) fn root(variables: &serde_json::Map<String, Json>, record: &Arc<RenderRecord>) -> Value {
    node(String::new(), variables, record)
}

/// The bytes of the longest text among the variables.
pub(super) fn longest_text(variables: &serde_json::Map<String, Json>) -> usize {
    fn longest(json: &Json) -> usize {
        match json {
            Json::String(text) => text.len(),
            Json::Array(items) => items.iter().map(longest).max().unwrap_or(0),
            Json::Object(fields) => longest_text(fields),
            _ => 0,
        }
    }
    let keys = variables.keys().map(String::len).max().unwrap_or(0);
    keys.max(variables.values().map(longest).max().unwrap_or(0))
}

fn node(path: String, fields: &serde_json::Map<String, Json>, record: &Arc<RenderRecord>) -> Value {
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let value = |(name, json): (&String, &Json)| {
        Some((name.clone(), value(&|| below(name), json, record)?))
    };
    let fields = fields.iter().filter_map(value).collect();
    Value::from_object(VariableNode { path, fields, record: record.clone() })
}

/// Null counts as missing: nobody wants to read "none".
fn value(path: &dyn Fn() -> String, json: &Json, record: &Arc<RenderRecord>) -> Option<Value> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(yes) => (*yes).into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(n), _) => n.into(),
            (_, Some(n)) => n.into(),
            _ => number.as_f64().unwrap_or_default().into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => {
            let path = path();
            let item = |(n, json): (usize, &Json)| {
                value(&|| format!("{path}.{n}"), json, record).unwrap_or_default()
            };
            CountedList::value(items.iter().enumerate().map(item).collect(), record)
        }
        Json::Object(fields) => node(path(), fields, record),
    })
}

/// An object among the variables, that knows its own name.
#[derive(Debug)]
struct VariableNode {
    path: String,
    fields: BTreeMap<String, Value>,
    record: Arc<RenderRecord>,
}

impl Object for VariableNode {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if key == RECORD {
            return Some(Value::from_object(RecordHandle(self.record.clone())));
        }
        if !self.record.touch(1) {
            return None;
        }
        if let Some(value) = self.fields.get(key) {
            return Some(value.clone());
        }
        let name = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        let stand_in = self.record.look_up_missing(&name);
        stand_in
            .then(|| Value::from_object(EmptyVariable { path: name, record: self.record.clone() }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if !self.record.touch(self.fields.len()) {
            return Enumerator::Empty;
        }
        Enumerator::Values(self.fields.keys().map(|name| name.as_str().into()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// A list that counts how often its items are touched. With too much work done it is empty.
#[derive(Debug)]
pub(super) struct CountedList {
    items: Vec<Value>,
    record: Arc<RenderRecord>,
}

impl CountedList {
    pub(super) fn value(items: Vec<Value>, record: &Arc<RenderRecord>) -> Value {
        Value::from_object(Self { items, record: record.clone() })
    }
}

impl Object for CountedList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let item = self.items.get(key.as_usize()?)?;
        self.record.touch(1).then(|| item.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.record.touch(1) {
            true => Enumerator::Seq(self.items.len()),
            false => Enumerator::Empty,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The value of a missing variable: prints nothing and contains nothing. To use it is noted.
#[derive(Debug)]
pub(super) struct EmptyVariable {
    path: String,
    record: Arc<RenderRecord>,
}

impl EmptyVariable {
    /// It is used as if it were there.
    pub(super) fn note_use(&self) {
        self.record.use_missing(&self.path);
    }

    /// The template has another value for it.
    pub(super) fn forgive(&self) {
        self.record.forgive_missing(&self.path);
    }
}

impl Object for EmptyVariable {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if !self.record.touch(1) {
            return None;
        }
        let path = format!("{}.{key}", self.path);
        self.record.look_inside(&self.path, &path);
        Some(Value::from_object(Self { path, record: self.record.clone() }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.note_use();
        Enumerator::Empty
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.note_use();
        Some(0)
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.note_use();
        false
    }

    fn render(self: &Arc<Self>, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note_use();
        Ok(())
    }
}
