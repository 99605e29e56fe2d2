//! A mail server that takes every mail and keeps the last one per mailbox: STARTTLS, AUTH, PIPELINING,
//! SIZE, 8BITMIME, SMTPUTF8 and DSN. Refuses what real servers refuse, and fails on request at any
//! stage. Delivers nothing.

mod command;
mod mail;
mod reply;
mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::correlation::Correlation;
use super::service::App;
use session::Session;

pub use reply::Stage;

/// Why a mail server would refuse this mail.
pub(super) fn flaw(mail: &[u8]) -> Option<&'static str> {
    mail::flaw(mail, false)
}

/// What ties attempts together: the delivery in the Message-ID, else the mail itself.
pub(super) fn correlation(mail: &[u8]) -> Correlation {
    match mail::field(mail, "message-id") {
        Some(id) => {
            let id = id.trim_matches(['<', '>']);
            Correlation::from_text(id.split('@').next().unwrap_or_default())
        }
        None => Correlation::from_content(mail),
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// `implicit` says whether TLS comes first; else STARTTLS is offered.
pub(super) async fn accept_loop(
    app: Arc<App>,
    listener: TcpListener,
    tls: TlsAcceptor,
    implicit: bool,
    mut stop: watch::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (app, tls, mut stop) = (Arc::clone(&app), tls.clone(), stop.clone());
        tokio::spawn(async move {
            let conversation = async {
                if implicit {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    Session::new(app, Box::new(stream), None).run().await;
                } else {
                    Session::new(app, Box::new(stream), Some(tls)).run().await;
                }
            };
            tokio::select! {
                () = conversation => {}
                _ = stop.changed() => {}
            }
        });
    }
}
