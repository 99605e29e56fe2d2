//! Data folders of earlier versions: the current version opens them, and nothing is lost.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

mod command_line;
mod data_folder;
mod fixture;
mod killed;
