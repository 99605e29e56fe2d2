//! The binary as a process, and HTTP/1.1 calls that choose their own address, key, headers and pace.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::process::ProcessFixture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// No test waits longer for one event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs.
pub(crate) fn server(config: &str) -> ProcessFixture {
    ProcessFixture::started(env!("CARGO_BIN_EXE_postrider"), config).unwrap()
}

/// A server whose program for the master key takes very long while there is a file `slow`.
pub(crate) fn with_slow_master_key(config: &str, slow_s: u32) -> ProcessFixture {
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = ProcessFixture::new(env!("CARGO_BIN_EXE_postrider"), "").unwrap();
    let (program, slow) = (server.path("master-key"), server.path("slow"));
    let key = "8f1d2b7c9a3e4f50617283940a1b2c3d4e5f60718293a4b5c6d7e8f9010203e1";
    let text = format!("#!/bin/sh\n[ -e {} ] && sleep {slow_s}\necho {key}\n", slow.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = format!("{config}[encryption]\nkey = \"command:{}\"\n", program.display());
    server.write_config(&config).unwrap();
    server.start().unwrap();
    server
}

/// Ends the server in order.
pub(crate) fn stop(server: &mut ProcessFixture) {
    server.signal("TERM").unwrap();
    assert!(server.await_end().unwrap().success());
}

/// One who calls the server.
#[derive(Clone)]
pub(crate) struct Attacker {
    pub(crate) server: SocketAddr,
    pub(crate) from: Ipv4Addr,
    pub(crate) key: String,
    pub(crate) headers: Vec<(&'static str, String)>,
}

pub(crate) struct AttackAnswer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl AttackAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {} {}", self.head, self.body))
    }
}

impl Attacker {
    /// The operator, from 127.0.0.1.
    pub(crate) fn admin(server: &ProcessFixture) -> Self {
        Self {
            server: server.server_at,
            from: Ipv4Addr::LOCALHOST,
            key: ADMIN_KEY.to_owned(),
            headers: Vec::new(),
        }
    }

    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(crate) fn from(&self, address: [u8; 4]) -> Self {
        Self { from: address.into(), ..self.clone() }
    }

    pub(crate) fn with_header(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.push((name, value.to_owned()));
        changed
    }

    /// Creates a key and returns one who calls with it.
    pub(crate) async fn new_key(&self, body: Value) -> Self {
        let made = self.post("/v1/keys", &body).await;
        assert_eq!(made.status, 201, "{}", made.body);
        self.with_key(made.json()["key"].as_str().unwrap())
    }

    /// One who calls with a new key of these scopes.
    pub(crate) async fn scoped(&self, scope: &str, tenant: &str) -> Self {
        self.new_key(json!({"name": "test", "scope": scope, "tenant": tenant})).await
    }

    /// The id of this caller's key.
    pub(crate) fn key_id(&self) -> String {
        format!("key_{}", &self.key[4..30])
    }

    pub(crate) async fn get(&self, path: &str) -> AttackAnswer {
        self.call("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> AttackAnswer {
        self.call("POST", path, &body.to_string()).await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> AttackAnswer {
        let mut stream = self.open(method, path, Some(body.len()), "connection: close\r\n").await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        read.expect("an answer in time").unwrap();
        parse(&bytes)
    }

    /// Sends the head of a request. A body without a length comes in chunks.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        length: Option<usize>,
        more: &str,
    ) -> TcpStream {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n{more}",
            self.key
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &match length {
            Some(length) => format!("content-length: {length}\r\n\r\n"),
            None => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        };
        let mut stream = self.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((self.from, 0))).unwrap();
        let stream = socket.connect(self.server).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

/// Reads until `word` comes. Fails if the stream ends or takes too long.
pub(crate) async fn read_until(stream: &mut TcpStream, word: &str) -> String {
    let mut text = String::new();
    let mut part = [0; 4096];
    while !text.contains(word) {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut part)).await;
        let read = read.unwrap_or_else(|_| panic!("no {word:?} in time: {text}")).unwrap();
        assert!(read > 0, "the stream ended before {word:?}: {text}");
        text += &String::from_utf8_lossy(&part[..read]);
    }
    text
}

/// Reads what there is before the end, whatever the end is.
pub(crate) async fn read_some(stream: &mut TcpStream) -> usize {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    read.map_or(0, |read| read.unwrap_or(0))
}

/// Reads to the end, which must come within `time`.
pub(crate) async fn read_end(stream: &mut TcpStream, time: Duration) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(time, stream.read_to_end(&mut bytes)).await;
    let text = || String::from_utf8_lossy(&bytes).into_owned();
    let _ = read.unwrap_or_else(|_| panic!("the stream goes on after {time:?}"));
    text()
}

/// One chunk of a body.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// A message that waits for tomorrow.
pub(crate) fn message() -> Value {
    postrider_testkit::server::message()
}

fn parse(bytes: &[u8]) -> AttackAnswer {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let head = head.to_ascii_lowercase();
    let body =
        if head.contains("transfer-encoding: chunked") { unchunk(body) } else { body.into() };
    AttackAnswer {
        status: status.unwrap_or_else(|| panic!("no HTTP answer: {text:?}")),
        head,
        body,
    }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
