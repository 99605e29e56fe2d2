//! A mail server that accepts every mail and keeps the last one per mailbox: STARTTLS, AUTH, PIPELINING, SIZE,
//! 8BITMIME, SMTPUTF8 and DSN. Refuses what real servers refuse, and fails on request at any stage.

mod command;
pub(super) mod mail;
mod reply;
mod session;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::correlation::CorrelationId;
use crate::service::SandboxState;
use session::FakeSmtpSession;

pub use reply::FakeSmtpStage;

/// The id that all attempts share: the delivery in the Message-ID, else the content of the mail.
pub(super) fn correlation(mail: &[u8]) -> CorrelationId {
    match mail::field(mail, "message-id") {
        Some(id) => {
            let id = id.trim_matches(['<', '>']);
            CorrelationId::from_text(id.split('@').next().unwrap_or_default())
        }
        None => CorrelationId::from_content(mail),
    }
}

pub(super) trait FakeSmtpStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> FakeSmtpStream for T {}

/// With `implicit`, the connection starts with TLS; else STARTTLS is offered.
pub(crate) async fn connection(
    state: Arc<SandboxState>,
    stream: TcpStream,
    tls: TlsAcceptor,
    implicit: bool,
    mut stop: watch::Receiver<()>,
) {
    let conversation = async {
        if implicit {
            let Ok(stream) = tls.accept(stream).await else { return };
            FakeSmtpSession::new(state, Box::new(stream), None).run().await;
        } else {
            FakeSmtpSession::new(state, Box::new(stream), Some(tls)).run().await;
        }
    };
    tokio::select! {
        () = conversation => {}
        _ = stop.changed() => {}
    }
}
