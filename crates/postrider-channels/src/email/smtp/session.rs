//! One SMTP session: greeting, TLS, login, then one mail after the other. Reports how each mail ended. The table of
//! answers decides what that means, and [`super::Relay`] decides when to open a new session.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use postrider_core::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::RelayConfig;
use super::reply::{SmtpReply, SmtpStage};
use super::wire::{self, OutgoingMail, SmtpExtensions};
use crate::credential_echo;
use crate::open_connections::OpenConnection;
use crate::pool::connect::Io;

/// The last bytes of a mail are written together with its final dot.
const LAST_WRITE: usize = 16 * 1024;

const GOOD_BYE: Duration = Duration::from_secs(2);

/// How one mail, or the attempt to open a session, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmtpOutcome {
    Accepted(SmtpReply),
    Refused(SmtpStage, SmtpReply),
    /// We ran out of connections to the relay, or of something else: nobody else is to blame.
    Local {
        code: &'static str,
        detail: String,
    },
    /// No connection to the relay could be opened.
    Unopened {
        code: &'static str,
        detail: String,
    },
    /// The session ended before the mail was sent.
    NotSent {
        code: &'static str,
        detail: String,
    },
    /// A session that was used before ended before this mail was sent.
    Stale,
    /// The final dot was sent, and no answer came.
    Unknown {
        code: &'static str,
    },
    /// The server can never take this mail.
    Unfit {
        code: &'static str,
        detail: String,
    },
    /// Our own settings do not fit this server.
    Config {
        code: &'static str,
        detail: String,
    },
}

pub(super) struct Session {
    stream: Box<dyn Io>,
    buffer: BytesMut,
    pub(super) server: SmtpExtensions,
    pub(super) born: Instant,
    pub(super) last_used: Instant,
    pub(super) mails: u32,
    /// It takes no more mails.
    pub(super) over: bool,
    /// The end of the server's certificate; none without TLS.
    pub(super) certificate_until: Option<Timestamp>,
    /// The deadline of the current step.
    until: Instant,
    /// The forms in which the server could repeat what we logged in with.
    credentials: Vec<String>,
    _open: OpenConnection,
}

/// Why the session ended early.
enum SessionError {
    Closed,
    Timeout,
    Malformed,
}

impl SessionError {
    fn code(&self) -> &'static str {
        match self {
            Self::Closed => "reset",
            Self::Timeout => "timeout",
            Self::Malformed => "protocol",
        }
    }
}

impl From<SessionError> for SmtpOutcome {
    /// For an error before the mail was sent.
    fn from(error: SessionError) -> Self {
        let detail = match error {
            SessionError::Closed => "the server closed the connection",
            SessionError::Timeout => "the server did not answer in time",
            SessionError::Malformed => "the server does not speak SMTP",
        };
        Self::NotSent { code: error.code(), detail: detail.to_owned() }
    }
}

impl Session {
    pub(super) fn new(
        stream: Box<dyn Io>,
        certificate_until: Option<Timestamp>,
        until: Instant,
        open: OpenConnection,
    ) -> Self {
        let now = Instant::now();
        Self {
            stream,
            buffer: BytesMut::with_capacity(1024),
            server: SmtpExtensions::default(),
            born: now,
            last_used: now,
            mails: 0,
            over: false,
            certificate_until,
            until,
            credentials: Vec::new(),
            _open: open,
        }
    }

    pub(super) async fn greet(&mut self) -> Result<(), SmtpOutcome> {
        match self.read().await? {
            greeting if greeting.code == 220 => Ok(()),
            greeting => Err(SmtpOutcome::Refused(SmtpStage::Greeting, greeting)),
        }
    }

    pub(super) async fn ehlo(&mut self, name: &str) -> Result<(), SmtpOutcome> {
        let mut reply = self.ask(&format!("EHLO {name}\r\n")).await?;
        if (500..=504).contains(&reply.code) {
            // A server without EHLO has no extensions.
            reply = self.ask(&format!("HELO {name}\r\n")).await?;
            reply.lines.truncate(1);
        }
        if !reply.is_positive() {
            return Err(SmtpOutcome::Refused(SmtpStage::Ehlo, reply));
        }
        self.server = SmtpExtensions::read(&reply.lines);
        Ok(())
    }

    /// Returns the stream for a TLS handshake. Bytes after the reply are refused: an attacker may have added them.
    pub(super) async fn start_tls(mut self) -> Result<Box<dyn Io>, SmtpOutcome> {
        let reply = self.ask("STARTTLS\r\n").await?;
        if reply.code != 220 {
            return Err(SmtpOutcome::Refused(SmtpStage::StartTls, reply));
        }
        if !self.buffer.is_empty() {
            let detail = "the server sent data between STARTTLS and the handshake".to_owned();
            return Err(SmtpOutcome::NotSent { code: "tls", detail });
        }
        Ok(self.stream)
    }

    /// Logs in by the first method that both sides support.
    pub(super) async fn log_in(
        &mut self,
        user: &str,
        secret: &str,
        token: bool,
    ) -> Result<(), SmtpOutcome> {
        let bearer = format!("user={user}\x01auth=Bearer {secret}\x01\x01");
        let plain = format!("\0{user}\0{secret}");
        let sent = [secret, &bearer, &plain].map(str::to_owned);
        self.credentials = credential_echo::forms(sent.into());
        let offers = |way: &str| self.server.auth.iter().any(|known| known == way);
        let reply = if token && offers("XOAUTH2") {
            self.ask(&format!("AUTH XOAUTH2 {}\r\n", STANDARD.encode(bearer))).await?
        } else if !token && offers("PLAIN") {
            self.ask(&format!("AUTH PLAIN {}\r\n", STANDARD.encode(plain))).await?
        } else if !token && offers("LOGIN") {
            self.log_in_by_questions(user, secret).await?
        } else {
            let wanted = if token { "XOAUTH2" } else { "PLAIN or LOGIN" };
            let detail = format!("the server does not offer AUTH {wanted}");
            return Err(SmtpOutcome::Config { code: "auth_not_offered", detail });
        };
        // XOAUTH2 explains a refusal in a challenge, and wants an empty answer to it.
        let reply = if reply.code == 334 { self.ask("\r\n").await? } else { reply };
        if reply.is_positive() { Ok(()) } else { Err(SmtpOutcome::Refused(SmtpStage::Auth, reply)) }
    }

    async fn log_in_by_questions(
        &mut self,
        user: &str,
        secret: &str,
    ) -> Result<SmtpReply, SmtpOutcome> {
        let mut reply = self.ask("AUTH LOGIN\r\n").await?;
        for answer in [user, secret] {
            if reply.code != 334 {
                return Ok(reply);
            }
            reply = self.ask(&format!("{}\r\n", STANDARD.encode(answer))).await?;
        }
        Ok(reply)
    }

    /// Sends one mail. The envelope has time until `until`, the mail itself as long as the relay's settings say.
    pub(super) async fn send(
        &mut self,
        outgoing: &OutgoingMail,
        config: &RelayConfig,
        until: Instant,
    ) -> SmtpOutcome {
        self.until = until;
        if let Some(unfit) = self.unfit(outgoing) {
            return unfit;
        }
        let used_before = self.mails > 0;
        self.mails += 1;
        let end = match self.envelope(outgoing, used_before).await {
            Ok(()) => self.data(&outgoing.mail, config.final_dot_timeout).await,
            Err(SmtpOutcome::NotSent { code: "reset", .. }) if used_before => SmtpOutcome::Stale,
            Err(end) => end,
        };
        self.last_used = Instant::now();
        self.over |= match &end {
            SmtpOutcome::Accepted(reply) | SmtpOutcome::Refused(_, reply) => reply.code == 421,
            _ => true,
        };
        end
    }

    fn unfit(&self, outgoing: &OutgoingMail) -> Option<SmtpOutcome> {
        let (len, max) = (outgoing.mail.len() as u64, self.server.size);
        if let Some(max) = max.filter(|max| len > *max) {
            let detail = format!("the mail has {len} bytes, the server takes {max}");
            return Some(SmtpOutcome::Unfit { code: "too_large", detail });
        }
        let able = self.server.smtputf8 && self.server.eight_bit_mime;
        (outgoing.needs_smtputf8() && !able).then(|| SmtpOutcome::Unfit {
            code: "no_smtputf8",
            detail: "the address is not ASCII, and the server does not offer SMTPUTF8".to_owned(),
        })
    }

    /// Sends the commands before the mail, in one write if the server allows pipelining.
    async fn envelope(
        &mut self,
        outgoing: &OutgoingMail,
        used_before: bool,
    ) -> Result<(), SmtpOutcome> {
        let mut commands = Vec::with_capacity(4);
        if used_before {
            commands.push((None, "RSET\r\n".to_owned()));
        }
        commands.push((Some(SmtpStage::Mail), outgoing.mail_from(&self.server)));
        commands.push((Some(SmtpStage::Rcpt), outgoing.rcpt_to(&self.server)));
        commands.push((Some(SmtpStage::Data), "DATA\r\n".to_owned()));
        if self.server.pipelining {
            let all: String = commands.iter().map(|(_, line)| line.as_str()).collect();
            self.write(all.as_bytes()).await?;
        }
        let mut refused = None;
        for (stage, line) in &commands {
            if !self.server.pipelining {
                self.write(line.as_bytes()).await?;
            }
            let reply = match self.read().await {
                Ok(reply) => reply,
                // A refusal before the connection closed is the reason.
                Err(broken) => {
                    self.over = true;
                    return Err(refused.unwrap_or_else(|| broken.into()));
                }
            };
            let wanted = if *stage == Some(SmtpStage::Data) { 354 } else { 250 };
            let agreed = reply.code == wanted || (wanted == 250 && reply.is_positive());
            // After a 421 no further replies come, even to pipelined commands.
            let closing = reply.code == 421;
            match (refused.is_some(), agreed, stage) {
                (true, true, Some(SmtpStage::Data)) => self.hand_over_nothing().await,
                // The session had timed out; that says nothing about this mail.
                (false, false, None) if closing => refused = Some(SmtpOutcome::Stale),
                (false, false, _) => {
                    // A refused RSET counts as a refused MAIL.
                    refused = Some(SmtpOutcome::Refused(stage.unwrap_or(SmtpStage::Mail), reply));
                }
                _ => {}
            }
            self.over |= closing;
            if closing || (refused.is_some() && !self.server.pipelining) {
                break;
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Sends an empty mail to a server that refused the envelope but accepted DATA.
    async fn hand_over_nothing(&mut self) {
        let ended = self.write(b".\r\n").await.is_ok() && self.read().await.is_ok();
        self.over |= !ended;
    }

    async fn data(&mut self, mail: &[u8], within: Duration) -> SmtpOutcome {
        self.until = Instant::now() + within;
        let text = wire::dotted(mail);
        let (body, last) = text.split_at(text.len().saturating_sub(LAST_WRITE));
        if !body.is_empty()
            && let Err(broken) = self.write(body).await
        {
            // No server accepts a mail without its final dot.
            return broken.into();
        }
        let answer = async {
            self.write(last).await?;
            self.read().await
        };
        match answer.await {
            Ok(reply) if reply.is_positive() => SmtpOutcome::Accepted(reply),
            Ok(reply) => SmtpOutcome::Refused(SmtpStage::Dot, reply),
            Err(broken) => SmtpOutcome::Unknown { code: broken.code() },
        }
    }

    /// Sends QUIT and does not wait for the answer.
    pub(super) async fn quit(mut self) {
        self.until = Instant::now() + GOOD_BYE;
        let _ = self.write(b"QUIT\r\n").await;
        let _ = self.stream.shutdown().await;
    }

    async fn ask(&mut self, line: &str) -> Result<SmtpReply, SmtpOutcome> {
        self.write(line.as_bytes()).await?;
        Ok(self.read().await?)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match timeout_at(self.until, written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SessionError::Closed),
            Err(_) => Err(SessionError::Timeout),
        }
    }

    async fn read(&mut self) -> Result<SmtpReply, SessionError> {
        loop {
            match SmtpReply::parse(&self.buffer) {
                Ok(Some((reply, len))) => {
                    let _ = self.buffer.split_to(len);
                    return Ok(reply.without(&self.credentials));
                }
                Ok(None) => {}
                Err(_) => return Err(SessionError::Malformed),
            }
            let more = self.stream.read_buf(&mut self.buffer);
            match timeout_at(self.until, more).await {
                Ok(Ok(0) | Err(_)) => return Err(SessionError::Closed),
                Ok(Ok(_)) => {}
                Err(_) => return Err(SessionError::Timeout),
            }
        }
    }
}
