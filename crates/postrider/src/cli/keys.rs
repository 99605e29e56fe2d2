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
    /// List all API keys, newest first.
    List,
    /// Create an API key. It is shown only once.
    Create {
        /// What it is for.
        #[arg(long)]
        name: String,
        /// admin, tenant (send, read, act), read, or content (read, also stored message bodies)
        #[arg(long, default_value = "tenant")]
        scope: String,
        /// Its tenant [default: default].
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
            let created = client.post("/v1/keys", &body).await?;
            out.show(&created, |key| {
                format!("{}\n{} (shown only once)", cell(key, "/key"), cell(key, "/id"))
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
    /// List those in use, the active one first.
    List,
    /// Create a new active one. Older ones keep working.
    Rotate,
}

pub(super) async fn vapid(args: SigningKeysArgs) -> CliResult {
    let columns = [
        ("KEY", "/id"),
        ("ACTIVE", "/active"),
        ("CREATED", "/created_at"),
        ("PUBLIC KEY", "/public_key"),
    ];
    signing_keys(args, "/v1/vapid", "keys", &columns).await
}

pub(super) async fn webhook_secrets(args: SigningKeysArgs) -> CliResult {
    let columns =
        [("KEY", "/id"), ("ACTIVE", "/active"), ("CREATED", "/created_at"), ("SECRET", "/secret")];
    signing_keys(args, "/v1/webhook-secrets", "secrets", &columns).await
}

async fn signing_keys(
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
