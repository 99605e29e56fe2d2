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

struct ProxyState {
    is_stalled: Mutex<bool>,
    changed: Condvar,
    /// Where new connections lead to.
    server: Mutex<SocketAddr>,
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

/// Ports that servers name in their answers, and the proxies that are named instead.
type PortNames = Arc<Vec<(Vec<u8>, Vec<u8>)>>;

impl StallProxy {
    pub fn start(server: SocketAddr) -> Result<Self> {
        Self::listen(TcpListener::bind("127.0.0.1:0")?, server, PortNames::default())
    }

    /// One for each server of a Redis Cluster on this machine. A client that follows what the servers say about each
    /// other stays behind the proxies.
    pub fn start_cluster(ports: &[u16]) -> Result<Vec<Self>> {
        let mut listeners = Vec::new();
        for port in ports {
            // The name of the other port has to have the same length.
            let listener = loop {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                if listener.local_addr()?.port().to_string().len() == port.to_string().len() {
                    break listener;
                }
            };
            listeners.push((listener, *port));
        }
        let named = |port: u16| format!(":{port}\r\n").into_bytes();
        let names = listeners
            .iter()
            .map(|(listener, port)| Ok((named(*port), named(listener.local_addr()?.port()))))
            .collect::<Result<Vec<_>>>()?;
        let names = Arc::new(names);
        let listen = |(listener, port): (TcpListener, u16)| {
            Self::listen(listener, ([127, 0, 0, 1], port).into(), names.clone())
        };
        listeners.into_iter().map(listen).collect()
    }

    fn listen(listener: TcpListener, server: SocketAddr, names: PortNames) -> Result<Self> {
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState {
            is_stalled: Mutex::default(),
            changed: Condvar::new(),
            server: Mutex::new(server),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (state, names) = (shared.clone(), names.clone());
                std::thread::spawn(move || pass_both_ways(client, &state, &names));
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

    /// New connections lead to another server from now on, as after a change of a name or an address.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.state.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }
}

fn pass_both_ways(client: TcpStream, state: &Arc<ProxyState>, names: &PortNames) {
    state.wait_while_stalled();
    let server = *state.server.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = TcpStream::connect(server) else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let (back, names) = (state.clone(), names.clone());
    std::thread::spawn(move || pass(server_again, client_again, &back, &names));
    pass(client, server, state, &PortNames::default());
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &ProxyState, names: &PortNames) {
    let mut buffer = [0; 65_536];
    let mut waiting = Vec::new();
    while let Ok(count) = from.read(&mut buffer) {
        state.wait_while_stalled();
        waiting.extend_from_slice(&buffer[..count]);
        let ready = rename(&mut waiting, names);
        if count == 0 || to.write_all(&waiting[..ready]).is_err() {
            break;
        }
        waiting.drain(..ready);
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Replaces the names of ports; answers how many bytes are complete. A name that is not complete yet is kept back:
/// an answer of Redis ends with a line, so that the rest of it comes.
fn rename(bytes: &mut [u8], names: &PortNames) -> usize {
    let Some(length) = names.first().map(|(name, _)| name.len()) else { return bytes.len() };
    let mut at = 0;
    while at + length <= bytes.len() {
        let found = names.iter().find(|(name, _)| bytes[at..at + length] == **name);
        if let Some((_, other)) = found {
            bytes[at..at + length].copy_from_slice(other);
        }
        at += 1;
    }
    let is_begun =
        |from: &usize| names.iter().any(|(name, _)| name.starts_with(&bytes[*from..bytes.len()]));
    (at.min(bytes.len())..bytes.len()).find(is_begun).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_ports_of_a_cluster_are_named_as_those_of_the_proxies() {
        let names: PortNames = Arc::new(vec![(b":30001\r\n".to_vec(), b":40001\r\n".to_vec())]);
        let mut said = b"-MOVED 7 127.0.0.1:30001\r\n:30002\r\n*1\r\n:3000".to_vec();
        let ready = rename(&mut said, &names);
        assert_eq!(&said[..ready], b"-MOVED 7 127.0.0.1:40001\r\n:30002\r\n*1\r\n");
        said.drain(..ready);
        said.extend_from_slice(b"1\r\n");
        assert_eq!(rename(&mut said, &names), said.len());
        assert_eq!(said, b":40001\r\n");
    }

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
