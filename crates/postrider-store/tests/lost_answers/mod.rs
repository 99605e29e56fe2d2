//! A proxy that passes a script call that writes on and loses its answer.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[derive(Default)]
struct LossState {
    /// The next answer to a script call of new messages or settlements is lost.
    is_armed: AtomicBool,
    losses: AtomicU32,
}

pub(crate) struct LossyProxy {
    pub(crate) port: u16,
    state: Arc<LossState>,
}

impl LossyProxy {
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(LossState::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let state = shared.clone();
                std::thread::spawn(move || pass(client, server, &state));
            }
        });
        Self { port, state }
    }

    pub(crate) fn lose_next(&self) {
        self.state.is_armed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn losses(&self) -> u32 {
        self.state.losses.load(Ordering::SeqCst)
    }
}

/// Whether these bytes of a client write deliveries: they name the keys of the expiry and of a minute of the queue.
fn writes(bytes: &[u8]) -> bool {
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    contains(b"EVALSHA") && contains(b"}:x\r\n") && contains(b"}:q:")
}

fn pass(client: TcpStream, server: TcpStream, state: &Arc<LossState>) {
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from_server, mut to_client) = (server, client);
    let is_cut = Arc::new(AtomicBool::new(false));
    let answers_cut = is_cut.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(n) = from_server.read(&mut buffer) {
            // The server has answered, so the write has happened.
            if n == 0
                || answers_cut.load(Ordering::SeqCst)
                || to_client.write_all(&buffer[..n]).is_err()
            {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 65_536];
    while let Ok(n) = from_client.read(&mut buffer) {
        if n == 0 {
            break;
        }
        if writes(&buffer[..n]) && state.is_armed.swap(false, Ordering::SeqCst) {
            is_cut.store(true, Ordering::SeqCst);
            state.losses.fetch_add(1, Ordering::SeqCst);
        }
        if to_server.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to_server.shutdown(Shutdown::Write);
}
