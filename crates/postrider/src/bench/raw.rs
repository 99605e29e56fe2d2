//! The leanest HTTP/1.1 client that can put a server under load from the same two cores: requests
//! are prebuilt bytes, answers are scanned, nothing is parsed that is not counted.

use anyhow::{Context, Result, bail};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// A request's bytes, to be sent as they are.
pub(super) fn request(
    method: &str,
    path: &str,
    key: &str,
    content_type: &str,
    body: &[u8],
) -> Vec<u8> {
    request_for("default", method, path, key, content_type, body)
}

/// As [`request`], for a tenant, or for all with `*`.
pub(super) fn request_for(
    tenant: &str,
    method: &str,
    path: &str,
    key: &str,
    content_type: &str,
    body: &[u8],
) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\npostrider-tenant: {tenant}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Sends one request and reads its whole answer. Reading starts while the request is still
    /// being written, so that a streaming server can answer before it has seen the end.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> Result<Answer> {
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

/// The answer, once all of it is there.
fn complete(buffer: &[u8]) -> Result<Option<Answer>> {
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
    Ok(Some(Answer { status, body }))
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

/// How often a text stands in an answer.
pub(super) fn count(haystack: &[u8], needle: &[u8]) -> usize {
    memmem::find_iter(haystack, needle).count()
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
        assert_eq!(count(b"xabxab", b"ab"), 2);
    }
}
