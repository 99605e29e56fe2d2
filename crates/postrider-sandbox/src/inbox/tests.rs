//! Tests of the inbox's bounds and of how attempts become messages.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::*;
use crate::receiver::{ReceiverBehaviour, ReceiverDetail, ReceiverRegistry};

fn receiver(kind: usize) -> Arc<Receiver> {
    let kind = FakeKind::all().nth(kind).unwrap();
    let (behaviour, detail) = (ReceiverBehaviour::default(), ReceiverDetail::Plain);
    ReceiverRegistry::new(1).put(kind, "a", behaviour, detail)
}

fn request(len: usize) -> Arc<LastRequest> {
    let (uri, headers) = ("/x".to_owned(), HeaderMap::new());
    Arc::new(LastRequest { method: Method::POST, uri, headers, body: Bytes::from(vec![b'x'; len]) })
}

fn accept(inbox: &Inbox, receiver: &Receiver, id: &CorrelationId, len: usize) {
    let ticket = inbox.begin(receiver, id, Some(request(len)));
    inbox.end(ticket, AttemptEnding::Accepted { status: 200 });
}

#[test]
fn attempts_of_one_id_are_one_message() {
    let (inbox, receiver) = (Inbox::new(10), receiver(1));
    let id = CorrelationId::from_text("k1");
    let first = inbox.begin(&receiver, &id, Some(request(1)));
    inbox.end(first, AttemptEnding::Refused { status: 503, retry_after_s: None });
    assert_eq!(inbox.snapshot().messages[0].state(), "refused");
    accept(&inbox, &receiver, &id, 1);
    let messages = inbox.snapshot().messages;
    assert_eq!((messages.len(), messages[0].attempts_total), (1, 2));
    assert_eq!(messages[0].state(), "accepted");
    let shown = messages[0].attempts_as_json();
    assert_eq!((&shown[0]["status"], &shown[1]["status"]), (&503.into(), &200.into()));
}

#[test]
fn the_same_text_twice_is_two_messages() {
    let (inbox, receiver) = (Inbox::new(10), receiver(1));
    let id = CorrelationId::of_text("a", "hello");
    accept(&inbox, &receiver, &id, 1);
    accept(&inbox, &receiver, &id, 1);
    assert_eq!(inbox.snapshot().messages.len(), 2);
}

#[test]
fn the_oldest_of_a_kind_and_the_oldest_of_all_are_forgotten() {
    let mut inbox = Inbox::new(3);
    inbox.bytes_max = 10_500;
    let (one, other) = (receiver(1), receiver(2));
    let id = |n: usize| CorrelationId::from_text(&format!("k{n}"));
    accept(&inbox, &other, &id(0), 10);
    (1..=5).for_each(|n| accept(&inbox, &one, &id(n), 10));
    let numbers =
        |inbox: &Inbox| inbox.snapshot().messages.iter().map(|m| m.number).collect::<Vec<_>>();
    assert_eq!(numbers(&inbox), [6, 5, 4, 1], "three of one kind, and the other kind's");
    accept(&inbox, &other, &id(6), 8_000);
    assert_eq!(inbox.snapshot().forgotten, 3, "one more, for its bytes");
    assert_eq!(numbers(&inbox), [7, 6, 5, 4]);
    let table = inbox.table();
    assert!(table.bytes <= 10_500, "{}", table.bytes);
    assert_eq!((table.by_key.len(), table.by_kind[1].len(), table.by_kind[2].len()), (4, 3, 1));
}

#[test]
fn what_is_forgotten_counts_no_bytes() {
    let (inbox, receiver) = (Inbox::new(2), receiver(1));
    for n in 0..100 {
        let id = CorrelationId::from_text(&format!("k{}", n % 5));
        accept(&inbox, &receiver, &id, n * 100);
    }
    let table = inbox.table();
    let counted: usize = table.messages.values().map(|message| message.bytes()).sum();
    assert_eq!(table.bytes, counted);
}

#[test]
fn an_inbox_of_no_messages_keeps_nothing() {
    let (inbox, receiver) = (Inbox::new(0), receiver(1));
    accept(&inbox, &receiver, &CorrelationId::from_text("k1"), 1);
    assert!(inbox.snapshot().messages.is_empty());
}

#[test]
fn a_message_keeps_its_last_attempts_and_counts_all() {
    let (inbox, receiver) = (Inbox::new(2), receiver(1));
    let id = CorrelationId::from_text("k1");
    for _ in 0..80 {
        let ticket = inbox.begin(&receiver, &id, None);
        inbox.end(ticket, AttemptEnding::Unprocessed);
    }
    let message = &inbox.snapshot().messages[0];
    assert_eq!((message.attempts.len(), message.attempts_total), (50, 80));
    assert!(message.attempts.iter().all(|attempt| attempt.ending.is_some()));
}
