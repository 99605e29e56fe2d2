//! Postrider's words as types: messages, deliveries, addresses, lanes, outcomes.

pub mod address;
pub mod channel;
pub mod class;
pub mod content;
pub mod decision;
pub mod delivery;
pub mod id;
pub mod json_fields;
pub mod lane;
pub mod message;
pub mod outcome;
pub mod receipt;
pub mod recipient;
pub mod region;
pub mod time;
pub mod trace;
