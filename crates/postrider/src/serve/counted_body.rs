//! The body of an answer: its request is open, and keeps its place among the calls of its key, until it ends. Hands out
//! small parts and notes when it waits for the caller. Closes nothing itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::connection::OpenRequest;
use crate::api::KeyCallPlace;

/// Bytes of a part. What was handed out is in memory until the caller reads it, and does not count as waiting once the
/// connection has it.
const PART_BYTES: usize = 16 * 1024;

pub(super) struct CountedBody {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    request: OpenRequest,
    _place: Option<KeyCallPlace>,
}

impl CountedBody {
    pub(super) fn answer(mut answer: Response, request: OpenRequest) -> http::Response<Self> {
        let place = answer.extensions_mut().remove::<KeyCallPlace>();
        // The caller has to let the first part through, too.
        request.note_wait(true);
        answer.map(|body| Self { body, rest: Bytes::new(), request, _place: place })
    }

    fn next_part(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PART_BYTES);
        Frame::data(self.rest.split_to(length))
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            self.request.note_wait(true);
            return Poll::Ready(Some(Ok(self.next_part())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.request.note_wait(polled.is_ready());
        polled.map(|frame| {
            frame.map(|frame| match frame?.into_data() {
                Ok(data) => {
                    self.rest = data;
                    Ok(self.next_part())
                }
                Err(trailers) => Ok(trailers),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::super::connection::{ConnectionState, ConnectionTimes, ConnectionVerdict};
    use super::*;

    fn state() -> Arc<ConnectionState> {
        let seconds = Duration::from_secs;
        let (first_request, idle, age) = (seconds(5), seconds(75), seconds(3600));
        let times = ConnectionTimes { first_request, idle, age, write: seconds(30) };
        Arc::new(ConnectionState::new(times))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_closes_the_connection_and_one_that_waits_for_us_does_not()
    {
        let state = state();
        let after = async |s: u64| {
            tokio::time::advance(Duration::from_secs(s)).await;
            state.verdict(Instant::now()) != ConnectionVerdict::Close
        };
        let long = Response::new(Body::from(vec![7; 40_000]));
        let mut unread = CountedBody::answer(long, state.begin()).into_body();
        assert!(after(29).await);
        let mut parts = Vec::new();
        while let Some(part) = unread.frame().await {
            parts.push(part.unwrap().into_data().unwrap().len());
            assert!(after(29).await, "a slow caller is served");
        }
        assert_eq!(parts, [16_384, 16_384, 7_232]);
        drop(unread);
        let events = futures_util::stream::iter([Ok::<_, Infallible>("event: x")]);
        let endless = Body::from_stream(events.chain(futures_util::stream::pending()));
        let mut stream = CountedBody::answer(Response::new(endless), state.begin()).into_body();
        stream.frame().await.unwrap().unwrap();
        assert!(futures_util::poll!(stream.frame()).is_pending());
        assert!(after(3_000).await, "it waits for the next event");
        let _unread = CountedBody::answer(Response::new("x".into()), state.begin());
        assert!(!after(30).await, "it waits for the caller");
    }

    #[test]
    fn a_body_in_parts_has_the_length_of_the_whole() {
        let body = CountedBody::answer(Response::new("abc".into()), state().begin()).into_body();
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
    }
}
