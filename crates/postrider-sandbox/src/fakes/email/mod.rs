//! Mail: a mail server with sockets of its own, and the HTTP APIs of Amazon SES and SendGrid. All deliver to
//! the same mailboxes.

pub(crate) mod sendgrid;
pub(crate) mod ses;
pub(crate) mod smtp;

use http::Method;
use serde_json::json;

use super::{CheckedRequest, FakeCall, FakeEntry, FakeKind, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::sample::{ChannelSample, ShownId, credential_file, shown_header};

impl FakeKind {
    pub const EMAIL: Self = Self::new("email");
}

/// The mail server itself takes no HTTP request: [`smtp`] has its sockets.
pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind::EMAIL,
    make: |_| Ok(vec![Box::new(ses::FakeSes), Box::new(sendgrid::FakeSendGrid)]),
    body_max: 40 << 20,
    setup_path: Some("email"),
    control_calls: &["PUT /sandbox/email/<address> {faults, script, stage}"],
    sample: ChannelSample {
        channel: "email",
        shown_id: ShownId::Delivery,
        ttl: ("MAIL FROM … BY= (DELIVERBY)", |request| shown_header(request, "deliver-by")),
        make: |sandbox, name, _, request| {
            let mailbox = format!("{name}@customer.example");
            sandbox.set_up(FakeKind::EMAIL, &mailbox, request)?;
            let address = json!({"channel": "email", "email": mailbox});
            Ok((mailbox, address))
        },
    },
    server_config: |sandbox, folder| {
        Ok(format!(
            "[accounts.relay]\nchannel = \"email\"\nhost = \"localhost\"\nport = {}\nuser = \"shop\"\n\
             from = \"shop@shop.example\"\n{}",
            sandbox.smtp.port(),
            credential_file(folder, "password", "demo")?,
        ))
    },
};

fn check_post(call: &FakeCall<'_>) -> Result<(), Box<RejectedRequest>> {
    match call.parts.method {
        Method::POST => Ok(()),
        _ => Err(RejectedRequest::request(FakeAnswer::text(405, "POST\n"))),
    }
}

fn checked(call: &FakeCall<'_>, mailbox: &str, id: CorrelationId) -> CheckedRequest {
    call.checked(FakeKind::EMAIL, &mailbox.to_lowercase(), id, 0)
}
