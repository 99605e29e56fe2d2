//! The Apple Push Notification service over HTTP/2.

mod account;

pub use account::ApnsAccount;
