//! Jobs: replay, discard, cancel and export by filter, in the background. A job is a document of the store; of several
//! workers, the one that leads runs all jobs. A job survives every crash: each step is noted before it is done, and a
//! step that is done again changes nothing.

pub(crate) mod counting;
pub(crate) mod export;
pub(crate) mod kept;
pub(crate) mod record;
mod runner;

pub(crate) use runner::run_jobs;
