//! One client's conversation with the mail server, from its greeting to its end.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderValue, Method};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_rustls::TlsAcceptor;

use super::command::{FakeSmtpCommand, SmtpPath, is_deliver_by};
use super::reply::{FakeSmtpStage, refusal};
use super::{FakeSmtpStream, mail};
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::fakes::email::ENTRY;
use crate::fault::Fault;
use crate::received::{AttemptEnding, FakeAttempt};
use crate::receiver::{LastRequest, Receiver};
use crate::service::SandboxState;

const LINE_MAX: u64 = 4096;
const SIZE_MAX: usize = 10 << 20;
/// The shortest time that a client may set with `BY=`.
const DELIVER_BY_S_MIN: i64 = 60;
const HANG: Duration = Duration::from_secs(60);
/// The one password that is refused.
const WRONG_PASSWORD: &str = "wrong";

/// The conversation is over.
struct SessionEnd;

type SessionStep = Result<(), SessionEnd>;

pub(super) struct FakeSmtpSession {
    state: Arc<SandboxState>,
    stream: BufReader<Box<dyn FakeSmtpStream>>,
    tls: Option<TlsAcceptor>,
    envelope: FakeEnvelope,
    leaving: bool,
}

#[derive(Default)]
struct FakeEnvelope {
    sender: Option<String>,
    smtputf8: bool,
    /// The value of `BY=`.
    by: Option<String>,
    id: Option<CorrelationId>,
    recipients: Vec<FakeRecipient>,
}

struct FakeRecipient {
    receiver: Arc<Receiver>,
    /// The attempt and its fault, if the correlation id was known before the mail.
    begun: Option<(FakeAttempt, Fault)>,
}

impl FakeSmtpSession {
    pub(super) fn new(
        state: Arc<SandboxState>,
        stream: Box<dyn FakeSmtpStream>,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let stream = BufReader::new(stream);
        Self { state, stream, tls, envelope: FakeEnvelope::default(), leaving: false }
    }

    pub(super) async fn run(mut self) {
        if self.say("220 sandbox.postrider.test ESMTP").await.is_err() {
            return;
        }
        while let Some(line) = self.line().await {
            if self.leaving {
                let _ = self.say("421 4.3.2 closing transmission channel").await;
                return;
            }
            let flow = match FakeSmtpCommand::read(&line) {
                FakeSmtpCommand::StartTls if self.tls.is_some() => match self.encrypted().await {
                    Some(session) => {
                        self = session;
                        Ok(())
                    }
                    None => return,
                },
                command => self.obey(command).await,
            };
            if flow.is_err() {
                return;
            }
        }
    }

    async fn obey(&mut self, command: FakeSmtpCommand<'_>) -> SessionStep {
        match command {
            FakeSmtpCommand::Ehlo => self.ehlo().await,
            FakeSmtpCommand::Helo => self.say("250 sandbox.postrider.test").await,
            FakeSmtpCommand::Auth(mechanism, initial) => self.auth(mechanism, initial).await,
            FakeSmtpCommand::Mail(path) => self.mail(&path).await,
            FakeSmtpCommand::Rcpt(path) => self.rcpt(&path).await,
            FakeSmtpCommand::Data => self.data().await,
            FakeSmtpCommand::Rset => {
                self.envelope = FakeEnvelope::default();
                self.say("250 2.0.0 Ok").await
            }
            FakeSmtpCommand::Noop => self.say("250 2.0.0 Ok").await,
            FakeSmtpCommand::Quit => {
                self.say("221 2.0.0 Bye").await?;
                Err(SessionEnd)
            }
            FakeSmtpCommand::StartTls => self.say("503 5.5.1 TLS already active").await,
            FakeSmtpCommand::Malformed => self.say("501 5.5.4 Syntax error in parameters").await,
            FakeSmtpCommand::Unknown => self.say("500 5.5.2 Command unrecognized").await,
        }
    }

    async fn ehlo(&mut self) -> SessionStep {
        self.envelope = FakeEnvelope::default();
        let starttls = if self.tls.is_some() { "250-STARTTLS\r\n" } else { "" };
        self.say(&format!(
            "250-sandbox.postrider.test\r\n{starttls}250-SIZE {SIZE_MAX}\r\n\
             250-DELIVERBY {DELIVER_BY_S_MIN}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n\
             250-DSN\r\n250-AUTH PLAIN LOGIN XOAUTH2\r\n250 ENHANCEDSTATUSCODES"
        ))
        .await
    }

    async fn encrypted(mut self) -> Option<Self> {
        self.say("220 2.0.0 Ready to start TLS").await.ok()?;
        let acceptor = self.tls.take()?;
        // What the client sent before the handshake is dropped.
        let stream = acceptor.accept(self.stream.into_inner()).await.ok()?;
        Some(Self::new(self.state, Box::new(stream), None))
    }

    async fn auth(&mut self, mechanism: &str, initial: Option<&str>) -> SessionStep {
        let decode =
            |text: &str| BASE64_STANDARD.decode(text).ok().and_then(|b| String::from_utf8(b).ok());
        let secret = match mechanism.to_ascii_uppercase().as_str() {
            "PLAIN" => {
                let given = match initial {
                    Some(text) => Some(text.to_owned()),
                    None => self.ask("").await,
                };
                given.and_then(|t| decode(&t)).and_then(|t| Some(t.rsplit_once('\0')?.1.to_owned()))
            }
            "LOGIN" => {
                let _user = self.ask("VXNlcm5hbWU6").await;
                self.ask("UGFzc3dvcmQ6").await.and_then(|text| decode(&text))
            }
            "XOAUTH2" => {
                let text = initial.and_then(decode).unwrap_or_default();
                text.split('\u{1}').find_map(|p| p.strip_prefix("auth=Bearer ")).map(str::to_owned)
            }
            _ => return self.say("504 5.5.4 Unrecognized authentication type").await,
        };
        match secret {
            Some(secret) if secret != WRONG_PASSWORD => {
                self.say("235 2.7.0 Authentication successful").await
            }
            _ => self.say("535 5.7.8 Error: authentication failed").await,
        }
    }

    async fn mail(&mut self, path: &SmtpPath<'_>) -> SessionStep {
        if path.parameter("SIZE").and_then(|n| n.parse().ok()).is_some_and(|n: usize| n > SIZE_MAX)
        {
            return self.say("552 5.3.4 Message size exceeds fixed limit").await;
        }
        let by = path.parameter("BY");
        if by.is_some_and(|by| !is_deliver_by(by, DELIVER_BY_S_MIN)) {
            return self.say("501 5.5.4 Delivery time is malformed or too short").await;
        }
        self.envelope = FakeEnvelope {
            sender: Some(path.address.to_owned()),
            smtputf8: path.has("SMTPUTF8"),
            by: by.map(str::to_owned),
            id: path.parameter("ENVID").map(CorrelationId::from_text),
            recipients: Vec::new(),
        };
        self.say("250 2.1.0 Ok").await
    }

    /// A mail with an id (ENVID) can fail here, by the script of this recipient.
    async fn rcpt(&mut self, path: &SmtpPath<'_>) -> SessionStep {
        if self.envelope.sender.is_none() {
            return self.say("503 5.5.1 Need MAIL first").await;
        }
        if !path.address.contains('@') {
            return self.say("501 5.1.3 Bad recipient address syntax").await;
        }
        if !path.address.is_ascii() && !self.envelope.smtputf8 {
            return self.say("553 5.6.7 SMTPUTF8 is required for this address").await;
        }
        let name = path.address.to_lowercase();
        let receiver = self.state.receivers.get_or_put(ENTRY.kind, &name);
        let begun = self.envelope.id.clone().map(|id| self.state.begin(&receiver, &id));
        if receiver.behaviour.stage.unwrap_or_default() == FakeSmtpStage::Rcpt
            && let Some((attempt, fault)) = &begun
            && !is_taken(*fault)
        {
            return self.fail(attempt, *fault).await;
        }
        self.envelope.recipients.push(FakeRecipient { receiver, begun });
        self.say("250 2.1.5 Ok").await
    }

    async fn data(&mut self) -> SessionStep {
        if self.envelope.recipients.is_empty() {
            return self.say("554 5.5.1 No valid recipients").await;
        }
        let envelope = std::mem::take(&mut self.envelope);
        let refused = envelope.recipients.iter().find_map(|recipient| {
            let early = recipient.receiver.behaviour.stage == Some(FakeSmtpStage::Data);
            recipient.begun.as_ref().filter(|(_, fault)| early && !is_taken(*fault))
        });
        if let Some((attempt, fault)) = refused {
            return self.fail(attempt, *fault).await;
        }
        self.say("354 End data with <CR><LF>.<CR><LF>").await?;
        let content = self.content().await?;
        if content.len() > SIZE_MAX {
            return self.say("552 5.3.4 Message size exceeds fixed limit").await;
        }
        if let Some(flaw) = mail::flaw(&content, envelope.smtputf8) {
            let now = self.state.received.since_start_ms();
            self.state.received.counts.failed(ENTRY.kind, now, CheckFailure::Request, 554);
            let sender = envelope.sender.unwrap_or_default();
            let request = || last(&sender, envelope.by.as_deref(), content);
            self.state.inbox.reject(ENTRY.kind, request, 554, flaw);
            return self.say(&format!("554 {flaw}")).await;
        }
        self.take(envelope, content).await
    }

    /// SMTP has one answer for all recipients: that of the first.
    async fn take(&mut self, envelope: FakeEnvelope, content: Vec<u8>) -> SessionStep {
        let id = super::correlation(&content);
        let (sender, by) = (envelope.sender.unwrap_or_default(), envelope.by);
        let request = Arc::new(last(&sender, by.as_deref(), content));
        let mut answer = None;
        for recipient in envelope.recipients {
            let receiver = recipient.receiver;
            receiver.remember(&request);
            let begun = recipient.begun.unwrap_or_else(|| self.state.begin(&receiver, &id));
            self.state.inbox.give_content(begun.0.inbox, Arc::clone(&request));
            if answer.is_none() {
                answer = Some(begun);
            } else {
                self.state.end(&begun.0, AttemptEnding::Accepted { status: 250 });
            }
        }
        let Some((attempt, fault)) = answer else { return Ok(()) };
        match fault {
            Fault::Accept | Fault::GoAway | Fault::Slow { .. } | Fault::Drip => {
                if let Fault::Slow { delay_ms } = fault {
                    tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
                }
                self.leaving = fault == Fault::GoAway;
                self.state.end(&attempt, AttemptEnding::Accepted { status: 250 });
                let name = id.stable_hash(u64::from(attempt.number));
                self.say(&format!("250 2.0.0 Ok: queued as {name:016X}")).await
            }
            Fault::ResetAfter => {
                self.state.end(&attempt, AttemptEnding::AcceptedUnanswered);
                Err(SessionEnd)
            }
            other => self.fail(&attempt, other).await,
        }
    }

    /// Answers with a fault that does not take the mail.
    async fn fail(&mut self, attempt: &FakeAttempt, fault: Fault) -> SessionStep {
        let (status, retry_after_s) = match fault {
            Fault::Status { code, retry_after_s } => (code, retry_after_s),
            Fault::Redirect => (551, None),
            Fault::Refused => (421, None),
            Fault::HugeBody => {
                let ending = AttemptEnding::Refused { status: 554, retry_after_s: None };
                self.state.end(attempt, ending);
                let line = format!("554-5.3.0 {}\r\n", "x".repeat(400)).repeat(64);
                return self.say(&format!("{line}554 5.3.0 huge")).await;
            }
            _ => {
                self.state.end(attempt, AttemptEnding::Unprocessed);
                if fault == Fault::Hang {
                    tokio::time::sleep(HANG).await;
                }
                return Err(SessionEnd);
            }
        };
        let (code, text) = refusal(status);
        self.state.end(attempt, AttemptEnding::Refused { status: code, retry_after_s });
        self.say(&format!("{code} {text}")).await?;
        if code == 421 { Err(SessionEnd) } else { Ok(()) }
    }

    /// The mail up to the dot that ends it, without doubled dots.
    async fn content(&mut self) -> Result<Vec<u8>, SessionEnd> {
        let mut content = Vec::new();
        loop {
            let start = content.len();
            let limit = (SIZE_MAX * 2) as u64;
            let read = (&mut self.stream).take(limit).read_until(b'\n', &mut content).await;
            if !matches!(read, Ok(1..)) || content.len() > SIZE_MAX * 2 {
                return Err(SessionEnd);
            }
            if &content[start..] == b".\r\n" {
                content.truncate(start);
                return Ok(content);
            }
            if content[start] == b'.' {
                content.remove(start);
            }
        }
    }

    async fn ask(&mut self, challenge: &str) -> Option<String> {
        self.say(&format!("334 {challenge}")).await.ok()?;
        self.line().await
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || line.last() != Some(&b'\n') {
            return None;
        }
        Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    }

    async fn say(&mut self, text: &str) -> SessionStep {
        let line = format!("{text}\r\n");
        let stream = self.stream.get_mut();
        let written = async {
            stream.write_all(line.as_bytes()).await?;
            stream.flush().await
        };
        written.await.map_err(|_: std::io::Error| SessionEnd)
    }
}

fn is_taken(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::Accept | Fault::GoAway | Fault::Slow { .. } | Fault::Drip | Fault::ResetAfter
    )
}

fn last(sender: &str, by: Option<&str>, content: Vec<u8>) -> LastRequest {
    let mut headers = HeaderMap::new();
    let fields = ["from", "to", "subject", "message-id", "list-unsubscribe", "dkim-signature"];
    let fields = fields.map(|name| (name, mail::field(&content, name)));
    let envelope =
        [("return-path", Some(sender.to_owned())), ("deliver-by", by.map(str::to_owned))];
    for (name, text) in fields.into_iter().chain(envelope) {
        if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(name, value);
        }
    }
    let uri = "smtp:".to_owned();
    LastRequest { method: Method::POST, uri, headers, body: content.into() }
}
