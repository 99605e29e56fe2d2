//! The API as a caller sees it: a whole server in this process, real sockets, the store in memory.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod account_orders;
mod alert_receiver;
mod alerts;
mod apns_certificates;
mod audience;
mod auth;
mod batch;
mod capacity;
mod configuration;
mod dead_letters;
mod email_sms_chat;
mod events;
mod examples;
mod fcm_apns;
mod full_disk;
mod held;
mod history;
mod jobs;
mod kept_word;
mod lanes;
mod logged_events;
mod messages;
mod nodes;
mod notes;
mod on_call;
mod problem;
mod providers;
mod random_messages;
mod readiness;
mod refusals;
mod settings;
mod strikes;
mod templates;
mod traces;
mod watch;

use postrider_channels::registry;

/// Compares snapshots without the list of all channels, so that they do not change with it. A list also says which
/// channels need an account.
fn without_channel_list(compare: impl FnOnce()) {
    let names: Vec<_> = registry::kinds().iter().map(ToString::to_string).collect();
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(&names.join(", "), "[every channel]");
    settings.add_filter(
        r"webpush, [a-z, ]+; for [a-z, ]+ configure \[accounts\.NAME\]",
        "[every channel]",
    );
    settings.bind(compare);
}
