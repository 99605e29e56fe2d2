//! Checks accounts without sending a message: whether the credential can be read, whether the provider accepts
//! it, and when it expires. Each channel implements [`HealthChecks`]; callers use [`AccountHealth`]. Holds and
//! repairs nothing.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::policy::validity::Validity;
use postrider_core::{ChannelKind, Timestamp};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{Account, AccountListing, Accounts, Material};
use crate::deliver::Wiring;
use crate::pool::{Request, Response, TransportError};

/// Ordered from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Skipped,
    Warn,
    Fail,
}

/// What one check found, and what helps. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: String,
    pub verdict: Verdict,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self { check: check.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    /// A check that was not made, and why.
    pub fn skipped(check: impl Into<String>, why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped, ..Self::ok(check, why) }
    }

    pub fn warn(
        check: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { verdict: Verdict::Warn, remedy, ..Self::ok(check, found) }
    }

    pub fn fail(
        check: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, found, remedy) }
    }

    /// Judges an expiry date by the time that is left.
    pub fn of_end(check: &str, what: &str, ends: Timestamp, now: Timestamp, remedy: &str) -> Self {
        let days = ends.since(now).as_secs() / 86_400;
        match Validity::at(now, ends) {
            Validity::Ample => Self::ok(check, format!("{what}, good until {ends}")),
            Validity::Ending { .. } => {
                Self::warn(check, format!("{what}, ends in {days} days, on {ends}"), remedy)
            }
            Validity::Over => Self::fail(check, format!("{what}, expired on {ends}"), remedy),
        }
    }
}

/// What a check of an account needs.
pub struct Probe {
    pub wiring: Wiring,
    /// No network calls are made.
    pub offline: bool,
    /// The name server to ask; the system's first if absent.
    pub resolver: Option<std::net::SocketAddr>,
}

impl Probe {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.wiring.attempt_timeout
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.wiring.clock.wall()
    }

    /// Makes one call that changes nothing at the provider.
    pub(crate) async fn ask(
        &self,
        check: &str,
        url: &str,
        request: Request,
    ) -> Result<Response, Finding> {
        let answer = self.wiring.pool.send(url, request, self.deadline()).await;
        answer.map_err(|error| unreachable(check, host(url), &error))
    }

    /// The same, with the answer judged by its JSON.
    pub(crate) async fn ask_json(
        &self,
        check: &str,
        url: &str,
        request: Request,
        judge: impl FnOnce(&Response, &Value) -> Finding,
    ) -> Finding {
        match self.ask(check, url, request).await {
            Ok(response) => {
                let body = serde_json::from_slice(&response.body).unwrap_or_default();
                judge(&response, &body)
            }
            Err(finding) => finding,
        }
    }

    /// Reads the secrets, then asks the provider. Does not ask if a secret cannot be read or if no network calls are
    /// allowed; `check` and `provider` name what was not asked.
    pub(crate) async fn examine(
        &self,
        secrets: &[AccountSecret<'_>],
        remedy: &str,
        (check, provider): (&str, &str),
        ask: impl Future<Output = Vec<Finding>> + Send,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for secret in secrets {
            let (value, finding) = read(secret.check, secret.material, remedy).await;
            findings.push(finding);
            if value.is_none() {
                return findings;
            }
        }
        match self.offline {
            true => findings
                .push(Finding::skipped(check, format!("{provider} is not asked: --offline"))),
            false => findings.extend(ask.await),
        }
        findings
    }
}

/// A password, API key or token of an account.
#[derive(Clone, Copy)]
pub struct AccountSecret<'a> {
    /// For its status.
    pub kind: &'static str,
    /// The check that reads it.
    pub check: &'static str,
    pub material: &'a Material<String>,
}

/// The state of a credential at the last check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialStatus {
    pub kind: &'static str,
    /// Known only if the credential contains it.
    pub expires_at: Option<Timestamp>,
    /// Why it cannot be used; names the reference, never the secret.
    pub problem: Option<String>,
    /// It was replaced since the last check.
    pub replaced: bool,
}

impl CredentialStatus {
    /// Reads the secret again.
    pub(crate) async fn look<T: Send + Sync + 'static>(
        kind: &'static str,
        material: &Material<T>,
    ) -> (Self, Option<Arc<T>>) {
        match material.refresh().await {
            Ok((made, replaced)) => (Self { kind, replaced, ..Self::default() }, Some(made)),
            Err(why) => (Self { kind, problem: Some(why), ..Self::default() }, None),
        }
    }

    pub(crate) async fn look_at_all(secrets: &[AccountSecret<'_>]) -> Vec<Self> {
        let mut found = Vec::with_capacity(secrets.len());
        for secret in secrets {
            found.push(Self::look(secret.kind, secret.material).await.0);
        }
        found
    }
}

/// The checks that a channel makes for one account.
#[async_trait]
pub trait HealthChecks: Send + Sync {
    async fn examine(&self, probe: &Probe) -> Vec<Finding>;

    /// The secrets that are used as they are read.
    fn secrets(&self) -> Vec<AccountSecret<'_>> {
        Vec::new()
    }

    /// Reads every credential again. Makes no network calls except for access tokens.
    async fn watch(&self, _: &Wiring) -> Vec<CredentialStatus> {
        CredentialStatus::look_at_all(&self.secrets()).await
    }

    /// The HTTPS origins that the account uses, `https://host[:port]`; their clocks can be compared with ours.
    fn origins(&self) -> Vec<String>;

    /// Open connections of the account's own, which no pool counts.
    fn connections(&self) -> usize {
        0
    }
}

/// A credential of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialView {
    pub account: Arc<str>,
    pub channel: ChannelKind,
    pub credential: CredentialStatus,
}

/// An account that can be examined.
#[derive(Debug, Clone)]
pub struct AccountToCheck {
    pub name: Arc<str>,
    pub channel: ChannelKind,
    /// See [`HealthChecks::origins`].
    pub origins: Vec<String>,
}

/// The health of a channel's accounts, whatever their settings are.
#[async_trait]
pub trait AccountHealth: AccountListing {
    fn accounts_to_check(&self) -> Vec<AccountToCheck>;

    /// All findings about one account; none if the name is unknown.
    async fn examine(&self, name: &str, probe: &Probe) -> Vec<Finding>;

    /// Reads all credentials again. An account whose credential was replaced is tried again.
    async fn watch(&self, wiring: &Wiring) -> Vec<CredentialView>;

    /// The accounts with open connections of their own, and how many: to mail relays and message centres.
    fn connections(&self) -> Vec<(ChannelKind, Arc<str>, usize)>;
}

#[async_trait]
impl<C: HealthChecks> AccountHealth for Accounts<C> {
    fn connections(&self) -> Vec<(ChannelKind, Arc<str>, usize)> {
        let open = |account: &Arc<Account<C>>| {
            let count = account.settings.connections();
            (count > 0).then(|| (self.kind, account.name.clone(), count))
        };
        self.iter().filter_map(open).collect()
    }

    fn accounts_to_check(&self) -> Vec<AccountToCheck> {
        let account = |account: &Arc<Account<C>>| AccountToCheck {
            name: account.name.clone(),
            channel: self.kind,
            origins: account.settings.origins(),
        };
        self.iter().map(account).collect()
    }

    async fn examine(&self, name: &str, probe: &Probe) -> Vec<Finding> {
        match self.iter().find(|account| &*account.name == name) {
            Some(account) => account.settings.examine(probe).await,
            None => Vec::new(),
        }
    }

    async fn watch(&self, wiring: &Wiring) -> Vec<CredentialView> {
        let mut views = Vec::new();
        for account in self.iter() {
            let credentials = account.settings.watch(wiring).await;
            if credentials.iter().any(|credential| credential.replaced) {
                account.renewed();
            }
            views.extend(credentials.into_iter().map(|credential| CredentialView {
                account: account.name.clone(),
                channel: self.kind,
                credential,
            }));
        }
        views
    }
}

/// Reads a secret. Returns its value and a finding. `remedy` helps if the secret can be read but not used.
pub(crate) async fn read<T: Send + Sync + 'static>(
    check: &str,
    material: &Material<T>,
    remedy: &str,
) -> (Option<Arc<T>>, Finding) {
    match material.get().await {
        Err(why) => {
            let remedy = why_unreadable(&why).unwrap_or(remedy);
            (None, Finding::fail(check, why, remedy))
        }
        Ok(made) => {
            let reference = material.reference();
            let finding = match reference.is_open_to_all() {
                false => Finding::ok(check, format!("{reference} was read")),
                true => Finding::warn(
                    check,
                    format!("{reference} can be read by every user of this machine"),
                    "take the rights away: chmod 600, or 640 with the server's group",
                ),
            };
            (Some(made), finding)
        }
    }
}

/// The remedy for a secret that cannot be read.
fn why_unreadable(why: &str) -> Option<&'static str> {
    let known = [
        ("is not set", "set the variable in the server's environment, also in its service file"),
        ("cannot be run", "install the program, or correct its path"),
        ("entity not found", "put the file there, or correct the path"),
        ("permission denied", "let the user that the server runs as read the file"),
        ("is empty", "put the secret there: what was found is empty"),
        ("ended with", "run the command by hand as the server's user and see what it says"),
        ("gave no answer", "the command must print the secret within 10 s"),
        ("printed no text", "the command must print the secret as text"),
    ];
    known.iter().find(|(words, _)| why.contains(words)).map(|(_, remedy)| *remedy)
}

/// The finding for a provider that gave no answer.
pub(crate) fn unreachable(check: &str, host: &str, error: &TransportError) -> Finding {
    let (found, remedy) = match error {
        TransportError::Local { detail, .. } => {
            (detail.clone(), "try again; if it lasts, raise the limit that ran out on this machine")
        }
        TransportError::Unopened { code, detail, .. }
        | TransportError::NotSent { code, detail } => {
            let remedy = match *code {
                "dns" => "check the name and this machine's DNS",
                "tls" if is_about_time(detail) => {
                    "first set this machine's clock (NTP): certificates are checked with it"
                }
                "tls" => {
                    "if a proxy or your own authority signs the certificate, name it in network.extra_ca_file"
                }
                _ => {
                    "let this machine reach it: check the firewall and the proxy, or the provider is down"
                }
            };
            (detail.clone(), remedy)
        }
        TransportError::Blocked { code } => (
            format!("not allowed by the network settings ({code})"),
            "an endpoint in your own network needs network.allow_private_targets, plain HTTP needs network.allow_plain_http",
        ),
        TransportError::BadUrl(error) => (
            format!("not a URL that can be called: {} is needed", error.allowed()),
            "correct the account's endpoint",
        ),
        TransportError::Replay { code } | TransportError::Ambiguous { code } => (
            format!("the call broke off ({code})"),
            "try again; then look at the provider's status page",
        ),
    };
    Finding::fail(check, format!("{host}: {found}"), remedy)
}

pub(crate) fn is_about_time(detail: &str) -> bool {
    detail.contains("has expired") || detail.contains("not valid yet")
}

/// The host of a URL, for display.
pub(crate) fn host(url: &str) -> &str {
    url.split("://").nth(1).unwrap_or(url).split('/').next().unwrap_or_default()
}

/// `https://host[:port]` of a URL; none if the text is not a URL.
pub(crate) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::SecretRef;

    #[tokio::test]
    async fn a_reference_that_leads_nowhere_is_named_with_its_remedy_and_without_the_secret() {
        let text = |t: &str| Ok(t.to_owned());
        for (reference, words) in [
            ("env:POSTRIDER_SURELY_NOT_SET", "environment"),
            ("file:/surely/not/there", "path"),
            ("command:false", "by hand"),
            ("command:/surely/not/there", "install"),
        ] {
            let material = Material::<String>::new(SecretRef::parse(reference).unwrap(), text);
            let (none, finding) = read("credential", &material, "-").await;
            assert!(none.is_none() && finding.found.starts_with(reference), "{finding:?}");
            assert!(finding.remedy.unwrap().contains(words), "{reference}");
        }
        let bad = |_: &str| Err::<String, _>("not a key".to_owned());
        let material = Material::new(SecretRef::parse("env:PATH").unwrap(), bad);
        let (_, finding) = read("credential", &material, "make a new key").await;
        assert_eq!(finding.remedy.as_deref(), Some("make a new key"));
        assert_eq!(finding.found, "env:PATH: not a key");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_secret_that_everybody_can_read_is_a_warning() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret").unwrap();
        let reference = SecretRef::parse(&format!("file:{}", file.path().display())).unwrap();
        for (mode, verdict) in [(0o600, Verdict::Ok), (0o640, Verdict::Ok), (0o644, Verdict::Warn)]
        {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), rights).unwrap();
            let material = Material::<String>::new(reference.clone(), |t| Ok(t.to_owned()));
            let (_, finding) = read("credential", &material, "-").await;
            assert_eq!(finding.verdict, verdict, "{mode:o}");
            assert!(!finding.found.contains("s3cret"));
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_ample_near_or_over() {
        let end = Timestamp(1_800_000_000_000);
        let at = |days: i64| {
            Finding::of_end("certificate", "it", end, Timestamp(end.0 - days * 86_400_000), "-")
                .verdict
        };
        assert_eq!((at(31), at(29), at(0)), (Verdict::Ok, Verdict::Warn, Verdict::Fail));
    }

    #[test]
    fn a_certificate_that_is_out_of_time_makes_one_look_at_the_clock() {
        let not_sent = |code, detail: &str| TransportError::unopened(code, detail);
        for (error, words) in [
            (not_sent("tls", "the certificate is not valid yet"), "clock"),
            (not_sent("tls", "the certificate's issuer is not trusted"), "extra_ca_file"),
            (not_sent("dns", "the name could not be resolved"), "DNS"),
            (not_sent("connect", "connection refused"), "firewall"),
            (TransportError::Blocked { code: "private_address" }, "allow_private_targets"),
        ] {
            let finding = unreachable("token", "host", &error);
            assert!(finding.remedy.unwrap().contains(words), "{error:?}");
        }
    }

    #[test]
    fn an_origin_is_what_stands_before_the_path() {
        assert_eq!(origin("https://a.example:1/x/y").as_deref(), Some("https://a.example:1"));
        assert_eq!((origin("a.example"), host("https://a.example/x")), (None, "a.example"));
    }
}
