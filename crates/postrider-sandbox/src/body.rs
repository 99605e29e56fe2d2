//! Bodies that the sandbox sends: a few bytes, the long list of ids piece by piece, or far too
//! much on purpose; and reading what is sent to it, with a limit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::answer::FakeAnswer;
use super::received::{ReceivedRequests, SHARDS};

static NOISE: [u8; 16 * 1024] = [b'x'; 16 * 1024];

pub enum FakeBody {
    Whole(Bytes),
    /// All received ids as NDJSON; the next shard to send.
    Ids(Arc<ReceivedRequests>, usize),
    /// So many bytes of noise.
    Noise(usize),
}

impl Body for FakeBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) => std::mem::take(bytes),
            Self::Noise(left) => {
                let len = NOISE.len().min(*left);
                *left -= len;
                Bytes::from_static(&NOISE[..len])
            }
            Self::Ids(received, next) => {
                let mut piece = Bytes::new();
                while piece.is_empty() && *next < SHARDS {
                    piece = received.shard_as_ndjson(*next);
                    *next += 1;
                }
                piece
            }
        };
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Noise(left) => SizeHint::with_exact(*left as u64),
            Self::Ids(..) => SizeHint::default(),
        }
    }
}

impl From<FakeAnswer> for Response<FakeBody> {
    fn from(answer: FakeAnswer) -> Self {
        let mut response = Response::new(FakeBody::Whole(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyReadError {
    TooLarge,
    /// The peer went away in the middle.
    Broken,
}

pub(super) async fn read(body: Incoming, max: usize) -> Result<Bytes, BodyReadError> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyReadError::TooLarge),
        Err(_) => Err(BodyReadError::Broken),
    }
}
