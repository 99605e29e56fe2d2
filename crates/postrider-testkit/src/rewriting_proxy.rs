//! A TCP proxy that replaces texts of the client or of the server by others of the same length, to make a server appear
//! different.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Result, ensure};

/// Whose texts are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

type TextPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Passes connections on to a server. Its threads end with the process.
pub struct RewritingProxy {
    pub address: SocketAddr,
}

impl RewritingProxy {
    /// Each first text of the client is replaced by the second one, filled up with spaces.
    pub fn start(server: SocketAddr, texts: &[(&str, &str)]) -> Result<Self> {
        Self::listen(server, texts, Side::Client)
    }

    /// The same with texts of the server.
    pub fn start_for_answers(server: SocketAddr, texts: &[(&str, &str)]) -> Result<Self> {
        Self::listen(server, texts, Side::Server)
    }

    fn listen(server: SocketAddr, texts: &[(&str, &str)], side: Side) -> Result<Self> {
        let mut pairs = Vec::new();
        for (old, new) in texts {
            ensure!(new.len() <= old.len(), "{new:?} is longer than {old:?}");
            pairs.push((old.as_bytes().to_vec(), format!("{new:<0$}", old.len()).into_bytes()));
        }
        let (listener, pairs) = (TcpListener::bind("127.0.0.1:0")?, Arc::new(pairs));
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let pairs = pairs.clone();
                std::thread::spawn(move || pass_both_ways(client, server, &pairs, side));
            }
        });
        Ok(Self { address })
    }
}

fn pass_both_ways(client: TcpStream, server: SocketAddr, pairs: &Arc<TextPairs>, side: Side) {
    let Ok(server) = TcpStream::connect(server) else { return };
    let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let rewrite = |pairs: Arc<TextPairs>, of: Side| {
        move |bytes: &mut [u8]| {
            let pairs = pairs.iter().filter(|_| of == side);
            pairs.for_each(|(old, new)| replace(bytes, old, new));
        }
    };
    let answers = rewrite(pairs.clone(), Side::Server);
    std::thread::spawn(move || pass(server_again, client_again, answers));
    pass(client, server, rewrite(pairs.clone(), Side::Client));
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = [0; 65_536];
    while let Ok(count) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let mut at = 0;
    while at + old.len() <= bytes.len() {
        if bytes[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_wherever_it_is() {
        let mut bytes = b"a version of a version".to_vec();
        replace(&mut bytes, b"version", b"14     ");
        assert_eq!(bytes, b"a 14      of a 14     ");
    }
}
