//! Receivers of plain HTTP requests (`/http/<name>`). They check nothing but the size of the body.

use http::request::Parts;
use serde_json::json;

use super::webhook::{checked, find_or_make};
use super::{FakeCall, FakeCheckResult, FakeKind, FakeProvider};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::sample::{SampleReceiver, ShownId, shown_header};
use crate::service::SandboxState;

impl FakeKind {
    pub const HTTP: Self = Self::new("http");
}

pub(crate) struct FakeHttp;

impl FakeProvider for FakeHttp {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/http/")
    }

    fn body_max(&self) -> usize {
        4 << 20
    }

    fn too_large(&self, _: &SandboxState, _: &Parts) -> FakeAnswer {
        FakeAnswer::text(413, "larger than 4 MiB\n")
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        Ok(checked(call, find_or_make(call, FakeKind::HTTP)?, "idempotency-key"))
    }

    fn setup_path(&self) -> Option<&'static str> {
        Some("http")
    }

    fn control_calls(&self) -> &'static [&'static str] {
        &["PUT /sandbox/http/<name> {faults, script}"]
    }

    fn sample_channel(&self) -> Option<&'static str> {
        Some("http")
    }

    fn sample(
        &self,
        sandbox: &Sandbox,
        name: &str,
        _number: usize,
        request: &ReceiverRequest,
    ) -> anyhow::Result<SampleReceiver> {
        sandbox.set_up(FakeKind::HTTP, name, request)?;
        let url = format!("{}/http/{name}", sandbox.https_origin());
        Ok(SampleReceiver {
            shown_id: ShownId::IdempotencyKey,
            ttl_field: "postrider-expires",
            ttl_value: |request| shown_header(request, "postrider-expires"),
            ..SampleReceiver::new(FakeKind::HTTP, name, json!({"channel": "http", "url": url}))
        })
    }
}
