//! `accounts`: lists the accounts at providers.

use super::prelude::*;

#[derive(Debug, Subcommand)]
pub(super) enum AccountsCommand {
    /// List all accounts, with what holds them and until when (admin key).
    List,
}

pub(super) async fn run(command: AccountsCommand, session: ServerSession) -> CliResult {
    let AccountsCommand::List = command;
    let text = |list: &Value| {
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
        let accounts = items(list, "accounts");
        let mut text = table(accounts, &columns);
        for line in credential_warnings(accounts) {
            text += &format!("\n{line}");
        }
        text
    };
    session.get("/v1/accounts", text).await
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
