//! `addresses`: list, show, register and delete addresses, and forgive strikes.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::messages::id_segment;
use super::output::{cell, items, table};
use super::{CliError, CliResult, ConnectionArgs};
use crate::client::with_query;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider addresses add --recipient u-42 '{\"channel\":\"webhook\",\"url\":\"https://example.com/hook\"}'
  postrider addresses list --recipient u-42")]
pub(super) struct AddressesArgs {
    #[command(subcommand)]
    what: AddressesCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum AddressesCommand {
    /// List addresses, oldest first.
    List {
        #[arg(long)]
        recipient: Option<String>,
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one address, with the strikes against it.
    Show {
        /// adr_…
        id: String,
    },
    /// Register an address.
    Add {
        /// {"channel":"webpush","endpoint":…,"keys":…} or {"channel":"webhook","url":…}
        address: String,
        /// The owner of the address.
        #[arg(long)]
        recipient: Option<String>,
    },
    /// Delete an address.
    Delete {
        /// adr_…
        id: String,
    },
    /// List addresses with strikes since they last worked, by hash.
    Struck {
        /// Only suspect addresses.
        #[arg(long)]
        suspect: bool,
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Forget the strikes against an address.
    Forgive {
        /// adr_…, or an address hash
        address: String,
    },
}

/// One line per kind of strike.
fn strikes(address: &Value) -> String {
    const COLUMNS: [(&str, &str); 5] = [
        ("BLAMED FOR", "/kind"),
        ("COUNT", "/count"),
        ("FIRST", "/first_at"),
        ("LAST", "/last_at"),
        ("SUSPECT", "/suspect"),
    ];
    match items(address, "strikes") {
        [] => String::new(),
        strikes => format!("\n{}", table(strikes, &COLUMNS)),
    }
}

pub(super) async fn run(args: AddressesArgs) -> CliResult {
    let (client, out) = (args.connection.client()?, args.connection.output());
    const COLUMNS: [(&str, &str); 5] = [
        ("ADDRESS", "/id"),
        ("RECIPIENT", "/recipient"),
        ("CHANNEL", "/channel"),
        ("STATUS", "/status"),
        ("CREATED", "/created_at"),
    ];
    let one = |address: &Value| table(std::slice::from_ref(address), &COLUMNS);
    match args.what {
        AddressesCommand::List { recipient, cursor, limit } => {
            let query =
                [("recipient", recipient), ("cursor", cursor), ("limit", Some(limit.to_string()))];
            let page = client.get(&with_query("/v1/addresses", &query)).await?;
            out.show(&page, |page| table(items(page, "items"), &COLUMNS))
        }
        AddressesCommand::Show { id } => {
            let address = client.get(&format!("/v1/addresses/{}", id_segment(&id)?)).await?;
            out.show(&address, |address| one(address) + &strikes(address))
        }
        AddressesCommand::Add { address, recipient } => {
            let mut body: Value = serde_json::from_str(&address)
                .map_err(|e| CliError::Usage(format!("the address is not JSON: {e}")))?;
            if let (Some(name), Some(object)) = (recipient, body.as_object_mut()) {
                object.insert("recipient".to_owned(), name.into());
            }
            out.show(&client.post("/v1/addresses", &body).await?, one)
        }
        AddressesCommand::Delete { id } => {
            client.delete(&format!("/v1/addresses/{}", id_segment(&id)?)).await?;
            out.show(&json!({"deleted": id}), |done| format!("{} deleted", cell(done, "/deleted")))
        }
        AddressesCommand::Struck { suspect, cursor, limit } => {
            let suspect = suspect.then(|| "true".to_owned());
            let query =
                [("suspect", suspect), ("cursor", cursor), ("limit", Some(limit.to_string()))];
            let page = client.get(&with_query("/v1/strikes", &query)).await?;
            out.show(&page, |page| {
                let one = |struck: &Value| cell(struck, "/hash") + &strikes(struck);
                items(page, "items").iter().map(one).collect::<Vec<_>>().join("\n\n")
            })
        }
        AddressesCommand::Forgive { address } => {
            let mut hash = id_segment(&address)?.to_owned();
            if hash.starts_with("adr_") {
                let known = client.get(&format!("/v1/addresses/{hash}")).await?;
                hash = cell(&known, "/hash");
            }
            client.delete(&format!("/v1/strikes/{hash}")).await?;
            out.show(&json!({"forgiven": address}), |done| {
                format!("{} forgiven", cell(done, "/forgiven"))
            })
        }
    }
}
