//! What mail servers and mail providers answer. For SMTP the status is the reply's, the service names
//! the stage of the conversation, and the code is `x.y.z text` with the class digit of the reply.

use super::built_in::{ANY, Block, Line, RETRY, says, starts};
use super::row::Verdict;
use crate::model::outcome::Scope;

const HOUR_S: u64 = 3600;

pub(super) fn blocks() -> [Block; 8] {
    [smtp(), greeting(), starttls(), auth(), mail_from(), rcpt(), ses(), sendgrid()]
}

/// Any stage; the others fall back to these rows.
fn smtp() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (200, 299, ANY, Accepted),
        (400, 499, ANY, RETRY),
        (421, 421, ANY, RETRY),
        (450, 451, starts("4.7.1 "), Verdict::not_before(300)),
        (450, 451, says("greylist"), Verdict::not_before(300)),
        (450, 451, says("graylist"), Verdict::not_before(300)),
        // There is one recipient in an envelope, so there is nothing to split.
        (452, 452, starts("4.5.3 "), RETRY),
        (454, 454, ANY, RETRY),
        (454, 454, says("Maximum sending rate exceeded"), Verdict::wait(Scope::Credential, 5)),
        (454, 454, says("Daily message quota exceeded"), quota_spent()),
        (500, 599, ANY, DropMessage),
        (500, 504, ANY, DropMessage),
        (521, 521, ANY, Gone),
        (550, 550, ANY, DropMessage),
        (552, 552, ANY, DropMessage),
        (552, 552, says("full"), full_mailbox()),
        (552, 552, says("quota"), full_mailbox()),
        (555, 555, ANY, DropMessage),
        (556, 556, ANY, Gone),
        (550, 559, starts("5.2.2 "), full_mailbox()),
        (550, 559, starts("5.2.3 "), DropMessage),
        (550, 559, starts("5.3.4 "), DropMessage),
        (550, 559, starts("5.4."), DropMessage),
        (550, 559, starts("5.5."), DropMessage),
        (550, 559, starts("5.6."), DropMessage),
        (550, 554, starts("5.7."), DropMessage),
    ];
    rows.extend([432, 530, 534, 535, 538].map(|status| (status, status, ANY, Config)));
    for status in [550, 551, 553] {
        rows.extend(no_such_mailbox(status));
    }
    ("email.smtp", rows)
}

fn no_such_mailbox(status: u16) -> [Line; 6] {
    ["5.1.1 ", "5.1.2 ", "5.1.3 ", "5.1.6 ", "5.1.10 ", "5.2.1 "]
        .map(|code| (status, status, starts(code), Verdict::Gone))
}

/// A relay that does not want us says nothing about any recipient.
fn greeting() -> Block {
    ("email.smtp.greeting", vec![(500, 599, ANY, Verdict::Config)])
}

fn starttls() -> Block {
    ("email.smtp.starttls", vec![(400, 499, ANY, RETRY), (500, 599, ANY, Verdict::Config)])
}

fn auth() -> Block {
    use Verdict::*;
    let rows = vec![
        (400, 499, ANY, RETRY),
        (432, 432, ANY, Config),
        (454, 454, starts("4.7.0 "), RETRY),
        (500, 599, ANY, Config),
        (535, 535, starts("5.7.8 "), Config),
    ];
    ("email.smtp.auth", rows)
}

/// What is wrong with the sender is not the recipient's fault.
fn mail_from() -> Block {
    use Verdict::*;
    let mut rows = vec![(500, 599, ANY, DropMessage)];
    rows.extend([530, 534, 535, 538].map(|status| (status, status, ANY, Config)));
    ("email.smtp.mail", rows)
}

/// Old servers say 552 where RFC 5321 has 452. A 550 that gives no reason is held against the mailbox; what
/// an enhanced code says stays as it is.
fn rcpt() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (452, 452, ANY, RETRY),
        (550, 550, starts("5."), DropMessage),
        (550, 550, starts("5.2.2 "), full_mailbox()),
        (552, 552, ANY, full_mailbox()),
        (552, 552, starts("5.2.2 "), full_mailbox()),
        (552, 552, starts("5.2.3 "), DropMessage),
        (552, 552, starts("5.3.4 "), DropMessage),
    ];
    rows.extend(no_such_mailbox(550));
    ("email.smtp.rcpt", rows)
}

/// A mailbox is emptied by a person: a few tries over a day or more, although the reply is final.
fn full_mailbox() -> Verdict {
    Verdict::not_before(8 * HOUR_S).at_most(3)
}

fn quota_spent() -> Verdict {
    Verdict::wait(Scope::Credential, 4 * HOUR_S)
}

/// The code is the error's type, a colon and its text.
fn ses() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (400, 400, says("MessageRejected"), DropMessage),
        (400, 400, says("BadRequestException"), DropMessage),
        (404, 404, says("NotFoundException"), DropMessage),
        (400, 499, says("AccountSuspendedException"), Config),
        (400, 499, says("SendingPausedException"), Config),
        (400, 499, says("MailFromDomainNotVerifiedException"), Config),
        (401, 401, ANY, Config),
        (403, 403, ANY, Config),
        (408, 408, ANY, RETRY),
        (429, 429, ANY, Verdict::wait(Scope::Credential, 60)),
        (400, 499, says("TooManyRequestsException"), Verdict::wait(Scope::Credential, 2)),
        (400, 499, says("ThrottlingException"), Verdict::wait(Scope::Credential, 2)),
        (400, 499, says("Maximum sending rate exceeded"), Verdict::wait(Scope::Credential, 2)),
        (400, 499, says("Daily message quota exceeded"), quota_spent()),
        (500, 599, ANY, RETRY),
        (500, 500, says("InternalServiceErrorException"), RETRY),
    ];
    ("email.ses", rows)
}

/// The code is the first error's text.
fn sendgrid() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (400, 400, ANY, DropMessage),
        (401, 401, ANY, Config),
        (401, 401, says("Maximum credits exceeded"), Verdict::wait(Scope::Credential, HOUR_S)),
        (403, 403, ANY, Config),
        (406, 406, ANY, Config),
        (408, 408, ANY, RETRY),
        (413, 413, ANY, DropMessage),
        (429, 429, ANY, Verdict::wait(Scope::Credential, 60)),
        (451, 451, ANY, Config),
        (500, 599, ANY, RETRY),
        (500, 500, ANY, RETRY),
        (502, 502, ANY, RETRY),
        (503, 503, ANY, RETRY),
    ];
    ("email.sendgrid", rows)
}
