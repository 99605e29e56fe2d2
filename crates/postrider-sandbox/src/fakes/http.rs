//! Receivers of plain HTTP requests (`/http/<name>`). They check nothing but the size of the body.

use serde_json::json;

use super::webhook::{checked, find_or_make};
use super::{FakeCall, FakeCheckResult, FakeEntry, FakeKind, FakeProvider};
use crate::sample::{ChannelSample, ShownId, shown_header};

impl FakeKind {
    pub const HTTP: Self = Self::new("http");
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind::HTTP,
    make: |_| Ok(vec![Box::new(FakeHttp)]),
    body_max: 4 << 20,
    setup_path: Some("http"),
    control_calls: &["PUT /sandbox/http/<name> {faults, script}"],
    sample: ChannelSample {
        channel: "http",
        shown_id: ShownId::IdempotencyKey,
        ttl: ("postrider-expires", |request| shown_header(request, "postrider-expires")),
        make: |sandbox, name, _, request| {
            sandbox.set_up(FakeKind::HTTP, name, request)?;
            let url = format!("{}/http/{name}", sandbox.https_origin());
            Ok((name.to_owned(), json!({"channel": "http", "url": url})))
        },
    },
    server_config: |_, _| Ok(String::new()),
};

struct FakeHttp;

impl FakeProvider for FakeHttp {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/http/")
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        Ok(checked(call, find_or_make(call, FakeKind::HTTP)?, "idempotency-key"))
    }
}
