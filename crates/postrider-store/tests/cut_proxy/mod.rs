//! A proxy that passes a statement on and loses its answer.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct CutState {
    /// The next connection that says this is cut once.
    after: Mutex<Option<Vec<u8>>>,
    cuts: AtomicU32,
}

pub(crate) struct CutProxy {
    pub(crate) port: u16,
    state: Arc<CutState>,
}

impl CutProxy {
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(CutState::default());
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

    /// Loses the answer to the next execution of a statement that begins with this text, on a connection that prepared
    /// it before or does so now.
    pub(crate) fn cut_after(&self, text: &str) {
        *self.state.after.lock().unwrap() = Some(text.as_bytes().to_vec());
    }

    pub(crate) fn cuts(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Whether these messages of a client execute something.
fn executes(bytes: &[u8]) -> bool {
    // An Execute message of the whole portal: 'E', length 9, an empty name, no limit.
    contains(bytes, &[b'E', 0, 0, 0, 9, 0, 0, 0, 0, 0])
}

fn pass(client: TcpStream, server: TcpStream, state: &Arc<CutState>) {
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from_server, mut to_client) = (server, client);
    let is_cut = Arc::new(AtomicU32::new(0));
    let answers_cut = is_cut.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(n) = from_server.read(&mut buffer) {
            if n == 0 {
                break;
            }
            if answers_cut.load(Ordering::SeqCst) > 0 {
                // The server has answered, so the write is committed.
                break;
            }
            if to_client.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let mut said = Vec::new();
    let mut buffer = [0; 65_536];
    while let Ok(n) = from_client.read(&mut buffer) {
        if n == 0 {
            break;
        }
        said.extend_from_slice(&buffer[..n]);
        let mut after = state.after.lock().unwrap();
        if after.as_ref().is_some_and(|text| contains(&said, text)) && executes(&buffer[..n]) {
            *after = None;
            is_cut.store(1, Ordering::SeqCst);
            state.cuts.fetch_add(1, Ordering::SeqCst);
        }
        drop(after);
        if to_server.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(1));
    let _ = to_server.shutdown(Shutdown::Both);
}
