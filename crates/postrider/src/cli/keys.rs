//! `keys`, `vapid` and `webhook-secrets`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::messages::id_segment;
use super::output::{cell, items, table};
use super::{CliResult, ConnectionArgs};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider keys create --name shop --scope tenant
  postrider keys create --name acme --scope tenant --for acme
  postrider keys revoke key_…")]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    what: KeysCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// All API keys, newest first.
    List,
    /// Make an API key. It is shown this once.
    Create {
        /// What it is for.
        #[arg(long)]
        name: String,
        /// admin, tenant (send, look, act), read (look) or content (look, and read stored bodies)
        #[arg(long, default_value = "tenant")]
        scope: String,
        /// The tenant it belongs to [default: default].
        #[arg(long = "for", value_name = "TENANT")]
        owner: Option<String>,
    },
    /// Revoke an API key, at once.
    Revoke {
        /// key_…
        id: String,
    },
}

pub(super) async fn keys(args: KeysArgs) -> CliResult {
    let (client, out) = (args.connection.client()?, args.connection.output());
    match args.what {
        KeysCommand::List => out.show(&client.get("/v1/keys").await?, |list| {
            let columns = [
                ("KEY", "/id"),
                ("NAME", "/name"),
                ("TENANT", "/tenant"),
                ("SCOPE", "/scope"),
                ("CREATED", "/created_at"),
                ("REVOKED", "/revoked_at"),
            ];
            table(items(list, "keys"), &columns)
        }),
        KeysCommand::Create { name, scope, owner } => {
            let mut body = json!({"name": name, "scope": scope});
            if let Some(owner) = owner {
                body["tenant"] = owner.into();
            }
            let made = client.post("/v1/keys", &body).await?;
            out.show(&made, |key| {
                format!("{}\n{} (shown this once)", cell(key, "/key"), cell(key, "/id"))
            })
        }
        KeysCommand::Revoke { id } => {
            client.delete(&format!("/v1/keys/{}", id_segment(&id)?)).await?;
            out.show(&json!({"revoked": id}), |done| format!("{} revoked", cell(done, "/revoked")))
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SigningKeysArgs {
    #[command(subcommand)]
    what: SigningKeysCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum SigningKeysCommand {
    /// All that are in use, the active one first.
    List,
    /// Make a new active one; what was made with older ones keeps working.
    Rotate,
}

pub(super) async fn vapid(args: SigningKeysArgs) -> CliResult {
    let columns = [
        ("KEY", "/id"),
        ("ACTIVE", "/active"),
        ("CREATED", "/created_at"),
        ("PUBLIC KEY", "/public_key"),
    ];
    rotated(args, "/v1/vapid", "keys", &columns).await
}

pub(super) async fn webhook_secrets(args: SigningKeysArgs) -> CliResult {
    let columns =
        [("KEY", "/id"), ("ACTIVE", "/active"), ("CREATED", "/created_at"), ("SECRET", "/secret")];
    rotated(args, "/v1/webhook-secrets", "secrets", &columns).await
}

async fn rotated(
    args: SigningKeysArgs,
    path: &str,
    name: &str,
    columns: &[(&str, &str)],
) -> CliResult {
    let client = args.connection.client()?;
    let list = match args.what {
        SigningKeysCommand::List => client.get(path).await?,
        SigningKeysCommand::Rotate => client.post(&format!("{path}/rotate"), &Value::Null).await?,
    };
    args.connection.output().show(&list, |list| table(items(list, name), columns))
}
