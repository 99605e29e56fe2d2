//! A name server on loopback that answers what a test says, and counts what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

/// What it answers to every question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameReply {
    /// 127.0.0.1 for an A question, nothing for others.
    Loopback,
    NoSuchName,
    ServerFailure,
    Silence,
}

pub(crate) struct LoopbackNameServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<(NameReply, Vec<u16>)>>,
}

const A: u16 = 1;

impl LoopbackNameServer {
    pub(crate) async fn start(reply: NameReply) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::new(Mutex::new((reply, Vec::new())));
        tokio::spawn(serve(socket, state.clone()));
        Self { address, state }
    }

    pub(crate) fn replies(&self, reply: NameReply) {
        self.state.lock().unwrap().0 = reply;
    }

    /// Questions for IPv4 addresses so far.
    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().1.iter().filter(|kind| **kind == A).count()
    }
}

async fn serve(socket: UdpSocket, state: Arc<Mutex<(NameReply, Vec<u16>)>>) {
    let mut buffer = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
        let Some((question, kind)) = question(&buffer[..len]) else { continue };
        let reply = {
            let mut state = state.lock().unwrap();
            state.1.push(kind);
            state.0
        };
        if reply != NameReply::Silence {
            let answer = answer(&buffer[..2], question, kind, reply);
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// The one question of a query, and the kind of record that it asks for.
fn question(query: &[u8]) -> Option<(&[u8], u16)> {
    let rest = query.get(12..)?;
    let name_len = rest.iter().position(|byte| *byte == 0)? + 1;
    let question = rest.get(..name_len + 4)?;
    Some((question, u16::from_be_bytes([question[name_len], question[name_len + 1]])))
}

fn answer(id: &[u8], question: &[u8], kind: u16, reply: NameReply) -> Vec<u8> {
    let code = match reply {
        NameReply::NoSuchName => 3,
        NameReply::ServerFailure => 2,
        NameReply::Loopback | NameReply::Silence => 0,
    };
    let has_record = reply == NameReply::Loopback && kind == A;
    // An answer to a recursive query with one question.
    let mut answer = [id, &[0x81, 0x80 | code, 0, 1, 0, u8::from(has_record), 0, 0, 0, 0]].concat();
    answer.extend(question);
    if has_record {
        // The name of the question, A, IN, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
