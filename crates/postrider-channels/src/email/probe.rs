//! Whether mails can leave through an account: its credential, its DKIM keys, and a visit to the relay or
//! a question to the provider's API. Sends no mail.

use ::http::Method;
use async_trait::async_trait;
use serde_json::Value;

use super::carrier::{Carrier, DkimSettings, EmailSettings};
use super::dkim::DkimKey;
use super::smtp::{Relay, RelayCheck, SmtpOutcome, SmtpStage, SmtpTls};
use super::{SendGrid, Ses, sendgrid, ses, txt};
use crate::accounts::health::{self, CredentialStatus, Finding, HealthChecks, Probe};
use crate::deliver::Wiring;
use crate::scrub;

const NEW_SECRET: &str = "put the provider's present secret where the credential says";
const NEW_DKIM_KEY: &str = "make one: openssl genrsa -out dkim.pem 2048 (or openssl genpkey -algorithm ed25519), \
     and publish its record";

#[async_trait]
impl HealthChecks for EmailSettings {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let mut findings = match &self.carrier {
            Carrier::Smtp(relay) => examine_relay(relay, probe).await,
            Carrier::Ses(ses) => examine_ses(ses, probe).await,
            Carrier::SendGrid(sendgrid) => examine_sendgrid(sendgrid, probe).await,
        };
        let from = self.from.address.rsplit_once('@').map_or("", |(_, domain)| domain);
        for dkim in &self.dkim {
            findings.extend(examine_dkim(dkim, from, probe).await);
        }
        if self.dkim.is_empty() && matches!(self.carrier, Carrier::Smtp(_)) {
            let why = "no key: mails are signed only if the relay does it";
            findings.push(Finding::skipped("dkim", why));
        }
        findings
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        let mut found = Vec::new();
        match &self.carrier {
            Carrier::Smtp(relay) => {
                if let Some(secret) = relay.secret() {
                    found.push(CredentialStatus::look("password", secret).await.0);
                }
            }
            Carrier::Ses(ses) => {
                found.push(CredentialStatus::look("secret_key", &ses.secret).await.0);
                if let Some(token) = &ses.session_token {
                    found.push(CredentialStatus::look("session_token", token).await.0);
                }
            }
            Carrier::SendGrid(sendgrid) => {
                found.push(CredentialStatus::look("api_key", &sendgrid.key).await.0);
            }
        }
        for dkim in &self.dkim {
            found.push(CredentialStatus::look("dkim_key", &dkim.key).await.0);
        }
        found
    }

    fn origins(&self) -> Vec<String> {
        let endpoint = match &self.carrier {
            Carrier::Smtp(_) => None,
            Carrier::Ses(ses) => health::origin(&ses.endpoint),
            Carrier::SendGrid(sendgrid) => health::origin(&sendgrid.endpoint),
        };
        endpoint.into_iter().collect()
    }
}

async fn examine_relay(relay: &Relay, probe: &Probe) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(secret) = relay.secret() {
        let (known, finding) = health::read("credential", secret, NEW_SECRET).await;
        findings.push(finding);
        if known.is_none() {
            return findings;
        }
    }
    let config = relay.config();
    if probe.offline {
        findings.push(Finding::skipped("relay", "the relay is not visited: --offline"));
        return findings;
    }
    let place = format!("{}:{}", config.host, config.port);
    match relay.check(probe.deadline()).await {
        Err(end) => findings.push(judge_end(&place, &config.user, &end)),
        Ok(check) => {
            findings.push(judge_visit(&place, config.tls, &check));
            findings.extend(check.certificate_until.map(|until| {
                let remedy = "whoever runs the relay has to renew its certificate";
                let what = format!("certificate of {}", config.host);
                Finding::of_end("relay_certificate", &what, until, probe.now(), remedy)
            }));
        }
    }
    findings
}

fn judge_visit(place: &str, tls: SmtpTls, check: &RelayCheck) -> Finding {
    let logged_in = if check.logged_in { ", log-in accepted" } else { "" };
    match (tls, check.certificate_until) {
        (SmtpTls::Opportunistic, None) => Finding::warn(
            "relay",
            format!("{place} answers without TLS{logged_in}: mails go in the clear"),
            "set tls = \"starttls\" and a relay that offers it",
        ),
        (SmtpTls::None, _) if check.offers_tls => Finding::warn(
            "relay",
            format!(
                "{place} answers{logged_in}; it offers TLS, and tls = \"none\" does not use it"
            ),
            "set tls = \"starttls\"",
        ),
        (_, until) => {
            let secret = if until.is_some() { " with TLS" } else { "" };
            Finding::ok("relay", format!("{place} answers{secret}{logged_in}"))
        }
    }
}

/// Why the relay could not be used, by how far the conversation came.
fn judge_end(place: &str, user: &str, end: &SmtpOutcome) -> Finding {
    let fail =
        |found: &str, remedy: &str| Finding::fail("relay", format!("{place}: {found}"), remedy);
    match end {
        SmtpOutcome::NotSent { code: "dns", detail } => {
            fail(detail, "correct `host`, or this machine's DNS")
        }
        SmtpOutcome::NotSent { code: "connect", detail } => fail(
            &format!("unreachable: {detail}"),
            "is the relay up, are `host` and `port` right, and does the firewall let this machine out? Many \
             networks shut port 25: use 587 or 465",
        ),
        SmtpOutcome::NotSent { code: "tls", detail }
        | SmtpOutcome::Config { code: "tls", detail } => {
            let remedy = match health::is_about_time(detail) {
                true => {
                    "set this machine's clock right first (NTP); else the relay's certificate must be renewed"
                }
                false => {
                    "`host` must be the name in the certificate; an authority of your own belongs into \
                     network.extra_ca_file; implicit TLS is port 465, starttls is 587"
                }
            };
            fail(detail, remedy)
        }
        SmtpOutcome::NotSent { detail, .. } => fail(
            detail,
            "compare `port` and `tls` with what the relay's operator says: implicit is 465, starttls 587",
        ),
        SmtpOutcome::Config { code: "no_starttls", detail } => {
            fail(detail, "set tls = \"implicit\" (port 465), or let the relay offer STARTTLS")
        }
        SmtpOutcome::Config { detail, .. } => {
            fail(detail, "compare `tls`, `user` and `oauth` with what the relay offers")
        }
        SmtpOutcome::Refused(stage, reply) => {
            let words = reply.detail(user).unwrap_or_default();
            let (what, remedy) = match stage {
                SmtpStage::Auth => (
                    "refuses user and password",
                    "compare `user` with the credential; some relays want an app password or oauth = true",
                ),
                SmtpStage::Greeting => (
                    "does not want to talk to us",
                    "ask its operator to let this machine's address in",
                ),
                SmtpStage::Ehlo => ("refuses our name", "set `ehlo` to this machine's full name"),
                _ => ("refuses", "ask the relay's operator"),
            };
            fail(&format!("{what} ({} {words})", reply.code), remedy)
        }
        other => fail(&format!("{other:?}"), "ask the relay's operator"),
    }
}

async fn examine_dkim(dkim: &DkimSettings, from: &str, probe: &Probe) -> Vec<Finding> {
    let check = format!("dkim.{}", dkim.selector);
    let (key, finding) = health::read(&check, &dkim.key, NEW_DKIM_KEY).await;
    let Some(key) = key else { return vec![finding] };
    let mut findings = vec![finding];
    findings.extend(judge_alignment(&check, &dkim.domain, from));
    findings.push(examine_record(&check, dkim, &key, probe).await);
    findings
}

/// DMARC wants the signature's domain to be the sender's, or of the same family.
fn judge_alignment(check: &str, domain: &str, from: &str) -> Option<Finding> {
    let (domain, from) = (domain.to_ascii_lowercase(), from.to_ascii_lowercase());
    let under = |a: &str, b: &str| a.strip_suffix(b).is_some_and(|rest| rest.ends_with('.'));
    let aligned = domain == from || under(&domain, &from) || under(&from, &domain);
    (!aligned).then(|| {
        Finding::warn(
            check,
            format!("signs for {domain}, but mails are from {from}: DMARC does not count that"),
            format!("set the key's domain to {from}, or leave it out"),
        )
    })
}

/// The published half of the key, held against ours.
async fn examine_record(check: &str, dkim: &DkimSettings, key: &DkimKey, probe: &Probe) -> Finding {
    let check = format!("{check}.record");
    let place = format!("{}._domainkey.{}", dkim.selector, dkim.domain);
    let system =
        || txt::server_of(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    let found = match (probe.offline, probe.resolver.or_else(system)) {
        (true, _) => Err("--offline".to_owned()),
        (false, None) => Err("this machine names no name server".to_owned()),
        (false, Some(server)) => txt::look_up(server, &place, probe.deadline()).await,
    };
    judge_record(&check, &place, &key.record(), found.as_deref().map_err(String::as_str))
}

fn judge_record(check: &str, place: &str, own: &str, found: Result<&[String], &str>) -> Finding {
    let tag = |record: &str| {
        let tags = record.split(';').filter_map(|tag| tag.split_once('='));
        let p = tags.into_iter().find(|(name, _)| name.trim() == "p").map(|(_, value)| value);
        p.map(|value| value.split_whitespace().collect::<String>())
    };
    let publish = format!("publish this TXT record at {place}: {own}");
    let records = match found {
        Ok(records) => records,
        Err(why) => {
            let found = format!("DNS was not asked ({why}); compare: TXT {place} must be {own}");
            return Finding::skipped(check, found);
        }
    };
    let published: Vec<String> = records.iter().filter_map(|record| tag(record)).collect();
    if published.contains(&tag(own).unwrap_or_default()) {
        return Finding::ok(check, format!("{place} publishes this key"));
    }
    match published.iter().any(String::is_empty) {
        true => Finding::fail(check, format!("{place} says that the key was revoked"), publish),
        false if published.is_empty() => Finding::fail(
            check,
            format!("{place} publishes no key: no signature can be verified"),
            publish,
        ),
        false => {
            Finding::fail(check, format!("{place} publishes another key than this one"), publish)
        }
    }
}

async fn examine_ses(ses: &Ses, probe: &Probe) -> Vec<Finding> {
    let (known, finding) = health::read("credential", &ses.secret, NEW_SECRET).await;
    let mut findings = vec![finding];
    if known.is_none() {
        return findings;
    }
    if let Some(token) = &ses.session_token {
        let (known, finding) = health::read("session_token", token, NEW_SECRET).await;
        findings.push(finding);
        if known.is_none() {
            return findings;
        }
    }
    if probe.offline {
        findings.push(Finding::skipped("ses", "Amazon is not asked: --offline"));
        return findings;
    }
    let Ok(keys) = ses.keys().await else { return findings };
    let url = format!("{}{}", ses.endpoint, ses::ACCOUNT);
    let host = health::host(&ses.endpoint);
    let request = ses.signed(&keys, Method::GET, ses::ACCOUNT, host, Vec::new(), probe.now());
    findings.push(match probe.ask("ses", &url, request).await {
        Err(finding) => finding,
        Ok(response) => {
            let code = ses::code(&response).unwrap_or_default();
            let body = serde_json::from_slice(&response.body).unwrap_or_default();
            judge_ses(response.status.as_u16(), &scrub::hide(code, &[&keys.secret]), &body)
        }
    });
    findings
}

fn judge_ses(status: u16, code: &str, body: &Value) -> Finding {
    let says = |words: &str| code.to_ascii_lowercase().contains(words);
    match status {
        200 if body["SendingEnabled"] == false => Finding::fail(
            "ses",
            "Amazon has switched sending off for this account",
            "look into the SES console: reputation, and the e-mails that Amazon sent about it",
        ),
        200 if body["ProductionAccessEnabled"] == false => Finding::warn(
            "ses",
            "the account is in SES's sandbox: only verified addresses get mail",
            "ask for production access in the SES console",
        ),
        200 => Finding::ok("ses", "Amazon knows the key, and sending is on"),
        401 | 403 if says("expired") || says("not yet current") => Finding::fail(
            "ses",
            format!(
                "Amazon lives in another time than this machine, or the session token is over ({code})"
            ),
            "set this machine's clock right (NTP); renew a session token",
        ),
        403 if says("accessdenied") || says("not authorized") => Finding::warn(
            "ses",
            "Amazon knows the key, and it may not look at the account: sending was not tried",
            "let the key's policy allow ses:GetAccount beside ses:SendEmail to have this checked",
        ),
        401 | 403 => Finding::fail(
            "ses",
            format!("Amazon refuses the key ({code})"),
            "compare key_id with the secret, and region with where SES is used; a deleted key needs a new one",
        ),
        _ => unsure("ses", "Amazon", status, code),
    }
}

async fn examine_sendgrid(sendgrid: &SendGrid, probe: &Probe) -> Vec<Finding> {
    let (key, finding) = health::read("credential", &sendgrid.key, NEW_SECRET).await;
    let mut findings = vec![finding];
    let Some(key) = key else { return findings };
    if probe.offline {
        findings.push(Finding::skipped("sendgrid", "SendGrid is not asked: --offline"));
        return findings;
    }
    let url = format!("{}{}", sendgrid.endpoint, sendgrid::SCOPES);
    let mut request = sendgrid::request(&key, Vec::new());
    request.method = Method::GET;
    findings.push(match probe.ask("sendgrid", &url, request).await {
        Err(finding) => finding,
        Ok(response) => {
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            let code = sendgrid::code(&response).unwrap_or_default();
            judge_sendgrid(response.status.as_u16(), &code, &body)
        }
    });
    findings
}

fn judge_sendgrid(status: u16, code: &str, body: &Value) -> Finding {
    let may_send =
        body["scopes"].as_array().is_some_and(|all| all.iter().any(|scope| scope == "mail.send"));
    let new_key = "make an API key with Mail Send at SendGrid (Settings, API Keys)";
    match status {
        200 if may_send => Finding::ok("sendgrid", "SendGrid knows the key, and it may send"),
        200 => Finding::fail("sendgrid", "the key may not send: it lacks mail.send", new_key),
        401 | 403 => {
            Finding::fail("sendgrid", format!("SendGrid refuses the key ({code})"), new_key)
        }
        _ => unsure("sendgrid", "SendGrid", status, code),
    }
}

fn unsure(check: &str, who: &str, status: u16, code: &str) -> Finding {
    let found = format!("{who} could not say: {status} {code}");
    Finding::warn(check, found, "try again; then look at the provider's status page")
}

#[cfg(test)]
mod tests;
