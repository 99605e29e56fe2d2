//! The API as a caller meets it: a whole server in process, real sockets, the store in memory.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod apns_certificates;
mod auth;
mod batch;
mod capacity;
mod configuration;
mod dead_letters;
mod email_sms_chat;
mod events;
mod fcm_apns;
mod full_disk;
mod lanes;
mod messages;
mod problem;
mod random_messages;
mod refusals;
mod settings;
mod strikes;
mod templates;
mod watch;
