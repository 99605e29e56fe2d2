//! Checks an account: its key or certificate, and a notification to a device that does not exist.

use std::sync::Arc;

use ::http::{HeaderValue, Method};
use async_trait::async_trait;
use bytes::Bytes;

use super::key::ApnsCredential;
use super::sender::{ApnsConnections, ApnsSender};
use super::{ApnsEnvironment, answer, wire};
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::pool::Request;
use crate::x509::Certificate;

/// A token that no device has.
const NOBODY: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// For accounts without topics of their own.
const NO_TOPIC: &str = "org.postrider.doctor";
/// Reasons that Apple gives only if it knows the account.
const KNOWN: [&str; 4] =
    ["BadDeviceToken", "Unregistered", "DeviceTokenNotForTopic", "ExpiredToken"];
const OTHER_ENVIRONMENT: [&str; 2] = ["BadEnvironmentKeyIdInToken", "BadCertificateEnvironment"];
const NEW_KEY: &str = "download the .p8 file of the key, or make a new one, at developer.apple.com \
     (Certificates, Identifiers & Profiles, Keys)";
const NEW_CERTIFICATE: &str = "make a new certificate at developer.apple.com, or change over to a signing key, \
     which does not expire";
const CLOCK: &str = "set this machine's clock right (NTP): Apple refuses tokens from another time";

#[async_trait]
impl HealthChecks for ApnsSender {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let (credential, first) = health::read("credential", &self.credential, NEW_KEY).await;
        let mut findings = vec![first];
        let Some(credential) = credential else { return findings };
        findings.extend(self.shape(&credential, probe));
        match self.connections(&probe.wiring.pool).await {
            Err(why) => {
                let remedy =
                    "give team_id and key_id with a .p8 key, and neither with a certificate";
                findings.push(Finding::fail("credential", why, remedy));
            }
            Ok(_) if probe.offline => {
                findings.push(Finding::skipped("apple", "Apple is not asked: --offline"));
            }
            Ok(connections) => findings.extend(self.ask_apple(probe, &connections).await),
        }
        findings
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        let (mut credential, key) = CredentialStatus::look("signing_key", &self.credential).await;
        let certificate = key.as_deref().and_then(certificate);
        if let Some(certificate) = certificate {
            credential.kind = "certificate";
            credential.expires_at = Some(certificate.not_after);
        }
        vec![credential]
    }

    fn origins(&self) -> Vec<String> {
        health::origin(&self.settings.endpoint).into_iter().collect()
    }
}

impl ApnsSender {
    /// What can be found without a call.
    fn shape(&self, credential: &ApnsCredential, probe: &Probe) -> Vec<Finding> {
        let settings = &self.settings;
        if let Some(certificate) = certificate(credential) {
            let whose = certificate.user_id.or(certificate.common_name).unwrap_or_default();
            let what = format!("certificate of {whose}");
            let end = certificate.not_after;
            let end = Finding::of_end("certificate", &what, end, probe.now(), NEW_CERTIFICATE);
            return vec![end];
        }
        let (Some(team), Some(key)) = (&settings.team_id, &settings.key_id) else {
            return Vec::new();
        };
        judge_ids(team, key, settings.credential.file_name()).into_iter().collect()
    }

    async fn ask_apple(&self, probe: &Probe, connections: &Arc<ApnsConnections>) -> Vec<Finding> {
        let topics = &self.settings.topics;
        let first =
            self.call(probe, connections, ApnsEnvironment::Production, topics.first()).await;
        match first {
            Err(finding) => vec![finding],
            Ok(reason) if OTHER_ENVIRONMENT.contains(&reason.as_str()) => {
                let other =
                    self.call(probe, connections, ApnsEnvironment::Sandbox, topics.first()).await;
                vec![other.map_or_else(|finding| finding, |other| only_sandbox(&reason, &other))]
            }
            Ok(reason) => {
                let mut findings = vec![self.judge(&reason, topics.first())];
                for topic in topics.iter().skip(1) {
                    let call =
                        self.call(probe, connections, ApnsEnvironment::Production, Some(topic));
                    findings.extend(call.await.map(|reason| self.judge(&reason, Some(topic))));
                }
                findings
            }
        }
    }

    /// One call: Apple's reason.
    async fn call(
        &self,
        probe: &Probe,
        connections: &Arc<ApnsConnections>,
        environment: ApnsEnvironment,
        topic: Option<&String>,
    ) -> Result<String, Finding> {
        let settings = &self.settings;
        let url = match environment {
            ApnsEnvironment::Production => &settings.endpoint,
            ApnsEnvironment::Sandbox => &settings.sandbox_endpoint,
        };
        let own = |why: &str| Finding::fail("apple", why, NEW_KEY);
        let endpoint = connections.endpoint(environment, NOBODY).map_err(|_| own("no endpoint"))?;
        let token = connections.token(self, probe.now(), false);
        let token = token.map_err(|_| own("no provider token could be signed"))?;
        let topic = topic.map_or(NO_TOPIC, String::as_str);
        let mut headers = wire::common_headers(topic, token.as_deref());
        headers.insert(wire::PUSH_TYPE, HeaderValue::from_static("background"));
        headers.insert(wire::PRIORITY, HeaderValue::from_static("5"));
        headers.insert(wire::EXPIRATION, HeaderValue::from_static("0"));
        let body = Bytes::from_static(br#"{"aps":{"content-available":1}}"#);
        let request = Request { method: Method::POST, headers, body };
        let (pool, deadline) = (&probe.wiring.pool, probe.deadline());
        let answer = match pool.acquire(&endpoint, deadline).await {
            Ok(slot) => slot.send(&endpoint, request, deadline).await,
            Err(error) => Err(error),
        };
        let answer =
            answer.map_err(|error| health::unreachable("apple", health::host(url), &error))?;
        let reason = answer::read(&answer).map(|refused| refused.reason);
        Ok(reason.unwrap_or_else(|| answer.status.as_u16().to_string()))
    }

    fn judge(&self, reason: &str, topic: Option<&String>) -> Finding {
        let settings = &self.settings;
        let ids = settings.team_id.as_deref().zip(settings.key_id.as_deref());
        judge_reason(reason, ids, topic.map(String::as_str))
    }
}

fn certificate(credential: &ApnsCredential) -> Option<Certificate> {
    match credential {
        ApnsCredential::Certificate(identity) => Certificate::read(identity.chain.first()?),
        ApnsCredential::Key(_) => None,
    }
}

/// Both are 10 letters or digits, and Apple names the key's file after its id.
fn judge_ids(team: &str, key: &str, file: Option<&str>) -> Option<Finding> {
    let is_id = |text: &str| {
        text.len() == 10 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    for (field, id) in [("team_id", team), ("key_id", key)] {
        if !is_id(id) {
            let found = format!("{field} = {id:?} is not an id of Apple");
            return Some(Finding::fail(field, found, "10 capital letters or digits are needed"));
        }
    }
    let named = file?.strip_prefix("AuthKey_")?.strip_suffix(".p8")?;
    (is_id(named) && named != key).then(|| {
        Finding::warn(
            "key_id",
            format!("key_id = {key:?}, but the file is called AuthKey_{named}.p8"),
            format!("set key_id = {named:?} if the file has the name that Apple gave it"),
        )
    })
}

/// Production refused the credential as one of the sandbox. `other` is the sandbox's answer.
fn only_sandbox(first: &str, other: &str) -> Finding {
    let found = format!("the credential is for Apple's sandbox only ({first})");
    let remedy =
        "make a key for both environments, or send only to devices with environment = \"sandbox\"";
    match KNOWN.contains(&other) {
        true => Finding::warn("apple", found, remedy),
        false => Finding::fail("apple", format!("{found}, and that says {other}"), NEW_KEY),
    }
}

/// What Apple's reason says about the account. `ids` are team and key.
fn judge_reason(reason: &str, ids: Option<(&str, &str)>, topic: Option<&str>) -> Finding {
    let who = match ids {
        Some((team, key)) => format!("key {key} of team {team}"),
        None => "the certificate".to_owned(),
    };
    match (reason, topic) {
        ("200", _) => Finding::ok("apple", format!("Apple knows {who}")),
        (known, topic) if KNOWN.contains(&known) => {
            let topic = topic.map_or(String::new(), |t| format!(", and takes messages for {t}"));
            Finding::ok("apple", format!("Apple knows {who}{topic}"))
        }
        ("TopicDisallowed" | "BadTopic" | "MissingTopic", None) => {
            Finding::ok("apple", format!("Apple knows {who}; no topics are named to try"))
        }
        ("TopicDisallowed" | "BadTopic", Some(topic)) => Finding::fail(
            "topic",
            format!("{who} may not send to {topic} ({reason})"),
            "correct `topics`: the bundle id of an app of this team, with its suffix for VoIP and the like",
        ),
        ("InvalidProviderToken" | "UnrelatedKeyIdInToken", _) => Finding::fail(
            "apple",
            format!("Apple does not know {who}, or the file is another key's ({reason})"),
            "compare key_id with the file's name (AuthKey_KEYID.p8) and team_id with the membership page; a \
             revoked key needs a new one; and this machine's clock must be right",
        ),
        ("ExpiredProviderToken", _) => Finding::fail(
            "apple",
            format!("Apple calls a token of this minute expired ({reason})"),
            CLOCK,
        ),
        ("MissingProviderToken" | "BadCertificate", _) => {
            Finding::fail("apple", format!("Apple does not take {who} ({reason})"), NEW_CERTIFICATE)
        }
        ("TooManyProviderTokenUpdates", _) => Finding::warn(
            "apple",
            format!("Apple saw too many tokens of {who} lately ({reason})"),
            "wait 20 minutes before the next check",
        ),
        ("TooManyRequests" | "InternalServerError" | "ServiceUnavailable" | "Shutdown", _) => {
            Finding::warn(
                "apple",
                format!("Apple gives no clear answer ({reason})"),
                "try again in a minute",
            )
        }
        _ => Finding::fail("apple", format!("Apple refuses {who} ({reason})"), NEW_KEY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::health::Verdict;

    const IDS: Option<(&str, &str)> = Some(("TEAM123456", "KEY1234567"));

    #[test]
    fn apple_s_reasons_tell_a_known_sender_from_a_wrong_key_topic_or_clock() {
        for (reason, topic, verdict, remedy) in [
            ("BadDeviceToken", Some("com.example.app"), Verdict::Ok, ""),
            ("BadDeviceToken", None, Verdict::Ok, ""),
            ("TopicDisallowed", None, Verdict::Ok, ""),
            ("TopicDisallowed", Some("com.example.app"), Verdict::Fail, "topics"),
            ("InvalidProviderToken", None, Verdict::Fail, "compare key_id"),
            ("ExpiredProviderToken", None, Verdict::Fail, "clock"),
            ("MissingProviderToken", None, Verdict::Fail, "certificate"),
            ("TooManyProviderTokenUpdates", None, Verdict::Warn, "20 minutes"),
            ("ServiceUnavailable", None, Verdict::Warn, "again"),
            ("SomethingNew", None, Verdict::Fail, "key"),
        ] {
            let finding = judge_reason(reason, IDS, topic);
            assert_eq!(finding.verdict, verdict, "{reason}");
            let told = finding.remedy.unwrap_or_default();
            assert!(told.contains(remedy), "{reason}: {told}");
        }
        let wrong = judge_reason("InvalidProviderToken", IDS, None).found;
        assert!(wrong.contains("KEY1234567") && wrong.contains("TEAM123456"), "{wrong}");
    }

    #[test]
    fn ids_that_cannot_be_right_are_found_without_asking() {
        let judge = |key, file| judge_ids("TEAM123456", key, file).map(|f| f.verdict);
        assert_eq!(judge("KEY1234567", None), None);
        assert_eq!(judge("KEY123456", None), Some(Verdict::Fail));
        assert_eq!(judge("key1234567", None), Some(Verdict::Fail));
        assert_eq!(judge("KEY1234567", Some("AuthKey_KEY1234567.p8")), None);
        assert_eq!(judge("KEY1234567", Some("AuthKey_OTHER12345.p8")), Some(Verdict::Warn));
        assert_eq!(judge("KEY1234567", Some("apple.p8")), None);
    }

    #[test]
    fn a_key_of_the_sandbox_alone_is_a_warning_if_the_sandbox_knows_it() {
        assert_eq!(
            only_sandbox("BadEnvironmentKeyIdInToken", "BadDeviceToken").verdict,
            Verdict::Warn
        );
        let neither = only_sandbox("BadEnvironmentKeyIdInToken", "InvalidProviderToken");
        assert_eq!(neither.verdict, Verdict::Fail);
    }
}
