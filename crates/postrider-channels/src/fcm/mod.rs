//! Firebase Cloud Messaging over HTTP v1.

mod account;

pub use account::FcmAccount;
