//! Reaches a target through a proxy: HTTP CONNECT (RFC 9110, 9.3.6) or SOCKS5 (RFC 1928, RFC 1929). The proxy is told
//! the address that was checked, never a name, so that it cannot be led elsewhere.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::TransportError;

/// The longest head of a proxy's answer.
const HEAD_MAX: usize = 8 * 1024;
/// A proxy has this long to connect.
pub(super) const PROXY_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a proxy is: `http://host:port` or `socks5://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ProxyUrl {
    kind: ProxyKind,
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyKind {
    Connect,
    Socks5,
}

impl TryFrom<String> for ProxyUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            "a proxy is http://HOST:PORT or socks5://HOST:PORT, without a user: \
             name that with network.proxy_credential"
                .to_owned()
        };
        let (kind, rest) = match text.split_once("://") {
            Some(("http", rest)) => (ProxyKind::Connect, rest),
            Some(("socks5", rest)) => (ProxyKind::Socks5, rest),
            _ => return Err(wrong()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || host.contains(['@', '/']) {
            return Err(wrong());
        }
        Ok(Self { kind, host: host.to_owned(), port })
    }
}

impl From<ProxyUrl> for String {
    fn from(proxy: ProxyUrl) -> Self {
        proxy.to_string()
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Connect => "http",
            ProxyKind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// A proxy, and perhaps a user with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyAccess {
    pub url: ProxyUrl,
    /// `user:password`.
    pub credential: Option<String>,
}

impl fmt::Debug for ProxyAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyAccess({})", self.url)
    }
}

impl ProxyAccess {
    /// Asks the proxy, over a new connection to it, for a way to an address.
    pub(super) async fn reach(
        &self,
        mut stream: TcpStream,
        target: SocketAddr,
        deadline: tokio::time::Instant,
    ) -> Result<TcpStream, TransportError> {
        let asked = async {
            match self.url.kind {
                ProxyKind::Connect => self.connect(&mut stream, target).await,
                ProxyKind::Socks5 => self.socks5(&mut stream, target).await,
            }
        };
        match timeout_at(deadline, asked).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(detail)) => Err(TransportError::unopened("proxy", detail)),
            Err(_) => Err(TransportError::unopened("proxy", "the proxy did not answer in time")),
        }
    }

    async fn connect(&self, stream: &mut TcpStream, target: SocketAddr) -> Result<(), String> {
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(credential) = &self.credential {
            head += &format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(credential));
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).await.map_err(lost)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= HEAD_MAX {
                return Err("the proxy's answer is too long".to_owned());
            }
            // One byte at a time: what follows the head belongs to the target.
            answer.push(stream.read_u8().await.map_err(lost)?);
        }
        let line = String::from_utf8_lossy(&answer);
        let status = line.split_whitespace().nth(1).and_then(|text| text.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(()),
            Some(status) => Err(format!("the proxy answered {status}")),
            None => Err("the proxy does not speak HTTP".to_owned()),
        }
    }

    async fn socks5(&self, stream: &mut TcpStream, target: SocketAddr) -> Result<(), String> {
        // Without a user, or with user and password.
        let method = if self.credential.is_some() { 2 } else { 0 };
        stream.write_all(&[5, 1, method]).await.map_err(lost)?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await.map_err(lost)?;
        if chosen != [5, method] {
            return Err("the proxy wants another way to sign in".to_owned());
        }
        if let Some(credential) = &self.credential {
            let (user, password) = credential.split_once(':').unwrap_or((credential, ""));
            let mut sign_in = vec![1];
            for part in [user, password] {
                let length = u8::try_from(part.len())
                    .map_err(|_| "the proxy's credential is too long".to_owned())?;
                sign_in.push(length);
                sign_in.extend_from_slice(part.as_bytes());
            }
            stream.write_all(&sign_in).await.map_err(lost)?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await.map_err(lost)?;
            if answer[1] != 0 {
                return Err("the proxy refuses network.proxy_credential".to_owned());
            }
        }
        let mut request = vec![5, 1, 0];
        match target.ip() {
            IpAddr::V4(ip) => {
                request.push(1);
                request.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                request.push(4);
                request.extend_from_slice(&ip.octets());
            }
        }
        request.extend_from_slice(&target.port().to_be_bytes());
        stream.write_all(&request).await.map_err(lost)?;
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.map_err(lost)?;
        if head[1] != 0 {
            return Err(format!("the proxy cannot connect (SOCKS5 reply {})", head[1]));
        }
        let rest = match head[3] {
            1 => 4 + 2,
            4 => 16 + 2,
            3 => usize::from(stream.read_u8().await.map_err(lost)?) + 2,
            _ => return Err("the proxy's answer cannot be read".to_owned()),
        };
        let mut bound = vec![0; rest];
        stream.read_exact(&mut bound).await.map(drop).map_err(lost)
    }
}

fn lost(error: std::io::Error) -> String {
    format!("the connection to the proxy broke: {}", error.kind())
}
