//! Mail: a mail server with sockets of its own, and the HTTP APIs of Amazon SES and SendGrid. All deliver to
//! the same mailboxes.

pub(crate) mod sendgrid;
pub(crate) mod ses;
pub(crate) mod smtp;

use std::path::Path;

use http::Method;
use serde_json::json;

use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeKind, FakeProvider, RejectedRequest};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::sample::{SampleReceiver, credential_file, shown_header};

const BODY_MAX: usize = 40 << 20;

impl FakeKind {
    pub const EMAIL: Self = Self::new("email");
}

/// The mail server. It takes no HTTP request: [`smtp`] has its sockets.
pub(crate) struct FakeMailServer;

impl FakeProvider for FakeMailServer {
    fn serves(&self, _: &str) -> bool {
        false
    }

    fn check(&self, _: &FakeCall<'_>) -> FakeCheckResult {
        let answer = FakeAnswer::text(404, "a mail server speaks SMTP\n");
        Err(RejectedRequest::new(CheckFailure::Request, answer))
    }

    fn setup_path(&self) -> Option<&'static str> {
        Some("email")
    }

    fn control_calls(&self) -> &'static [&'static str] {
        &["PUT /sandbox/email/<address> {faults, script, stage}"]
    }

    fn sample_channel(&self) -> Option<&'static str> {
        Some("email")
    }

    fn sample(
        &self,
        sandbox: &Sandbox,
        name: &str,
        _number: usize,
        request: &ReceiverRequest,
    ) -> anyhow::Result<SampleReceiver> {
        let mailbox = format!("{name}@customer.example");
        sandbox.set_up(FakeKind::EMAIL, &mailbox, request)?;
        let address = json!({"channel": "email", "email": mailbox});
        Ok(SampleReceiver {
            ttl_field: "MAIL FROM … BY= (DELIVERBY)",
            ttl_value: |request| shown_header(request, "deliver-by"),
            ..SampleReceiver::new(FakeKind::EMAIL, mailbox, address)
        })
    }

    fn server_config(&self, sandbox: &Sandbox, folder: &Path) -> anyhow::Result<String> {
        Ok(format!(
            "[accounts.relay]\nchannel = \"email\"\nhost = \"localhost\"\nport = {}\nuser = \"shop\"\n\
             from = \"shop@shop.example\"\n{}",
            sandbox.smtp.port(),
            credential_file(folder, "password", "demo")?,
        ))
    }
}

fn check_post(call: &FakeCall<'_>) -> Result<(), Box<RejectedRequest>> {
    match call.parts.method {
        Method::POST => Ok(()),
        _ => Err(RejectedRequest::new(CheckFailure::Request, FakeAnswer::text(405, "POST\n"))),
    }
}

fn checked(call: &FakeCall<'_>, mailbox: &str, id: CorrelationId) -> CheckedRequest {
    let receiver = call.state.receivers.get_or_put(FakeKind::EMAIL, &mailbox.to_lowercase());
    CheckedRequest { receiver, id, ttl_s: 0, content: call.body.clone() }
}
