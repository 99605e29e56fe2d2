//! The story's characters: one delivery for everything that can happen to one, each with a script
//! for its provider and the end that it must come to.

use postrider_core::DeadReason as Reason;
use postrider_core::State;

/// One delivery with a scripted provider.
pub(super) struct Case {
    /// Also the receiver's name in the sandbox.
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) channel: Channel,
    /// What the provider answers, attempt by attempt; the last repeats.
    pub(super) script: &'static [&'static str],
    pub(super) class: &'static str,
    pub(super) ttl_s: u32,
    pub(super) end: End,
    /// The fewest calls that the provider must have seen.
    pub(super) calls_min: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Webpush,
    Webhook,
    Http,
    Fcm,
    Apns,
    Email,
    Sms,
    Chat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) state: State,
    pub(super) reason: Option<Reason>,
}

const fn ends(state: State) -> End {
    End { state, reason: None }
}

const fn dead(reason: Reason) -> End {
    End { state: State::Failed, reason: Some(reason) }
}

const fn case(
    name: &'static str,
    what: &'static str,
    channel: Channel,
    script: &'static [&'static str],
    end: End,
    calls_min: u64,
) -> Case {
    Case { name, what, channel, script, class: "demo", ttl_s: 600, end, calls_min }
}

/// In the order in which they are told.
pub(super) fn all() -> Vec<Case> {
    let mut cases = failures();
    cases.splice(1..1, channels());
    cases
}

/// Each other way to reach somebody, and what its provider says of one who is no longer there.
fn channels() -> [Case; 7] {
    use Channel::{Apns, Chat, Email, Fcm, Sms};
    let taken = |name, what, channel| case(name, what, channel, &["200"], ends(State::Sent), 1);
    let gone =
        |name, what, channel, script| case(name, what, channel, script, ends(State::Gone), 1);
    [
        taken("android", "FCM: accepted, with a token that was fetched once", Fcm),
        taken("iphone", "APNs: accepted, one stream until the first success", Apns),
        gone("old-iphone", "APNs: 410 Unregistered, the device is gone", Apns, &["410"]),
        taken("ada", "e-mail: accepted, over STARTTLS", Email),
        gone("nobody", "e-mail: 550 5.1.1, there is no such mailbox", Email, &["550"]),
        taken("phone", "text message: accepted, valid for as long as its TTL", Sms),
        case(
            "team",
            "chat: 429 with Retry-After: 1, obeyed, then accepted",
            Chat,
            &["429:1", "200"],
            ends(State::Sent),
            2,
        ),
    ]
}

fn failures() -> Vec<Case> {
    use Channel::{Http, Webhook, Webpush};
    vec![
        case("first-try", "Web Push, accepted at once", Webpush, &["201"], ends(State::Sent), 1),
        case(
            "throttled",
            "429 with Retry-After: 2, obeyed, then accepted",
            Webpush,
            &["429:2", "201"],
            ends(State::Sent),
            2,
        ),
        case(
            "unavailable",
            "503 twice, then accepted",
            Webhook,
            &["503", "503", "200"],
            ends(State::Sent),
            3,
        ),
        case(
            "reset",
            "connection reset before the request was read, then accepted",
            Webhook,
            &["reset", "200"],
            ends(State::Sent),
            1,
        ),
        case(
            "goaway",
            "HTTP/2 stream refused by the peer: replayed at once, no attempt burned",
            Webpush,
            &["refused", "201"],
            ends(State::Sent),
            1,
        ),
        case(
            "retry-queue",
            "any HTTP request: 500, then accepted",
            Http,
            &["500", "200"],
            ends(State::Sent),
            2,
        ),
        case(
            "unsubscribed",
            "410: the subscription is gone, its keys are erased",
            Webpush,
            &["410"],
            ends(State::Gone),
            1,
        ),
        case(
            "malformed",
            "400: this message can never be accepted",
            Webhook,
            &["400", "200"],
            dead(Reason::Permanent),
            1,
        ),
        case(
            "outage",
            "503 for ever: the retries run out",
            Webhook,
            &["503"],
            dead(Reason::RetriesExhausted),
            4,
        ),
        Case {
            ttl_s: 8,
            ..case(
                "too-late",
                "429 with Retry-After: 60 but a TTL of 8 s: never sent past it",
                Webpush,
                &["429:60"],
                dead(Reason::Ttl),
                1,
            )
        },
        Case {
            class: "once",
            ..case(
                "in-doubt",
                "sent, no answer, class `once`: a person decides, nothing is sent twice",
                Webhook,
                &["reset-after"],
                dead(Reason::Ambiguous),
                1,
            )
        },
        Case {
            class: "flash",
            ttl_s: 8,
            ..case(
                "stale-offer",
                "an offer that would come too late just expires",
                Webpush,
                &["503:60"],
                ends(State::Expired),
                1,
            )
        },
    ]
}

/// The classes of the demo: the retry policy is shortened, so that hours fit into seconds.
pub(super) const CLASSES: &str = r#"
[classes.demo]
retry = { retries = 4, base_ms = 300, cap_ms = 3000, jitter = "full" }

[classes.once]
on_ambiguous = "park"
retry = { retries = 4, base_ms = 300, cap_ms = 3000 }

[classes.flash]
on_expiry = "expire"
retry = { retries = 4, base_ms = 300, cap_ms = 3000 }
"#;
