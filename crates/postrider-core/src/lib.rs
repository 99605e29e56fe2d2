//! Postrider's words as types, the ports that stores and channels implement, and the pure policy
//! that decides what happens next. Does no I/O, reads no clock, draws no random number: those are
//! arguments, so that everything here can be tabled, property-tested and simulated.

pub mod account;
pub mod address;
pub mod backoff;
pub mod backpressure;
pub mod breaker;
pub mod budget;
pub mod channel;
pub mod class;
pub mod classify;
pub mod concurrency;
pub mod content;
pub mod credential;
pub mod decide;
pub mod delivery;
pub mod fairness;
pub mod gone_guard;
pub mod id;
pub mod lane;
pub mod limiter;
pub mod message;
pub mod outcome;
pub mod pace;
pub mod reputation;
pub mod retry_after;
pub mod segments;
pub mod shape;
pub mod signal;
pub mod store;
pub mod storm;
pub mod strikes;
pub mod throttle;
pub mod time;
pub mod ttl;
pub mod validity;
pub mod window;

pub use address::{Address, AddressHash, AddressStatus, ChannelKind, Target};
pub use channel::{Attempt, Channel, FieldError, Finished, Intake};
pub use class::Class;
pub use delivery::{AttemptRecord, DeadReason, Delivery, State};
pub use id::{AddressId, DeliveryId, IdSource, KeyId, MessageId};
pub use lane::{Hold, LaneId, LaneKey, LaneState};
pub use message::{Message, TenantId};
pub use outcome::{Outcome, Report, Scope};
pub use signal::Signal;
pub use strikes::{Strike, StrikeKind};
pub use time::{Clock, Timestamp};
