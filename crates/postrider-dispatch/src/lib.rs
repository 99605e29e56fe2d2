//! The runtime between the API and the providers: the intake that takes messages in, the dispatcher that
//! leases and sends, the settler that writes the decisions. Knows no provider, no
//! store engine and no HTTP framework; decides nothing that [`postrider_core`] can decide.

mod attempt;
pub mod audience;
mod context;
pub mod decision_log;
mod dispatcher;
mod expiry;
pub mod intake;
mod jitter_rng;
pub mod lanes;
mod leaser;
mod limits;
mod observer;
mod open_breaker;
mod policies;
mod scheduler;
mod settler;
mod strike_assessment;
mod suspended;
pub mod template;
mod unsettled_limit;

pub use dispatcher::{Dispatcher, DispatcherConfig, DispatcherStatus};
pub use intake::{
    IntakeAnswer, IntakeQuotas, IntakeRefusal, MessageIntake, QuotaExcess, QuotaTurn, RefusalKind,
    Submission, TenantOverQuota, WithheldMember,
};
pub use lanes::{BreakerScope, LaneEvent, Lanes, ProviderFigures};
pub use limits::DispatchLimits;
pub use observer::{NoObserver, Observer, PutOff};
pub use policies::{Capacities, Policies, Policy};
pub use postrider_core::FieldError;
