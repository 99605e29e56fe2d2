//! The template engine with its bounds: few filters, a limit on the bytes that filters read and write, and a
//! limit on the steps of each text. `variables.rs` counts the items that are touched.

use std::sync::{Arc, LazyLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
    escape_formatter,
};

use super::record::{ITEMS_MAX, RenderRecord};
use super::variables::{CountedList, EmptyVariable, record};

/// Steps that one text may take; all of a message may take twice as many.
pub(super) const STEPS_MAX: u64 = 20_000;
const DEPTH_MAX: usize = 20;

/// The names of the filters, in order.
pub(super) static FILTERS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut names: Vec<_> = filters().into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
});

/// The names of the tests, for `is` and for `select`.
pub(super) static TESTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = "boolean defined endingwith eq equalto even false float ge greaterthan gt in integer \
                 iterable le lessthan lower lt mapping ne none number odd sequence startingwith string \
                 true undefined upper";
    names.split(' ').collect()
});

/// As Jinja has it, but a line break at the very end is kept: some bodies are taken byte for byte.
pub(super) static SYNTAX: LazyLock<SyntaxConfig> = LazyLock::new(|| {
    SyntaxConfig::builder().keep_trailing_newline(true).build().unwrap_or_default()
});

/// An engine that compiles and renders the texts of one template.
pub(super) fn new(strict: bool) -> Environment<'static> {
    static BASE: LazyLock<Environment<'static>> = LazyLock::new(base);
    let mut engine = BASE.clone();
    // Without strictness, a field of a missing variable is missing, too, and no error.
    let undefined = if strict { UndefinedBehavior::Strict } else { UndefinedBehavior::Chainable };
    engine.set_undefined_behavior(undefined);
    engine
}

fn base() -> Environment<'static> {
    let mut engine = Environment::new();
    let functions: Vec<String> = engine.globals().map(|(name, _)| name.to_owned()).collect();
    functions.iter().for_each(|name| engine.remove_global(name));
    for (name, filter) in filters() {
        let paid = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let mut args = args.into_values();
            let record = record(state)?;
            note_missing(name, &mut args);
            record.filtering(|| {
                pay(&record, name, &args)?;
                counted(filter.call(state, &args)?, &record)
            })
        };
        engine.add_filter(name, paid);
    }
    for unbounded in
        ["attr", "batch", "slice", "indent", "groupby", "chain", "zip", "pprint", "format"]
    {
        engine.remove_filter(unbounded);
    }
    engine.add_test("defined", |value: Value| !is_missing(&value));
    engine.add_test("undefined", |value: Value| is_missing(&value));
    // It panics if it divides by zero.
    engine.remove_test("divisibleby");
    engine.set_fuel(Some(STEPS_MAX));
    engine.set_recursion_limit(DEPTH_MAX);
    engine.set_syntax(SYNTAX.clone());
    engine.set_auto_escape_callback(|text| match text.ends_with("/email.html") {
        true => AutoEscape::Html,
        false => AutoEscape::None,
    });
    engine.set_formatter(print);
    engine
}

/// Escapes what HTML needs and no more: a slash as an entity would make links unreadable in the source.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    record(state)?.look_at_clock();
    let text = value.as_str().filter(|_| !value.is_safe());
    let (Some(text), AutoEscape::Html) = (text, state.auto_escape()) else {
        return escape_formatter(out, state, value);
    };
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
        out.write_str(&rest[..at])?;
        out.write_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            _ => "&#39;",
        })?;
        rest = &rest[at + 1..];
    }
    Ok(out.write_str(rest)?)
}

fn filters() -> Vec<(&'static str, Value)> {
    macro_rules! listed {
        ($($name:ident),*) => { vec![$((stringify!($name), Value::from_function(minijinja::filters::$name))),*] };
    }
    let mut all = listed!(
        abs, bool, capitalize, default, dictsort, escape, first, float, int, items, join, last,
        length, lines, list, lower, map, max, min, reject, rejectattr, replace, reverse, round,
        safe, select, selectattr, sort, split, string, sum, title, tojson, trim, unique, upper,
        urlencode
    );
    all.push(("truncate", Value::from_function(truncate)));
    all.push(("count", Value::from_function(minijinja::filters::length)));
    all.push(("d", Value::from_function(minijinja::filters::default)));
    all.push(("e", Value::from_function(minijinja::filters::escape)));
    all
}

/// Whether a value is missing. To ask is not to use it.
fn is_missing(value: &Value) -> bool {
    let stand_in = value.downcast_object_ref::<EmptyVariable>();
    stand_in.inspect(|missing| missing.forgive()).is_some() || value.is_undefined()
}

/// A filter uses its arguments, but `default` is there for missing ones.
fn note_missing(name: &str, args: &mut [Value]) {
    if matches!(name, "default" | "d") {
        let first = args.first_mut().filter(|value| is_missing(value));
        if let Some(value) = first {
            *value = Value::UNDEFINED;
        }
    }
    for missing in args.iter().filter_map(|value| value.downcast_object_ref::<EmptyVariable>()) {
        missing.note_use();
    }
}

/// What a filter made, counted; a list counts also when it is used.
fn counted(made: Value, record: &Arc<RenderRecord>) -> Result<Value, Error> {
    let is_list = matches!(made.kind(), ValueKind::Seq | ValueKind::Iterable);
    let is_ours = made.downcast_object_ref::<CountedList>().is_some()
        || made.downcast_object_ref::<EmptyVariable>().is_some();
    if !is_list || is_ours {
        record.spend_made(size(&made))?;
        return Ok(made);
    }
    let items: Vec<Value> = made.try_iter()?.take(ITEMS_MAX).collect();
    record.spend(items.len().saturating_mul(8))?;
    record.touch(items.len());
    Ok(CountedList::value(items, record))
}

/// Counts the bytes that a filter is about to read and write.
fn pay(record: &RenderRecord, name: &str, args: &[Value]) -> Result<(), Error> {
    let text = |n: usize| args.get(n).map(Value::to_string).unwrap_or_default();
    let made = match name {
        "replace" => text(0).matches(&text(1)).count().saturating_mul(text(2).len()),
        // The separator may also be given by name, so all arguments count.
        "join" => {
            args.first().map_or(0, items).saturating_mul(args.iter().skip(1).map(printed).sum())
        }
        // Each item may be looked for in the arguments.
        "select" | "reject" | "selectattr" | "rejectattr" => {
            args.first().map_or(0, items).saturating_mul(args.iter().skip(1).map(printed).sum())
        }
        "tojson" if args.len() > 1 => {
            return Err(Error::new(ErrorKind::TooManyArguments, "tojson takes no arguments here"));
        }
        _ => 0,
    };
    let read: usize = args.iter().map(size).sum();
    record.spend(read.saturating_add(made))
}

fn printed(value: &Value) -> usize {
    value.to_string().len()
}

fn items(value: &Value) -> usize {
    value.len().or_else(|| Some(value.try_iter().ok()?.count())).unwrap_or(0)
}

/// Bytes of a text, a few for each item of a list.
fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => items(value).saturating_mul(8),
        _ => 8,
    }
}

/// At most so many characters, the last of them `…` where something was cut off.
fn truncate(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(length.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_what_there_is_and_nothing_else() {
        let engine = new(true);
        for name in FILTERS.iter() {
            let known = engine.render_str(&format!("{{{{ 1 | {name} }}}}"), ());
            let unknown = known.is_err_and(|e| e.kind() == ErrorKind::UnknownFilter);
            assert!(!unknown, "{name}");
        }
        for name in TESTS.iter() {
            let known = engine.render_str(&format!("{{{{ 1 is {name} }}}}"), ());
            let unknown = known.is_err_and(|e| e.kind() == ErrorKind::UnknownTest);
            assert!(!unknown, "{name}");
        }
        assert_eq!(engine.globals().count(), 0);
    }
}
