//! A TCP proxy whose network can fail: while it stalls, nothing arrives on either side and nobody is told, as in a
//! network that is cut. Afterwards everything arrives that was under way, in order, as TCP does it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::Result;

/// Passes connections on to a server. Its threads end with the process.
pub struct StallProxy {
    pub address: SocketAddr,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    is_stalled: Mutex<bool>,
    changed: Condvar,
}

impl ProxyState {
    fn wait_while_stalled(&self) {
        let stalled = self.is_stalled.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(stalled, |stalled| *stalled));
    }

    fn set(&self, stalled: bool) {
        *self.is_stalled.lock().unwrap_or_else(PoisonError::into_inner) = stalled;
        self.changed.notify_all();
    }
}

impl StallProxy {
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || pass_both_ways(client, server, &state));
            }
        });
        Ok(Self { address, state })
    }

    pub fn stall(&self) {
        self.state.set(true);
    }

    pub fn go_on(&self) {
        self.state.set(false);
    }
}

fn pass_both_ways(client: TcpStream, server: SocketAddr, state: &Arc<ProxyState>) {
    state.wait_while_stalled();
    let Ok(server) = TcpStream::connect(server) else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let back = state.clone();
    std::thread::spawn(move || pass(server_again, client_again, &back));
    pass(client, server, state);
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &ProxyState) {
    let mut buffer = [0; 65_536];
    while let Ok(count) = from.read(&mut buffer) {
        state.wait_while_stalled();
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_under_way_arrives_after_a_stall() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = StallProxy::start(listener.local_addr()?)?;
        let mut client = TcpStream::connect(proxy.address)?;
        let (mut server, _) = listener.accept()?;
        let mut byte = [0];
        client.write_all(b"a")?;
        server.read_exact(&mut byte)?;
        proxy.stall();
        client.write_all(b"b")?;
        server.set_read_timeout(Some(Duration::from_millis(50)))?;
        assert!(server.read_exact(&mut byte).is_err(), "nothing arrives");
        proxy.go_on();
        server.set_read_timeout(None)?;
        server.read_exact(&mut byte)?;
        assert_eq!(&byte, b"b");
        Ok(())
    }
}
