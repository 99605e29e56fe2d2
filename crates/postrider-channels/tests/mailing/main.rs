//! E-mail and text messages against scripted relays and gateways on real sockets: what every channel
//! promises, said in SMTP and in a gateway's form.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[expect(dead_code, reason = "the suite of HTTP channels uses the rest of it")]
#[path = "../conformance/provider.rs"]
mod provider;

mod apis;
mod email;
mod relay;
mod rig;
#[cfg(feature = "smpp")]
mod smpp;
mod sms;
