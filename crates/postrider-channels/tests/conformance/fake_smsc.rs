//! A message centre that does what a test tells it to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

pub(crate) const BIND: u32 = 9;
pub(crate) const SUBMIT: u32 = 4;
pub(crate) const UNBIND: u32 = 6;
pub(crate) const ENQUIRE: u32 = 0x15;
pub(crate) const RECEIPT_ANSWERED: u32 = 0x8000_0005;
const RECEIPT: u32 = 5;
const ANSWER: u32 = 0x8000_0000;

/// What happens instead of status 0.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Status(u32),
    HangUp,
    Silence,
    /// Status 0, when it is told to.
    Held(Arc<Notify>),
    /// Announces an answer of this many bytes.
    Huge(u32),
    /// Status 0, and then it wants no more.
    Farewell,
    /// Status 0, with this id.
    Named(&'static [u8]),
}

#[derive(Default)]
struct State {
    binds: Mutex<VecDeque<Act>>,
    submits: Mutex<VecDeque<Act>>,
    /// Command and body, as they came.
    heard: Mutex<Vec<(u32, Vec<u8>)>>,
    connected: AtomicUsize,
    ended: AtomicUsize,
    at_once: AtomicUsize,
    at_once_most: AtomicUsize,
    arrived: Notify,
}

/// Ends with the test.
pub(crate) struct FakeSmsc {
    port: u16,
    state: Arc<State>,
}

impl FakeSmsc {
    pub(crate) async fn start() -> Self {
        Self::with([], []).await
    }

    /// The next binds and messages meet these; then all are well.
    pub(crate) async fn with(
        binds: impl IntoIterator<Item = Act>,
        submits: impl IntoIterator<Item = Act>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (binds, submits) = (binds.into_iter().collect(), submits.into_iter().collect());
        let state =
            State { binds: Mutex::new(binds), submits: Mutex::new(submits), ..State::default() };
        let state = Arc::new(state);
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connected.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, serving.clone()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn account(&self) -> Value {
        json!({
            "provider": "smpp", "host": "127.0.0.1", "port": self.port, "user": "shop",
            "credential": "command:echo s3cret", "from": "Shop",
        })
    }

    pub(crate) fn heard(&self, id: u32) -> Vec<Vec<u8>> {
        let heard = self.state.heard.lock().unwrap();
        heard.iter().filter(|(known, _)| *known == id).map(|(_, body)| body.clone()).collect()
    }

    /// When so many of these have come.
    pub(crate) async fn await_heard(&self, id: u32, count: usize) {
        self.until(|| self.heard(id).len() >= count).await;
    }

    /// When so many connections have come to their end.
    pub(crate) async fn await_ended(&self, count: usize) {
        self.until(|| self.state.ended.load(Ordering::SeqCst) >= count).await;
    }

    async fn until(&self, so: impl Fn() -> bool) {
        loop {
            let mut more = std::pin::pin!(self.state.arrived.notified());
            more.as_mut().enable();
            if so() {
                return;
            }
            more.await;
        }
    }

    pub(crate) fn connected(&self) -> usize {
        self.state.connected.load(Ordering::SeqCst)
    }

    /// The most messages that waited for their answer at the same time.
    pub(crate) fn at_once_most(&self) -> usize {
        self.state.at_once_most.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let (mut reader, mut writer) = stream.into_split();
    let (out, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let writing = tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            let _ = writer.write_all(&bytes).await;
        }
    });
    loop {
        let mut head = [0; 16];
        if reader.read_exact(&mut head).await.is_err() {
            break;
        }
        let word = |n: usize| u32::from_be_bytes(head[n * 4..n * 4 + 4].try_into().unwrap());
        let (id, sequence) = (word(1), word(3));
        let mut body = vec![0; word(0) as usize - 16];
        reader.read_exact(&mut body).await.unwrap();
        state.heard.lock().unwrap().push((id, body));
        state.arrived.notify_waiters();
        let act = match id {
            BIND => state.binds.lock().unwrap().pop_front(),
            SUBMIT => state.submits.lock().unwrap().pop_front(),
            id if id & ANSWER != 0 => continue,
            _ => None,
        };
        if matches!(act, Some(Act::HangUp)) {
            writing.abort();
            break;
        }
        tokio::spawn(answer(state.clone(), out.clone(), id, sequence, act));
    }
    state.ended.fetch_add(1, Ordering::SeqCst);
    state.arrived.notify_waiters();
}

async fn answer(
    state: Arc<State>,
    out: mpsc::UnboundedSender<Vec<u8>>,
    id: u32,
    sequence: u32,
    act: Option<Act>,
) {
    let now = state.at_once.fetch_add(1, Ordering::SeqCst) + 1;
    state.at_once_most.fetch_max(now, Ordering::SeqCst);
    let say = |bytes| drop(out.send(bytes));
    let name: &[u8] = if [BIND, SUBMIT].contains(&id) { b"m-1\0" } else { b"" };
    let yes = || pdu(id | ANSWER, 0, sequence, name);
    match act {
        Some(Act::Silence | Act::HangUp) => return,
        Some(Act::Status(status)) => say(pdu(id | ANSWER, status, sequence, b"")),
        Some(Act::Huge(len)) => say([&len.to_be_bytes()[..], &yes()[4..]].concat()),
        Some(Act::Held(go)) => {
            go.notified().await;
            say(yes());
        }
        Some(Act::Named(id_of_message)) => say(pdu(id | ANSWER, 0, sequence, id_of_message)),
        Some(Act::Farewell) => {
            say(yes());
            say(pdu(UNBIND, 0, 78, b""));
        }
        None => {
            // Others get a chance to wait, too. A receipt may come before the answer.
            tokio::task::yield_now().await;
            if id == SUBMIT {
                say(pdu(RECEIPT, 0, 77, &receipt()));
            }
            say(yes());
        }
    }
    state.at_once.fetch_sub(1, Ordering::SeqCst);
}

fn pdu(id: u32, status: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [16 + body.len() as u32, id, status, sequence] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(body);
    out
}

/// A `deliver_sm` that tells of a message which has arrived.
fn receipt() -> Vec<u8> {
    let text = b"id:m-1 sub:001 dlvrd:001 submit date:2611150851 done date:2611150852 stat:DELIVRD err:000 text:x";
    let head = b"\0\x01\x014915112345678\0\x05\0Shop\0\x04\0\0\0\0\0\0\0\0";
    [&head[..], &[text.len() as u8], text].concat()
}
