//! Kills the server with SIGKILL while it delivers and sends events. The receiver of the events hears of every
//! delivery.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::call;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::{Value, json};

use super::BINARY;

const MESSAGES: usize = 400;

/// A receiver of messages and events that remembers the deliveries of `delivery.sent`.
fn start_receiver() -> Result<(SocketAddr, Arc<Mutex<HashSet<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let heard: Arc<Mutex<HashSet<String>>> = Arc::default();
    let known = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let known = known.clone();
            std::thread::spawn(move || serve(stream, &known));
        }
    });
    Ok((address, heard))
}

fn serve(mut stream: std::net::TcpStream, known: &Mutex<HashSet<String>>) -> Option<()> {
    let (mut bytes, mut part) = (Vec::new(), [0; 65_536]);
    loop {
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
            bytes.extend_from_slice(&part[..read]);
        };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let length: usize =
            text.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        while bytes.len() < head + length {
            let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
            bytes.extend_from_slice(&part[..read]);
        }
        let page: Value = serde_json::from_slice(&bytes[head..head + length]).ok()?;
        // Messages have none.
        for event in page["events"].as_array().into_iter().flatten() {
            if event["type"] == "delivery.sent" {
                known.lock().ok()?.insert(event["delivery"].as_str()?.to_owned());
            }
        }
        bytes.drain(..head + length);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

#[test]
fn a_receiver_of_events_hears_of_every_delivery_although_the_server_is_killed() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    let (receiver, heard) = start_receiver()?;
    fixture.start()?;
    let request = json!({
        "url": format!("http://{receiver}/events"), "events": {"types": ["delivery.*"]},
    });
    let made = call(fixture.server_at, "POST", "/v1/event-subscriptions", &request.to_string())?;
    ensure!(made.status == 201, "{}", made.body);
    let mut sent = Vec::new();
    for n in 0..MESSAGES {
        let message = json!({
            "to": {"address": {"channel": "webhook", "url": format!("http://{receiver}/hook/{n}")}},
            "content": {"title": "Shipped"},
        });
        let answer = call(fixture.server_at, "POST", "/v1/messages", &message.to_string())?;
        ensure!(answer.status == 202, "{}", answer.body);
        let id = answer.json()?["deliveries"][0]["id"].as_str().context("an id")?.to_owned();
        sent.push(id);
        if n % (MESSAGES / 4) == MESSAGES / 8 {
            fixture.kill();
            fixture.start()?;
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let missing = {
            let heard = heard.lock().map_err(|_| anyhow::anyhow!("the receiver failed"))?;
            sent.iter().filter(|id| !heard.contains(*id)).count()
        };
        if missing == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{missing} of {MESSAGES} deliveries were never told");
        std::thread::sleep(Duration::from_millis(50));
    }
}
