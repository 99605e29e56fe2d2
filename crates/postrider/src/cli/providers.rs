//! `providers`: pauses of providers without accounts, such as the hosts of webhooks.

use super::keys::seconds;
use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider providers pause webhook https://hooks.example.com --for 1h --reason 'their maintenance'
  postrider providers paused
  postrider providers resume webhook https://hooks.example.com

An account is paused with `postrider accounts pause`.")]
pub(super) enum ProvidersCommand {
    /// List providers and accounts that an operator paused (admin key).
    Paused,
    /// Pause a provider: send nothing there, of any tenant, until it is resumed or the time is over (admin key).
    Pause {
        /// Such as webhook.
        channel: String,
        /// As lanes have it, e.g. https://hooks.example.com
        provider: String,
        /// Why; `explain` and the dashboard show it.
        #[arg(long)]
        reason: Option<String>,
        /// It ends by itself after so long, e.g. `30m`, `1h`.
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        for_s: Option<u64>,
    },
    /// Resume a paused provider (admin key).
    Resume { channel: String, provider: String },
}

pub(super) async fn run(command: ProvidersCommand, session: ServerSession) -> CliResult {
    match command {
        ProvidersCommand::Paused => session.get("/v1/providers/paused", list).await,
        ProvidersCommand::Pause { channel, provider, reason, for_s } => {
            let mut body = pause_body(reason, for_s);
            body["channel"] = channel.into();
            body["provider"] = provider.into();
            session.post("/v1/providers/pause", &body, list).await
        }
        ProvidersCommand::Resume { channel, provider } => {
            let body = json!({"channel": channel, "provider": provider});
            session.post("/v1/providers/resume", &body, list).await
        }
    }
}

/// Why, and for how long.
pub(super) fn pause_body(reason: Option<String>, for_s: Option<u64>) -> Value {
    let mut body = json!({});
    if let Some(reason) = reason {
        body["reason"] = reason.into();
    }
    if let Some(for_s) = for_s {
        body["for_s"] = for_s.into();
    }
    body
}

fn list(found: &Value) -> String {
    let paused = items(found, "providers");
    if paused.is_empty() {
        return "no provider is paused".to_owned();
    }
    let columns = [
        ("CHANNEL", "/channel"),
        ("PROVIDER", "/provider"),
        ("BY", "/paused/by"),
        ("AT", "/paused/at"),
        ("UNTIL", "/paused/until"),
        ("REASON", "/paused/reason"),
    ];
    table(paused, &columns)
}
