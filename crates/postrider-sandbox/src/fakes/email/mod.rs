//! Mail: a mail server with its own sockets, and the HTTP APIs of Amazon SES and SendGrid. All deliver to the same
//! mailboxes.

mod dkim;
mod mime;
mod sendgrid;
mod ses;
mod show;
pub(crate) mod smtp;

use anyhow::Context as _;
use serde_json::json;

use super::{CheckedRequest, FakeCall, FakeEntry, FakeKind};
use crate::correlation::CorrelationId;
use crate::sample::{ChannelSample, ShownId, shown_header};

/// [`smtp`] has the sockets of the mail server.
pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("email"),
    make: |_| {
        let domain = Box::new(show::FakeMailDomain::default());
        Ok(vec![Box::new(ses::FakeSes), Box::new(sendgrid::FakeSendGrid), domain])
    },
    body_max: 40 << 20,
    setup_path: Some("email"),
    control_calls: &[
        "PUT /sandbox/email/<address> {faults, script, stage}",
        "PUT /sandbox/dkim/<selector>._domainkey.<domain> {record}",
    ],
    sample: ChannelSample {
        channel: "email",
        shown_id: ShownId::Delivery,
        ttl: ("MAIL FROM … BY= (DELIVERBY)", |request| shown_header(request, "deliver-by")),
        name: |name, _| format!("{name}@customer.example"),
        address: |_, mailbox| json!({"channel": "email", "email": mailbox}),
    },
    show: show::show,
    server_config: |sandbox, folder| {
        let (selector, key) = sandbox.make_dkim_key("shop.example")?;
        let path = folder.join("dkim.pem");
        std::fs::write(&path, key).with_context(|| format!("cannot write {}", path.display()))?;
        let dkim =
            format!("dkim = [{{ selector = \"{selector}\", key = \"file:{}\" }}]", path.display());
        let sender = "host = \"localhost\"\nuser = \"shop\"\nfrom = \"shop@shop.example\"";
        let settings = format!("{sender}\n{dkim}\nport = {}", sandbox.smtp.port());
        sandbox.account(folder, ["relay", "email", "demo"], &settings)
    },
};

fn checked(call: &FakeCall<'_>, mailbox: &str, id: CorrelationId) -> CheckedRequest {
    call.checked(ENTRY.kind, &mailbox.to_lowercase(), id, 0)
}
