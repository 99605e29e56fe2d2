//! An SMPP 3.4 client for one message centre: one connection, bound as a transceiver, with a window of messages in
//! flight. Passes receipts on and does not act on them.

mod link;
mod pdu;
pub(super) mod probe;

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};

pub use pdu::{SmppReceipt, submit};

use crate::accounts::Material;
use crate::call_clock;
use crate::pool::TransportError;
use crate::pool::connect::{dial, encrypt};
use link::{LinkError, SmppLink};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For this long after a failed connect, callers get the same error without another try.
const FAILURE_REPEATED_FOR: Duration = Duration::from_secs(1);
/// ESME_RINVBNDSTS: the message centre has lost our bind.
const NOT_BOUND: u32 = 0x04;

#[derive(Debug, Clone)]
pub struct SmscConfig {
    pub host: String,
    pub port: u16,
    /// Encrypted, with the certificate of `host`.
    pub tls: bool,
    pub system_id: String,
    pub system_type: String,
    pub window: usize,
}

/// How one message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmscOutcome {
    /// Accepted, with the message centre's id.
    Accepted(Option<String>),
    /// By its command status.
    Refused(u32),
    /// We ran out of something: nobody else is to blame.
    Local {
        code: &'static str,
        detail: String,
    },
    /// No connection could be opened.
    Unopened {
        code: &'static str,
        detail: String,
    },
    NotSent {
        code: &'static str,
        detail: String,
    },
    /// It was sent, and no answer came.
    Unknown(&'static str),
}

type OnReceipt = Arc<dyn Fn(SmppReceipt) + Send + Sync>;

pub struct Smsc {
    config: SmscConfig,
    password: Material<String>,
    places: Semaphore,
    connection: Mutex<SmscConnection>,
    /// The last link, for those who only look.
    last_link: RwLock<Weak<SmppLink>>,
    on_receipt: OnReceipt,
    /// Which certificates are trusted.
    trust: OnceLock<Arc<ClientConfig>>,
}

/// The connection to the message centre, or when and why the last connect failed.
#[derive(Default)]
struct SmscConnection {
    link: Option<Arc<SmppLink>>,
    failure: Option<(Instant, SmscOutcome)>,
}

impl SmscConnection {
    /// The last failure, for callers that began before it; an unreachable message centre also for a moment after it.
    fn failure_for(&self, asked: Instant) -> Option<SmscOutcome> {
        let (at, end) = self.failure.as_ref()?;
        let unreached = matches!(end, SmscOutcome::NotSent { .. } | SmscOutcome::Unopened { .. })
            && at.elapsed() < FAILURE_REPEATED_FOR;
        (*at >= asked || unreached).then(|| end.clone())
    }
}

impl Smsc {
    pub fn new(config: SmscConfig, password: Material<String>, on_receipt: OnReceipt) -> Self {
        let places = Semaphore::new(config.window.max(1));
        let (connection, trust) = (Mutex::default(), OnceLock::new());
        let last_link = RwLock::default();
        Self { config, password, places, connection, last_link, on_receipt, trust }
    }

    /// Uses these certificates, if the message centre is reached by TLS. The first call counts.
    pub fn trust(&self, tls: impl FnOnce() -> Arc<ClientConfig>) {
        if self.config.tls {
            self.trust.get_or_init(tls);
        }
    }

    /// Sends one message, which is built when the window has room. `None` means that it is no longer wanted.
    pub async fn send(
        &self,
        deadline: Instant,
        submit: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<SmscOutcome> {
        let busy = || SmscOutcome::Local { code: "busy", detail: "the window was full".to_owned() };
        let asked = Instant::now();
        let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else {
            return Some(busy());
        };
        let link = match timeout_at(deadline, self.link(asked)).await {
            Ok(Ok(link)) => link,
            Ok(Err(end)) => return Some(end),
            Err(_) => return Some(busy()),
        };
        let body = submit()?;
        call_clock::mark_written();
        let end = match link.ask(pdu::SUBMIT_SM, body, deadline).await {
            Ok(answer) if answer.status == 0 => {
                let password = self.password.kept().map(|text| text.as_str().to_owned());
                let repeats = |id: &String| password.as_ref().is_some_and(|word| id.contains(word));
                SmscOutcome::Accepted(pdu::text(&answer.body).filter(|id| !repeats(id)))
            }
            Ok(answer) => {
                if answer.status == NOT_BOUND {
                    link.close();
                }
                SmscOutcome::Refused(answer.status)
            }
            Err(LinkError::BeforeWrite) => SmscOutcome::NotSent {
                code: "reset",
                detail: "the message centre closed the connection".to_owned(),
            },
            Err(LinkError::Closed) => SmscOutcome::Unknown("reset"),
            Err(LinkError::Timeout) => {
                // A message centre that does not answer counts as dead.
                link.close();
                SmscOutcome::Unknown("timeout")
            }
        };
        Some(end)
    }

    /// 1 while it is connected.
    pub fn connections(&self) -> usize {
        let last = self.last_link.read().unwrap_or_else(PoisonError::into_inner).upgrade();
        usize::from(last.is_some_and(|link| link.is_usable()))
    }

    async fn link(&self, asked: Instant) -> Result<Arc<SmppLink>, SmscOutcome> {
        let mut connection = self.connection.lock().await;
        if let Some(link) = connection.link.as_ref().filter(|link| link.is_usable()) {
            return Ok(link.clone());
        }
        if let Some(end) = connection.failure_for(asked) {
            return Err(end);
        }
        let bound = self.bind().await;
        connection.link = bound.as_ref().ok().cloned();
        *self.last_link.write().unwrap_or_else(PoisonError::into_inner) =
            connection.link.as_ref().map_or_else(Weak::new, Arc::downgrade);
        connection.failure = bound.as_ref().err().map(|end| (Instant::now(), end.clone()));
        bound
    }

    async fn bind(&self) -> Result<Arc<SmppLink>, SmscOutcome> {
        let config = &self.config;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let password = self.password.get().await;
        let password = password
            .map_err(|detail| SmscOutcome::NotSent { code: "credential_missing", detail })?;
        let tcp = dial(&config.host, config.port, true, deadline).await.map_err(unopened)?;
        let link = if config.tls {
            let trust = self.trust.get().ok_or_else(|| SmscOutcome::NotSent {
                code: "tls",
                detail: "no certificates are known to be trusted".to_owned(),
            })?;
            let left = deadline.saturating_duration_since(Instant::now());
            let stream = encrypt(tcp, &config.host, left, trust).await.map_err(unopened)?;
            let (reader, writer) = tokio::io::split(stream);
            SmppLink::start(reader, writer, self.on_receipt.clone())
        } else {
            let (reader, writer) = tcp.into_split();
            SmppLink::start(reader, writer, self.on_receipt.clone())
        };
        let body = pdu::bind(&config.system_id, &password, &config.system_type);
        match link.ask(pdu::BIND_TRANSCEIVER, body, deadline).await {
            Ok(answer) if answer.status == 0 => Ok(link),
            Ok(answer) => {
                // The password may have changed: the next bind reads it again.
                self.password.forget();
                link.close();
                Err(SmscOutcome::Refused(answer.status))
            }
            Err(_) => {
                link.close();
                let detail = "the message centre did not answer to the bind".to_owned();
                Err(SmscOutcome::NotSent { code: "connect", detail })
            }
        }
    }
}

fn unopened(error: TransportError) -> SmscOutcome {
    match error {
        TransportError::Local { code, detail } => SmscOutcome::Local { code, detail },
        TransportError::Unopened { code, detail, .. } => SmscOutcome::Unopened { code, detail },
        other => SmscOutcome::Unopened { code: "connect", detail: format!("{other:?}") },
    }
}
