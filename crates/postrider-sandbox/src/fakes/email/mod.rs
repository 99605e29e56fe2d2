//! Mail: a mail server with its own sockets, and the HTTP APIs of Amazon SES and SendGrid. All deliver to the same
//! mailboxes.

mod sendgrid;
mod ses;
pub(crate) mod smtp;

use serde_json::json;

use super::{CheckedRequest, FakeCall, FakeEntry, FakeKind};
use crate::correlation::CorrelationId;
use crate::sample::{ChannelSample, ShownId, shown_header};

/// [`smtp`] has the sockets of the mail server.
pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("email"),
    make: |_| Ok(vec![Box::new(ses::FakeSes), Box::new(sendgrid::FakeSendGrid)]),
    body_max: 40 << 20,
    setup_path: Some("email"),
    control_calls: &["PUT /sandbox/email/<address> {faults, script, stage}"],
    sample: ChannelSample {
        channel: "email",
        shown_id: ShownId::Delivery,
        ttl: ("MAIL FROM … BY= (DELIVERBY)", |request| shown_header(request, "deliver-by")),
        name: |name, _| format!("{name}@customer.example"),
        address: |_, mailbox| json!({"channel": "email", "email": mailbox}),
    },
    server_config: |sandbox, folder| {
        let sender = "host = \"localhost\"\nuser = \"shop\"\nfrom = \"shop@shop.example\"";
        let settings = format!("{sender}\nport = {}", sandbox.smtp.port());
        sandbox.account(folder, ["relay", "email", "demo"], &settings)
    },
};

fn checked(call: &FakeCall<'_>, mailbox: &str, id: CorrelationId) -> CheckedRequest {
    call.checked(ENTRY.kind, &mailbox.to_lowercase(), id, 0)
}
