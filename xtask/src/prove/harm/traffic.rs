//! Planned messages, and how they are handed in: each at its time, whether or not the earlier ones were answered.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use postrider_testkit::http::TestConnection;

use super::fixture::{HarmFixture, ProviderPorts, now_ms, origin_address, sleep_until};

const SENDERS: usize = 12;

/// One message with its only delivery.
#[derive(Debug, Clone)]
pub(super) struct DueMessage {
    /// In milliseconds from the beginning.
    pub(super) due_ms: u64,
    pub(super) tenant: u32,
    pub(super) class: &'static str,
    pub(super) destination: DueDestination,
    /// Whether it belongs to the part whose health is measured.
    pub(super) healthy: bool,
}

#[derive(Debug, Clone)]
pub(super) enum DueDestination {
    /// A path of a webhook host.
    Hook {
        origin: u32,
        name: String,
        port: DuePort,
    },
    Mailbox(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuePort {
    Plain,
    Tls,
    /// Nobody listens there.
    Closed,
}

/// What became of handing them in.
pub(super) struct SentMessages {
    /// The delivery of each message, in the order of the messages.
    pub(super) ids: Vec<String>,
    /// How late each batch was handed in.
    pub(super) late_ms: Vec<i64>,
}

impl DueMessage {
    pub(super) fn is_high(&self) -> bool {
        self.class == "otp"
    }

    fn write_json(&self, ports: ProviderPorts, text: &mut String) {
        let _ = match &self.destination {
            DueDestination::Hook { origin, name, port } => {
                let (scheme, port) = match port {
                    DuePort::Plain => ("http", ports.http),
                    DuePort::Tls => ("https", ports.https),
                    DuePort::Closed => ("http", ports.closed),
                };
                let host = origin_address(*origin);
                write!(
                    text,
                    r#"{{"to":{{"address":{{"channel":"webhook","url":"{scheme}://{host}:{port}/hook/{name}"}}}}"#
                )
            }
            DueDestination::Mailbox(mailbox) => {
                write!(
                    text,
                    r#"{{"to":{{"address":{{"channel":"email","email":"{mailbox}@example.org"}}}}"#
                )
            }
        };
        let _ = writeln!(
            text,
            r#","class":"{}","content":{{"title":"A title","body":"A message of ordinary length, as a shop would send it."}}}}"#,
            self.class
        );
    }
}

/// Hands in all messages, which are sorted by time and, at the same time, by tenant.
pub(super) fn send_all(fixture: &HarmFixture, messages: &[DueMessage]) -> Result<SentMessages> {
    let batches: Vec<_> = messages
        .chunk_by(|a, b| (a.due_ms, a.tenant) == (b.due_ms, b.tenant))
        .scan(0, |from, batch| {
            let first = *from;
            *from += batch.len();
            Some((first, batch))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = |server: SocketAddr| -> Result<Vec<(usize, Vec<String>, i64)>> {
        let mut connection = TestConnection::open(server)?;
        let mut done = Vec::new();
        while let Some((first, batch)) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let due = fixture.begin_ms + batch[0].due_ms;
            sleep_until(due);
            let late = now_ms() as i64 - due as i64;
            done.push((*first, send_batch(&mut connection, fixture.ports, batch)?, late));
        }
        Ok(done)
    };
    let mut sent = SentMessages { ids: vec![String::new(); messages.len()], late_ms: vec![] };
    std::thread::scope(|scope| {
        let senders: Vec<_> = fixture
            .servers
            .iter()
            .cycle()
            .take(SENDERS)
            .map(|server| scope.spawn(|| work(*server)))
            .collect();
        for sender in senders {
            let Ok(done) = sender.join() else { bail!("a sender gave up") };
            for (first, ids, late) in done? {
                sent.late_ms.push(late);
                for (n, id) in ids.into_iter().enumerate() {
                    sent.ids[first + n] = id;
                }
            }
        }
        Ok(sent)
    })
}

fn send_batch(
    connection: &mut TestConnection,
    ports: ProviderPorts,
    batch: &[DueMessage],
) -> Result<Vec<String>> {
    let mut body = String::with_capacity(batch.len() * 250);
    batch.iter().for_each(|message| message.write_json(ports, &mut body));
    let tenant = format!("t{}", batch[0].tenant);
    let answer = connection.call_ok("POST", "/v1/messages/batch", Some(&tenant), &body)?;
    let ids: Vec<_> = answer.lines().map(delivery_id).collect::<Result<_>>()?;
    ensure!(ids.len() == batch.len(), "{} of {} lines were accepted", ids.len(), batch.len());
    Ok(ids)
}

/// The delivery in a line of the answer to a batch.
fn delivery_id(line: &str) -> Result<String> {
    let start = line.find("dlv_").with_context(|| format!("no delivery in {line}"))?;
    let id = line[start..].split('"').next().unwrap_or_default();
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_answer_names_its_delivery() {
        let line = r#"{"index":0,"status":202,"id":"msg_1","deliveries":[{"id":"dlv_2","state":"queued"}]}"#;
        assert_eq!(delivery_id(line).unwrap(), "dlv_2");
        assert!(delivery_id(r#"{"index":0,"status":422,"error":"no"}"#).is_err());
    }
}
