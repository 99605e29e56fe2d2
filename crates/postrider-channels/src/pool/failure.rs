//! Why no answer came, and whether the peer may have processed the request.

use std::error::Error as _;
use std::time::Duration;

use h2::Reason;
use hyper::client::conn::TrySendError;
use postrider_core::{Outcome, Report};

use super::UrlError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// We ran out of something: connections, descriptors, ports, name lookups. Nobody else is to blame.
    Local { code: &'static str, detail: String },
    /// No connection could be opened: no such name, refused, no TLS, no answer.
    Unopened {
        code: &'static str,
        detail: String,
        /// Nothing at all came back, as if our own network were down.
        is_silent: bool,
    },
    /// The peer gave up the connection before it processed the request.
    NotSent { code: &'static str, detail: String },
    /// The peer says that it did not process the request, or it was never written. Repeating it is safe.
    Replay { code: &'static str },
    /// At least a part of the request was sent, and no answer came.
    Ambiguous { code: &'static str },
    /// The target is not allowed.
    Blocked { code: &'static str },
    /// The URL cannot be sent to.
    BadUrl(UrlError),
}

impl TransportError {
    pub(crate) fn local(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Local { code, detail: detail.into() }
    }

    pub(crate) fn unopened(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Unopened { code, detail: detail.into(), is_silent: false }
    }

    pub(super) fn silent(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Unopened { code, detail: detail.into(), is_silent: true }
    }

    /// The report of a call without an answer.
    pub(crate) fn into_report(self) -> Report {
        match self {
            Self::Local { code, detail } => Report::new(Outcome::Local).code(code).detail(detail),
            Self::Unopened { code, detail, .. } => Report::unopened().code(code).detail(detail),
            Self::NotSent { code, detail } => {
                Report::new(Outcome::RetryBackoff { at_least: Duration::ZERO })
                    .code(code)
                    .detail(detail)
            }
            Self::Replay { code } => Report::new(Outcome::Reconnect).code(code),
            Self::Ambiguous { code } => Report::new(Outcome::Ambiguous).code(code),
            Self::Blocked { code } => Report::new(Outcome::DropMessage)
                .code(code)
                .detail("the target is not allowed by the network settings"),
            Self::BadUrl(error) => {
                Report::new(Outcome::DropMessage).code("bad_url").detail(error.allowed())
            }
        }
    }
}

/// Classifies a failed send. Everything uncertain is ambiguous.
pub(super) fn of_send<B>(error: TrySendError<B>) -> TransportError {
    if error.message().is_some() {
        return TransportError::Replay { code: "not_written" };
    }
    let error = error.into_error();
    match h2_cause(&error) {
        Some(h2) => of_h2(h2),
        None if error.is_timeout() => TransportError::Ambiguous { code: "ping_timeout" },
        None if error.is_parse() => TransportError::Ambiguous { code: "protocol" },
        None => TransportError::Ambiguous { code: "reset" },
    }
}

/// A GOAWAY ends only streams that the peer will not process. A request is repeated at once only if the GOAWAY
/// carries no error.
fn of_h2(error: &h2::Error) -> TransportError {
    let reason = error.reason();
    match (error.is_remote(), reason) {
        (true, Some(Reason::NO_ERROR)) if error.is_go_away() => {
            TransportError::Replay { code: "goaway" }
        }
        (true, Some(reason)) if error.is_go_away() => {
            TransportError::NotSent { code: "goaway", detail: reason.description().to_owned() }
        }
        (true, Some(Reason::REFUSED_STREAM)) => TransportError::Replay { code: "refused_stream" },
        (false, Some(_)) => TransportError::Ambiguous { code: "protocol" },
        _ => TransportError::Ambiguous { code: "reset" },
    }
}

fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<h2::Error>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
