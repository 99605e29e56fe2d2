//! Why no answer came, by what is known about the request's fate.

use std::error::Error as _;

use h2::Reason;
use hyper::client::conn::TrySendError;

use super::UrlError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// Nothing of the request left: no name, no connection, no TLS, no free stream in time.
    NotSent { code: &'static str, detail: String },
    /// The peer says that it did not process the request, or it was never written: again, free.
    Replay { code: &'static str },
    /// The request, or part of it, left; no answer came.
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
}

/// What a failed send means for the request. Whatever is not certain is ambiguous.
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

/// A stream that a GOAWAY ends lies above the last one that the peer will process, whatever the
/// reason. Only a peer that leaves in peace is called again at once.
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
