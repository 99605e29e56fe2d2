//! A blocking HTTP/1.1 client over one connection. It shares no code with what it tests. Knows no TLS.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::ADMIN_KEY;

pub struct TestAnswer {
    pub status: u16,
    pub retry_after_s: Option<u32>,
    pub body: String,
}

/// One call with the admin key over a connection of its own.
pub fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<TestAnswer> {
    TestConnection::open(address)?.call(method, path, None, body)
}

pub fn get(address: SocketAddr, path: &str) -> Result<TestAnswer> {
    call(address, "GET", path, "")
}

/// A page as the browser of a person with this session gets it.
pub fn page(address: SocketAddr, path: &str, session: &str) -> Result<TestAnswer> {
    let cookie = format!("cookie: postrider_session={session}\r\n");
    TestConnection::open(address)?.send("GET", path, "none", &cookie, "")
}

impl TestAnswer {
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {}", self.body))
    }
}

pub struct TestConnection {
    stream: BufReader<TcpStream>,
}

impl TestConnection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The status of a GET with another key than the admin's.
    pub fn status_with_key(&mut self, path: &str, key: &str) -> Result<u16> {
        self.send("GET", path, key, "", "").map(|answer| answer.status)
    }

    /// One call with the admin key; the answer may have any status.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        tenant: Option<&str>,
        body: &str,
    ) -> Result<TestAnswer> {
        let tenant = tenant.map(|name| format!("postrider-tenant: {name}\r\n")).unwrap_or_default();
        self.send(method, path, ADMIN_KEY, &tenant, body)
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        key: &str,
        headers: &str,
        body: &str,
    ) -> Result<TestAnswer> {
        let length = body.len();
        write!(
            self.stream.get_mut(),
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        self.read_answer()
    }

    /// One call that fails unless the answer is a 2xx.
    pub fn call_ok(
        &mut self,
        method: &str,
        path: &str,
        tenant: Option<&str>,
        body: &str,
    ) -> Result<String> {
        let TestAnswer { status, body, .. } = self.call(method, path, tenant, body)?;
        let shown: String = body.chars().take(400).collect();
        ensure!((200..300).contains(&status), "{method} {path} answered {status}: {shown}");
        Ok(body)
    }

    /// A JSON answer about all tenants.
    pub fn get_json(&mut self, path: &str) -> Result<Value> {
        let body = self.call_ok("GET", path, Some("*"), "")?;
        serde_json::from_str(&body).with_context(|| format!("{path} is not JSON"))
    }

    fn read_answer(&mut self) -> Result<TestAnswer> {
        let first = self.read_line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let Some(status) = status else { bail!("no HTTP answer: {first:?}") };
        let (mut length, mut chunked, mut retry_after_s) = (0, false, None);
        loop {
            let line = self.read_line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if let Some(value) = line.strip_prefix("retry-after:") {
                retry_after_s = value.trim().parse().ok();
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let body = if chunked { self.read_chunks()? } else { self.read_exactly(length)? };
        Ok(TestAnswer { status, retry_after_s, body: String::from_utf8(body)? })
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size =
                usize::from_str_radix(self.read_line()?.trim(), 16).context("not a chunk")?;
            body.extend(self.read_exactly(size)?);
            self.read_line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }

    fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
