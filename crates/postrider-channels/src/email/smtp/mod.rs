//! An SMTP client for one relay: a few sessions, each used for many mails. Stores no mail, retries nothing, and
//! looks up no MX records.

mod reply;
mod session;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use postrider_core::Timestamp;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use reply::{EnhancedStatus, SmtpReply, SmtpStage};
pub use session::SmtpOutcome;
pub use wire::{OutgoingMail, SmtpExtensions};

use crate::accounts::Material;
use crate::call_clock;
use crate::open_connections::OpenConnections;
use crate::pool::TransportError;
use crate::pool::connect::{Io, dial, encrypt};
use crate::x509::Certificate;
use session::Session;

/// For this long after a failed connect, callers get the same error without another try.
const FAILURE_REPEATED_FOR: Duration = Duration::from_secs(1);
const IDLE_CHECK: Duration = Duration::from_secs(5);
const IDLE_MAX: Duration = Duration::from_secs(30);
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// When and how a session uses TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmtpTls {
    /// From the first byte; port 465.
    Implicit,
    /// By STARTTLS, or not at all; port 587.
    #[default]
    StartTls,
    /// By STARTTLS where the server offers it; port 25.
    Opportunistic,
    /// Never: for a relay on this machine.
    None,
}

/// How to reach and use one relay.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    pub host: String,
    pub port: u16,
    pub tls: SmtpTls,
    /// Empty for a relay without login.
    pub user: String,
    /// The secret is an OAuth access token (`XOAUTH2`), not a password.
    pub oauth: bool,
    /// Our name in EHLO; our own IP address if empty.
    pub ehlo: String,
    pub connections_max: usize,
    pub mails_per_connection_max: u32,
    /// From the first byte of a mail to the server's acceptance.
    pub final_dot_timeout: Duration,
}

impl RelayConfig {
    pub fn new(host: &str, port: u16, tls: SmtpTls) -> Self {
        Self {
            host: host.to_owned(),
            port,
            tls,
            user: String::new(),
            oauth: false,
            ehlo: String::new(),
            connections_max: 5,
            mails_per_connection_max: 100,
            final_dot_timeout: Duration::from_secs(60),
        }
    }
}

/// What a session without a mail shows of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayCheck {
    /// The end of its certificate; none without TLS.
    pub certificate_until: Option<Timestamp>,
    pub logged_in: bool,
    pub offers_tls: bool,
}

pub struct Relay {
    config: RelayConfig,
    secret: Option<Material<String>>,
    tls: Arc<ClientConfig>,
    places: Semaphore,
    idle: Mutex<IdleSessions>,
    open: OpenConnections,
}

#[derive(Default)]
struct IdleSessions {
    sessions: Vec<Session>,
    /// A task closes the unused ones.
    watched: bool,
    last_failure: Option<(Instant, SmtpOutcome)>,
}

impl Relay {
    pub fn new(
        config: RelayConfig,
        secret: Option<Material<String>>,
        tls: Arc<ClientConfig>,
    ) -> Arc<Self> {
        let places = Semaphore::new(config.connections_max.max(1));
        let (idle, open) = (Mutex::default(), OpenConnections::default());
        Arc::new(Self { config, secret, tls, places, idle, open })
    }

    pub fn config(&self) -> &RelayConfig {
        &self.config
    }

    /// Sends one mail, which is built when a session is ready. `None` means that it is no longer wanted.
    pub async fn send(
        self: &Arc<Self>,
        deadline: Instant,
        outgoing: impl FnOnce() -> Option<OutgoingMail>,
    ) -> Option<SmtpOutcome> {
        let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else {
            let detail = "no connection to the relay was free in time".to_owned();
            return Some(SmtpOutcome::Local { code: "busy", detail });
        };
        let mut session = match self.session(deadline).await {
            Ok(session) => session,
            Err(end) => return Some(end),
        };
        let Some(outgoing) = outgoing() else {
            self.put_back(session);
            return None;
        };
        call_clock::mark_written();
        let end = session.send(&outgoing, &self.config, deadline).await;
        self.put_back(session);
        Some(end)
    }

    /// Opens a session of its own, logs in and quits, without a mail.
    pub async fn check(&self, deadline: Instant) -> Result<RelayCheck, SmtpOutcome> {
        let session = self.open(deadline).await?;
        let check = RelayCheck {
            certificate_until: session.certificate_until,
            logged_in: self.secret.is_some(),
            offers_tls: session.server.starttls,
        };
        session.quit().await;
        Ok(check)
    }

    /// Connections that are open, in use or not.
    pub(crate) fn connections(&self) -> usize {
        self.open.count()
    }

    /// The password or token to log in with, if the relay has one.
    pub(crate) fn secret(&self) -> Option<&Material<String>> {
        self.secret.as_ref()
    }

    async fn session(&self, deadline: Instant) -> Result<Session, SmtpOutcome> {
        if let Some(session) = self.lock().sessions.pop().filter(|s| self.is_usable(s)) {
            return Ok(session);
        }
        let failure = self.lock().last_failure.clone();
        if let Some((_, end)) = failure.filter(|(at, _)| at.elapsed() < FAILURE_REPEATED_FOR) {
            return Err(end);
        }
        let opened = self.open(deadline).await;
        // Only a failed connect is repeated to other callers. A refusal may concern this mail alone.
        let repeats = |end: &&SmtpOutcome| {
            matches!(end, SmtpOutcome::NotSent { .. } | SmtpOutcome::Unopened { .. })
        };
        let failure = opened.as_ref().err().filter(repeats);
        self.lock().last_failure = failure.map(|end| (Instant::now(), end.clone()));
        opened
    }

    async fn open(&self, deadline: Instant) -> Result<Session, SmtpOutcome> {
        let config = &self.config;
        let by = deadline.min(Instant::now() + CONNECT_TIMEOUT);
        // The operator chose the relay, so it may have a private address.
        let tcp = dial(&config.host, config.port, true, by).await.map_err(unopened)?;
        let name = match tcp.local_addr() {
            _ if !config.ehlo.is_empty() => config.ehlo.clone(),
            Ok(own) if own.is_ipv6() => format!("[IPv6:{}]", own.ip()),
            Ok(own) => format!("[{}]", own.ip()),
            Err(_) => "localhost".to_owned(),
        };
        let implicit = config.tls == SmtpTls::Implicit;
        let (stream, until): (Box<dyn Io>, _) = match implicit {
            true => self.encrypt(tcp).await?,
            false => (Box::new(tcp), None),
        };
        let mut session = Session::new(stream, until, deadline, self.open.open());
        session.greet().await?;
        session.ehlo(&name).await?;
        let upgrade = !implicit && self.wants_tls(&session)?;
        if upgrade {
            let (stream, until) = self.encrypt(session.start_tls().await?).await?;
            session = Session::new(stream, until, deadline, self.open.open());
            session.ehlo(&name).await?;
        }
        self.log_in(&mut session, implicit || upgrade).await?;
        Ok(session)
    }

    fn wants_tls(&self, session: &Session) -> Result<bool, SmtpOutcome> {
        match (self.config.tls, session.server.starttls) {
            (SmtpTls::None | SmtpTls::Implicit, _) | (SmtpTls::Opportunistic, false) => Ok(false),
            (SmtpTls::StartTls | SmtpTls::Opportunistic, true) => Ok(true),
            (SmtpTls::StartTls, false) => Err(SmtpOutcome::Config {
                code: "no_starttls",
                detail: "the relay does not offer STARTTLS, and tls = \"starttls\" asks for it"
                    .to_owned(),
            }),
        }
    }

    /// The encrypted stream, and the end of the relay's certificate.
    async fn encrypt(
        &self,
        stream: impl Io + 'static,
    ) -> Result<(Box<dyn Io>, Option<Timestamp>), SmtpOutcome> {
        match encrypt(stream, &self.config.host, CONNECT_TIMEOUT, &self.tls).await {
            Ok(stream) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let until = shown.and_then(|der| Certificate::read(der)).map(|c| c.not_after);
                Ok((Box::new(stream), until))
            }
            // The mail must be encrypted, and another try gets the same certificate.
            Err(TransportError::Unopened { detail, .. }) if detail.contains("certificate") => {
                Err(SmtpOutcome::Config { code: "tls", detail })
            }
            Err(error) => Err(unopened(error)),
        }
    }

    async fn log_in(&self, session: &mut Session, is_encrypted: bool) -> Result<(), SmtpOutcome> {
        let (user, Some(secret)) = (&self.config.user, &self.secret) else { return Ok(()) };
        if !is_encrypted && self.config.tls != SmtpTls::None {
            return Err(SmtpOutcome::Config {
                code: "auth_in_the_clear",
                detail: "the relay offers no TLS: a password is not sent unencrypted".to_owned(),
            });
        }
        let known = secret.get().await;
        let known =
            known.map_err(|detail| SmtpOutcome::Config { code: "credential_missing", detail })?;
        let logged_in = session.log_in(user, &known, self.config.oauth).await;
        let Err(SmtpOutcome::Refused(SmtpStage::Auth, refused)) = &logged_in else {
            return logged_in;
        };
        // Tokens expire after an hour and passwords change: the cached secret may be old.
        let renewed = secret.refresh().await.ok().filter(|_| refused.code != 421);
        let again = match renewed {
            Some((other, _)) if other != known => {
                session.log_in(user, &other, self.config.oauth).await
            }
            _ => logged_in,
        };
        again.inspect_err(|_| secret.forget())
    }

    fn is_usable(&self, session: &Session) -> bool {
        !session.over
            && session.mails < self.config.mails_per_connection_max
            && session.born.elapsed() < CONNECTION_AGE_MAX
            && session.last_used.elapsed() < IDLE_MAX
    }

    fn put_back(self: &Arc<Self>, session: Session) {
        if !self.is_usable(&session) {
            if !session.over {
                tokio::spawn(session.quit());
            }
            return;
        }
        let mut idle = self.lock();
        idle.sessions.push(session);
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, IdleSessions> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the sessions that are too old to use, and returns whether others are left.
    fn take_old(&self) -> (Vec<Session>, bool) {
        let mut idle = self.lock();
        let old = idle.sessions.extract_if(.., |session| !self.is_usable(session)).collect();
        idle.watched = !idle.sessions.is_empty();
        (old, idle.watched)
    }
}

/// Quits unused sessions until none is left.
async fn watch(relay: std::sync::Weak<Relay>) {
    loop {
        tokio::time::sleep(IDLE_CHECK).await;
        let Some(relay) = relay.upgrade() else { return };
        let (old, more) = relay.take_old();
        for session in old {
            session.quit().await;
        }
        if !more {
            return;
        }
    }
}

fn unopened(error: TransportError) -> SmtpOutcome {
    match error {
        TransportError::Local { code, detail } => SmtpOutcome::Local { code, detail },
        TransportError::Unopened { code, detail, .. } => SmtpOutcome::Unopened { code, detail },
        other => SmtpOutcome::Unopened { code: "connect", detail: format!("{other:?}") },
    }
}
