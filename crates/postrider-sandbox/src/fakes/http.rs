//! Receivers of plain HTTP requests (`/http/<name>`). They check nothing but the size of the body.

use serde_json::json;

use super::webhook::{checked, find_or_make, too_large};
use super::{FakeCall, FakeCheckResult, FakeEntry, FakeKind, FakeProvider};
use crate::answer::FakeAnswer;
use crate::inbox::view::InboxView;
use crate::sample::{ChannelSample, ShownId, shown_header};

pub(crate) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("http"),
    make: |_| Ok(vec![Box::new(FakeHttp)]),
    body_max: 4 << 20,
    setup_path: Some("http"),
    control_calls: &["PUT /sandbox/http/<name> {faults, script}"],
    sample: ChannelSample {
        channel: "http",
        shown_id: ShownId::IdempotencyKey,
        ttl: ("postrider-expires", |request| shown_header(request, "postrider-expires")),
        name: |name, _| name.to_owned(),
        address: |sandbox, name| json!({"channel": "http", "url": format!("{}/http/{name}", sandbox.https_origin())}),
    },
    show: |shown| InboxView::call(shown, None),
    server_config: |_, _| Ok(String::new()),
};

struct FakeHttp;

impl FakeProvider for FakeHttp {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/http/")
    }

    fn too_large(&self, _: &FakeCall<'_>) -> FakeAnswer {
        too_large()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        Ok(checked(call, find_or_make(call, ENTRY.kind)?, "idempotency-key"))
    }
}
