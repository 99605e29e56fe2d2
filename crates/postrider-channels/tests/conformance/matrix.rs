//! Which channel keeps which promise. Every cell is either a test, `promise::channel`, or a reason why there is
//! nothing to test. A part of `docs/channels.md` is generated from this list.

use crate::column::Column;
use crate::fixture::Subject;

/// The columns that are declared in their own files.
fn columns() -> impl Iterator<Item = &'static Column> {
    [&crate::sms::TWILIO].into_iter().chain(crate::columns::ALL.iter().copied())
}

/// One promise, and the reasons for the channels that are not tested.
struct Line {
    promise: &'static str,
    argued: &'static [(&'static str, &'static str)],
}

macro_rules! cell {
    ($promise:ident smtp) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn smtp() {
            crate::smtp::$promise().await;
        }
    };
    ($promise:ident smpp) => {
        #[cfg(feature = "smpp")]
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn smpp() {
            crate::smpp::$promise().await;
        }
    };
    ($promise:ident $channel:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $channel() {
            crate::promises::$promise(crate::matrix::subject(stringify!($channel))).await;
        }
    };
}

/// Makes `test_unless_argued!(channel)` and `test_unless_argued!(group channel)`, which are nothing for the channels
/// and groups that are listed here.
macro_rules! tests_of {
    ($d:tt $promise:ident $($not:ident)*) => {
        macro_rules! test_unless_argued {
            $(($not) => {}; ($not $d channel:ident) => {};)*
            ($d channel:ident) => { cell!($promise $d channel); };
            ($d group:ident $d channel:ident) => { cell!($promise $d channel); };
        }
    };
}

macro_rules! for_each {
    ($(($($channel:ident)+))*) => { $(test_unless_argued!($($channel)+);)* };
}

macro_rules! suite {
    (($d:tt) [$(($group:ident $column:ident))*] [$($channel:ident)*] $($rest:tt)*) => {
        /// Every channel; by provider if its providers have different protocols.
        const CHANNELS: &[&str] = &[$(stringify!($channel),)* $(stringify!($column),)*];

        /// The channels that declare their column in their own folder, each after the group whose reasons hold for it.
        const GROUPS: &[(&str, &str)] = &[$((stringify!($group), stringify!($column)),)*];

        suite! { @promises ($d) ($(($channel))* $(($group $column))*) $($rest)* }
    };
    (@promises ($d:tt) $channels:tt $($promise:ident { $($($not:ident)+ : $why:literal);* })*) => {
        $(mod $promise {
            tests_of!($d $promise $($($not)+)*);
            for_each! $channels;
        })*

        const LINES: &[Line] = &[$(Line {
            promise: stringify!($promise),
            argued: &[$($((stringify!($not), $why)),+),*],
        }),*];
    };
}

// The dollar sign is for the macro that the suite makes. `accounts` and `urls` stand for the channels that declare
// their column in their own folder, with and without accounts.
with_columns! {
    suite! ($)
    [webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp]
    a_success_is_accepted {}
    throttling_waits_for_the_named_time {
        smtp smpp: "a reply is a code and a text: it has no field for a time"
    }
    throttling_without_a_time_waits_as_the_table_says {}
    a_gone_answer_marks_the_address_as_gone {
        ses sendgrid: "accepts every address and reports bounces later"
    }
    a_refusal_drops_the_message_and_says_why_without_the_address {}
    a_refused_credential_is_renewed_and_then_accepted {
        webhook: "a webhook is signed and has no login: a 401 refuses the message"
        ; http: "the caller names the credential: a 401 refuses the message"
        ; chat: "the URL is the credential: if it is refused, the address is gone"
    }
    an_echoed_credential_is_not_shown {
        webhook: "a webhook is signed and has no login"
        ; chat: "the URL is the credential: no report repeats it, as the promise about refusals shows"
    }
    a_temporary_failure_is_tried_again {}
    a_slow_answer_is_waited_for {}
    silence_is_ambiguous {}
    a_failed_connection_is_tried_again {}
    a_connection_reset_before_the_request_was_read_is_tried_again {
        webpush webhook http chat fcm apns ses sendgrid twilio accounts urls:
            "a closed HTTP connection does not show what the peer has read: a written request is in doubt"
    }
    a_connection_lost_after_the_request_is_ambiguous {}
    a_name_that_does_not_resolve_is_tried_again {}
    an_untrusted_certificate_is_refused {
        smpp: "SMPP 3.4 has no TLS"
    }
    a_goaway_costs_nothing_and_leads_to_a_new_connection {}
    a_goaway_with_an_error_is_not_retried_at_once {}
    a_refused_stream_costs_nothing_and_leads_to_a_new_connection {
        smtp: "a connection carries one mail at a time: there are no streams"
        ; smpp: "every message has an answer with a status: there are no streams"
    }
    a_huge_answer_is_cut_short {}
    a_redirect_is_not_followed {
        smpp: "no answer names another message centre"
    }
    http_1_1_is_used_if_the_peer_offers_nothing_newer {
        apns: "Apple supports HTTP/2 only"
        ; smtp smpp: "not HTTP"
    }
    a_connection_that_the_peer_closes_is_not_used_again {
        apns: "`Connection: close` belongs to HTTP/1.1; the GOAWAY of HTTP/2 is tested above"
    }
    nothing_is_sent_without_tls_unless_allowed {
        fcm: "its token is fetched first, over TLS"
        ; apns: "Apple supports HTTP/2 only, which is negotiated in TLS"
        ; smpp: "SMPP 3.4 has no TLS: the operator provides a private line"
    }
    a_private_address_is_refused_after_its_name_was_resolved {
        fcm: "its token is fetched first, and the private address is refused there"
        ; smtp smpp: "the operator chose the relay, not a caller: a private address is allowed"
    }
    the_url_is_sent_as_written {
        fcm apns ses sendgrid twilio accounts: "the account has the URL of the provider; callers write none"
        ; smtp smpp: "there is no URL"
    }
    nothing_is_sent_at_or_after_its_expiry {}
    every_attempt_of_a_large_batch_ends_exactly_once_over_few_connections {}
    the_peer_s_limit_of_concurrent_calls_is_respected {}
    many_attempts_connect_once_to_an_unreachable_peer {}
    unused_connections_make_room_for_others {
        fcm apns ses sendgrid twilio accounts: "few accounts have few origins: nothing competes for connections"
        ; smtp smpp: "an account has a configured number of its own connections"
    }
    one_bad_attempt_does_not_harm_the_others {}
    refusals_of_webhooks_and_http_are_retried_if_the_class_says_so {
        fcm apns ses sendgrid twilio smtp smpp accounts:
            "`retry_all` is for receivers under development, not for providers"
    }
}

fn subject(name: &str) -> Subject {
    match name {
        "webpush" => Subject::Webpush,
        "webhook" => Subject::Webhook,
        "http" => Subject::Http,
        "chat" => Subject::Chat,
        "fcm" => Subject::Fcm,
        "apns" => Subject::Apns,
        "ses" => Subject::Ses,
        "sendgrid" => Subject::SendGrid,
        other => {
            let declared = columns().find(|column| column.name == other);
            Subject::Declared(declared.unwrap_or_else(|| panic!("{other} does not speak HTTP")))
        }
    }
}

fn reason(line: &Line, channel: &str) -> Option<&'static str> {
    let is_meant = |named: &str| named == channel || GROUPS.contains(&(named, channel));
    line.argued.iter().find(|(named, _)| is_meant(named)).map(|(_, why)| *why)
}

#[test]
fn every_channel_keeps_every_promise_or_has_a_reason() {
    for line in LINES {
        for (nth, (channel, why)) in line.argued.iter().enumerate() {
            let is_known = CHANNELS.contains(channel) || ["accounts", "urls"].contains(channel);
            assert!(is_known, "{} names {channel}", line.promise);
            assert!(why.len() > 7, "{}", line.promise);
            let earlier = line.argued[..nth].iter().any(|(named, _)| named == channel);
            assert!(!earlier, "{} argues twice about {channel}", line.promise);
        }
    }
    for column in columns() {
        assert!(CHANNELS.contains(&column.name), "{} is not in the matrix", column.name);
    }
}

/// Asks the test runner: a cell without a test fails.
#[test]
fn every_tested_cell_is_a_test_that_runs() {
    let me = std::env::current_exe().unwrap();
    let listed = std::process::Command::new(me).args(["--list", "--format", "terse"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let tests: std::collections::HashSet<&str> = listed.lines().collect();
    let built = |channel: &&str| cfg!(feature = "smpp") || *channel != "smpp";
    for line in LINES {
        let held = CHANNELS.iter().copied().filter(|channel| reason(line, channel).is_none());
        for channel in held.filter(built) {
            let name = format!("matrix::{}::{channel}: test", line.promise);
            assert!(tests.contains(name.as_str()), "{name} is not run");
        }
    }
}

/// The heading of the matrix, the last part of the page.
const HEADING: &str = "\n## What every channel promises\n";

/// The matrix as the last part of a page.
fn page() -> String {
    use std::fmt::Write as _;
    let mut page = format!(
        "{HEADING}\n\
         Generated from `crates/postrider-channels/tests/conformance/matrix.rs`; a test fails if it is out of date.\n\
         ● is a test against a scripted provider on a real socket: `cargo test -p postrider-channels --features smpp \
         --test conformance promise::channel`. A number refers to a reason below the table why there is nothing to test.\n\n",
    );
    let _ = writeln!(page, "| promise | {} |", CHANNELS.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(CHANNELS.len()));
    let mut reasons: Vec<&str> = Vec::new();
    for line in LINES {
        let _ = write!(page, "| {} |", line.promise.replace("_s_", "'s ").replace('_', " "));
        for &channel in CHANNELS {
            let Some(why) = reason(line, channel) else {
                page.push_str(" ● |");
                continue;
            };
            let known = reasons.iter().position(|known| *known == why);
            let number = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            let _ = write!(page, " {} |", number + 1);
        }
        page.push('\n');
    }
    page.push('\n');
    for (nth, why) in reasons.iter().enumerate() {
        let _ = writeln!(page, "{}. {why}", nth + 1);
    }
    page
}

#[test]
fn the_page_about_conformance_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/channels.md");
    let found = std::fs::read_to_string(path).unwrap();
    let (rest, part) = found.split_at(found.find(HEADING).unwrap_or(found.len()));
    if std::env::var_os("POSTRIDER_WRITE_DOCS").is_some() {
        std::fs::write(path, rest.to_owned() + &page()).unwrap();
        return;
    }
    assert!(part == page(), "docs/channels.md is out of date: run `cargo xtask channels`");
}
