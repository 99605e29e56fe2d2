//! The scripted deliveries of the demo: one for everything that can happen to one, each with the answers of its
//! provider and the end that it must come to.

use postrider_core::{DeadReason, State};

/// One delivery with a scripted provider.
pub(super) struct DemoCase {
    /// Also the receiver's name in the sandbox.
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// As a message names it.
    pub(super) channel: &'static str,
    /// What the provider answers, attempt by attempt; the last repeats.
    pub(super) script: &'static [&'static str],
    pub(super) class: &'static str,
    pub(super) ttl_s: u32,
    pub(super) end: DemoEnd,
    /// The fewest calls that the provider must have seen.
    pub(super) calls_min: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DemoEnd {
    pub(super) state: State,
    pub(super) reason: Option<DeadReason>,
}

const fn ends(state: State) -> DemoEnd {
    DemoEnd { state, reason: None }
}

const fn dead(reason: DeadReason) -> DemoEnd {
    DemoEnd { state: State::Failed, reason: Some(reason) }
}

const fn case(
    name: &'static str,
    what: &'static str,
    channel: &'static str,
    script: &'static [&'static str],
    end: DemoEnd,
    calls_min: u64,
) -> DemoCase {
    DemoCase { name, what, channel, script, class: "demo", ttl_s: 600, end, calls_min }
}

/// In the order in which they are shown.
pub(super) fn all() -> Vec<DemoCase> {
    let mut cases = failures();
    cases.splice(1..1, channels());
    cases
}

/// Every other channel: an accepted message, and a receiver that is gone.
fn channels() -> [DemoCase; 7] {
    let taken = |name, what, channel| case(name, what, channel, &["200"], ends(State::Sent), 1);
    let gone =
        |name, what, channel, script| case(name, what, channel, script, ends(State::Gone), 1);
    [
        taken("android", "FCM: accepted, with a token that was fetched once", "fcm"),
        taken("iphone", "APNs: accepted, one stream until the first success", "apns"),
        gone("old-iphone", "APNs: 410 Unregistered, the device is gone", "apns", &["410"]),
        taken("ada", "e-mail: accepted, over STARTTLS", "email"),
        gone("nobody", "e-mail: 550 5.1.1, there is no such mailbox", "email", &["550"]),
        taken("phone", "text message: accepted, valid for as long as its TTL", "sms"),
        case(
            "team",
            "chat: 429 with Retry-After: 1, obeyed, then accepted",
            "chat",
            &["429:1", "200"],
            ends(State::Sent),
            2,
        ),
    ]
}

fn failures() -> Vec<DemoCase> {
    vec![
        case("first-try", "Web Push, accepted at once", "webpush", &["201"], ends(State::Sent), 1),
        case(
            "throttled",
            "429 with Retry-After: 2, obeyed, then accepted",
            "webpush",
            &["429:2", "201"],
            ends(State::Sent),
            2,
        ),
        case(
            "unavailable",
            "503 twice, then accepted",
            "webhook",
            &["503", "503", "200"],
            ends(State::Sent),
            3,
        ),
        case(
            "reset",
            "connection reset before the request was read, then accepted",
            "webhook",
            &["reset", "200"],
            ends(State::Sent),
            1,
        ),
        case(
            "goaway",
            "HTTP/2 stream refused by the peer: replayed at once, no attempt burned",
            "webpush",
            &["refused", "201"],
            ends(State::Sent),
            1,
        ),
        case(
            "retry-queue",
            "any HTTP request: 500, then accepted",
            "http",
            &["500", "200"],
            ends(State::Sent),
            2,
        ),
        case(
            "unsubscribed",
            "410: the subscription is gone, its keys are erased",
            "webpush",
            &["410"],
            ends(State::Gone),
            1,
        ),
        case(
            "malformed",
            "400: this message can never be accepted",
            "webhook",
            &["400", "200"],
            dead(DeadReason::Permanent),
            1,
        ),
        case(
            "outage",
            "503 for ever: the retries run out",
            "webhook",
            &["503"],
            dead(DeadReason::RetriesExhausted),
            4,
        ),
        DemoCase {
            ttl_s: 8,
            ..case(
                "too-late",
                "429 with Retry-After: 60 but a TTL of 8 s: never sent past it",
                "webpush",
                &["429:60"],
                dead(DeadReason::Ttl),
                1,
            )
        },
        DemoCase {
            class: "once",
            ..case(
                "in-doubt",
                "sent, no answer, class `once`: a person decides, nothing is sent twice",
                "webhook",
                &["reset-after"],
                dead(DeadReason::Ambiguous),
                1,
            )
        },
        DemoCase {
            class: "flash",
            ttl_s: 8,
            ..case(
                "stale-offer",
                "an offer that would come too late just expires",
                "webpush",
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
