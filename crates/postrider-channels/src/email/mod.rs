//! E-mail.

mod body;
mod dkim;
mod header;
mod mime;
pub mod smtp;

pub use dkim::DkimKey;
pub use mime::{Draft, Mail, Mailbox, Unsubscribe, message_id};
