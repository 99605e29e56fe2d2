//! Which channel is held to which promise. Every cell is either a test, `promise::channel`, or has a reason why
//! there is nothing to test; `docs/conformance.md` is this list for readers.

/// Every channel, by its provider where it has several with protocols of their own.
const CHANNELS: [&str; 11] = [
    "webpush", "webhook", "http", "chat", "fcm", "apns", "smtp", "ses", "sendgrid", "twilio",
    "smpp",
];

/// One promise: who is held to it, and why others are not.
struct Line {
    promise: &'static str,
    held: &'static [&'static str],
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
            crate::promises::$promise(crate::rig::Subject::named(stringify!($channel))).await;
        }
    };
}

macro_rules! suite {
    ($($promise:ident { $($held:ident)* $(; $($not:ident)+ : $why:literal)* })*) => {
        $(mod $promise { $(cell!($promise $held);)* })*

        const LINES: &[Line] = &[$(Line {
            promise: stringify!($promise),
            held: &[$(stringify!($held)),*],
            argued: &[$($((stringify!($not), $why)),+),*],
        }),*];
    };
}

suite! {
    an_acceptance_is_an_acceptance {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    throttling_waits_as_long_as_it_says {
        webpush webhook http chat fcm apns ses sendgrid twilio;
        smtp smpp: "an answer is a number and a text: there is no field for a time"
    }
    throttling_that_names_no_time_waits_what_the_table_says {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    gone_is_gone {
        webpush webhook http chat fcm apns smtp twilio smpp;
        ses sendgrid: "takes every address, and tells of bounces later"
    }
    a_refusal_drops_the_message_and_says_why_without_the_address {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_refused_credential_is_renewed_and_then_taken {
        webpush fcm apns smtp ses sendgrid twilio smpp;
        webhook: "we sign for the receiver and log in nowhere: a 401 is a refusal"
        ; http: "the caller names the credential, and a 401 is the callee's refusal"
        ; chat: "the URL is the credential: refused, it is gone"
    }
    a_passing_failure_is_tried_again {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_slow_answer_is_waited_for {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    silence_is_ambiguous {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_connection_that_never_came_to_be_is_tried_again {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_connection_reset_before_the_call_was_read_is_tried_again {
        smtp smpp;
        webpush webhook http chat fcm apns ses sendgrid twilio:
            "over HTTP a peer that hangs up does not say what it has read: what was written is in doubt"
    }
    a_connection_lost_after_the_request_is_ambiguous {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_name_that_does_not_resolve_is_tried_again {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_stranger_s_certificate_is_refused {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio;
        smpp: "SMPP 3.4 has no TLS of its own"
    }
    a_goaway_costs_nothing_and_leads_to_a_new_connection {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_goaway_in_anger_is_not_answered_at_once {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_refused_stream_costs_nothing_and_leads_to_a_new_connection {
        webpush webhook http chat fcm apns ses sendgrid twilio;
        smtp: "one mail at a time on a connection: there is no stream to refuse"
        ; smpp: "a message has an answer with a status and no stream to refuse"
    }
    a_huge_answer_is_cut_short {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_redirect_is_not_followed {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio;
        smpp: "no answer names another message centre"
    }
    http_1_1_is_spoken_where_the_peer_knows_nothing_newer {
        webpush webhook http chat fcm ses sendgrid twilio;
        apns: "Apple speaks HTTP/2 only"
        ; smtp smpp: "not HTTP"
    }
    a_connection_that_the_peer_closes_is_not_used_again {
        webpush webhook http chat fcm smtp ses sendgrid twilio smpp;
        apns: "`Connection: close` is of HTTP/1.1; the GOAWAY of HTTP/2 is promised above"
    }
    nothing_goes_out_in_the_clear_unless_allowed {
        webpush webhook http chat smtp ses sendgrid twilio;
        fcm: "its token is fetched first, and that over TLS"
        ; apns: "Apple speaks HTTP/2 only, which is agreed upon within TLS"
        ; smpp: "SMPP 3.4 has no TLS of its own: the operator gives it a private line"
    }
    a_private_address_is_refused_after_its_name_was_resolved {
        webpush webhook http chat apns ses sendgrid twilio;
        fcm: "its token is fetched first, and refused in the same way"
        ; smtp smpp: "the operator chose the relay, not a caller: it may well stand in the same house"
    }
    the_url_goes_out_as_it_was_written {
        webpush webhook http chat;
        fcm apns ses sendgrid twilio: "the account says where the provider is, no caller writes a URL"
        ; smtp smpp: "there is no URL"
    }
    nothing_is_sent_at_or_after_its_expiry {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_large_batch_ends_exactly_once_each_over_few_connections {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    the_peer_s_limit_of_calls_at_once_is_kept {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    a_storm_of_attempts_knocks_once_at_a_closed_door {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    unused_connections_make_room_for_others {
        webpush webhook http chat;
        fcm apns ses sendgrid twilio: "few accounts, few origins: nothing competes for connections"
        ; smtp smpp: "an account has connections of its own, and a number of them that is configured"
    }
    one_bad_attempt_does_not_harm_the_others {
        webpush webhook http chat fcm apns smtp ses sendgrid twilio smpp
    }
    refusals_of_webhooks_and_http_are_retried_where_the_class_asks {
        webpush webhook http chat;
        fcm apns ses sendgrid twilio smtp smpp:
            "`retry_all` is for receivers that are still being built, not for a provider's word"
    }
}

fn reason(line: &Line, channel: &str) -> Option<&'static str> {
    line.argued.iter().find(|(named, _)| *named == channel).map(|(_, why)| *why)
}

#[test]
fn every_channel_is_held_to_every_promise_or_there_is_a_reason() {
    for line in LINES {
        for channel in CHANNELS {
            let held = line.held.iter().filter(|named| **named == channel).count();
            let argued = line.argued.iter().filter(|(named, _)| *named == channel).count();
            assert_eq!(held + argued, 1, "{} × {channel}", line.promise);
        }
        let named = line.held.len() + line.argued.len();
        assert_eq!(named, CHANNELS.len(), "{} names a channel that nobody knows", line.promise);
        assert!(line.argued.iter().all(|(_, why)| why.len() > 7), "{}", line.promise);
    }
}

/// The runner itself is asked: a cell that is only written down is no test.
#[test]
fn every_cell_that_is_held_is_a_test_that_runs() {
    let me = std::env::current_exe().unwrap();
    let listed = std::process::Command::new(me).args(["--list", "--format", "terse"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let tests: std::collections::HashSet<&str> = listed.lines().collect();
    let built = |channel: &&&str| cfg!(feature = "smpp") || **channel != "smpp";
    for line in LINES {
        for channel in line.held.iter().filter(built) {
            let name = format!("matrix::{}::{channel}: test", line.promise);
            assert!(tests.contains(name.as_str()), "{name} is not run");
        }
    }
}

/// The matrix as a page.
fn page() -> String {
    use std::fmt::Write as _;
    let mut page = String::from(
        "# What every channel promises\n\n\
         Made from `crates/postrider-channels/tests/conformance/matrix.rs`; a test fails if it is out of date.\n\
         ● is a test, against a scripted provider on a real socket: `cargo test -p postrider-channels --features smpp \
         --test conformance promise::channel`. A number is a reason why there is nothing to test, below the table.\n\n",
    );
    let _ = writeln!(page, "| promise | {} |", CHANNELS.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(CHANNELS.len()));
    let mut reasons: Vec<&str> = Vec::new();
    for line in LINES {
        let _ = write!(page, "| {} |", line.promise.replace("_s_", "'s ").replace('_', " "));
        for channel in CHANNELS {
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
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");
    if std::env::var_os("POSTRIDER_WRITE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page(),
        "docs/conformance.md is out of date; write it anew with POSTRIDER_WRITE_DOCS=1 and this test"
    );
}
