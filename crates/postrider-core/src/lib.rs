//! Postrider's words as types, the ports that stores and channels implement, and the pure policy
//! that decides what happens next. Does no I/O, reads no clock, draws no random number: those are
//! arguments, so that everything here can be tabled, property-tested and simulated.

pub mod model;
pub mod policy;
pub mod ports;

pub use model::address::{Address, AddressHash, AddressStatus, Target};
pub use model::channel::{ChannelKind, ChannelTraits};
pub use model::class::Class;
pub use model::decision::{Decision, DecisionKind};
pub use model::delivery::{AttemptRecord, DeadReason, Delivery, State};
pub use model::id::{AddressId, DeliveryId, IdSource, JobId, KeyId, MessageId};
pub use model::lane::{Gate, LaneId, LaneKey, LaneState};
pub use model::message::{Message, TenantId};
pub use model::outcome::{Outcome, OutcomeKind, Report, Scope};
pub use model::receipt::{ReceiptKind, ReceiptRecord};
pub use model::region::RegionNumber;
pub use model::time::{Clock, ClockDoubt, TimeBounds, Timestamp};
pub use policy::signal::Signal;
pub use policy::strikes::{Strike, StrikeKind};
pub use ports::channel::{Attempt, Channel, ChannelIntake, CheckedAddress, FieldError, Finished};
