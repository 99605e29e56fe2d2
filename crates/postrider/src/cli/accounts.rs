//! `accounts`: lists the accounts at providers, verifies, pauses and resumes them.

use super::keys::seconds;
use super::prelude::*;
use super::providers::pause_body;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider accounts list
  postrider accounts verify mail-eu
  postrider accounts pause mail-eu --for 1h --reason 'a new contract from noon on'

`verify` exits with 1 if a check failed. `postrider doctor` makes the same checks without a server.")]
pub(super) enum AccountsCommand {
    /// List all accounts, with what holds them and until when (admin key).
    List,
    /// Ask the provider of an account whether it works, without a message (admin key).
    Verify { name: String },
    /// Pause an account: it is not chosen until it is resumed or the time is over (admin key).
    Pause {
        name: String,
        /// Why; `explain` and the dashboard show it.
        #[arg(long)]
        reason: Option<String>,
        /// It ends by itself after so long, e.g. `30m`, `1h`.
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        for_s: Option<u64>,
    },
    /// Use a paused account again (admin key).
    Resume { name: String },
}

pub(super) async fn run(command: AccountsCommand, session: ServerSession) -> CliResult {
    let act = async |name: &str, action: &str, body: Value| {
        let path = format!("/v1/accounts/{}/{action}", path_segment(name)?);
        session.post(&path, &body, |account| account_table(std::slice::from_ref(account))).await
    };
    match command {
        AccountsCommand::List => {
            let text = |list: &Value| account_table(items(list, "accounts"));
            session.get("/v1/accounts", text).await
        }
        AccountsCommand::Verify { name } => verify(&name, &session).await,
        AccountsCommand::Pause { name, reason, for_s } => {
            act(&name, "pause", pause_body(reason, for_s)).await
        }
        AccountsCommand::Resume { name } => act(&name, "resume", Value::Null).await,
    }
}

/// Fails if a check failed.
async fn verify(name: &str, session: &ServerSession) -> CliResult {
    let path = format!("/v1/accounts/{}/verify", path_segment(name)?);
    let found = session.client.post(&path, &Value::Null).await?;
    session.out.show(&found, verification)?;
    if found["ok"] == true { Ok(()) } else { Err(CliError::Silent) }
}

fn verification(found: &Value) -> String {
    let findings = items(found, "findings");
    let columns = [("", "/verdict"), ("CHECK", "/check"), ("FOUND", "/found")];
    let mut text = table(findings, &columns);
    for finding in findings.iter().filter(|finding| finding["remedy"].is_string()) {
        text += &format!("\n{}: {}", cell(finding, "/check"), cell(finding, "/remedy"));
    }
    text
}

fn account_table(accounts: &[Value]) -> String {
    let columns = [
        ("ACCOUNT", "/name"),
        ("CHANNEL", "/channel"),
        ("TENANT", "/tenant"),
        ("PRIORITY", "/priority"),
        ("COST", "/cost"),
        ("STATE", "/state"),
        ("HELD BY", "/held_by"),
        ("UNTIL", "/until"),
        ("CREDENTIAL", "/credential"),
        ("CALLS", "/calls"),
        ("FAILOVERS", "/failovers"),
    ];
    let mut text = table(accounts, &columns);
    for line in pauses(accounts).into_iter().chain(credential_warnings(accounts)) {
        text += &format!("\n{line}");
    }
    text
}

/// A line for every account that an operator paused.
fn pauses(accounts: &[Value]) -> Vec<String> {
    let line = |account: &Value| {
        let paused = account.get("paused")?;
        let (name, by) = (cell(account, "/name"), cell(paused, "/by"));
        let reason = paused["reason"].as_str().map(|reason| format!(": {reason}"));
        Some(format!("account {name}: paused by {by}{}", reason.unwrap_or_default()))
    };
    accounts.iter().filter_map(line).collect()
}

/// A line for every credential that needs attention.
pub(super) fn credential_warnings(accounts: &[Value]) -> Vec<String> {
    let warning = |account: &Value, found: &Value| {
        let (name, kind) = (cell(account, "/name"), cell(found, "/kind").replace('_', " "));
        let what = match found["state"].as_str()? {
            "ok" => return None,
            "unusable" => format!("cannot be used: {}", cell(found, "/problem")),
            "ending" => format!("ends on {}", cell(found, "/expires_at")),
            state => format!("{state} on {}", cell(found, "/expires_at")),
        };
        Some(format!(
            "account {name}: {kind} {what}; run `postrider doctor --account {name}` for help"
        ))
    };
    let of = |account: &Value| {
        items(account, "credentials").iter().filter_map(|found| warning(account, found)).collect()
    };
    accounts.iter().flat_map(|account| -> Vec<String> { of(account) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_credentials_that_need_attention_get_a_line() {
        let accounts = [
            json!({"name": "apple", "credentials": [
                {"kind": "certificate", "state": "ending", "expires_at": "2026-12-01T00:00:00.000Z"},
                {"kind": "dkim_key", "state": "unusable", "problem": "file:/x: entity not found"},
                {"kind": "password", "state": "ok"},
            ]}),
            json!({"name": "new"}),
        ];
        let lines = credential_warnings(&accounts);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("account apple: certificate ends on 2026-12-01"), "{lines:?}");
        assert!(lines[1].contains("dkim key cannot be used: file:/x"), "{lines:?}");
    }
}
