//! Problems: what an operator should know of. [`signs`](mod@signs) turns figures into signs of trouble, [`book`] opens
//! and resolves problems by them. Reads no clock and sends nothing.

pub mod baseline;
pub mod book;
pub mod figures;
pub mod kind;
pub mod known;
pub mod record;
pub mod signs;

pub use baseline::DepthBaseline;
pub use book::{ProblemBook, ProblemChange, ProblemTimes};
pub use figures::{
    AccountTrouble, AccountTroubleKind, HeldMemory, MinuteRow, Observations, ServerFigures,
};
pub use kind::{ProblemKind, ProblemSeverity};
pub use known::KnownFailures;
pub use record::{Acknowledgement, AlertEvent, Mute, ProblemKey, ProblemRecord, ProblemSign};
pub use signs::{ProblemLimits, signs};
