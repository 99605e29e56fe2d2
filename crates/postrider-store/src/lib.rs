//! Where Postrider keeps what it promised: a reference model in memory, the embedded store on
//! SQLite, and the one suite that both must pass. Decides nothing: what happens to a delivery is
//! the dispatcher's business.

pub mod clock;
pub mod conformance;
pub mod embedded;
pub mod memory;

mod ids;
mod progress;
mod wake;

pub use clock::{ManualClock, SystemClock};
pub use embedded::{EmbeddedStore, Look, Options};
pub use memory::MemoryStore;
