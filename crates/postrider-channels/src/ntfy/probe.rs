//! Checks a server: the credential, and `/v1/health`. Publishes nothing.

use ::http::Method;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use super::NtfyServer;
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::pool::Request;

const NEW_SECRET: &str =
    "put a valid access token, or the user's password, where the credential says";

#[async_trait]
impl HealthChecks for NtfyServer {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let (mut findings, mut secret) = (Vec::new(), None);
        if let Some(material) = &self.secret {
            let (known, finding) = health::read("credential", material, NEW_SECRET).await;
            findings.push(finding);
            if known.is_none() {
                return findings;
            }
            secret = known;
        }
        if probe.offline {
            findings.push(Finding::skipped("server", "the server is not asked: --offline"));
            return findings;
        }
        // ntfy checks the credential of every request, of this one as well.
        let headers = self.headers(secret.as_deref().map(String::as_str));
        let request = Request { method: Method::GET, headers, body: Bytes::new() };
        let url = format!("{}/v1/health", self.endpoint);
        let judged = probe.ask("server", &url, request).await.map(|response| {
            let body = serde_json::from_slice(&response.body).unwrap_or_default();
            judge_health(response.status.as_u16(), &body)
        });
        findings.push(judged.unwrap_or_else(|finding| finding));
        findings
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        let kind = if self.user.is_some() { "password" } else { "access_token" };
        match &self.secret {
            Some(secret) => vec![CredentialStatus::look(kind, secret).await.0],
            None => Vec::new(),
        }
    }

    fn origins(&self) -> Vec<String> {
        health::origin(&self.endpoint).into_iter().collect()
    }
}

fn judge_health(status: u16, body: &Value) -> Finding {
    match (status, body["healthy"].as_bool()) {
        (200, Some(true)) => Finding::ok("server", "ntfy is healthy and accepts the account"),
        (401 | 403, _) => {
            Finding::fail("server", format!("ntfy refuses the credential ({status})"), NEW_SECRET)
        }
        (200 | 404, None) => Finding::fail(
            "server",
            format!("the answer is not that of an ntfy server ({status})"),
            "correct the account's endpoint: the server's base URL, without a topic",
        ),
        _ => Finding::warn(
            "server",
            format!("ntfy is not healthy ({status})"),
            "try again in a few minutes, then look into the server's log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;
    use serde_json::json;

    #[test]
    fn a_refused_credential_differs_from_a_wrong_endpoint_and_from_an_outage() {
        for (status, body, verdict) in [
            (200, json!({"healthy": true}), Verdict::Ok),
            (200, json!({"healthy": false}), Verdict::Warn),
            (200, json!({"status": "ok"}), Verdict::Fail),
            (401, json!({"code": 40101}), Verdict::Fail),
            (404, Value::Null, Verdict::Fail),
            (502, Value::Null, Verdict::Warn),
        ] {
            assert_eq!(judge_health(status, &body).verdict, verdict, "{status} {body}");
        }
    }
}
