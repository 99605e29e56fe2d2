//! The few messages of OTLP that spans need, in the encoding of Protocol Buffers. Reads nothing.

use postrider_core::Timestamp;

use super::{AttributeValue, TraceSpan};

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// The status of a span that failed.
const STATUS_ERROR: u64 = 2;
/// The caller's trace is sampled, and its parent is known to be remote.
const FLAGS: u32 = 0x01 | 0x100 | 0x200;

/// An `ExportTraceServiceRequest` with all of these spans.
pub(super) fn export_request(service: &str, version: &str, spans: &[TraceSpan]) -> Vec<u8> {
    let mut resource = ProtoMessage::default();
    for (name, value) in [("service.name", service), ("service.version", version)] {
        resource.message(1, |entry| attribute(entry, name, &AttributeValue::Text(value.into())));
    }
    let mut scope_spans = ProtoMessage::default();
    scope_spans.message(1, |scope| {
        scope.bytes(1, b"postrider");
        scope.bytes(2, version.as_bytes());
    });
    for each in spans {
        scope_spans.message(2, |out| span(out, each));
    }
    let mut request = ProtoMessage::default();
    request.message(1, |resource_spans| {
        resource_spans.bytes(1, &resource.0);
        resource_spans.bytes(2, &scope_spans.0);
    });
    request.0
}

fn span(out: &mut ProtoMessage, span: &TraceSpan) {
    out.bytes(1, &span.trace);
    out.bytes(2, &span.id.to_be_bytes());
    out.bytes(4, &span.parent.to_be_bytes());
    out.bytes(5, span.name.as_bytes());
    out.number(6, span.kind as u64);
    out.fixed64(7, nanos(span.start));
    out.fixed64(8, nanos(span.end));
    for (name, value) in &span.attributes {
        out.message(9, |entry| attribute(entry, name, value));
    }
    if let Some(error) = span.error {
        out.message(15, |status| {
            status.bytes(2, error.as_bytes());
            status.number(3, STATUS_ERROR);
        });
    }
    out.fixed32(16, FLAGS);
}

fn attribute(out: &mut ProtoMessage, name: &str, value: &AttributeValue) {
    out.bytes(1, name.as_bytes());
    out.message(2, |out| match value {
        AttributeValue::Text(text) => out.bytes(1, text.as_bytes()),
        AttributeValue::Number(number) => out.number(3, *number as u64),
    });
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

/// A message being written.
#[derive(Default)]
struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.varint(field << 3 | FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the documentation of Protocol Buffers: field 1 with 150 is 08 96 01, field 2 with "testing" is
    /// 12 07 74 65 73 74 69 6e 67.
    #[test]
    fn fields_are_written_as_the_documentation_shows() {
        let mut message = ProtoMessage::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        assert_eq!(message.0[..3], [0x08, 0x96, 0x01]);
        assert_eq!(message.0[3..], *b"\x12\x07testing");
        let mut negative = ProtoMessage::default();
        negative.number(3, -1_i64 as u64);
        assert_eq!(negative.0.len(), 11, "ten bytes for a negative number");
    }
}
