//! One span.

use postrider_core::Timestamp;
use postrider_core::model::trace::TraceParent;

/// As OTLP numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    Client = 3,
    Consumer = 5,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttributeValue {
    Text(String),
    Number(i64),
}

/// A part of a caller's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceSpan {
    pub(crate) trace: [u8; 16],
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) name: &'static str,
    pub(crate) kind: SpanKind,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) attributes: Vec<(&'static str, AttributeValue)>,
    /// What went wrong, in one word.
    pub(crate) error: Option<&'static str>,
}

impl TraceSpan {
    /// A child of the caller's span.
    pub(crate) fn below(
        parent: &TraceParent,
        id: u64,
        name: &'static str,
        kind: SpanKind,
        (start, end): (Timestamp, Timestamp),
    ) -> Self {
        Self {
            trace: parent.trace,
            id,
            parent: parent.span,
            name,
            kind,
            start,
            end: end.max(start),
            attributes: Vec::with_capacity(14),
            error: None,
        }
    }

    pub(crate) fn text(&mut self, name: &'static str, value: impl Into<String>) {
        self.attributes.push((name, AttributeValue::Text(value.into())));
    }

    pub(crate) fn number(&mut self, name: &'static str, value: impl Into<i64>) {
        self.attributes.push((name, AttributeValue::Number(value.into())));
    }
}
