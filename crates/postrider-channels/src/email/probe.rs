//! Checks whether an account can send: its credential, its DKIM keys, and a session with the relay or a call to the
//! provider's API. Sends no mail.

use ::http::Method;
use async_trait::async_trait;
use serde_json::Value;

use super::account::domain_of;
use super::carrier::{Carrier, DkimSettings, EmailSettings};
use super::dkim::DkimKey;
use super::smtp::{Relay, RelayCheck, SmtpOutcome, SmtpStage, SmtpTls};
use super::{SendGrid, Ses, sendgrid, ses, txt};
use crate::accounts::health::{
    self, AccountSecret, CredentialStatus, Finding, HealthChecks, Probe,
};
use crate::deliver::Wiring;
use crate::pool::{NO_SUCH_HOST, Response};
use crate::scrub;

const NEW_SECRET: &str = "put the provider's current secret where the credential says";
const NEW_DKIM_KEY: &str = "make one: openssl genrsa -out dkim.pem 2048 (or openssl genpkey -algorithm ed25519), \
     and publish its record";

#[async_trait]
impl HealthChecks for EmailSettings {
    async fn examine(&self, probe: &Probe) -> Vec<Finding> {
        let secrets = self.secrets();
        let mut findings = match &self.carrier {
            Carrier::Smtp(relay) => {
                let ask = visit(relay, probe);
                probe.examine(&secrets, NEW_SECRET, ("relay", "the relay"), ask).await
            }
            Carrier::Ses(ses) => {
                let ask = ask_ses(ses, probe);
                probe.examine(&secrets, NEW_SECRET, ("ses", "Amazon"), ask).await
            }
            Carrier::SendGrid(sendgrid) => {
                let ask = ask_sendgrid(sendgrid, probe);
                probe.examine(&secrets, NEW_SECRET, ("sendgrid", "SendGrid"), ask).await
            }
        };
        let from = domain_of(&self.account.0.from);
        for dkim in &self.dkim {
            findings.extend(examine_dkim(dkim, from, probe).await);
        }
        if self.dkim.is_empty() && matches!(self.carrier, Carrier::Smtp(_)) {
            let why = "no key: mails are signed only if the relay does it";
            findings.push(Finding::skipped("dkim", why));
        }
        findings
    }

    fn secrets(&self) -> Vec<AccountSecret<'_>> {
        let secret = |kind, material| Some(AccountSecret { kind, check: "credential", material });
        let token =
            |material| AccountSecret { kind: "session_token", check: "session_token", material };
        let secrets = match &self.carrier {
            Carrier::Smtp(relay) => [relay.secret().and_then(|s| secret("password", s)), None],
            Carrier::Ses(ses) => {
                [secret("secret_key", &ses.secret), ses.session_token.as_ref().map(token)]
            }
            Carrier::SendGrid(sendgrid) => [secret("api_key", &sendgrid.key), None],
        };
        secrets.into_iter().flatten().collect()
    }

    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        let mut found = CredentialStatus::look_at_all(&self.secrets()).await;
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

    fn connections(&self) -> usize {
        match &self.carrier {
            Carrier::Smtp(relay) => relay.connections(),
            Carrier::Ses(_) | Carrier::SendGrid(_) => 0,
        }
    }
}

async fn visit(relay: &Relay, probe: &Probe) -> Vec<Finding> {
    let config = relay.config();
    let place = format!("{}:{}", config.host, config.port);
    match relay.check(probe.deadline()).await {
        Err(end) => vec![judge_end(&place, &config.user, &end)],
        Ok(check) => {
            let certificate = check.certificate_until.map(|until| {
                let remedy = "whoever runs the relay has to renew its certificate";
                let what = format!("certificate of {}", config.host);
                Finding::of_end("relay_certificate", &what, until, probe.now(), remedy)
            });
            let answers = judge_visit(&place, config.tls, &check);
            [answers].into_iter().chain(certificate).collect()
        }
    }
}

fn judge_visit(place: &str, tls: SmtpTls, check: &RelayCheck) -> Finding {
    let logged_in = if check.logged_in { ", login accepted" } else { "" };
    let warn = |found, remedy| Finding::warn("relay", format!("{place} answers{found}"), remedy);
    match (tls, check.certificate_until) {
        (SmtpTls::Opportunistic, None) => warn(
            format!(" without TLS{logged_in}: mails are not encrypted"),
            "set tls = \"starttls\" and a relay that offers it",
        ),
        (SmtpTls::None, _) if check.offers_tls => warn(
            format!("{logged_in}; it offers TLS, and tls = \"none\" does not use it"),
            "set tls = \"starttls\"",
        ),
        (_, until) => {
            let with_tls = if until.is_some() { " with TLS" } else { "" };
            Finding::ok("relay", format!("{place} answers{with_tls}{logged_in}"))
        }
    }
}

/// Why the relay cannot be used.
fn judge_end(place: &str, user: &str, end: &SmtpOutcome) -> Finding {
    let (found, remedy) = match end {
        SmtpOutcome::Local { detail, .. } => {
            (detail.clone(), "try again; if it lasts, raise the limit that ran out on this machine")
        }
        SmtpOutcome::Unopened { code, detail }
        | SmtpOutcome::NotSent { code, detail }
        | SmtpOutcome::Config { code, detail } => {
            let remedy = match (*code, end) {
                ("dns" | NO_SUCH_HOST, _) => "correct `host`, or this machine's DNS",
                ("connect", _) => {
                    "check that the relay runs, that `host` and `port` are right, and that the firewall lets this \
                     machine out; many networks block port 25: use 587 or 465"
                }
                ("tls", _) if health::is_about_time(detail) => {
                    "first set this machine's clock (NTP); if it is right, the relay's certificate must be renewed"
                }
                ("tls", _) => {
                    "`host` must be the name in the certificate; your own authority must be named in \
                     network.extra_ca_file; implicit TLS is port 465, starttls is 587"
                }
                ("no_starttls", _) => {
                    "set tls = \"implicit\" (port 465), or let the relay offer STARTTLS"
                }
                (_, SmtpOutcome::Config { .. }) => {
                    "compare `tls`, `user` and `oauth` with what the relay offers"
                }
                _ => {
                    "ask the relay's operator for `port` and `tls`: implicit is 465, starttls is 587"
                }
            };
            let unreachable = if *code == "connect" { "unreachable: " } else { "" };
            (format!("{unreachable}{detail}"), remedy)
        }
        SmtpOutcome::Refused(stage, reply) => {
            let words = reply.detail(user).unwrap_or_default();
            let (what, remedy) = match stage {
                SmtpStage::Auth => (
                    "refuses user and password",
                    "compare `user` with the credential; some relays need an app password or oauth = true",
                ),
                SmtpStage::Greeting => {
                    ("refuses the connection", "ask its operator to allow this machine's address")
                }
                SmtpStage::Ehlo => ("refuses our name", "set `ehlo` to this machine's full name"),
                _ => ("refuses", "ask the relay's operator"),
            };
            (format!("{what} ({} {words})", reply.code), remedy)
        }
        other => (format!("{other:?}"), "ask the relay's operator"),
    };
    Finding::fail("relay", format!("{place}: {found}"), remedy)
}

async fn examine_dkim(dkim: &DkimSettings, from: &str, probe: &Probe) -> Vec<Finding> {
    let check = format!("dkim.{}", dkim.selector);
    let (key, finding) = health::read(&check, &dkim.key, NEW_DKIM_KEY).await;
    let Some(key) = key else { return vec![finding] };
    let mut findings = vec![finding];
    findings.extend(judge_alignment(&check, &dkim.domain, from));
    findings.push(examine_record(&format!("{check}.record"), dkim, &key, probe).await);
    findings
}

/// DMARC needs the signature's domain to be the sender's, or one of them to be below the other.
fn judge_alignment(check: &str, domain: &str, from: &str) -> Option<Finding> {
    let (domain, from) = (domain.to_ascii_lowercase(), from.to_ascii_lowercase());
    let under = |a: &str, b: &str| a.strip_suffix(b).is_some_and(|rest| rest.ends_with('.'));
    let aligned = domain == from || under(&domain, &from) || under(&from, &domain);
    (!aligned).then(|| {
        let found = format!("signs for {domain}, but mails are from {from}: DMARC ignores it");
        Finding::warn(check, found, format!("set the key's domain to {from}, or leave it out"))
    })
}

/// Compares the published key with ours.
async fn examine_record(check: &str, dkim: &DkimSettings, key: &DkimKey, probe: &Probe) -> Finding {
    let own = match key.record() {
        Ok(own) => own,
        Err(error) => return Finding::fail(check, error.to_string(), NEW_DKIM_KEY),
    };
    let place = format!("{}._domainkey.{}", dkim.selector, dkim.domain);
    let system =
        || txt::server_of(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    let found = match (probe.offline, probe.resolver.or_else(system)) {
        (true, _) => Err("--offline".to_owned()),
        (false, None) => Err("this machine has no name server".to_owned()),
        (false, Some(server)) => txt::look_up(server, &place, probe.deadline()).await,
    };
    judge_record(check, &place, &own, found.as_deref().map_err(String::as_str))
}

fn judge_record(check: &str, place: &str, own: &str, found: Result<&[String], &str>) -> Finding {
    let public_key = |record: &str| {
        let mut tags = record.split(';').filter_map(|tag| tag.split_once('='));
        let (_, key) = tags.find(|(name, _)| name.trim() == "p")?;
        Some(key.split_whitespace().collect::<String>())
    };
    let records = match found {
        Ok(records) => records,
        Err(why) => {
            let found = format!("DNS was not asked ({why}); compare: TXT {place} must be {own}");
            return Finding::skipped(check, found);
        }
    };
    let published: Vec<String> = records.iter().filter_map(|record| public_key(record)).collect();
    let problem = if published.contains(&public_key(own).unwrap_or_default()) {
        return Finding::ok(check, format!("{place} publishes this key"));
    } else if published.is_empty() {
        "publishes no key: no signature can be verified"
    } else if published.iter().any(String::is_empty) {
        "says that the key was revoked"
    } else {
        "publishes another key than this one"
    };
    let publish = format!("publish this TXT record at {place}: {own}");
    Finding::fail(check, format!("{place} {problem}"), publish)
}

async fn ask_ses(ses: &Ses, probe: &Probe) -> Vec<Finding> {
    let Ok(keys) = ses.keys().await else { return Vec::new() };
    let url = format!("{}{}", ses.endpoint, ses::ACCOUNT);
    let host = health::host(&ses.endpoint);
    let request = ses.request(&keys, ses::ACCOUNT, host, Vec::new(), probe.now());
    let judge = |response: &Response, body: &Value| {
        let code = scrub::hide(ses::code(response).unwrap_or_default(), &[&keys.secret]);
        judge_ses(response.status.as_u16(), &code, body)
    };
    vec![probe.ask_json("ses", &url, request, judge).await]
}

fn judge_ses(status: u16, code: &str, body: &Value) -> Finding {
    let says = |words: &str| code.to_ascii_lowercase().contains(words);
    match status {
        200 if body["SendingEnabled"] == false => Finding::fail(
            "ses",
            "Amazon has turned off sending for this account",
            "look at the reputation in the SES console, and at the e-mails that Amazon sent about it",
        ),
        200 if body["ProductionAccessEnabled"] == false => Finding::warn(
            "ses",
            "the account is in SES's sandbox: only verified addresses get mail",
            "ask for production access in the SES console",
        ),
        200 => Finding::ok("ses", "Amazon knows the key, and sending is on"),
        401 | 403 if says("expired") || says("not yet current") => Finding::fail(
            "ses",
            format!("this machine's clock is wrong, or the session token has expired ({code})"),
            "set this machine's clock (NTP), or renew the session token",
        ),
        403 if says("accessdenied") || says("not authorized") => Finding::warn(
            "ses",
            "Amazon knows the key, but the key may not read the account: sending was not checked",
            "to have this checked, allow ses:GetAccount beside ses:SendEmail in the key's policy",
        ),
        401 | 403 => Finding::fail(
            "ses",
            format!("Amazon refuses the key ({code})"),
            "compare key_id with the secret, and region with the SES console; replace a deleted key",
        ),
        _ => unsure("ses", "Amazon", status, code),
    }
}

async fn ask_sendgrid(sendgrid: &SendGrid, probe: &Probe) -> Vec<Finding> {
    let Ok(key) = sendgrid.key.get().await else { return Vec::new() };
    let url = format!("{}{}", sendgrid.endpoint, sendgrid::SCOPES);
    let request = sendgrid::request(Method::GET, &key, Vec::new());
    let judge = |response: &Response, body: &Value| {
        let code = sendgrid::code(response).unwrap_or_default();
        judge_sendgrid(response.status.as_u16(), &code, body)
    };
    vec![probe.ask_json("sendgrid", &url, request, judge).await]
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
    let found = format!("{who} gave no clear answer: {status} {code}");
    Finding::warn(check, found, "try again; then look at the provider's status page")
}

#[cfg(test)]
mod tests;
