//! One line per line of the tables of mail servers, mail providers, SMS gateways and chat services:
//! what each answer means.

use std::sync::LazyLock;
use std::time::Duration;

use postrider_core::classify::{Answer, Table, classify};
use postrider_core::{Outcome, Scope, Timestamp};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
static TABLE: LazyLock<Table> = LazyLock::new(Table::built_in);
const RETRY: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };

const fn not_before(secs: u64) -> Outcome {
    Outcome::RetryBackoff { at_least: Duration::from_secs(secs) }
}

const fn account(secs: u64) -> Outcome {
    Outcome::RetryAfter { after: Duration::from_secs(secs), scope: Scope::Credential }
}

const fn target(secs: u64) -> Outcome {
    Outcome::RetryAfter { after: Duration::from_secs(secs), scope: Scope::Target }
}

#[track_caller]
fn table(service: &str, lines: &[(u16, &str, Outcome)]) {
    for (status, code, expected) in lines {
        let code = Some(*code).filter(|code| !code.is_empty());
        let answer = Answer { service, status: *status, code, ..Answer::default() };
        assert_eq!(classify(&TABLE, &answer, NOW), *expected, "{service} {status} {code:?}");
    }
}

const GREYLISTED: Outcome = not_before(300);
const FULL: Outcome = not_before(28_800);

#[test]
fn smtp_at_any_stage() {
    use Outcome::*;
    let lines = [
        (250, "2.0.0 queued", Accepted),
        (421, "4.3.2 shutting down", RETRY),
        (450, "4.2.1 busy", RETRY),
        (451, "4.3.0 local error", RETRY),
        (452, "4.3.1 no space", RETRY),
        (450, "4.7.1 come back later", GREYLISTED),
        (451, "4.7.1 come back later", GREYLISTED),
        (451, "Greylisted, try again", GREYLISTED),
        (450, "you are graylisted", GREYLISTED),
        (452, "4.5.3 too many recipients", RETRY),
        (454, "4.7.0 TLS not available", RETRY),
        (454, "Throttling failure: Maximum sending rate exceeded.", account(5)),
        (454, "4.7.0 Throttling failure: Daily message quota exceeded", account(14_400)),
        (432, "4.7.12 a password transition is needed", Config),
        (534, "5.7.9 mechanism too weak", Config),
        (535, "5.7.8 bad credentials", Config),
        (530, "5.7.0 must issue STARTTLS first", Config),
        (530, "5.5.1 authentication required", Config),
        (538, "encryption required", Config),
        (550, "5.1.1 no such user", Gone),
        (550, "5.1.2 no such domain", Gone),
        (550, "5.1.3 bad address", Gone),
        (551, "5.1.6 moved", Gone),
        (550, "5.1.10 null MX", Gone),
        (553, "5.1.1 no such user", Gone),
        (550, "5.2.1 mailbox disabled", Gone),
        (550, "", DropMessage),
        (550, "no such user here", DropMessage),
        (552, "5.2.2 mailbox full", FULL),
        (550, "5.2.2 over quota", FULL),
        (552, "mailbox is full", FULL),
        (552, "over quota", FULL),
        (552, "5.2.3 too long for the mailbox", DropMessage),
        (552, "5.3.4 too big for the system", DropMessage),
        (552, "message size exceeds limit", DropMessage),
        (550, "5.4.1 no answer from host", DropMessage),
        (550, "5.4.4 unable to route", DropMessage),
        (554, "5.4.6 routing loop", DropMessage),
        (550, "5.5.1 invalid command", DropMessage),
        (500, "5.5.2 syntax", DropMessage),
        (501, "", DropMessage),
        (502, "", DropMessage),
        (503, "5.5.1 bad sequence", DropMessage),
        (504, "", DropMessage),
        (555, "5.5.4 unsupported option", DropMessage),
        (554, "5.6.0 bad content", DropMessage),
        (550, "5.7.1 relaying denied", DropMessage),
        (550, "5.7.26 DMARC", DropMessage),
        (550, "5.7.25 no PTR", DropMessage),
        (550, "5.7.23 SPF", DropMessage),
        (554, "5.7.1 spam", DropMessage),
        (554, "rejected for policy reasons", DropMessage),
        (521, "5.3.2 host does not accept mail", Gone),
        (556, "5.1.10 null MX", Gone),
        (599, "", DropMessage),
    ];
    table("email.smtp.dot", &lines);
    table("email.smtp", &lines);
}

#[test]
fn smtp_by_stage() {
    use Outcome::*;
    table(
        "email.smtp.greeting",
        &[
            (421, "", RETRY),
            (521, "5.3.2 no mail here", Config),
            (554, "5.7.1 you are listed", Config),
        ],
    );
    table("email.smtp.ehlo", &[(421, "", RETRY), (502, "", DropMessage)]);
    table(
        "email.smtp.starttls",
        &[(454, "4.7.0 TLS not available", RETRY), (501, "", Config), (554, "", Config)],
    );
    table(
        "email.smtp.auth",
        &[
            (432, "", Config),
            (454, "4.7.0 Temporary authentication failure", RETRY),
            (421, "", RETRY),
            (534, "", Config),
            (535, "5.7.8 bad credentials", Config),
            (535, "", Config),
            (538, "", Config),
            (504, "", Config),
        ],
    );
    table(
        "email.smtp.mail",
        &[
            (450, "4.1.8 sender's domain not found", RETRY),
            (530, "5.7.0 authentication required", Config),
            (553, "5.1.3 the sender is no address", DropMessage),
            (550, "5.1.1 no such sender", DropMessage),
            (552, "5.3.4 too big", DropMessage),
        ],
    );
    table(
        "email.smtp.rcpt",
        &[
            (452, "", RETRY),
            (452, "4.5.3 too many recipients", RETRY),
            (552, "", FULL),
            (552, "5.2.2 full", FULL),
            (552, "5.3.4 too big", DropMessage),
            (552, "5.2.3 too big", DropMessage),
            (550, "5.1.1 unknown", Gone),
            (550, "unknown", DropMessage),
        ],
    );
}

#[test]
fn ses() {
    use Outcome::*;
    let lines = [
        (200, "", Accepted),
        (429, "TooManyRequestsException: slow down", account(2)),
        (400, "ThrottlingException: Maximum sending rate exceeded", account(2)),
        (400, "LimitExceededException: Maximum sending rate exceeded", account(2)),
        (429, "TooManyRequestsException: Daily message quota exceeded", account(14_400)),
        (429, "", account(60)),
        (400, "MessageRejected: Email address is not verified", DropMessage),
        (400, "BadRequestException: x", DropMessage),
        (404, "NotFoundException: no such template", DropMessage),
        (400, "AccountSuspendedException: x", Config),
        (400, "SendingPausedException: x", Config),
        (400, "MailFromDomainNotVerifiedException: x", Config),
        (403, "SignatureDoesNotMatch: x", Config),
        (401, "", Config),
        (500, "InternalServiceErrorException", RETRY),
        (503, "", RETRY),
        (408, "", RETRY),
        (302, "", RETRY),
        (413, "", DropMessage),
    ];
    table("email.ses", &lines);
}

#[test]
fn sendgrid() {
    use Outcome::*;
    let lines = [
        (202, "", Accepted),
        (200, "", Accepted),
        (429, "", account(60)),
        (400, "The subject is required.", DropMessage),
        (413, "", DropMessage),
        (422, "", DropMessage),
        (401, "The provided authorization grant is invalid", Config),
        (401, "Maximum credits exceeded", account(3600)),
        (403, "The from address does not match a verified Sender Identity", Config),
        (406, "", Config),
        (451, "", Config),
        (500, "", RETRY),
        (502, "", RETRY),
        (503, "", RETRY),
        (408, "", RETRY),
        (307, "", RETRY),
    ];
    table("email.sendgrid", &lines);
}

#[test]
fn any_sms_gateway() {
    use Outcome::*;
    let lines = [
        (200, "", Accepted),
        (307, "", RETRY),
        (400, "", DropMessage),
        (401, "", Config),
        (403, "", Config),
        (404, "", Config),
        (408, "", RETRY),
        (422, "", DropMessage),
        (429, "", account(60)),
        (500, "", RETRY),
        (503, "", RETRY),
    ];
    table("sms", &lines);
    table("sms.somebody", &lines);
    table("sms.twilio", &lines);
}

#[test]
fn twilio() {
    use Outcome::*;
    let codes: [(&[&str], Outcome); 18] = [
        (&["20003", "20008", "20404", "90010"], Config),
        (&["20429", "63017"], account(60)),
        (&["63038", "30023"], account(16 * 3600)), // NOW is 08:00
        (&["20500", "20503"], RETRY),
        (&["21211", "21217", "21614", "21635"], Gone),
        (&["21610"], Gone),
        (&["21612", "21408"], DropMessage),
        (&["21212", "21603", "21606", "21607", "21659", "21660", "21703", "21705"], Config),
        (&["21608", "30002", "30032", "30034"], Config),
        (&["21602", "21605", "21617", "21619", "21656"], DropMessage),
        (&["21611", "30001"], account(600)),
        (&["30003"], not_before(7200)),
        (&["30004", "30005", "30007", "30450", "30453"], DropMessage),
        (&["30006"], Gone),
        (&["30008"], not_before(60)),
        (&["30022"], account(10)),
        (&["30036"], Expired),
        (&["30410"], Ambiguous),
    ];
    for (codes, outcome) in codes {
        for code in codes {
            table("sms.twilio", &[(400, code, outcome.clone()), (500, code, outcome.clone())]);
        }
    }
    table("sms.twilio", &[(201, "", Accepted), (400, "29999", DropMessage), (503, "", RETRY)]);
}

#[test]
fn smpp() {
    use Outcome::*;
    let codes: [(&[&str], Outcome); 9] = [
        (&["0x08", "0x64"], RETRY),
        (&["0x14", "0x58"], account(1)),
        (&["0x45", "0xfe", "0x61"], not_before(60)),
        (&["0x0b", "0x50", "0x51"], Gone),
        (&["0x0a", "0x48", "0x49", "0x15"], Config),
        (&["0x01", "0x43", "0x62", "0xc0", "0xc1", "0xc2", "0xc3", "0xc4"], DropMessage),
        (&["0x0d", "0x0e", "0x0f", "0x53"], Config),
        (&["0x04", "0x05"], account(30)),
        (&["0x65", "0x66", "0x99"], DropMessage),
    ];
    for (codes, outcome) in codes {
        for code in codes {
            table("sms.smpp", &[(500, code, outcome.clone())]);
        }
    }
    table("sms.smpp", &[(200, "0x00", Accepted)]);
}

#[test]
fn any_chat_service() {
    use Outcome::*;
    let lines = [
        (200, "", Accepted),
        (204, "", Accepted),
        (307, "", RETRY),
        (400, "", DropMessage),
        (404, "", Gone),
        (408, "", RETRY),
        (410, "", Gone),
        (413, "", DropMessage),
        (429, "", target(60)),
        (500, "", RETRY),
        (503, "", RETRY),
    ];
    for service in ["chat", "chat.slack", "chat.discord", "chat.teams", "chat.mattermost"] {
        table(service, &lines);
    }
}

#[test]
fn slack_discord_and_teams() {
    use Outcome::*;
    let slack = [
        (400, "invalid_payload", DropMessage),
        (400, "no_text", DropMessage),
        (400, "invalid_blocks", DropMessage),
        (400, "too_many_attachments", DropMessage),
        (403, "action_prohibited", DropMessage),
        (403, "posting_to_general_channel_denied", DropMessage),
        (403, "invalid_token", Gone),
        (403, "team_disabled", Gone),
        (404, "no_service", Gone),
        (404, "no_team", Gone),
        (404, "channel_not_found", Gone),
        (400, "user_not_found", Gone),
        (410, "channel_is_archived", Gone),
        (429, "rate_limited", target(60)),
        (500, "rollup_error", RETRY),
    ];
    table("chat.slack", &slack);
    let host = Outcome::RetryAfter { after: Duration::from_secs(60), scope: Scope::Host };
    let discord = [
        (404, "10015", Gone),
        (401, "50027", Gone),
        (400, "50035", DropMessage),
        (400, "50006", DropMessage),
        (403, "", DropMessage),
        (429, "global", host),
        (429, "", target(60)),
    ];
    table("chat.discord", &discord);
    let failed =
        "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error";
    let told = |status: u16| format!("{failed} {status} with ContextId x");
    let (throttled, large, refused, down) = (told(429), told(413), told(400), told(502));
    let teams = [
        (200, "1", Accepted),
        (202, "", Accepted),
        (200, throttled.as_str(), target(60)),
        (200, &large, DropMessage),
        (200, &refused, DropMessage),
        (200, &down, RETRY),
        (401, "", Gone),
        (403, "", Gone),
        (413, "", DropMessage),
    ];
    table("chat.teams", &teams);
}
