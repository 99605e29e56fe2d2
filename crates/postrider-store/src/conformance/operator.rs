//! Promises about dead letters, cancelling and addresses that are gone.

use super::fixture::*;

async fn bury(
    fixture: &StoreFixture<'_>,
    new: NewMessage,
    reason: DeadReason,
    code: &str,
) -> DeliveryId {
    let id = fixture.accept(new).await.1[0];
    let leased = fixture.lease_one().await;
    let attempt = AttemptRecord { code: Some(code.into()), ..success(1, fixture.now()) };
    fixture.settle_with(&leased, Decision::DeadLetter(reason), vec![attempt]).await;
    id
}

async fn bury_plain(fixture: &StoreFixture<'_>) -> DeliveryId {
    bury(fixture, message("acme", 1), DeadReason::Permanent, "bad").await
}

pub async fn a_dead_letter_can_be_found_and_replayed(fixture: &StoreFixture<'_>) {
    let id = bury_plain(fixture).await;
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.reason), (State::Failed, Some(DeadReason::Permanent)));
    assert!(!view.discarded);
    assert_eq!(fixture.dead().await, [id]);
    fixture.clock.advance(secs(10_000));
    let replayed = fixture.store.replay(None, Selection::Ids(vec![id]), Replay::default()).await;
    assert_eq!(replayed.unwrap(), 1);
    assert!(fixture.dead().await.is_empty());
    let again = fixture.lease_one().await;
    assert_eq!((again.delivery, again.attempts, again.tries), (id, 0, 1));
    assert_eq!(again.expires_at, fixture.now() + secs(3600), "the message's TTL starts again");
    assert_eq!(&*again.message.content, r#"{"title":"hello"}"#);
    fixture.settle(&again, Decision::Done).await;
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.reason, view.log.len()), (State::Sent, None, 2));
    let replayed = fixture.store.replay(None, Selection::Ids(vec![id]), Replay::default()).await;
    assert_eq!(replayed.unwrap(), 0, "what was sent is not replayed");
}

pub async fn a_second_replay_with_the_same_time_leaves_alone_what_the_first_put_back(
    fixture: &StoreFixture<'_>,
) {
    let (first, second) = (bury_plain(fixture).await, bury_plain(fixture).await);
    fixture.clock.advance(secs(1));
    let how = Replay { dead_before: Some(fixture.now()), ..Replay::default() };
    let replay = async |ids: Vec<DeliveryId>, how: &Replay| {
        fixture.store.replay(Some(&acme()), Selection::Ids(ids), how.clone()).await.unwrap()
    };
    assert_eq!(replay(vec![first], &how).await, 1);
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    assert_eq!(fixture.dead().await, [second, first]);
    assert_eq!(replay(vec![first, second], &how).await, 1, "the first one was replayed already");
    assert_eq!(fixture.dead().await, [first]);
    assert_eq!(replay(vec![first], &Replay::default()).await, 1);
}

pub async fn single_deliveries_are_cancelled(fixture: &StoreFixture<'_>) {
    let (message, ids) = fixture.accept(batch("acme", &[1, 2, 3])).await;
    let others = fixture.accept(message_of_other()).await.1;
    let alone = fixture.accept_one().await;
    let cancel = async |ids: Vec<DeliveryId>| {
        fixture.store.cancel_deliveries(Some(&acme()), ids).await.unwrap()
    };
    let done = cancel(vec![ids[0], others[0], alone]).await;
    assert_eq!((done.cancelled, done.in_flight, done.already_final), (2, 0, 0));
    assert_eq!(fixture.state(ids[0]).await, State::Cancelled);
    assert_eq!(fixture.state(ids[1]).await, State::Queued);
    assert_eq!(fixture.state(others[0]).await, State::Queued);
    assert!(fixture.content(message).await.is_some(), "the others need the body");
    let leased = fixture.lease_all().await;
    assert_eq!(leased.len(), 3);
    let done = cancel(vec![ids[0], ids[1]]).await;
    assert_eq!((done.cancelled, done.in_flight, done.already_final), (0, 1, 1));
    for leased in leased {
        fixture.settle(&leased, retry(1)).await;
    }
    assert_eq!(fixture.state(ids[1]).await, State::Cancelled);
    let done = cancel(vec![ids[2]]).await;
    assert_eq!(done.cancelled, 1);
    assert_eq!(fixture.content(message).await, None);
    assert_eq!(fixture.counts().await.states[&State::Cancelled], 4);
}

fn message_of_other() -> NewMessage {
    message("other", 1)
}

pub async fn a_replay_is_paced(fixture: &StoreFixture<'_>) {
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(bury_plain(fixture).await);
    }
    let how = Replay { rate_per_s: Some(2.0), ..Replay::default() };
    let all = Selection::Filter(DeliveryFilter::default());
    assert_eq!(fixture.store.replay(None, all, how).await.unwrap(), 10);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let leased = fixture.lease(100).await;
        assert_eq!(leased.len(), 1, "one is due every half second");
        seen.push(leased[0].delivery);
        fixture.clock.advance(Duration::from_millis(500));
    }
    assert_eq!(seen, ids, "oldest first");
}

pub async fn a_replay_sets_its_own_ttl_and_policy(fixture: &StoreFixture<'_>) {
    let id = bury_plain(fixture).await;
    let retry = postrider_core::policy::backoff::RetryPolicy { retries: 1, ..Default::default() };
    let how = Replay { ttl_s: Some(60), retry: Some(retry.clone()), ..Replay::default() };
    fixture.store.replay(None, Selection::Ids(vec![id]), how).await.unwrap();
    let again = fixture.lease_one().await;
    assert_eq!(again.expires_at, fixture.now() + secs(60));
    assert_eq!(again.retry, Some(retry));
}

pub async fn discarded_dead_letters_leave_the_list_and_lose_their_body(fixture: &StoreFixture<'_>) {
    let id = bury_plain(fixture).await;
    let message = fixture.delivery(id).await.message;
    assert!(fixture.content(message).await.is_some());
    assert_eq!(fixture.store.discard(None, Selection::Ids(vec![id])).await.unwrap(), 1);
    assert_eq!(fixture.store.discard(None, Selection::Ids(vec![id])).await.unwrap(), 0);
    assert!(fixture.dead().await.is_empty());
    assert!(fixture.content(message).await.is_none());
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.log.len()), (State::Failed, 1), "the history stays");
    assert!(view.discarded);
    let counts = fixture.counts().await;
    assert_eq!(counts.states.get(&State::Failed), Some(&1));
    assert!(counts.dead.is_empty());
    let replayed = fixture.store.replay(None, Selection::Ids(vec![id]), Replay::default()).await;
    assert_eq!(replayed.unwrap(), 0);
}

pub async fn a_filter_chooses_dead_letters(fixture: &StoreFixture<'_>) {
    let a = bury(fixture, message("acme", 1), DeadReason::Permanent, "bad_request").await;
    fixture.clock.advance(secs(10));
    let b = bury(fixture, message("acme", 2), DeadReason::RetriesExhausted, "timeout").await;
    let c = bury(fixture, message("other", 3), DeadReason::Permanent, "timeout").await;
    let list = |filter: DeliveryFilter| fixture.all(DeliveryFilter { limit: 1, ..filter }, true);
    let none = DeliveryFilter::default;
    let reason = Some(DeadReason::Permanent);
    assert_eq!(list(DeliveryFilter { reason, ..none() }).await, [c, a]);
    assert_eq!(list(DeliveryFilter { error: Some("timeo".into()), ..none() }).await, [c, b]);
    assert_eq!(list(DeliveryFilter { error_is: Some("timeo".into()), ..none() }).await, []);
    assert_eq!(list(DeliveryFilter { error_is: Some("timeout".into()), ..none() }).await, [c, b]);
    let tenant = Some(acme());
    assert_eq!(list(DeliveryFilter { tenant: tenant.clone(), ..none() }).await, [b, a]);
    assert_eq!(list(DeliveryFilter { until: Some(fixture.now()), ..none() }).await, [a]);
    assert_eq!(list(DeliveryFilter { since: Some(fixture.now()), ..none() }).await, [c, b]);
    let chosen = Selection::Filter(DeliveryFilter { reason, tenant, ..none() });
    assert_eq!(fixture.store.discard(None, chosen).await.unwrap(), 1);
    assert_eq!(fixture.dead().await, [c, b]);
}

pub async fn one_tenant_does_not_act_on_anothers(fixture: &StoreFixture<'_>) {
    let id = bury_plain(fixture).await;
    let message = fixture.delivery(id).await.message;
    let other = TenantId::new("other");
    let all = || Selection::Filter(DeliveryFilter::default());
    let store = &fixture.store;
    assert_eq!(store.discard(Some(&other), Selection::Ids(vec![id])).await.unwrap(), 0);
    assert_eq!(store.discard(Some(&other), all()).await.unwrap(), 0);
    assert_eq!(store.replay(Some(&other), all(), Replay::default()).await.unwrap(), 0);
    assert_eq!(store.cancel(Some(&other), message).await.unwrap(), None);
    assert_eq!(store.delivery(Some(&other), id).await.unwrap(), None);
    assert_eq!(store.message(Some(&other), message).await.unwrap(), None);
    assert_eq!(store.content(Some(&other), message).await.unwrap(), None);
    assert_eq!(fixture.dead().await, [id]);
}

pub async fn cancel_stops_deliveries_that_are_not_sent_yet(fixture: &StoreFixture<'_>) {
    let (id, deliveries) = fixture.accept(batch("acme", &[1, 2, 3, 4])).await;
    let leased = fixture.lease(1).await;
    let find = |d| leased.iter().find(|l| l.delivery == d).expect("leased");
    fixture.settle(find(deliveries[0]), Decision::Done).await;
    fixture.settle(find(deliveries[1]), retry(5)).await;
    fixture.settle(find(deliveries[2]), Decision::Release).await;
    let result = fixture.store.cancel(None, id).await.unwrap();
    assert_eq!(result, Some(CancelResult { cancelled: 2, in_flight: 1, already_final: 1 }));
    fixture.clock.advance(secs(10));
    assert!(fixture.lease(10).await.is_empty());
    assert_eq!(fixture.state(deliveries[1]).await, State::Cancelled);
    assert_eq!(fixture.state(deliveries[3]).await, State::Sending);
    let last = fixture.settle(find(deliveries[3]), Decision::Done).await;
    assert_eq!(last, SettleResult::Done);
    assert_eq!(fixture.content(id).await, None);
    let unknown = MessageId(1);
    assert_eq!(fixture.store.cancel(None, unknown).await.unwrap(), None);
}

pub async fn cancel_reaches_work_whose_lease_ended(fixture: &StoreFixture<'_>) {
    let (id, _) = fixture.accept(message("acme", 1)).await;
    let leased = fixture.lease_one().await;
    fixture.clock.advance(LEASE);
    let result = fixture.store.cancel(None, id).await.unwrap();
    assert_eq!(result, Some(CancelResult { cancelled: 1, ..CancelResult::default() }));
    assert!(fixture.ready().await.is_empty());
    let late = fixture.settle(&leased, Decision::Done).await;
    assert_eq!(late, SettleResult::Fenced);
}

pub async fn gone_halts_deliveries_that_are_queued_for_the_address(fixture: &StoreFixture<'_>) {
    let first = fixture.accept(message("acme", 1)).await.1[0];
    let leased = fixture.lease_one().await;
    assert_eq!(leased.halt, None);
    let queued = fixture.accept(message("acme", 1)).await.1[0];
    assert_eq!(fixture.settle(&leased, Decision::MarkGone).await, SettleResult::Done);
    assert_eq!(fixture.state(first).await, State::Gone);
    let later = fixture.accept(message("acme", 1)).await.1[0];
    let halted = fixture.lease(10).await;
    let halts: Vec<_> = halted.iter().map(|l| (l.delivery, l.halt)).collect();
    assert_eq!(halts, [(queued, Some(Halt::AddressGone)), (later, Some(Halt::AddressGone))]);
    let Some(fixture) = fixture.reopened().await else { return };
    let halted = fixture.lease(10).await;
    assert!(halted.iter().all(|l| l.halt == Some(Halt::AddressGone)), "also after a restart");
}

fn address(number: u32) -> NewAddress {
    NewAddress { tenant: acme(), recipient: None, target: webhook(number), hash: hash(number) }
}

pub async fn a_deleted_address_halts_what_was_accepted_before(fixture: &StoreFixture<'_>) {
    let register = async || fixture.store.put_address(address(1)).await.unwrap().0;
    let known = register().await;
    let queued = fixture.accept(message("acme", 1)).await.1[0];
    let other = fixture.accept(message("other", 1)).await.1[0];
    assert!(fixture.store.delete_address(&acme(), known.id, true).await.unwrap());
    let inline = fixture.accept(message("acme", 1)).await.1[0];
    register().await;
    let again = fixture.accept(message("acme", 1)).await.1[0];
    let halts = async |fixture: &StoreFixture<'_>| {
        let leased = fixture.lease_all().await;
        leased.iter().map(|l| (l.delivery, l.halt)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let deleted = Some(Halt::AddressDeleted);
    let expected: std::collections::BTreeMap<_, _> =
        [(queued, deleted), (other, None), (inline, None), (again, None)].into();
    assert_eq!(halts(fixture).await, expected);
    let Some(fixture) = fixture.reopened().await else { return };
    assert_eq!(halts(&fixture).await, expected, "also after a restart");
}

pub async fn an_address_that_is_only_forgotten_cancels_nothing(fixture: &StoreFixture<'_>) {
    let known = fixture.store.put_address(address(1)).await.unwrap().0;
    fixture.accept(message("acme", 1)).await;
    assert!(fixture.store.delete_address(&acme(), known.id, false).await.unwrap());
    assert_eq!(fixture.lease_one().await.halt, None);
}

pub async fn the_mark_of_a_deleted_address_ends(fixture: &StoreFixture<'_>) {
    let known = fixture.store.put_address(address(1)).await.unwrap().0;
    fixture.store.delete_address(&acme(), known.id, true).await.unwrap();
    let marks = async || {
        let all = fixture.store.holdings().await.unwrap();
        all.iter().map(|own| own.holdings.gone_marks).sum::<u64>()
    };
    let prune = async || fixture.store.prune(&Retention::of(secs(86_400))).await.unwrap();
    fixture.clock.advance(secs(399 * 86_400));
    prune().await;
    assert_eq!(marks().await, 1);
    fixture.clock.advance(secs(2 * 86_400));
    prune().await;
    assert_eq!(marks().await, 0);
}

pub async fn gone_reaches_only_its_tenant(fixture: &StoreFixture<'_>) {
    fixture.accept_and_settle(message("acme", 1), Decision::MarkGone).await;
    fixture.accept(message("other", 1)).await;
    fixture.accept(message("acme", 2)).await;
    assert!(fixture.lease(10).await.iter().all(|l| l.halt.is_none()));
}
