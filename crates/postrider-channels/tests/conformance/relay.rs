//! A mail server that says what a test tells it to say.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::provider::authority;

/// What happens instead of the usual reply.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Say(&'static str),
    HangUp,
    Silence,
    /// The usual reply, when it is told to.
    Held(Arc<Notify>),
}

#[derive(Default)]
struct State {
    /// What the command begins with (`` for the greeting, `\r` for an empty line,
    /// `.` for the end of a mail), and the act.
    script: Mutex<VecDeque<(&'static str, Act)>>,
    said: Mutex<Vec<String>>,
    mails: Mutex<Vec<String>>,
    connected: AtomicUsize,
    at_once: AtomicUsize,
    at_once_most: AtomicUsize,
    heard: Notify,
    abilities: &'static str,
}

/// Ends with the test.
pub(crate) struct Relay {
    port: u16,
    state: Arc<State>,
}

impl Relay {
    pub(crate) async fn start() -> Self {
        Self::with("PIPELINING SIZE=100000 8BITMIME DSN AUTH=PLAIN").await
    }

    pub(crate) async fn with(abilities: &'static str) -> Self {
        Self::listen(abilities, None).await
    }

    /// Encrypted from the first byte.
    pub(crate) async fn encrypted() -> Self {
        let tls = TlsAcceptor::from(authority().server_config(b"", false));
        Self::listen("PIPELINING", Some(tls)).await
    }

    async fn listen(abilities: &'static str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State { abilities, ..State::default() });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connected.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(shared.clone(), tls.clone(), stream));
            }
        });
        Self { port, state }
    }

    /// The next command that begins so meets this; in the order given.
    pub(crate) fn then(&self, command: &'static str, act: Act) -> &Self {
        self.state.script.lock().unwrap().push_back((command, act));
        self
    }

    pub(crate) fn account(&self) -> Value {
        json!({"from": "news@shop.example", "host": "127.0.0.1", "port": self.port, "tls": "none"})
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// When a mail was read to its end.
    pub(crate) async fn heard_a_mail(&self) {
        self.state.heard.notified().await;
    }

    /// The most connections that were open at the same time.
    pub(crate) fn at_once_most(&self) -> usize {
        self.state.at_once_most.load(Ordering::SeqCst)
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.state.said.lock().unwrap().clone()
    }

    pub(crate) fn mails(&self) -> Vec<String> {
        self.state.mails.lock().unwrap().clone()
    }

    pub(crate) fn connected(&self) -> usize {
        self.state.connected.load(Ordering::SeqCst)
    }
}

impl State {
    fn act(&self, command: &str) -> Option<Act> {
        let mut script = self.script.lock().unwrap();
        let fits = |(begins, _): &(&str, Act)| match *begins {
            "" => command.is_empty(),
            begins => command.to_ascii_uppercase().starts_with(begins),
        };
        let nth = script.iter().position(fits)?;
        script.remove(nth).map(|(_, act)| act)
    }

    fn usual(&self, command: &str) -> String {
        let verb = command.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "" => "220 test ESMTP".to_owned(),
            "EHLO" => {
                let words: Vec<_> = self.abilities.split(' ').collect();
                let lines = words.iter().map(|w| format!("250-{}\r\n", w.replace('=', " ")));
                format!("250-test\r\n{}250 HELP", lines.collect::<String>())
            }
            "DATA" => "354 go on".to_owned(),
            "AUTH" => "235 2.7.0 welcome".to_owned(),
            "." => "250 2.0.0 Ok: queued as 4F0C74E3".to_owned(),
            "QUIT" => "221 bye".to_owned(),
            _ => "250 2.0.0 Ok".to_owned(),
        }
    }
}

async fn serve(state: Arc<State>, tls: Option<TlsAcceptor>, stream: TcpStream) {
    let now = state.at_once.fetch_add(1, Ordering::SeqCst) + 1;
    state.at_once_most.fetch_max(now, Ordering::SeqCst);
    match tls {
        None => converse(state.clone(), stream).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                converse(state.clone(), stream).await;
            }
        }
    }
    state.at_once.fetch_sub(1, Ordering::SeqCst);
}

async fn converse(state: Arc<State>, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut stream = BufReader::new(stream);
    let mut command = String::new();
    let mut mail: Option<String> = None;
    loop {
        if let Some(text) = &mut mail {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if line != ".\r\n" {
                text.push_str(line.strip_prefix('.').unwrap_or(&line));
                continue;
            }
            command = ".".to_owned();
            state.heard.notify_one();
        }
        let reply = match state.act(&command) {
            Some(Act::HangUp) => return,
            Some(Act::Silence) => std::future::pending().await,
            Some(Act::Say(text)) => text.to_owned(),
            Some(Act::Held(go)) => {
                go.notified().await;
                state.usual(&command)
            }
            None => state.usual(&command),
        };
        if let Some(text) = mail.take().filter(|_| reply.starts_with("250")) {
            state.mails.lock().unwrap().push(text);
        }
        if stream.get_mut().write_all(format!("{reply}\r\n").as_bytes()).await.is_err() {
            return;
        }
        if reply.starts_with("354") {
            mail = Some(String::new());
            continue;
        }
        if reply.starts_with("421") || reply.starts_with("221") {
            return;
        }
        command.clear();
        if stream.read_line(&mut command).await.unwrap_or(0) == 0 {
            return;
        }
        command.truncate(command.trim_end().len());
        state.said.lock().unwrap().push(command.clone());
        if command.is_empty() {
            command.push('\r');
        }
    }
}
