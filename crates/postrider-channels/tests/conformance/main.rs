//! One suite that every channel passes, against scripted providers on real sockets, and what each channel
//! alone promises about its wire. Who is held to which promise is in [`matrix`].

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod apis;
mod apns;
mod blame;
mod column;
#[macro_use]
mod columns;
#[cfg(feature = "smpp")]
mod fake_smsc;
mod fcm;
mod fixture;
mod hosted;
mod mail;
mod many_origins;
mod matrix;
mod mistakes;
mod name_server;
mod names;
mod pool;
mod promises;
mod provider;
mod push;
mod relay;
#[cfg(feature = "smpp")]
mod smpp;
#[cfg(feature = "smpp")]
mod smpp_check;
mod sms;
mod smtp;
mod wire;
