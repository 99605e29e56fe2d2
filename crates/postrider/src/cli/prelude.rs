//! What nearly every command uses.

pub(super) use clap::{Args, Subcommand};
pub(super) use serde_json::{Map, Value, json};

pub(super) use super::output::{self, cell, items, table};
pub(super) use super::{CliError, CliResult, ConnectionArgs, ServerSession, path_segment};
pub(super) use crate::client::{Client, ClientError, with_query};
