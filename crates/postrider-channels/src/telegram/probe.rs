//! Checks a bot: its token, and `getMe`. Sends no message.

use ::http::Method;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use super::TelegramBot;
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::pool::{JSON, Request};

const NEW_TOKEN: &str =
    "ask @BotFather for the bot's token (/mybots, API Token) and put it where the credential says";

#[async_trait]
impl HealthChecks for TelegramBot {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let (token, first) = health::read("credential", &self.token, NEW_TOKEN).await;
        let Some(token) = token else { return vec![first] };
        if probe.offline {
            return vec![first, Finding::skipped("bot", "Telegram is not asked: --offline")];
        }
        let url = format!("{}/bot{token}/getMe", self.endpoint);
        let request = Request::new(Method::GET, JSON, Bytes::new());
        let judged = probe.ask("bot", &url, request).await.map(|response| {
            let body = serde_json::from_slice(&response.body).unwrap_or_default();
            judge_bot(response.status.as_u16(), &body)
        });
        vec![first, judged.unwrap_or_else(|finding| finding)]
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        vec![CredentialStatus::look("bot_token", &self.token).await.0]
    }

    fn origins(&self) -> Vec<String> {
        health::origin(&self.endpoint).into_iter().collect()
    }
}

/// The token is never in an answer's result.
fn judge_bot(status: u16, body: &Value) -> Finding {
    let name = body["result"]["username"].as_str();
    match (status, name) {
        (200, Some(name)) => Finding::ok("bot", format!("Telegram knows the bot as @{name}")),
        (401 | 404, _) => {
            Finding::fail("bot", format!("Telegram refuses the token ({status})"), NEW_TOKEN)
        }
        (200, None) => Finding::fail(
            "bot",
            "the answer is not the Bot API's",
            "correct the account's endpoint: https://api.telegram.org, or a Bot API server of your own",
        ),
        _ => Finding::warn(
            "bot",
            format!("Telegram gives no clear answer: {status}"),
            "try again in a few minutes",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;
    use serde_json::json;

    #[test]
    fn a_refused_token_differs_from_a_wrong_endpoint_and_from_an_outage() {
        let bot = json!({"ok": true, "result": {"is_bot": true, "username": "shop_bot"}});
        for (status, body, verdict) in [
            (200, bot, Verdict::Ok),
            (200, json!({"status": "ok"}), Verdict::Fail),
            (401, json!({"ok": false, "error_code": 401}), Verdict::Fail),
            (404, json!({"ok": false, "error_code": 404}), Verdict::Fail),
            (502, Value::Null, Verdict::Warn),
        ] {
            assert_eq!(judge_bot(status, &body).verdict, verdict, "{status} {body}");
        }
    }
}
