//! `keys`, `vapid` and `webhook-secrets`.

use super::messages::id_segment;
use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider keys create --name shop --scope tenant
  postrider keys create --name acme --scope tenant --for acme
  postrider keys revoke key_…")]
pub(super) enum KeysCommand {
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

pub(super) async fn keys(command: KeysCommand, session: ServerSession) -> CliResult {
    match command {
        KeysCommand::List => {
            let columns = [
                ("KEY", "/id"),
                ("NAME", "/name"),
                ("TENANT", "/tenant"),
                ("SCOPE", "/scope"),
                ("CREATED", "/created_at"),
                ("REVOKED", "/revoked_at"),
            ];
            session.get("/v1/keys", |list| table(items(list, "keys"), &columns)).await
        }
        KeysCommand::Create { name, scope, owner } => {
            let mut body = json!({"name": name, "scope": scope});
            if let Some(owner) = owner {
                body["tenant"] = owner.into();
            }
            let text = |key: &Value| {
                format!("{}\n{} (shown only once)", cell(key, "/key"), cell(key, "/id"))
            };
            session.post("/v1/keys", &body, text).await
        }
        KeysCommand::Revoke { id } => {
            session.delete(&format!("/v1/keys/{}", id_segment(&id)?), "revoked", &id).await
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum SigningKeysCommand {
    /// List those in use, the active one first.
    List,
    /// Create a new active one. Older ones keep working.
    Rotate,
}

pub(super) async fn vapid(command: SigningKeysCommand, session: ServerSession) -> CliResult {
    let columns = [
        ("KEY", "/id"),
        ("ACTIVE", "/active"),
        ("CREATED", "/created_at"),
        ("PUBLIC KEY", "/public_key"),
    ];
    signing_keys(command, session, "/v1/vapid", "keys", &columns).await
}

pub(super) async fn webhook_secrets(
    command: SigningKeysCommand,
    session: ServerSession,
) -> CliResult {
    let columns =
        [("KEY", "/id"), ("ACTIVE", "/active"), ("CREATED", "/created_at"), ("SECRET", "/secret")];
    signing_keys(command, session, "/v1/webhook-secrets", "secrets", &columns).await
}

async fn signing_keys(
    command: SigningKeysCommand,
    session: ServerSession,
    path: &str,
    name: &str,
    columns: &[(&str, &str)],
) -> CliResult {
    let text = |list: &Value| table(items(list, name), columns);
    match command {
        SigningKeysCommand::List => session.get(path, text).await,
        SigningKeysCommand::Rotate => {
            session.post(&format!("{path}/rotate"), &Value::Null, text).await
        }
    }
}
