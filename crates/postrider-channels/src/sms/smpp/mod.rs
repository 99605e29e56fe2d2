//! A message centre spoken to in SMPP 3.4: one connection, bound as a transceiver, with a window of
//! messages on their way. Receipts are read and handed on; what they lead to is not decided here.

mod pdu;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

pub use pdu::Receipt;

use crate::accounts::Material;
use crate::pool::TransportError;
use crate::pool::connect::dial;
use pdu::Pdu;

const ENQUIRE_EVERY: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct SmscConfig {
    pub host: String,
    pub port: u16,
    pub system_id: String,
    pub system_type: String,
    pub window: usize,
}

/// How one message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Taken; what the message centre calls it.
    Accepted(Option<String>),
    /// By its command status.
    Refused(u32),
    NotSent {
        code: &'static str,
        detail: String,
    },
    /// It left, and no answer came.
    Unknown(&'static str),
}

type OnReceipt = Arc<dyn Fn(Receipt) + Send + Sync>;

pub struct Smsc {
    config: SmscConfig,
    password: Material<String>,
    places: Semaphore,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    on_receipt: OnReceipt,
}

impl Smsc {
    pub fn new(config: SmscConfig, password: Material<String>, on_receipt: OnReceipt) -> Self {
        let places = Semaphore::new(config.window.max(1));
        Self { config, password, places, link: tokio::sync::Mutex::new(None), on_receipt }
    }

    /// Sends one message. It is made when there is a place for it; `None` means that there is no
    /// point any more.
    pub async fn send(
        &self,
        deadline: Instant,
        submit: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<End> {
        let busy = || End::NotSent { code: "busy", detail: "the window was full".to_owned() };
        let Ok(Ok(_place)) = timeout_at(deadline, self.places.acquire()).await else {
            return Some(busy());
        };
        let link = match timeout_at(deadline, self.link()).await {
            Ok(Ok(link)) => link,
            Ok(Err(end)) => return Some(end),
            Err(_) => return Some(busy()),
        };
        let body = submit()?;
        let end = match link.ask(pdu::SUBMIT_SM, body, deadline).await {
            Ok(answer) if answer.status == 0 => End::Accepted(pdu::text(&answer.body)),
            Ok(answer) => End::Refused(answer.status),
            Err(Lost::BeforeWrite) => End::NotSent {
                code: "reset",
                detail: "the message centre closed the connection".to_owned(),
            },
            Err(Lost::Closed) => End::Unknown("reset"),
            Err(Lost::Timeout) => {
                // A message centre that does not answer is taken for dead.
                link.close();
                End::Unknown("timeout")
            }
        };
        Some(end)
    }

    async fn link(&self) -> Result<Arc<Link>, End> {
        let mut current = self.link.lock().await;
        if let Some(link) = current.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = self.bind().await?;
        *current = Some(link.clone());
        Ok(link)
    }

    async fn bind(&self) -> Result<Arc<Link>, End> {
        let config = &self.config;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let password = self
            .password
            .get()
            .await
            .map_err(|detail| End::NotSent { code: "credential_missing", detail })?;
        let tcp = dial(&config.host, config.port, true, deadline).await.map_err(not_sent)?;
        let (reader, writer) = tcp.into_split();
        let link = Link::start(reader, writer, self.on_receipt.clone());
        let body = pdu::bind(&config.system_id, &password, &config.system_type);
        match link.ask(pdu::BIND_TRANSCEIVER, body, deadline).await {
            Ok(answer) if answer.status == 0 => Ok(link),
            Ok(answer) => {
                self.password.forget();
                link.close();
                Err(End::Refused(answer.status))
            }
            Err(_) => {
                link.close();
                let detail = "the message centre did not answer to the bind".to_owned();
                Err(End::NotSent { code: "connect", detail })
            }
        }
    }
}

/// What stands in a `submit_sm`.
pub fn submit(from: &str, to: &str, text: &str, validity_s: u32) -> Vec<u8> {
    pdu::submit(from, to, text, validity_s)
}

fn not_sent(error: TransportError) -> End {
    match error {
        TransportError::NotSent { code, detail } => End::NotSent { code, detail },
        other => End::NotSent { code: "connect", detail: format!("{other:?}") },
    }
}

enum Lost {
    BeforeWrite,
    Closed,
    Timeout,
}

/// One connection: what is written goes through a queue, answers find those who wait for them.
struct Link {
    write: mpsc::Sender<Pdu>,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Pdu>>>,
    next: AtomicU32,
    closed: AtomicBool,
}

impl Link {
    fn start(reader: OwnedReadHalf, writer: OwnedWriteHalf, on_receipt: OnReceipt) -> Arc<Self> {
        let (write, queue) = mpsc::channel(64);
        let link = Arc::new(Self {
            write,
            waiting: Mutex::default(),
            next: AtomicU32::new(1),
            closed: AtomicBool::new(false),
        });
        tokio::spawn(write_all(queue, writer, Arc::downgrade(&link)));
        tokio::spawn(read_all(reader, Arc::downgrade(&link), on_receipt));
        link
    }

    async fn ask(&self, id: u32, body: Vec<u8>, deadline: Instant) -> Result<Pdu, Lost> {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(sequence, answer);
        let pdu = Pdu::new(id, 0, sequence, body);
        if self.is_closed() || self.write.send(pdu).await.is_err() {
            self.waiting().remove(&sequence);
            return Err(Lost::BeforeWrite);
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Lost::Closed),
            Err(_) => {
                self.waiting().remove(&sequence);
                Err(Lost::Timeout)
            }
        }
    }

    /// Whoever waits learns that no answer will come.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.waiting().clear();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Pdu>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer, or something that wants one.
    async fn heard(&self, pdu: Pdu, on_receipt: &OnReceipt) {
        if pdu.id & pdu::RESPONSE != 0 {
            let waiting = self.waiting().remove(&pdu.sequence);
            if let Some(waiting) = waiting {
                let _ = waiting.send(pdu);
            }
            return;
        }
        if pdu.id == pdu::DELIVER_SM
            && let Some(receipt) = Receipt::read(&pdu.body)
        {
            on_receipt(receipt);
        }
        let (id, status, body) = match pdu.id {
            pdu::DELIVER_SM => (pdu.id | pdu::RESPONSE, 0, vec![0]),
            pdu::ENQUIRE_LINK | pdu::UNBIND => (pdu.id | pdu::RESPONSE, 0, Vec::new()),
            // ESME_RINVCMDID
            _ => (pdu::GENERIC_NACK, 0x03, Vec::new()),
        };
        let _ = self.write.send(Pdu::new(id, status, pdu.sequence, body)).await;
        if pdu.id == pdu::UNBIND {
            self.close();
        }
    }
}

/// Ends when the link is gone, closed, or cannot be written to. Asks on a quiet line whether
/// anybody is there.
async fn write_all(
    mut queue: mpsc::Receiver<Pdu>,
    mut writer: OwnedWriteHalf,
    link: std::sync::Weak<Link>,
) {
    loop {
        let next = tokio::time::timeout(ENQUIRE_EVERY, queue.recv()).await;
        let Some(alive) = link.upgrade().filter(|link| !link.is_closed()) else { return };
        let pdu = match next {
            Ok(Some(pdu)) => pdu,
            Ok(None) => return,
            Err(_) => {
                let sequence = alive.next.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
                Pdu::new(pdu::ENQUIRE_LINK, 0, sequence, Vec::new())
            }
        };
        if writer.write_all(&pdu.bytes()).await.is_err() {
            alive.close();
            return;
        }
    }
}

/// A line on which nothing is heard for three enquiries is dead.
async fn read_all(mut reader: OwnedReadHalf, link: std::sync::Weak<Link>, on_receipt: OnReceipt) {
    let mut buffer = BytesMut::with_capacity(4096);
    loop {
        let read = tokio::time::timeout(ENQUIRE_EVERY * 3, reader.read_buf(&mut buffer)).await;
        let Some(link) = link.upgrade() else { return };
        if link.is_closed() || !matches!(read, Ok(Ok(1..))) {
            link.close();
            return;
        }
        loop {
            match Pdu::parse(&buffer) {
                Ok(Some((pdu, len))) => {
                    let _ = buffer.split_to(len);
                    link.heard(pdu, &on_receipt).await;
                }
                Ok(None) => break,
                Err(_) => {
                    link.close();
                    return;
                }
            }
        }
    }
}
