//! Traces: a message of a sampled trace becomes spans of that trace at a receiver of OTLP, by HTTP and by gRPC, also
//! from a line of a batch. A message without a trace has none, and no span shows a path or a token.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use postrider::client::whole;
use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::{ServerFixture, reply, send};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const PATIENCE: Duration = Duration::from_secs(20);

/// A span as the receiver reads it.
#[derive(Debug, Clone, Default)]
struct ReceivedSpan {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
    is_error: bool,
    service: String,
}

/// A field of a message of Protocol Buffers: its number and its bytes or number.
enum ProtoValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message; panics at anything that is not one.
fn fields(mut bytes: &[u8]) -> Vec<(u64, ProtoValue<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }
    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(length);
        *bytes = rest;
        taken
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => ProtoValue::Number(varint(&mut bytes)),
            1 => ProtoValue::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                ProtoValue::Bytes(take(&mut bytes, length))
            }
            5 => {
                let word = u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap());
                ProtoValue::Number(word.into())
            }
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, value));
    }
    all
}

fn parts(bytes: &[u8], field: u64) -> Vec<&[u8]> {
    let of = |(number, value)| match value {
        ProtoValue::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(of).collect()
}

fn number(bytes: &[u8], field: u64) -> u64 {
    let of = |(number, value)| match value {
        ProtoValue::Number(value) if number == field => Some(value),
        _ => None,
    };
    fields(bytes).into_iter().find_map(of).unwrap_or_default()
}

fn text(bytes: &[u8], field: u64) -> String {
    parts(bytes, field)
        .first()
        .map_or_else(String::new, |text| String::from_utf8(text.to_vec()).unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(bytes: &[u8], field: u64) -> BTreeMap<String, String> {
    let entries = parts(bytes, field).into_iter().map(|entry| {
        let value = parts(entry, 2)[0];
        let shown = match parts(value, 1).as_slice() {
            [text] => String::from_utf8(text.to_vec()).unwrap(),
            _ => number(value, 3).to_string(),
        };
        (text(entry, 1), shown)
    });
    entries.collect()
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(request: &[u8]) -> Vec<ReceivedSpan> {
    let mut all = Vec::new();
    for resource_spans in parts(request, 1) {
        let resource = attributes(parts(resource_spans, 1)[0], 1);
        for scope_spans in parts(resource_spans, 2) {
            for span in parts(scope_spans, 2) {
                let ids = [1, 2, 4].map(|field| hex(parts(span, field)[0]));
                let [trace, id, parent] = ids;
                let status = parts(span, 15);
                all.push(ReceivedSpan {
                    trace,
                    id,
                    parent,
                    name: text(span, 5),
                    kind: number(span, 6),
                    start: number(span, 7),
                    end: number(span, 8),
                    attributes: attributes(span, 9),
                    is_error: status.first().is_some_and(|status| number(status, 3) == 2),
                    service: resource["service.name"].clone(),
                });
            }
        }
    }
    all
}

/// Receives spans by HTTP and by gRPC, and webhooks that fail at first.
struct TraceReceiver {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
    hooks: Arc<Mutex<Vec<HeaderMap>>>,
    calls: Arc<Mutex<Vec<HeaderMap>>>,
}

fn grpc_answer() -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames: [Result<Frame<Bytes>, std::convert::Infallible>; 2] =
        [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let body = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

impl TraceReceiver {
    async fn start() -> Self {
        let (received, hooks) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let calls = Arc::<Mutex<Vec<_>>>::default();
        let (kept, known, seen) = (received.clone(), hooks.clone(), calls.clone());
        let tries = Arc::<Mutex<HashMap<String, u32>>>::default();
        let router =
            Router::new().fallback(async move |uri: http::Uri, headers: HeaderMap, body: Bytes| {
                let kind = headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or("");
                let path = uri.path();
                if path == "/v1/traces" {
                    assert_eq!(kind, "application/x-protobuf");
                    seen.lock().unwrap().push(headers.clone());
                    kept.lock().unwrap().extend(spans(&body));
                    return Response::new(Body::empty());
                }
                if path == "/opentelemetry.proto.collector.trace.v1.TraceService/Export" {
                    assert_eq!(
                        (kind, headers["te"].to_str().unwrap()),
                        ("application/grpc", "trailers")
                    );
                    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
                    assert_eq!((body[0], length as usize), (0, body.len() - 5));
                    kept.lock().unwrap().extend(spans(&body[5..]));
                    return grpc_answer();
                }
                let id = headers["webhook-id"].to_str().unwrap().to_owned();
                known.lock().unwrap().push(headers);
                let mut tries = tries.lock().unwrap();
                let tries = tries.entry(id).or_default();
                *tries += 1;
                let status = if *tries == 1 { 503 } else { 200 };
                let mut answer = Response::new(Body::empty());
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                answer
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, spans: received, hooks, calls }
    }

    async fn await_spans(&self, count: usize) -> Vec<ReceivedSpan> {
        let begin = Instant::now();
        loop {
            let spans = self.spans.lock().unwrap().clone();
            if spans.len() >= count {
                return spans;
            }
            assert!(begin.elapsed() < PATIENCE, "of {count} spans came: {spans:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn message(receiver: &TraceReceiver) -> Value {
    json!({
        "to": {"address": {"channel": "webhook", "url": format!("http://{}/secret-path", receiver.address)}},
        "content": {"title": "Shipped"},
        "retry": {"retries": 3, "base_ms": 50, "kind": "fixed", "jitter": "none"},
    })
}

async fn check(protocol: &str) {
    let receiver = TraceReceiver::start().await;
    let token = postrider_testkit::server::TestFolder::new();
    let token = (token.write("token", "Bearer t0ken\n"), token);
    let settings = format!(
        "{LOCAL_TARGETS}[traces]\nendpoint = \"http://{}\"\nprotocol = \"{protocol}\"\n\
         headers = {{authorization = \"file:{}\"}}\n",
        receiver.address, token.0
    );
    let server = ServerFixture::with(&settings).await;
    let admin = server.admin();
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let body = whole(message(&receiver).to_string().into());
    let headers = [("content-type", "application/json"), ("traceparent", &*traceparent)];
    let sent = admin.send_with(Method::POST, "/v1/messages", &headers, body).await.unwrap();
    assert_eq!(sent.status(), 202);
    // Accepted, two waits, two attempts.
    let spans = receiver.await_spans(5).await;
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (accepts, waits, attempts) = (named("accept"), named("queue"), named("attempt"));
    assert_eq!((accepts.len(), waits.len(), attempts.len()), (1, 2, 2), "{spans:#?}");
    let mut ids: Vec<_> = spans.iter().map(|span| span.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each span has its own id");
    for span in &spans {
        assert_eq!((&*span.trace, &*span.parent), (TRACE, PARENT), "never a new root");
        assert_eq!(span.service, "postrider");
        assert!(span.start > 0 && span.end >= span.start, "{span:?}");
        assert!(!format!("{span:?}").contains("secret-path"), "a path is shown: {span:?}");
    }
    for (nth, attempt) in attempts.iter().enumerate() {
        let attributes = &attempt.attributes;
        assert_eq!(attributes["retry.attempt"], (nth + 1).to_string());
        assert_eq!(attributes["http.request.method"], "POST");
        assert_eq!(attributes["url.full"], format!("http://{}/{{path}}", receiver.address));
        assert_eq!(attributes["postrider.channel"], "webhook");
        assert!(attributes["postrider.delivery.id"].starts_with("dlv_"));
        assert_eq!(attempt.kind, 3, "a client's span");
    }
    let status = |nth: usize| attempts[nth].attributes["http.response.status_code"].clone();
    assert_eq!((status(0), status(1)), ("503".to_owned(), "200".to_owned()));
    assert_eq!((attempts[0].is_error, attempts[1].is_error), (true, false));
    assert_eq!(attempts[1].attributes["postrider.outcome"], "accepted");
    // What the receiver of the webhook got leads to the attempt's span.
    let hooks: Vec<_> = receiver.hooks.lock().unwrap().clone();
    for (hook, attempt) in hooks.iter().zip(&attempts) {
        let expected = format!("00-{TRACE}-{}-01", attempt.id);
        assert_eq!(hook["traceparent"].to_str().unwrap(), expected);
    }
    if protocol == "http" {
        assert_eq!(receiver.calls.lock().unwrap()[0]["authorization"], "Bearer t0ken");
    }
    let metrics = reply(&admin, Method::GET, "/metrics", "").await;
    assert_eq!(metrics.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_continue_the_trace_of_the_caller_over_http() {
    check("http").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_continue_the_trace_of_the_caller_over_grpc() {
    check("grpc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_a_batch_can_have_its_trace_and_an_unsampled_one_has_no_spans() {
    let receiver = TraceReceiver::start().await;
    let settings = format!("{LOCAL_TARGETS}[traces]\nendpoint = \"http://{}\"\n", receiver.address);
    let server = ServerFixture::with(&settings).await;
    let with = |traceparent: Option<&str>| {
        let mut line = message(&receiver);
        line["traceparent"] = json!(traceparent);
        line.to_string()
    };
    let trace = |nth: u32, flags: &str| format!("00-{nth:032x}-{PARENT}-{flags}");
    let (one, two, unsampled) = (trace(1, "01"), trace(2, "01"), trace(3, "00"));
    let lines = [with(Some(&one)), with(Some(&two)), with(Some(&unsampled)), with(None)].join("\n");
    let admin = server.admin();
    let answer =
        send(&admin, Method::POST, "/v1/messages/batch", "application/x-ndjson", lines).await;
    assert_eq!(answer.status, 200);
    let spans = receiver.await_spans(10).await;
    let of = |nth: u32| spans.iter().filter(|span| span.trace == format!("{nth:032x}")).count();
    assert_eq!((of(1), of(2), spans.len()), (5, 5, 10), "{spans:#?}");
    postrider_testkit::server::eventually(&admin, "/v1/stats", |stats| {
        stats["states"]["sent"] == 4
    })
    .await;
    // The caller's own traceparent goes on where there are no spans.
    let hooks = receiver.hooks.lock().unwrap().clone();
    let given = |text: &str| {
        hooks
            .iter()
            .filter(|hook| hook.get("traceparent").is_some_and(|value| value == text))
            .count()
    };
    assert_eq!((given(&unsampled), given(&one)), (2, 0));
    let wrong = with(Some("00-xyz-1-01"));
    let refused = reply(&admin, Method::POST, "/v1/messages", wrong).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["field"]), (422, &json!("traceparent")));
}
