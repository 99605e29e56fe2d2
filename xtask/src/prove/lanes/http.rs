//! As much HTTP/1.1 as the proofs need, over one connection that is kept: whole requests, whole
//! answers with a length or in chunks. Knows no TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub(super) const KEY: &str = "proof-admin-key-0123456789";

pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(at: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(at).with_context(|| format!("nobody listens on {at}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Fails unless the answer is a 2xx.
    pub(super) fn call(
        &mut self,
        method: &str,
        path: &str,
        tenant: &str,
        body: &[u8],
    ) -> Result<Vec<u8>> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: proof\r\nauthorization: Bearer {KEY}\r\npostrider-tenant: {tenant}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let socket = self.stream.get_mut();
        socket.write_all(head.as_bytes())?;
        socket.write_all(body)?;
        let (status, answer) = self.answer()?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path} answered {status}: {}",
            String::from_utf8_lossy(&answer[..answer.len().min(400)])
        );
        Ok(answer)
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        let body = self.call("GET", path, "*", b"")?;
        serde_json::from_slice(&body).with_context(|| format!("{path} is no JSON"))
    }

    fn answer(&mut self) -> Result<(u16, Vec<u8>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
        let Some(status) = status else { bail!("no HTTP answer: {first:?}") };
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        if !chunked {
            return Ok((status, self.exactly(length)?));
        }
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(self.line()?.trim(), 16)?;
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok((status, body));
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
