//! Checks a project: its service account, the token that Google gives for it, and a message that Google only validates
//! (`validate_only`). Sends nothing to any device.

use ::http::Method;
use async_trait::async_trait;
use serde_json::json;

use super::oauth::{self, FcmToken, TokenFailure, TokenRefusal};
use super::service_account::ServiceAccount;
use super::{FcmProject, answer, headers};
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::pool::Request;

/// Looks like a token, but no device has it.
const NOBODY: &str =
    "postrider-doctor:APA91bPostriderDoctorAsksWhetherTheCredentialWorks000000000000000";
const NEW_KEY: &str = "make a new key in the Google Cloud console (IAM & Admin, Service accounts, Keys), put its \
     JSON file where the credential says, and delete the old key";
const CLOCK: &str =
    "set this machine's clock right (NTP): Google takes tokens only within minutes of its own time";

#[async_trait]
impl HealthChecks for FcmProject {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let (service, first) = health::read("credential", &self.credential, NEW_KEY).await;
        let mut findings = vec![first];
        let Some(service) = service else { return findings };
        if probe.offline {
            findings.push(Finding::skipped("token", "Google is not asked: --offline"));
            return findings;
        }
        match oauth::ask(&service, &probe.wiring, probe.now()).await {
            Err((failure, _)) => {
                findings.push(judge_grant(&failure, health::host(&service.token_uri)));
            }
            Ok(token) => {
                findings.push(Finding::ok("token", "Google gives a token for the service account"));
                findings.push(self.preflight(probe, &service, &token).await);
            }
        }
        findings
    }

    async fn watch(&self, wiring: &Wiring) -> Vec<CredentialStatus> {
        let (mut credential, service) =
            CredentialStatus::look("service_account", &self.credential).await;
        if credential.replaced {
            self.tokens.forgive();
        }
        if let Some(service) = service
            && let Err(ended) = self.tokens.get(&service, wiring, false).await
            && ended.code.as_deref() == Some("oauth_refused")
        {
            credential.problem = ended.detail;
        }
        vec![credential]
    }

    fn origins(&self) -> Vec<String> {
        let token_uri = self.credential.kept().and_then(|kept| health::origin(&kept.token_uri));
        health::origin(&self.settings.endpoint).into_iter().chain(token_uri).collect()
    }
}

impl FcmProject {
    async fn preflight(
        &self,
        probe: &Probe,
        service: &ServiceAccount,
        token: &FcmToken,
    ) -> Finding {
        let name = self.settings.project.as_deref().unwrap_or(&service.project);
        let call =
            json!({"validate_only": true, "message": {"token": NOBODY, "data": {"probe": "1"}}});
        let body = call.to_string().into();
        let request = Request { method: Method::POST, headers: headers(token), body };
        match probe.ask("project", &self.url(service), request).await {
            Err(finding) => finding,
            Ok(response) => {
                let (code, reason) = (answer::code(&response), answer::reason(&response));
                let code = reason.or(code).unwrap_or_default();
                judge_preflight(name, response.status.as_u16(), &code)
            }
        }
    }
}

/// Why Google gives no token, by the words of its answer.
fn judge_grant(failure: &TokenFailure, host: &str) -> Finding {
    let TokenRefusal { why, error, description } = match failure {
        TokenFailure::Unavailable(why) | TokenFailure::Local(why) => {
            let remedy =
                "let this machine reach the token endpoint (DNS, firewall, proxy), then try again";
            return Finding::fail("token", format!("{host}: {why}"), remedy);
        }
        TokenFailure::Refused(refusal) => refusal,
    };
    let says = |words: &str| description.to_ascii_lowercase().contains(words);
    let (found, remedy) = match error.as_str() {
        "invalid_grant" if says("signature") => {
            ("the service account's key has expired, was deleted or is another account's", NEW_KEY)
        }
        "invalid_grant" if says("not found") => (
            "the service account does not exist any more",
            "make a service account with the role Firebase Cloud Messaging API Admin, and a key for it",
        ),
        "invalid_grant" if says("timeframe") || says("iat") => {
            ("this machine's clock differs from Google's", CLOCK)
        }
        "invalid_grant" if says("audience") => (
            "the key file's token_uri is not the one that Google expects",
            "take the key file as Google gave it out: https://oauth2.googleapis.com/token",
        ),
        _ if says("disabled") => (
            "the service account is disabled",
            "enable it in the Google Cloud console (IAM & Admin, Service accounts)",
        ),
        _ => (why.as_str(), "compare the key file with the one that Google gave out"),
    };
    let told = format!("{error} {description}");
    let told = told.trim();
    let found = if told.is_empty() || found == why {
        found.to_owned()
    } else {
        format!("{found} ({told})")
    };
    Finding::fail("token", found, remedy)
}

/// If Google refuses only the device, the project can send.
fn judge_preflight(project: &str, status: u16, code: &str) -> Finding {
    let project_finding = |words: &str, remedy: &str| {
        Finding::fail("project", format!("{words}: {project} ({status} {code})"), remedy)
    };
    match (status, code) {
        (200..=299 | 400, _) | (404, "UNREGISTERED") | (403, "SENDER_ID_MISMATCH") => {
            Finding::ok("project", format!("{project} takes messages"))
        }
        (401, _) => project_finding(
            "Google gave a token, but refuses it",
            "look whether a proxy changes the call; else try again in a minute",
        ),
        (403, "SERVICE_DISABLED") => project_finding(
            "the Firebase Cloud Messaging API is switched off for the project",
            "enable fcm.googleapis.com in the Google Cloud console (APIs & Services)",
        ),
        (403, _) => project_finding(
            "the service account may not send to the project",
            "give it the role Firebase Cloud Messaging API Admin there, or correct `project`",
        ),
        (404, _) => project_finding("there is no such project", "correct `project`"),
        _ => Finding::warn(
            "project",
            format!("Google gives no clear answer: {status} {code}"),
            "try again; then look at the Firebase status page",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;

    #[test]
    fn why_there_is_no_token_is_told_by_google_s_words() {
        let refused = |error: &str, description: &str| {
            let (error, description) = (error.to_owned(), description.to_owned());
            TokenFailure::Refused(TokenRefusal { why: "refused".into(), error, description })
        };
        let timeframe = "Invalid JWT: FcmToken must be a short-lived token (60 minutes) and in a reasonable timeframe.";
        for (failure, found, remedy) in [
            (refused("invalid_grant", "Invalid JWT Signature."), "has expired", "new key"),
            (
                refused("invalid_grant", "Invalid grant: account not found"),
                "exist",
                "make a service",
            ),
            (refused("invalid_grant", timeframe), "clock differs", "NTP"),
            (
                refused("invalid_grant", "Invalid JWT: Failed audience check."),
                "token_uri",
                "as Google",
            ),
            (refused("disabled_client", "The OAuth client was disabled."), "disabled", "enable"),
            (refused("", ""), "refused", "compare"),
            (TokenFailure::Unavailable("does not answer".into()), "host: does not", "firewall"),
        ] {
            let finding = judge_grant(&failure, "host");
            assert_eq!(finding.verdict, Verdict::Fail);
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
        }
    }

    #[test]
    fn a_refused_device_proves_the_credential_and_other_refusals_name_their_cause() {
        for (status, code, verdict) in [
            (200, "", Verdict::Ok),
            (400, "INVALID_ARGUMENT: The registration token is not valid", Verdict::Ok),
            (404, "UNREGISTERED", Verdict::Ok),
            (404, "NOT_FOUND", Verdict::Fail),
            (403, "PERMISSION_DENIED", Verdict::Fail),
            (403, "SERVICE_DISABLED", Verdict::Fail),
            (401, "UNAUTHENTICATED", Verdict::Fail),
            (503, "UNAVAILABLE", Verdict::Warn),
        ] {
            assert_eq!(judge_preflight("p", status, code).verdict, verdict, "{status} {code}");
        }
        let off = judge_preflight("p", 403, "SERVICE_DISABLED");
        assert!(off.remedy.is_some_and(|remedy| remedy.contains("enable")));
    }
}
