//! `addresses`: list, show, register and delete addresses, and forgive strikes.

use super::messages::id_segment;
use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider addresses add --recipient u-42 '{\"channel\":\"webhook\",\"url\":\"https://example.com/hook\"}'
  postrider addresses list --recipient u-42")]
pub(super) enum AddressesCommand {
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

pub(super) async fn run(command: AddressesCommand, session: ServerSession) -> CliResult {
    const COLUMNS: [(&str, &str); 5] = [
        ("ADDRESS", "/id"),
        ("RECIPIENT", "/recipient"),
        ("CHANNEL", "/channel"),
        ("STATUS", "/status"),
        ("CREATED", "/created_at"),
    ];
    let one = |address: &Value| table(std::slice::from_ref(address), &COLUMNS);
    match command {
        AddressesCommand::List { recipient, cursor, limit } => {
            let query =
                [("recipient", recipient), ("cursor", cursor), ("limit", Some(limit.to_string()))];
            let path = with_query("/v1/addresses", &query);
            session.get(&path, |page| table(items(page, "items"), &COLUMNS)).await
        }
        AddressesCommand::Show { id } => {
            let path = format!("/v1/addresses/{}", id_segment(&id)?);
            session.get(&path, |address| one(address) + &strikes(address)).await
        }
        AddressesCommand::Add { address, recipient } => {
            let mut body: Value = serde_json::from_str(&address)
                .map_err(|e| CliError::Usage(format!("the address is not JSON: {e}")))?;
            if let (Some(name), Some(object)) = (recipient, body.as_object_mut()) {
                object.insert("recipient".to_owned(), name.into());
            }
            session.post("/v1/addresses", &body, one).await
        }
        AddressesCommand::Delete { id } => {
            session.delete(&format!("/v1/addresses/{}", id_segment(&id)?), "deleted", &id).await
        }
        AddressesCommand::Struck { suspect, cursor, limit } => {
            let suspect = suspect.then(|| "true".to_owned());
            let query =
                [("suspect", suspect), ("cursor", cursor), ("limit", Some(limit.to_string()))];
            let text = |page: &Value| {
                let one = |struck: &Value| cell(struck, "/hash") + &strikes(struck);
                items(page, "items").iter().map(one).collect::<Vec<_>>().join("\n\n")
            };
            session.get(&with_query("/v1/strikes", &query), text).await
        }
        AddressesCommand::Forgive { address } => {
            let mut hash = id_segment(&address)?.to_owned();
            if hash.starts_with("adr_") {
                let known = session.client.get(&format!("/v1/addresses/{hash}")).await?;
                hash = cell(&known, "/hash");
            }
            session.delete(&format!("/v1/strikes/{hash}"), "forgiven", &address).await
        }
    }
}
