//! Rollups: counts what the dispatcher does by minute, writes it every second, adds hours up, and reads both back for
//! charts and problems. What is counted is in `postrider_core::policy::rollup`.

mod counter;
mod history;
mod hours;
mod observer;
mod writing;

pub(crate) use counter::{RollupCounter, has_room};
pub(crate) use history::{RollupPoint, points};
pub(crate) use hours::keep_hours;
pub(crate) use observer::CountingObserver;
pub(crate) use writing::{write_at_end, write_every_second};
