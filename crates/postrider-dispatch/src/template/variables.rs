//! The variables of one rendering as the engine reads them, and a record of it: which names were missing, and
//! how much work was done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::Value as Json;

/// Bytes that all filters of one rendering may read and make together.
pub(super) const WORK_MAX: usize = 1 << 20;
/// The record's own name among the variables; no template can write it.
const RECORD: &str = " record";

/// What one rendering looked up and how much it worked.
#[derive(Debug, Default)]
pub(super) struct RenderRecord {
    spent: AtomicUsize,
    asked: Mutex<VariableLookups>,
}

#[derive(Debug, Default)]
struct VariableLookups {
    /// Names that were looked up and not found, in this order.
    unmet: Vec<String>,
    /// Names that got an empty value, so that the other missing names are found, too.
    stood_in: BTreeSet<String>,
    /// Paths that were looked up inside of those.
    inside: BTreeSet<String>,
}

impl RenderRecord {
    /// Adds to the work done; an error if it is too much.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Error> {
        let before = self.spent.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > WORK_MAX {
            return Err(Error::new(ErrorKind::OutOfFuel, "its filters handle too many bytes"));
        }
        Ok(())
    }

    /// Begins another text, with no lookups yet.
    pub(super) fn begin(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = VariableLookups::default();
    }

    /// The name that was last looked up and not found. From now on it has an empty value.
    pub(super) fn stand_in_for_last(&self) -> Option<String> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let name = asked.unmet.pop()?;
        asked.unmet.clear();
        asked.stood_in.insert(name.clone()).then_some(name)
    }

    /// A missing name in full: of a missing object, the fields that were looked up in it.
    pub(super) fn in_full(&self, name: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let below =
            |of: &str, path: &str| path.strip_prefix(of).is_some_and(|r| r.starts_with('.'));
        let ends = asked.inside.iter().filter(|path| {
            below(name, path) && !asked.inside.iter().any(|deeper| below(path, deeper))
        });
        let ends: Vec<_> = ends.cloned().collect();
        if ends.is_empty() { vec![name.to_owned()] } else { ends }
    }

    fn unmet(self: &Arc<Self>, name: String) -> Option<Value> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.stood_in.contains(&name) {
            return Some(Value::from_object(EmptyVariable { path: name, record: self.clone() }));
        }
        asked.unmet.push(name);
        None
    }
}

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
            items.iter().enumerate().map(item).collect::<Vec<Value>>().into()
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
        if let Some(value) = self.fields.get(key) {
            return Some(value.clone());
        }
        if key == RECORD {
            return Some(Value::from_object(RecordHandle(self.record.clone())));
        }
        let name = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        self.record.unmet(name)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.fields.keys().map(|name| name.as_str().into()).collect())
    }
}

/// The value of a missing variable: prints nothing and contains nothing.
#[derive(Debug)]
struct EmptyVariable {
    path: String,
    record: Arc<RenderRecord>,
}

impl Object for EmptyVariable {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let path = format!("{}.{key}", self.path);
        let mut asked = self.record.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.inside.insert(path.clone());
        Some(Value::from_object(Self { path, record: self.record.clone() }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Empty
    }

    fn render(self: &Arc<Self>, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
