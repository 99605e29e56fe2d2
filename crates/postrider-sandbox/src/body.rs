//! Bodies that the sandbox sends, whole or in pieces, and a limited read of the bodies that it receives.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};

use super::answer::FakeAnswer;

pub(super) type FakeBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

const DRIPS_PER_S: u32 = 4;

/// A body whose pieces are made while it is sent.
pub(super) fn in_pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> FakeBody {
    // An empty piece would end the body.
    let frames = pieces.filter(|piece| !piece.is_empty()).map(|piece| Ok(Frame::data(piece)));
    Either::Right(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
}

/// A body whose pieces come when there is something to say.
pub(super) fn streamed(
    pieces: impl futures_util::Stream<Item = Bytes> + Send + 'static,
) -> FakeBody {
    let frames = futures_util::StreamExt::map(pieces, |piece| Ok(Frame::data(piece)));
    Either::Right(StreamBody::new(frames).boxed_unsync())
}

/// A body that comes byte by byte for so long.
pub(super) fn drip(lasting: Duration) -> FakeBody {
    let left = lasting.as_secs() * u64::from(DRIPS_PER_S);
    let drops = futures_util::stream::unfold(left, |left| async move {
        let left = left.checked_sub(1)?;
        tokio::time::sleep(Duration::from_secs(1) / DRIPS_PER_S).await;
        Some((Ok(Frame::data(Bytes::from_static(b"."))), left))
    });
    Either::Right(StreamBody::new(drops).boxed_unsync())
}

impl From<FakeAnswer> for Response<FakeBody> {
    fn from(answer: FakeAnswer) -> Self {
        let mut response = Response::new(Either::Left(Full::new(answer.body)));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

pub(super) enum BodyReadError {
    TooLarge,
    /// The client closed the connection before the end of the body.
    Broken,
}

pub(super) async fn read(body: Incoming, max: usize) -> Result<Bytes, BodyReadError> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyReadError::TooLarge),
        Err(_) => Err(BodyReadError::Broken),
    }
}
