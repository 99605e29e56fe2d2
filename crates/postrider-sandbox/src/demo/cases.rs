//! The scripted deliveries of the demo: one for everything that can happen to a delivery, each with the answers of
//! its provider and the expected end.

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
    /// Under this name the provider is another one: what others meet there says nothing about it.
    pub(super) host: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DemoEnd {
    pub(super) state: State,
    pub(super) reason: Option<DeadReason>,
}

/// The sandbox, as its addresses name it.
pub(super) const HOST: &str = "127.0.0.1";

/// One line per case: name, channel, script, end, fewest calls, description, and fields that are not the default.
macro_rules! cases {
    ($($name:literal $channel:literal $script:tt $state:ident $(($reason:ident))? $calls_min:literal
        $what:literal $({$($field:ident: $value:expr),*})?)*) => {
        /// In the order in which they are shown.
        pub(super) const ALL: &[DemoCase] = &[$(DemoCase {
            $($($field: $value,)*)?
            ..DemoCase {
                name: $name,
                what: $what,
                channel: $channel,
                script: &$script,
                class: "demo",
                ttl_s: 600,
                end: DemoEnd {
                    state: State::$state,
                    reason: [$(Some(DeadReason::$reason),)? None][0],
                },
                calls_min: $calls_min,
                host: HOST,
            }
        }),*];
    };
}

cases! {
    "first-try" "webpush" ["201"] Sent 1 "Web Push, accepted at once"
    "android" "fcm" ["200"] Sent 1 "FCM: accepted, with a token that was fetched once"
    "iphone" "apns" ["200"] Sent 1 "APNs: accepted, one stream until the first success"
    "old-iphone" "apns" ["410"] Gone 1 "APNs: 410 Unregistered, the device is gone"
    "ada" "email" ["200"] Sent 1 "e-mail: accepted, over STARTTLS"
    "nobody" "email" ["550"] Gone 1 "e-mail: 550 5.1.1, there is no such mailbox"
    "phone" "sms" ["200"] Sent 1 "text message: accepted, valid for as long as its TTL"
    "team" "chat" ["429:1", "200"] Sent 2 "chat: 429 with Retry-After: 1, obeyed, then accepted"
    "throttled" "webpush" ["429:2", "201"] Sent 2 "429 with Retry-After: 2, obeyed, then accepted"
    "unavailable" "webhook" ["503", "503", "200"] Sent 3 "503 twice, then accepted"
    "reset" "webhook" ["reset", "200"] Sent 1 "connection reset before the request was read, then accepted"
    "goaway" "webpush" ["refused", "201"] Sent 1
        "HTTP/2 stream refused by the peer: replayed at once, no attempt burned"
    "retry-queue" "http" ["500", "200"] Sent 2 "any HTTP request: 500, then accepted"
    "unsubscribed" "webpush" ["410"] Gone 1 "410: the subscription is gone, its keys are erased"
    "malformed" "webhook" ["400", "200"] Failed(Permanent) 1 "400: this message can never be accepted"
    "outage" "webhook" ["503"] Failed(RetriesExhausted) 3 "503 for ever: the retries run out" {host: "localhost"}
    "too-late" "webpush" ["429:60"] Failed(Ttl) 1
        "429 with Retry-After: 60 but a TTL of 8 s: never sent past it" {ttl_s: 8}
    "in-doubt" "webhook" ["reset-after"] Failed(Ambiguous) 1
        "sent, no answer, class `once`: a person decides, nothing is sent twice" {class: "once"}
    "stale-offer" "webpush" ["503:60"] Expired 1
        "an offer that would come too late just expires" {class: "flash", ttl_s: 8}
}

/// The classes of the demo: the retry policy is shortened, so that hours fit into seconds.
pub(super) const CLASSES: &str = r#"
[classes.demo]
retry = { retries = 2, base_ms = 300, cap_ms = 3000, jitter = "full" }

[classes.once]
on_ambiguous = "park"
retry = { retries = 4, base_ms = 300, cap_ms = 3000 }

[classes.flash]
on_expiry = "expire"
retry = { retries = 4, base_ms = 300, cap_ms = 3000 }
"#;
