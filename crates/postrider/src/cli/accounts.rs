//! `accounts`: which account is used for what, and which is held.

use clap::{Args, Subcommand};

use super::output::{items, table};
use super::{Connection, Outcome};

#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    #[command(subcommand)]
    what: AccountsCommand,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Subcommand)]
enum AccountsCommand {
    /// All accounts with what holds them and until when (admin key).
    List,
}

pub(super) async fn run(args: AccountsArgs) -> Outcome {
    let AccountsCommand::List = args.what;
    let list = args.connection.client()?.get("/v1/accounts").await?;
    args.connection.output().show(&list, |list| {
        let columns = [
            ("ACCOUNT", "/name"),
            ("CHANNEL", "/channel"),
            ("TENANT", "/tenant"),
            ("PRIORITY", "/priority"),
            ("COST", "/cost"),
            ("STATE", "/state"),
            ("HELD BY", "/held_by"),
            ("UNTIL", "/until"),
            ("CALLS", "/calls"),
            ("FAILOVERS", "/failovers"),
        ];
        table(items(list, "accounts"), &columns)
    })
}
