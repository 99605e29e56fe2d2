//! What the SMS channel promises when it speaks to a message centre: a scripted one, on a real socket.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Outcome, Scope, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::Rig;

const BIND: u32 = 9;
const SUBMIT: u32 = 4;

/// Answers binds and messages with these statuses in turn, then with 0; hangs up at `u32::MAX` and says
/// nothing at `u32::MAX - 1`.
struct Centre {
    port: u16,
    heard: Heard,
}

const HANG_UP: u32 = u32::MAX;
const SILENCE: u32 = u32::MAX - 1;

impl Centre {
    async fn start(binds: &[u32], submits: &[u32]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new((binds.to_vec(), submits.to_vec())));
        let shared = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone(), script.clone()));
            }
        });
        Self { port, heard }
    }

    fn account(&self) -> Value {
        json!({
            "provider": "smpp", "host": "127.0.0.1", "port": self.port, "user": "shop",
            "credential": "command:echo s3cret", "from": "Shop",
        })
    }

    fn heard(&self, id: u32) -> Vec<Vec<u8>> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(known, _)| *known == id).map(|(_, body)| body.clone()).collect()
    }
}

/// Command and body, as they came.
type Heard = Arc<Mutex<Vec<(u32, Vec<u8>)>>>;
type Script = Arc<Mutex<(Vec<u32>, Vec<u32>)>>;

async fn serve(mut stream: tokio::net::TcpStream, heard: Heard, script: Script) {
    loop {
        let mut head = [0; 16];
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let word = |n: usize| u32::from_be_bytes(head[n * 4..n * 4 + 4].try_into().unwrap());
        let mut body = vec![0; word(0) as usize - 16];
        stream.read_exact(&mut body).await.unwrap();
        heard.lock().unwrap().push((word(1), body));
        let status = {
            let mut script = script.lock().unwrap();
            let list = if word(1) == BIND { &mut script.0 } else { &mut script.1 };
            if list.is_empty() || word(1) & 0x8000_0000 != 0 { 0 } else { list.remove(0) }
        };
        match status {
            HANG_UP => return,
            SILENCE => continue,
            _ if word(1) & 0x8000_0000 != 0 => continue,
            _ => {}
        }
        // A receipt may come before the answer.
        if word(1) == SUBMIT && status == 0 {
            let text = b"\0\0\0id:m-1 sub:001 dlvrd:001 stat:DELIVRD err:000 text:x";
            stream.write_all(&pdu(5, 0, 77, text)).await.unwrap();
        }
        let answer = pdu(word(1) | 0x8000_0000, status, word(3), b"m-1\0");
        stream.write_all(&answer).await.unwrap();
    }
}

fn pdu(id: u32, status: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [16 + body.len() as u32, id, status, sequence] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(body);
    out
}

async fn told(binds: &[u32], submits: &[u32]) -> postrider_core::Report {
    let centre = Centre::start(binds, submits).await;
    Rig::sms(&[centre.account()], Duration::from_secs(2)).text().await
}

#[tokio::test]
async fn a_message_is_bound_submitted_and_its_receipt_answered() {
    let centre = Centre::start(&[], &[]).await;
    let rig = Rig::sms(&[centre.account()], Duration::from_secs(5));
    let attempt = rig.attempt(Target::Sms { phone: "+4915112345678".into() });
    rig.clock.advance(Duration::from_secs(600));
    for report in rig.deliver(vec![attempt; 30]).await {
        assert_eq!(
            (report.outcome, report.provider_id.as_deref()),
            (Outcome::Accepted, Some("m-1"))
        );
    }
    assert_eq!(centre.heard(BIND), [b"shop\0s3cret\0\0\x34\0\0\0".to_vec()]);
    let sent = centre.heard(SUBMIT);
    assert_eq!(sent.len(), 30);
    let text = String::from_utf8_lossy(&sent[0]).into_owned();
    assert!(text.contains("4915112345678\0") && text.contains("000000005000000R\0"), "{text:?}");
    let receipts = || centre.heard(0x8000_0005).len();
    for _ in 0..200 {
        if receipts() == 30 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("only {} receipts were answered", receipts());
}

#[tokio::test]
async fn statuses_mean_what_the_table_says() {
    let pause = |s| Outcome::RetryAfter { after: Duration::from_secs(s), scope: Scope::Credential };
    let backoff = |s| Outcome::RetryBackoff { at_least: Duration::from_secs(s) };
    for (status, outcome) in [
        (0x08, backoff(0)),
        (0x58, pause(1)),
        (0x45, backoff(60)),
        (0x0b, Outcome::Gone),
        (0x0a, Outcome::Config),
        (0x01, Outcome::DropMessage),
    ] {
        let report = told(&[], &[status]).await;
        assert_eq!(report.outcome, outcome, "{status:#x}");
        assert_eq!(report.code, Some(format!("0x{status:02x}")));
    }
    assert_eq!(told(&[0x0e], &[]).await.outcome, Outcome::Config);
    assert_eq!(told(&[0x05], &[]).await.outcome, pause(30));
}

#[tokio::test]
async fn silence_and_a_lost_line_are_ambiguous_and_lead_to_a_new_bind() {
    for act in [SILENCE, HANG_UP] {
        let centre = Centre::start(&[], &[act]).await;
        let rig = Rig::sms(&[centre.account()], Duration::from_secs(1));
        assert_eq!(rig.text().await.outcome, Outcome::Ambiguous);
        assert_eq!(rig.text().await.outcome, Outcome::Accepted);
        assert_eq!(centre.heard(BIND).len(), 2);
    }
}

#[tokio::test]
async fn nothing_is_sent_at_or_after_its_expiry() {
    let centre = Centre::start(&[], &[]).await;
    let rig = Rig::sms(&[centre.account()], Duration::from_secs(2));
    let attempt = rig.attempt(Target::Sms { phone: "+4915112345678".into() });
    rig.clock.advance(Duration::from_secs(3600));
    assert_eq!(rig.one(attempt).await.outcome, Outcome::Expired);
    assert!(centre.heard(SUBMIT).is_empty());
}
