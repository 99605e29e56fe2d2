//! The runtime between the door and the providers: the intake that takes messages in, the dispatcher
//! that leases and sends, the settler that writes down what became of it. Knows no provider, no
//! store engine and no HTTP framework; decides nothing that [`postrider_core`] can decide.

mod blame;
mod dispatcher;
mod expiry;
mod flow;
pub mod intake;
mod jitter_rng;
pub mod lanes;
mod launch;
mod observer;
mod policies;
mod roster;
mod settler;
pub mod template;
mod turn_away;

pub use dispatcher::{DispatchLimits, Dispatcher, DispatcherConfig};
pub use intake::{IntakeRefusal, MessageIntake, Receipt, RefusalKind, Submission};
pub use lanes::{LaneEvent, Lanes};
pub use observer::{NoObserver, Observer};
pub use policies::{Capacities, Policies, Policy};
pub use postrider_core::FieldError;
