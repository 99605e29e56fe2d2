//! Properties and tables of the rules for whom to reach, and when.

#![expect(clippy::unwrap_used, reason = "tests")]

mod preferences;
mod quiet_hours;
