//! Where spans are sent.

use std::collections::BTreeMap;

use postrider_channels::accounts::SecretRef;
use postrider_channels::section;

use super::{ConfigError, check_range};
pub use crate::traces::SpanProtocol;
use crate::traces::SpanReceiver;

section! {
    /// Traces: what happens to a message becomes spans of its caller's trace, sent by OTLP (docs/traces.md). A change
    /// needs a restart.
    TraceSection as "traces" {
        /// The receiver of spans, such as http://127.0.0.1:4318. Without it, no span is made.
        endpoint: Option<String> = None,
        /// http (Protocol Buffers over HTTP) or grpc.
        protocol: SpanProtocol = SpanProtocol::Http,
        /// Headers of each call, such as {authorization = "env:OTLP_TOKEN"}: env:NAME, file:PATH or command:PROGRAM.
        headers: BTreeMap<String, SecretRef> = BTreeMap::new(),
        /// What spans say that they come from.
        service_name: String = "postrider".to_owned(),
        /// Spans that may wait to be sent. More are dropped and counted.
        queue_max: usize = 8_192,
        /// Spans of one call.
        batch_max: usize = 512,
        /// The receiver has so long to answer.
        timeout_s: u64 = 10,
    }
}

impl TraceSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        if let Some(Err(allowed)) = self.endpoint.as_deref().map(SpanReceiver::check) {
            return Err(ConfigError::invalid("traces.endpoint", "another text", allowed));
        }
        for name in self.headers.keys() {
            if http::HeaderName::try_from(name.as_str()).is_err() {
                return Err(ConfigError::invalid("traces.headers", name, "names of headers"));
            }
        }
        check_range("traces.queue_max", self.queue_max, 1..=1_000_000)?;
        check_range("traces.batch_max", self.batch_max, 1..=10_000)?;
        check_range("traces.timeout_s", self.timeout_s, 1..=300)
    }
}
