//! Traces: what happens to a message of a sampled trace becomes spans of that trace, sent by OTLP. A message without a
//! trace of its caller has none. Nothing waits for a receiver of spans: what does not fit into the queue is dropped and
//! counted.

mod encoding;
mod export;
mod receiver_address;
mod span;
mod tracer;

pub(crate) use export::SpanExporter;
pub use receiver_address::SpanProtocol;
pub(crate) use receiver_address::SpanReceiver;
pub(crate) use span::{AttributeValue, SpanKind, TraceSpan};
pub(crate) use tracer::Tracer;
