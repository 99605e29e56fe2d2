//! Attacks on the real binary, over real sockets. SECURITY.md lists which test performs which attack.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod attack;
mod audit;
mod credentials;
mod egress;
mod encryption;
mod errors;
mod fixture;
mod http2;
mod keys;
mod limits;
mod network;
mod page;
mod quotas;
mod signatures;
mod templates;
