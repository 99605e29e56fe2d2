//! One connection to a message centre: queues writes, matches answers to requests, and sends `enquire_link` when
//! idle. Does not bind or reconnect.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::OnReceipt;
use super::pdu::{self, Pdu, SmppReceipt};

const ENQUIRE_EVERY: Duration = Duration::from_secs(30);
const GOOD_BYE: Duration = Duration::from_secs(2);
const QUEUED_MAX: usize = 64;

/// Why no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkError {
    BeforeWrite,
    Closed,
    Timeout,
}

struct PendingRequest {
    answer: oneshot::Sender<Result<Pdu, LinkError>>,
    written: bool,
}

pub(super) struct SmppLink {
    write: mpsc::Sender<Pdu>,
    waiting: Mutex<HashMap<u32, PendingRequest>>,
    next: AtomicU32,
    /// The message centre has sent `unbind`; our answer is still to be written.
    leaving: AtomicBool,
    closed: watch::Sender<bool>,
}

impl SmppLink {
    pub(super) fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        on_receipt: OnReceipt,
    ) -> Arc<Self> {
        let (write, queue) = mpsc::channel(QUEUED_MAX);
        let (closed, over) = watch::channel(false);
        let link = Arc::new(Self {
            write,
            waiting: Mutex::default(),
            next: AtomicU32::new(1),
            leaving: AtomicBool::new(false),
            closed,
        });
        tokio::spawn(write_all(queue, writer, Arc::downgrade(&link), over.clone()));
        tokio::spawn(read_all(reader, Arc::downgrade(&link), over, on_receipt));
        link
    }

    pub(super) async fn ask(
        &self,
        id: u32,
        body: Vec<u8>,
        deadline: Instant,
    ) -> Result<Pdu, LinkError> {
        let sequence = self.sequence();
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(sequence, PendingRequest { answer, written: false });
        let pdu = Pdu::new(id, 0, sequence, body);
        // Checked after the entry is stored, so that a concurrent `close` is not missed.
        let asked = async {
            if !self.is_usable() || self.write.send(pdu).await.is_err() {
                return Err(LinkError::BeforeWrite);
            }
            answered.await.unwrap_or(Err(LinkError::Closed))
        };
        let end = timeout_at(deadline, asked).await;
        let left = self.waiting().remove(&sequence);
        let late = match left {
            Some(PendingRequest { written: false, .. }) => LinkError::BeforeWrite,
            _ => LinkError::Timeout,
        };
        end.unwrap_or(Err(late))
    }

    /// Ends the connection, and all pending requests with an error.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        for (_, waiting) in self.waiting().drain() {
            let lost = if waiting.written { LinkError::Closed } else { LinkError::BeforeWrite };
            let _ = waiting.answer.send(Err(lost));
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        !*self.closed.borrow() && !self.leaving.load(Ordering::SeqCst)
    }

    /// From 1 to 0x7fffffff, then 1 again.
    fn sequence(&self) -> u32 {
        match self.next.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff {
            0 => self.sequence(),
            sequence => sequence,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, PendingRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles an answer, or answers a request.
    async fn heard(&self, pdu: Pdu, on_receipt: &OnReceipt) {
        if pdu.is_answer() {
            let waiting = self.waiting().remove(&pdu.sequence);
            if let Some(waiting) = waiting {
                let _ = waiting.answer.send(Ok(pdu));
            }
            return;
        }
        if pdu.id == pdu::DELIVER_SM
            && let Some(receipt) = SmppReceipt::read(&pdu.body)
        {
            on_receipt(receipt);
        }
        let (id, status, body) = match pdu.id {
            pdu::DELIVER_SM => (pdu.id | pdu::RESPONSE, 0, vec![0]),
            pdu::ENQUIRE_LINK | pdu::UNBIND => (pdu.id | pdu::RESPONSE, 0, Vec::new()),
            // ESME_RINVCMDID
            _ => (pdu::GENERIC_NACK, 0x03, Vec::new()),
        };
        self.leaving.fetch_or(pdu.id == pdu::UNBIND, Ordering::SeqCst);
        let _ = self.write.send(Pdu::new(id, status, pdu.sequence, body)).await;
    }
}

/// Ends when the link is closed or a write fails. An unused link is unbound.
async fn write_all(
    mut queue: mpsc::Receiver<Pdu>,
    mut writer: impl AsyncWrite + Unpin,
    link: Weak<SmppLink>,
    mut over: watch::Receiver<bool>,
) {
    loop {
        let next = tokio::select! {
            biased;
            closed = closing(&mut over) => {
                if !closed {
                    let unbind = Pdu::new(pdu::UNBIND, 0, 0x7fff_ffff, Vec::new()).bytes();
                    let _ = timeout(GOOD_BYE, writer.write_all(&unbind)).await;
                }
                return;
            }
            next = timeout(ENQUIRE_EVERY, queue.recv()) => next,
        };
        let Some(link) = link.upgrade() else { continue };
        let pdu = match next {
            Ok(Some(pdu)) => pdu,
            Ok(None) => return,
            Err(_) => Pdu::new(pdu::ENQUIRE_LINK, 0, link.sequence(), Vec::new()),
        };
        if let Some(waiting) = link.waiting().get_mut(&pdu.sequence).filter(|_| !pdu.is_answer()) {
            waiting.written = true;
        }
        let bytes = pdu.bytes();
        let written = tokio::select! {
            biased;
            _ = closing(&mut over) => return,
            written = writer.write_all(&bytes) => written,
        };
        if written.is_err() || pdu.id == pdu::UNBIND | pdu::RESPONSE {
            link.close();
            return;
        }
    }
}

/// Closes a connection that is silent for three enquiry intervals.
async fn read_all(
    mut reader: impl AsyncRead + Unpin,
    link: Weak<SmppLink>,
    mut over: watch::Receiver<bool>,
    on_receipt: OnReceipt,
) {
    let mut buffer = BytesMut::with_capacity(4096);
    loop {
        let read = tokio::select! {
            biased;
            _ = closing(&mut over) => return,
            read = timeout(ENQUIRE_EVERY * 3, reader.read_buf(&mut buffer)) => read,
        };
        let Some(link) = link.upgrade() else { return };
        if !matches!(read, Ok(Ok(1..))) {
            return link.close();
        }
        loop {
            match Pdu::parse(&buffer) {
                Ok(Some((pdu, len))) => {
                    let _ = buffer.split_to(len);
                    link.heard(pdu, &on_receipt).await;
                }
                Ok(None) => break,
                Err(_) => return link.close(),
            }
        }
    }
}

/// Waits until the link is closed (true) or dropped (false).
async fn closing(over: &mut watch::Receiver<bool>) -> bool {
    over.wait_for(|closed| *closed).await.is_ok()
}
