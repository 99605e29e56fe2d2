//! Full is full: nothing half-accepted, nobody overshoots, repeats are answered all the same.

use std::time::Duration;

use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Intake as _, Registry as _};
use postrider_core::{State, TenantId};
use postrider_dispatch::{Capacities, IntakeAnswer, IntakeRefusal, RefusalKind, Submission};

use crate::fixture::DispatchFixture;

fn deliveries(deliveries_max: u64) -> Capacity {
    Capacity { deliveries_max, bytes_max: 0 }
}

fn fixture(server: Capacity, tenant: Capacity) -> DispatchFixture {
    let fixture = DispatchFixture::new(vec![]);
    fixture.bound(Capacities { server, tenant, ..Capacities::default() });
    fixture
}

fn webhook(key: Option<&str>) -> Submission {
    let body = r#"{"to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}}"#;
    Submission { body: body.into(), idempotency_key: key.map(str::to_owned), traceparent: None }
}

async fn admit(fixture: &DispatchFixture, tenant: &str) -> Result<IntakeAnswer, IntakeRefusal> {
    let answers = fixture.intake.admit(&TenantId::new(tenant), vec![webhook(None)]).await;
    answers.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_full_tenant_is_asked_to_wait_and_the_others_do_not_notice() {
    let fixture = fixture(deliveries(0), deliveries(2));
    for _ in 0..2 {
        assert!(admit(&fixture, "acme").await.is_ok());
    }
    let full = admit(&fixture, "acme").await.unwrap_err();
    assert_eq!(full.kind, RefusalKind::TenantFull);
    assert!((1..=300).contains(&full.retry_after_s.unwrap()));
    assert!(admit(&fixture, "other").await.is_ok());
    assert_eq!(fixture.store.load(None).deliveries, 3);
}

#[tokio::test]
async fn the_server_is_bounded_for_all_tenants_together() {
    let fixture = fixture(deliveries(2), deliveries(2));
    assert!(admit(&fixture, "a").await.is_ok());
    assert!(admit(&fixture, "b").await.is_ok());
    assert_eq!(admit(&fixture, "c").await.unwrap_err().kind, RefusalKind::ServerFull);
}

#[tokio::test]
async fn a_tenant_with_reserved_room_is_taken_when_the_server_is_full() {
    let fixture = fixture(deliveries(1), deliveries(0));
    let reserved = [(TenantId::new("alerts"), deliveries(1))].into();
    fixture.bound(Capacities { server: deliveries(1), reserved, ..Capacities::default() });
    assert!(admit(&fixture, "acme").await.is_ok());
    assert_eq!(admit(&fixture, "acme").await.unwrap_err().kind, RefusalKind::ServerFull);
    assert!(admit(&fixture, "alerts").await.is_ok());
    assert_eq!(admit(&fixture, "alerts").await.unwrap_err().kind, RefusalKind::ServerFull);
}

#[tokio::test]
async fn bytes_count_too() {
    let fixture = fixture(deliveries(0), Capacity { deliveries_max: 0, bytes_max: 700 });
    let mut taken = 0;
    while admit(&fixture, "acme").await.is_ok() {
        taken += 1;
    }
    assert!((5..20).contains(&taken), "{taken} of about sixty bytes each");
    assert!(fixture.store.load(None).bytes <= 700);
}

#[tokio::test]
async fn a_batch_is_taken_as_far_as_there_is_room() {
    let fixture = fixture(deliveries(0), deliveries(3));
    let batch = (0..5).map(|_| webhook(None)).collect();
    let answers = fixture.intake.admit(&fixture.tenant, batch).await;
    let taken: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, true, true, false, false]);
    assert_eq!(fixture.store.load(Some(&fixture.tenant)).deliveries, 3);
}

#[tokio::test]
async fn a_message_for_many_is_taken_whole_or_not_at_all() {
    let fixture = fixture(deliveries(0), deliveries(4));
    for n in 0..3 {
        let json =
            format!(r#"{{"channel":"webhook","url":"https://hooks.example/{n}","recipient":"u"}}"#);
        let address = fixture.intake.check_address(&fixture.tenant, json.as_bytes()).await.unwrap();
        fixture.store.put_address(address).await.unwrap();
    }
    let to_all = || Submission { body: r#"{"to":{"recipient":"u"}}"#.into(), ..webhook(None) };
    let answers =
        fixture.intake.admit(&fixture.tenant, vec![to_all(), to_all(), webhook(None)]).await;
    let taken: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, false, true], "one place is left for what fits");
    assert_eq!(fixture.store.load(None).deliveries, 4);
    fixture.bound(Capacities { tenant: deliveries(2), ..Capacities::default() });
    let never = fixture.intake.admit(&fixture.tenant, vec![to_all()]).await.remove(0).unwrap_err();
    assert_eq!(
        (never.kind, never.retry_after_s),
        (RefusalKind::InvalidMessage, None),
        "waiting would not help"
    );
}

#[tokio::test]
async fn a_repeat_is_answered_although_there_is_no_room() {
    let fixture = fixture(deliveries(0), deliveries(1));
    let send = async |key: &str| {
        fixture.intake.admit(&fixture.tenant, vec![webhook(Some(key))]).await.remove(0)
    };
    let first = send("one").await.unwrap();
    assert_eq!(send("two").await.unwrap_err().kind, RefusalKind::TenantFull);
    let IntakeAnswer { message, deliveries, duplicate: false, .. } = first else {
        panic!("{first:?}")
    };
    assert_eq!(
        send("one").await.unwrap(),
        IntakeAnswer { message, deliveries, duplicate: true, repeated: 0, withheld: Vec::new() }
    );
}

#[tokio::test]
async fn a_repeat_is_answered_although_its_address_is_gone() {
    let fixture = DispatchFixture::new(vec![]);
    let json = br#"{"channel":"webhook","url":"https://hooks.example/a"}"#;
    let address = fixture.intake.check_address(&fixture.tenant, json).await.unwrap();
    let (address, _) = fixture.store.put_address(address).await.unwrap();
    let body = format!(r#"{{"to":{{"address":"{}"}}}}"#, address.id);
    let send = async |key: &str| {
        let submission = Submission { body: body.clone().into(), ..webhook(Some(key)) };
        fixture.intake.admit(&fixture.tenant, vec![submission]).await.remove(0)
    };
    let Ok(IntakeAnswer { message, deliveries, duplicate: false, .. }) = send("one").await else {
        panic!()
    };
    fixture.store.delete_address(&fixture.tenant, address.id, true).await.unwrap();
    assert_eq!(
        send("one").await.unwrap(),
        IntakeAnswer { message, deliveries, duplicate: true, repeated: 0, withheld: Vec::new() }
    );
    assert_eq!(send("two").await.unwrap_err().kind, RefusalKind::InvalidMessage);
    let other = Submission { body: r#"{"to":{"recipient":"u"}}"#.into(), ..webhook(Some("one")) };
    let conflict = fixture.intake.admit(&fixture.tenant, vec![other]).await.remove(0);
    assert_eq!(conflict.unwrap_err().kind, RefusalKind::IdempotencyConflict);
}

#[tokio::test]
async fn callers_at_the_same_time_do_not_overshoot_together() {
    let fixture = fixture(deliveries(10), deliveries(10));
    let many = (0..40).map(|_| admit(&fixture, "acme"));
    let answers = futures_util::future::join_all(many).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    assert_eq!(fixture.store.load(None).deliveries, 10);
}

#[tokio::test]
async fn room_comes_back_with_what_is_sent_and_the_wait_follows_the_pace() {
    let mut fixture = fixture(deliveries(0), deliveries(100));
    let batch = (0..100).map(|_| webhook(None)).collect();
    assert!(fixture.intake.admit(&fixture.tenant, batch).await.iter().all(Result::is_ok));
    let nothing_drains = loop {
        fixture.clock.advance(Duration::from_secs(1));
        let full = admit(&fixture, "acme").await.unwrap_err();
        if full.retry_after_s == Some(300) {
            break full;
        }
    };
    assert_eq!(nothing_drains.kind, RefusalKind::TenantFull);
    fixture.start().await;
    for _ in 0..100 {
        assert_eq!(fixture.finished().await, (State::Sent, None));
    }
    assert!(admit(&fixture, "acme").await.is_ok());
}
