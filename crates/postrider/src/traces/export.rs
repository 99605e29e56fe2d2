//! Sends spans in batches, away from everything else. A receiver that fails is tried again some times; then its batch
//! is dropped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, TE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;

use super::encoding::export_request;
use super::{SpanProtocol, SpanReceiver, TraceSpan};
use crate::telemetry::Metrics;

/// Spans gather for this time.
const GATHER: Duration = Duration::from_secs(1);
/// How often a batch is tried, and the first pause.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// An answer has nothing that is needed.
const ANSWER_BYTES: usize = 64 << 10;

pub(crate) struct SpanExporter {
    pub(super) receiver: SpanReceiver,
    pub(super) service: String,
    pub(super) batch_max: usize,
    pub(super) timeout: Duration,
    pub(super) metrics: Arc<Metrics>,
    pub(super) queue: mpsc::Receiver<TraceSpan>,
    pub(super) ending: watch::Receiver<bool>,
}

impl SpanExporter {
    /// Runs until the tracer ends, and then sends what is left, once.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(self.batch_max);
        let mut is_failing = false;
        loop {
            let is_ending = self.gather(&mut batch).await;
            if batch.is_empty() {
                if is_ending {
                    return;
                }
                continue;
            }
            match self.send(&batch, if is_ending { 1 } else { TRIES }).await {
                Ok(()) => {
                    self.metrics.spans("sent", batch.len());
                    is_failing = false;
                }
                Err(error) => {
                    self.metrics.spans("failed", batch.len());
                    if !std::mem::replace(&mut is_failing, true) {
                        let error = format!("{error:#}");
                        tracing::warn!(
                            error,
                            "spans cannot be sent and are dropped (traces.endpoint)"
                        );
                    }
                }
            }
            batch.clear();
        }
    }

    /// Waits for spans. True if there will be no more.
    async fn gather(&mut self, batch: &mut Vec<TraceSpan>) -> bool {
        let gathered = async {
            while batch.len() < self.batch_max {
                match self.queue.recv().await {
                    Some(span) => batch.push(span),
                    None => return true,
                }
            }
            false
        };
        tokio::select! {
            biased;
            result = tokio::time::timeout(GATHER, gathered) => result.unwrap_or(false),
            _ = self.ending.wait_for(|is_ending| *is_ending) => {
                while batch.len() < self.batch_max && let Ok(span) = self.queue.try_recv() {
                    batch.push(span);
                }
                batch.len() < self.batch_max
            }
        }
    }

    async fn send(&self, batch: &[TraceSpan], tries: u32) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let body = Bytes::from(export_request(&self.service, version, batch));
        let mut pause = PAUSE;
        for left in (0..tries).rev() {
            let call = tokio::time::timeout(self.timeout, self.receiver.call(body.clone()));
            let result = match call.await {
                Ok(result) => result,
                Err(_) => Err(anyhow::anyhow!("no answer within traces.timeout_s")),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error) if left == 0 => return Err(error),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        Ok(())
    }
}

impl SpanReceiver {
    /// One call over a connection of its own.
    async fn call(&self, body: Bytes) -> anyhow::Result<()> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.context("cannot connect")?;
        stream.set_nodelay(true)?;
        if !self.has_tls {
            return self.call_over(TokioIo::new(stream), body).await;
        }
        let mut tls =
            crate::client::tls_config().context("cannot read the trusted certificates")?;
        let protocol: &[u8] = if self.protocol == SpanProtocol::Grpc { b"h2" } else { b"http/1.1" };
        Arc::make_mut(&mut tls).alpn_protocols = vec![protocol.to_vec()];
        let name = rustls::pki_types::ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        self.call_over(TokioIo::new(stream.context("TLS failed")?), body).await
    }

    async fn call_over<S>(&self, stream: S, body: Bytes) -> anyhow::Result<()>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        match self.protocol {
            SpanProtocol::Http => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(stream).await?;
                let connection = tokio::spawn(connection);
                let request = self.request(self.path.clone(), "application/x-protobuf", body)?;
                let answer = sender.send_request(request).await?;
                let status = answer.status();
                let read = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
                connection.abort();
                read.map_err(|error| anyhow::anyhow!("the answer is cut off: {error}"))?;
                ensure!(status.is_success(), "the receiver answered with status {status}");
                Ok(())
            }
            SpanProtocol::Grpc => {
                let executor = TokioExecutor::new();
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(executor, stream).await?;
                let connection = tokio::spawn(connection);
                let scheme = if self.has_tls { "https" } else { "http" };
                let uri = format!("{scheme}://{}{}", self.authority, self.path);
                let request = self.request(uri, "application/grpc", framed(&body))?;
                let answer = sender.send_request(request).await?;
                let status = answer.status();
                let mut grpc = answer.headers().get("grpc-status").cloned();
                let read = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
                connection.abort();
                let read =
                    read.map_err(|error| anyhow::anyhow!("the answer is cut off: {error}"))?;
                let trailer = read.trailers().and_then(|trailers| trailers.get("grpc-status"));
                grpc = trailer.cloned().or(grpc);
                ensure!(status.is_success(), "the receiver answered with status {status}");
                match grpc.as_ref().map(|value| value.to_str().unwrap_or("?")) {
                    Some("0") => Ok(()),
                    Some(code) => bail!("the receiver answered with gRPC status {code}"),
                    None => bail!("the receiver answered without a gRPC status"),
                }
            }
        }
    }

    fn request(
        &self,
        uri: String,
        kind: &str,
        body: Bytes,
    ) -> anyhow::Result<http::Request<Full<Bytes>>> {
        let mut request = http::Request::post(uri).header(CONTENT_TYPE, kind);
        request = match self.protocol {
            SpanProtocol::Http => request.header(HOST, &self.authority),
            SpanProtocol::Grpc => request.header(TE, "trailers"),
        };
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(body)).context("traces.headers")
    }
}

/// A message of gRPC: not compressed, its length, its bytes.
fn framed(body: &Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(body.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(body);
    framed.freeze()
}
