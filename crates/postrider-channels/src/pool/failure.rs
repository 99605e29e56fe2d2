//! Why no answer came, and whether the peer may have processed the request.

use std::error::Error as _;

use h2::Reason;
use hyper::client::conn::TrySendError;

use super::UrlError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// Nothing was sent: no name, no connection, no TLS, or no free stream in time.
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
    pub(super) fn not_sent(code: &'static str, detail: impl Into<String>) -> Self {
        Self::NotSent { code, detail: detail.into() }
    }

    /// For protocols other than HTTP, whose connections fail only before anything is sent.
    pub(crate) fn into_code_and_detail(self) -> (&'static str, String) {
        match self {
            Self::NotSent { code, detail } => (code, detail),
            other => ("connect", format!("{other:?}")),
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
            TransportError::not_sent("goaway", reason.description())
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
