//! Whether text messages can leave through an account: its credential, a question to Twilio, a bind to
//! a message centre. Other gateways have no call that sends nothing, so they are not asked.

use ::http::header::USER_AGENT;
use ::http::{HeaderMap, Method};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use super::{GatewayAuth, SmsSettings};
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::pool::Request;

const NEW_SECRET: &str = "put the gateway's present secret where the credential says";

#[async_trait]
impl HealthChecks for SmsSettings {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        #[cfg(feature = "smpp")]
        if let Some(smsc) = &self.smsc {
            return super::smpp::probe::examine(smsc, probe).await;
        }
        let mut findings = Vec::new();
        let mut known = None;
        if let Some(secret) = &self.secret {
            let (read, finding) = health::read("credential", secret, NEW_SECRET).await;
            findings.push(finding);
            if read.is_none() {
                return findings;
            }
            known = read;
        }
        let name = self.service.trim_start_matches("sms.");
        findings.push(match (name, probe.offline) {
            (_, true) => Finding::skipped("gateway", "the gateway is not asked: --offline"),
            ("twilio", false) => {
                self.ask_twilio(probe, known.as_deref().map_or("", String::as_str)).await
            }
            _ => Finding::skipped(
                "gateway",
                "it has no call that sends nothing: send one message to a phone of yours",
            ),
        });
        findings
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        #[cfg(feature = "smpp")]
        if let Some(smsc) = &self.smsc {
            return vec![CredentialStatus::look("password", smsc.password()).await.0];
        }
        match &self.secret {
            Some(secret) => vec![CredentialStatus::look("api_key", secret).await.0],
            None => Vec::new(),
        }
    }

    fn origins(&self) -> Vec<String> {
        health::origin(&self.url).into_iter().collect()
    }
}

impl SmsSettings {
    /// The account's own page; an API key may not see that, but the list of messages, of which it asks for
    /// one and reads none.
    async fn ask_twilio(&self, probe: &Probe, secret: &str) -> Finding {
        let is_key = matches!(&self.auth, GatewayAuth::Basic(user) if user.starts_with("SK"));
        let url = match is_key {
            true => format!("{}?PageSize=1", self.url),
            false => self.url.replace("/Messages.json", ".json"),
        };
        let mut headers = HeaderMap::with_capacity(2);
        self.auth.sign(&mut headers, secret);
        headers.insert(USER_AGENT, crate::webpush::AGENT);
        let request = Request { method: Method::GET, headers, body: Bytes::new() };
        match probe.ask("gateway", &url, request).await {
            Err(finding) => finding,
            Ok(response) => {
                let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
                judge_twilio(response.status.as_u16(), &body)
            }
        }
    }
}

fn judge_twilio(status: u16, body: &Value) -> Finding {
    let code = body["code"].as_i64().map_or(String::new(), |code| format!(" {code}"));
    match (status, body["status"].as_str()) {
        (200, Some("active") | None) => {
            Finding::ok("gateway", "Twilio knows the account and its secret")
        }
        (200, Some(other)) => Finding::fail(
            "gateway",
            format!("Twilio calls the account {other}"),
            "look into the Twilio console: suspended accounts are mostly out of credit",
        ),
        (401 | 403, _) => Finding::fail(
            "gateway",
            format!("Twilio refuses account and secret ({status}{code})"),
            "compare account_sid (AC…), user (SK…) and the secret with the Twilio console",
        ),
        (404, _) => {
            Finding::fail("gateway", "Twilio has no such account", "correct account_sid (AC…)")
        }
        _ => Finding::warn(
            "gateway",
            format!("Twilio could not say: {status}{code}"),
            "try again; then look at the provider's status page",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;
    use serde_json::json;

    #[test]
    fn twilio_s_answers_tell_a_wrong_secret_from_a_suspended_account() {
        for (status, body, verdict) in [
            (200, json!({"status": "active"}), Verdict::Ok),
            (200, json!({"messages": []}), Verdict::Ok),
            (200, json!({"status": "suspended"}), Verdict::Fail),
            (401, json!({"code": 20003}), Verdict::Fail),
            (404, json!({"code": 20404}), Verdict::Fail),
            (503, Value::Null, Verdict::Warn),
        ] {
            assert_eq!(judge_twilio(status, &body).verdict, verdict, "{status} {body}");
        }
    }
}
