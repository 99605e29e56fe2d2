//! Checks whether an account can send: its credential, a call to Twilio, or a bind to a message centre. Other gateways
//! have no call that sends nothing, so they are not asked.

use ::http::Method;
use async_trait::async_trait;
use serde_json::Value;

use super::{GatewayAuth, SmsSettings};
use crate::accounts::Material;
use crate::accounts::health::{self, AccountSecret, Finding, HealthChecks, Probe};
use crate::pool::{JSON, Request, Response};

const NEW_SECRET: &str = "put the gateway's current secret where the credential says";

#[async_trait]
impl HealthChecks for SmsSettings {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        #[cfg(feature = "smpp")]
        if let Some(smsc) = &self.smsc {
            return super::smpp::probe::examine(smsc, &self.secrets(), probe).await;
        }
        let ask = async {
            vec![match self.service.as_str() {
                "sms.twilio" => self.ask_twilio(probe).await,
                _ => Finding::skipped(
                    "gateway",
                    "it has no call that sends nothing: send one message to your own phone",
                ),
            }]
        };
        probe.examine(&self.secrets(), NEW_SECRET, ("gateway", "the gateway"), ask).await
    }

    fn secrets(&self) -> Vec<AccountSecret<'_>> {
        let secret = self.secret.as_ref().map(|material| ("api_key", material));
        #[cfg(feature = "smpp")]
        let secret = secret.or(self.smsc.as_ref().map(|smsc| ("password", smsc.password())));
        let check = "credential";
        secret.map(|(kind, material)| AccountSecret { kind, check, material }).into_iter().collect()
    }

    fn origins(&self) -> Vec<String> {
        health::origin(&self.url).into_iter().collect()
    }

    #[cfg(feature = "smpp")]
    fn connections(&self) -> usize {
        self.smsc.as_ref().map_or(0, super::smpp::Smsc::connections)
    }
}

impl SmsSettings {
    /// Asks for the account itself. An API key may not read that, so it asks for the list of messages instead.
    async fn ask_twilio(&self, probe: &Probe) -> Finding {
        let is_key = matches!(&self.auth, GatewayAuth::Basic(user) if user.starts_with("SK"));
        let url = match is_key {
            true => format!("{}?PageSize=1", self.url),
            false => self.url.replace("/Messages.json", ".json"),
        };
        let secret = self.secret.as_ref().and_then(Material::kept);
        let request = Request::new(Method::GET, JSON, Vec::new());
        let request = self.auth.sign(request, secret.as_deref().map_or("", String::as_str));
        let judge =
            |response: &Response, body: &Value| judge_twilio(response.status.as_u16(), body);
        probe.ask_json("gateway", &url, request, judge).await
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
            format!("at Twilio, the account is {other}"),
            "look at the Twilio console: suspended accounts mostly have no credit left",
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
            format!("Twilio gave no clear answer: {status}{code}"),
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
