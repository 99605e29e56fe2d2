//! A small HTTP/1.1 client for the demo and the benchmark. It shares the machine with the server that it measures, so
//! requests are built in advance, and answers are scanned instead of parsed.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct RawConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The bytes of a request, to be sent as they are.
pub(crate) fn request(
    tenant: &str,
    key: &str,
    method: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\
         postrider-tenant: {tenant}\r\ncontent-type: {content_type}\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

impl RawConnection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Sends one request and reads its whole answer. Reading starts before the whole request is written, because a
    /// streaming server answers before it has read the end.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<RawAnswer> {
        self.buffer.clear();
        let (mut reader, mut writer) = self.stream.split();
        let buffer = &mut self.buffer;
        let read = async {
            loop {
                if let Some(answer) = complete(buffer)? {
                    return Ok(answer);
                }
                if reader.read_buf(buffer).await? == 0 {
                    bail!("the server closed the connection after {} bytes", buffer.len());
                }
            }
        };
        let write = async { writer.write_all(request).await.map_err(anyhow::Error::from) };
        let (answer, ()) = tokio::try_join!(read, write)?;
        Ok(answer)
    }
}

/// Calls one server, each time over a new connection.
pub(crate) struct ApiClient {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// `*` means all tenants.
    pub(crate) tenant: &'static str,
}

impl ApiClient {
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.json("GET", path, b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.json("POST", path, body.to_string().as_bytes()).await
    }

    /// A call with JSON in both directions; an empty answer is `null`.
    pub(crate) async fn json(&self, method: &str, path: &str, body: &[u8]) -> Result<Value> {
        match self.text(method, path, "application/json", body).await?.as_str() {
            "" => Ok(Value::Null),
            answer => serde_json::from_str(answer)
                .with_context(|| format!("{method} {path} did not answer with JSON")),
        }
    }

    /// The answer as text.
    pub(crate) async fn text(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<String> {
        let mut connection = RawConnection::open(self.address).await?;
        let request = request(self.tenant, &self.key, method, path, content_type, body);
        let RawAnswer { status, body } = connection.exchange(&request).await?;
        let shown = || String::from_utf8_lossy(&body).into_owned();
        ensure!(status < 300, "{method} {path} answered {status}: {}", shown());
        Ok(String::from_utf8(body)?)
    }

    /// What the sandbox received, one line of JSON per id.
    pub(crate) async fn received_ids(&self) -> Result<String> {
        self.text("GET", "/sandbox/received/ids", "application/json", b"").await
    }
}

/// The answer, if the buffer holds all of it.
fn complete(buffer: &[u8]) -> Result<Option<RawAnswer>> {
    let Some(head_len) = memmem::find(buffer, b"\r\n\r\n").map(|i| i + 4) else { return Ok(None) };
    let head = std::str::from_utf8(&buffer[..head_len])?.to_ascii_lowercase();
    let status = head.get(9..12).and_then(|s| s.parse().ok()).context("not an HTTP answer")?;
    let body = &buffer[head_len..];
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let body = match length {
        None if status == 204 => Vec::new(),
        Some(length) if body.len() >= length => body[..length].to_vec(),
        None if body.ends_with(b"0\r\n\r\n") => dechunk(body),
        _ => return Ok(None),
    };
    Ok(Some(RawAnswer { status, body }))
}

/// Joins a chunked body. Stops at the first thing that is not a chunk.
fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(body.len());
    while let Some(line) = memmem::find(body, b"\r\n") {
        let size = std::str::from_utf8(&body[..line])
            .ok()
            .and_then(|s| usize::from_str_radix(s.trim(), 16).ok());
        let Some(size) = size.filter(|size| *size > 0 && line + 2 + size + 2 <= body.len()) else {
            break;
        };
        whole.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = &body[line + 2 + size + 2..];
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_only_with_its_whole_body() {
        let head = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\n";
        let whole = [&head[..], b"abc"].concat();
        assert!(complete(&whole[..whole.len() - 1]).unwrap().is_none());
        assert_eq!(complete(&whole).unwrap().unwrap().status, 202);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert!(complete(chunked).unwrap().is_some());
    }
}
