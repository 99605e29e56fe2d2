//! `keys`, `vapid` and `webhook-secrets`.

use super::messages::id_segment;
use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider keys create --name shop --scope send,read --expires 90d
  postrider keys create --name acme --scope admin --for acme       the admin of one tenant
  postrider keys create --name monitoring --scope read --for '*'   reads the whole server
  postrider keys create --name office --network 10.0.0.0/8
  postrider keys revoke key_…")]
pub(super) enum KeysCommand {
    /// List the API keys that you may see, newest first.
    List,
    /// Create an API key. It is shown only once.
    Create {
        /// What it is for.
        #[arg(long)]
        name: String,
        /// What it may do: send, read, content (read, also stored message bodies), replay, manage, admin; tenant
        /// stands for send,read,replay,manage.
        #[arg(long, default_value = "tenant", value_delimiter = ',')]
        scope: Vec<String>,
        /// Its tenant; '*' for all [default: default, or all for admin].
        #[arg(long = "for", value_name = "TENANT")]
        owner: Option<String>,
        /// It stops working after this time, e.g. 90d, 12h or 30m.
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        expires: Option<u64>,
        /// It works only from this network, e.g. 10.0.0.0/8. Can be given several times.
        #[arg(long = "network", value_name = "NETWORK")]
        networks: Vec<String>,
    },
    /// Print a link that opens the dashboard once, with the rights of your key.
    SignIn,
    /// Print a link that opens the dashboard for one tenant until its end, as often as it is used.
    Portal {
        /// The tenant.
        #[arg(long = "for", value_name = "TENANT")]
        owner: String,
        /// What it may do at most: read, content, replay, manage, send.
        #[arg(long, default_value = "read", value_delimiter = ',')]
        scope: Vec<String>,
        /// It ends after this time, e.g. 7d, 12h.
        #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "1d")]
        expires: u64,
    },
    /// Revoke an API key, at once: its open batches and event streams end, too.
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
                ("LAST USED", "/last_used_at"),
                ("EXPIRES", "/expires_at"),
                ("REVOKED", "/revoked_at"),
            ];
            session.get("/v1/keys", |list| table(&shown(items(list, "keys")), &columns)).await
        }
        KeysCommand::Create { name, scope, owner, expires, networks } => {
            let mut body = json!({"name": name, "scopes": scope, "networks": networks});
            if let Some(seconds) = expires {
                body["expires_in_s"] = seconds.into();
            }
            if let Some(owner) = owner {
                body["tenant"] = owner.into();
            }
            let text = |key: &Value| {
                format!("{}\n{} (shown only once)", cell(key, "/key"), cell(key, "/id"))
            };
            session.post("/v1/keys", &body, text).await
        }
        KeysCommand::SignIn => {
            let server = session.client.server().to_owned();
            let text = |made: &Value| format!("{server}#code={}", cell(made, "/code"));
            session.post("/v1/sign-in-codes", &Value::Null, text).await
        }
        KeysCommand::Portal { owner, scope, expires } => {
            let body = json!({"tenant": owner, "scopes": scope, "expires_in_s": expires});
            let server = session.client.server().trim_end_matches('/').to_owned();
            let text = |made: &Value| {
                format!("{server}{}\nends at {}", cell(made, "/link"), cell(made, "/expires_at"))
            };
            session.post("/v1/portal-links", &body, text).await
        }
        KeysCommand::Revoke { id } => {
            session.delete(&format!("/v1/keys/{}", id_segment(&id)?), "revoked", &id).await
        }
    }
}

/// The list with `*` as the tenant of keys for all tenants.
fn shown(keys: &[Value]) -> Vec<Value> {
    let show = |key: &Value| {
        let mut key = key.clone();
        if key["all_tenants"] == true {
            key["tenant"] = "*".into();
        }
        key
    };
    keys.iter().map(show).collect()
}

/// Seconds of a time such as `90d`.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "a number with d, h, m or s behind it, such as 90d".to_owned();
    let (at, unit) = text.char_indices().next_back().ok_or_else(wrong)?;
    let factor = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|seconds| *seconds > 0).ok_or_else(wrong)
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

#[derive(Debug, Subcommand)]
pub(super) enum WebhookSecretsCommand {
    /// List those in use, the active one first.
    List {
        /// The URL of a webhook: show the secrets of this address.
        #[arg(long)]
        url: Option<String>,
    },
    /// Create a new active one. The old one signs beside it for a while.
    Rotate,
}

pub(super) async fn webhook_secrets(
    command: WebhookSecretsCommand,
    session: ServerSession,
) -> CliResult {
    let columns = [
        ("KEY", "/id"),
        ("ACTIVE", "/active"),
        ("CREATED", "/created_at"),
        ("SECRET", "/secret"),
        ("PUBLIC KEY", "/public_key"),
    ];
    let path = "/v1/webhook-secrets";
    let (command, path) = match command {
        WebhookSecretsCommand::List { url } => {
            (SigningKeysCommand::List, with_query(path, &[("url", url)]))
        }
        WebhookSecretsCommand::Rotate => (SigningKeysCommand::Rotate, path.to_owned()),
    };
    signing_keys(command, session, &path, "secrets", &columns).await
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
