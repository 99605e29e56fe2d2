//! HTTP/2, written by hand: a caller that lets no answer through.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{Attacker, PATIENCE, read_end, read_until, server};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `SETTINGS_INITIAL_WINDOW_SIZE = 0`: no byte of an answer may be sent.
const NO_WINDOW: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];

/// The type of a frame that begins a request or an answer.
const HEADERS: u8 = 1;

/// One GET: HEADERS with END_STREAM and END_HEADERS.
fn get(stream: u8, path: &str, key: &str) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    let method_and_scheme = [0x82, 0x86];
    let path = [&[0x04, path.len() as u8], path.as_bytes()].concat();
    let authority = [&[0x01, 4][..], b"test"].concat();
    let authorization = [&[0x0f, 0x08, bearer.len() as u8], bearer.as_bytes()].concat();
    let block = [&method_and_scheme[..], &path, &authority, &authorization].concat();
    [&[0, 0, block.len() as u8, HEADERS, 5, 0, 0, 0, stream][..], &block].concat()
}

/// Reads until so many answers have begun.
async fn read_heads(stream: &mut TcpStream, count: usize) {
    let mut heads = 0;
    while heads < count {
        let mut frame = [0; 9];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut frame)).await;
        read.expect("a frame in time").unwrap();
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        heads += usize::from(frame[3] == HEADERS);
    }
}

#[tokio::test]
async fn a_caller_that_lets_no_answer_through_is_cut_off_and_its_calls_count_until_then() {
    let server = server("[server]\nwrite_timeout_s = 4\nkey_calls_max = 50\n");
    let admin = Attacker::admin(&server);
    let greedy = admin.scoped("read", "greedy").await;
    let mut stream = greedy.connect().await;
    let calls = (0..50).map(|n| get(2 * n + 1, "/v1/deliveries", &greedy.key));
    let bytes = [PREFACE.to_vec(), NO_WINDOW.to_vec()].into_iter().chain(calls);
    let started = Instant::now();
    stream.write_all(&bytes.collect::<Vec<_>>().concat()).await.unwrap();
    read_heads(&mut stream, 50).await;
    // Fifty answers wait, so there is no place for another call of the key.
    assert_eq!(greedy.get("/v1/deliveries").await.status, 429, "the answers hold no places");
    assert_eq!(admin.get("/v1/deliveries").await.status, 200);
    read_end(&mut stream, Duration::from_secs(15)).await;
    assert!(started.elapsed() > Duration::from_secs(3), "{:?}", started.elapsed());
    // What was held for the answers is free.
    let deadline = Instant::now() + Duration::from_secs(5);
    while greedy.get("/v1/deliveries").await.status != 200 {
        assert!(Instant::now() < deadline, "the places were not given back");
    }
}

#[tokio::test]
async fn an_event_stream_that_waits_for_events_is_not_cut_off() {
    let server = server("[server]\nwrite_timeout_s = 1\n");
    let mut events = Attacker::admin(&server).open("GET", "/v1/events", Some(0), "").await;
    read_until(&mut events, "text/event-stream").await;
    let read = read_until(&mut events, "no such word");
    assert!(tokio::time::timeout(Duration::from_secs(4), read).await.is_err(), "it goes on");
}
