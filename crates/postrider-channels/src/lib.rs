//! How Postrider speaks to providers: Web Push, webhooks and plain HTTP, over one connection pool.
//!
//! A channel turns an attempt into one call and the answer into an [`postrider_core::Outcome`]. It
//! does not queue, does not retry and does not decide what follows from an outcome.

pub mod accounts;
pub mod address;
pub mod answers;
mod call_clock;
pub mod callbacks;
mod credential_echo;
pub mod definition;
mod deliver;
mod error;
pub mod ip_network;
mod jwt;
mod open_connections;
pub mod pool;
pub mod preview;
mod receipt_links;
pub mod registry;
mod scrub;
pub mod settings;
mod target;
mod x509;

pub mod apns;
pub mod chat;
pub mod email;
pub mod fcm;
pub mod http;
pub mod ntfy;
pub mod sms;
pub mod telegram;
pub mod webhook;
pub mod webpush;

// The list of all channels, in the order in which users see them. No other file lists them.
registry::channels! {
    webpush: crate::webpush::WebpushSection,
    webhook: crate::webhook::WebhookSection,
    http: crate::http::HttpSection,
    fcm: crate::fcm::FcmSection,
    apns: crate::apns::ApnsSection,
    email: crate::email::EmailSection,
    sms: crate::sms::SmsSection,
    chat: crate::chat::ChatSection,
    telegram: crate::telegram::TelegramSection,
    ntfy: crate::ntfy::NtfySection,
}

pub use address::NetworkPolicy;
pub use answers::CurrentAnswerTable;
pub use apns::ApnsChannel;
pub use chat::ChatChannel;
pub use definition::ChannelDefinition;
pub use deliver::Wiring;
pub use email::EmailChannel;
pub use error::Error;
pub use fcm::FcmChannel;
pub use http::{CredentialPart, Credentials, EnvAndFiles, HttpChannel};
pub use pool::{Pool, PoolConfig, is_public};
pub use preview::ContentPreview;
pub use receipt_links::ReceiptLinks;
pub use sms::SmsChannel;
pub use target::ChannelTarget;
pub use webhook::{WebhookChannel, WebhookSecret, WebhookSecrets};
pub use webpush::{Padding, VapidKey, VapidKeys, WebPushChannel};

#[cfg(test)]
mod fuzzed_answers;
