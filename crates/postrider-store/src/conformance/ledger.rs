//! Promises of the ledger: what it shows, how long it keeps it, and what survives a restart.

use std::collections::BTreeMap;

use super::fixture::*;

pub async fn counts_are_exact(fixture: &StoreFixture<'_>) {
    fixture.accept(batch("acme", &[1, 2, 3, 4, 5, 6])).await;
    fixture.accept(message("other", 9)).await;
    let leased = fixture.lease(1).await;
    let mut ours = leased.iter().filter(|l| l.message.tenant.as_str() == "acme");
    let mut next = || ours.next().expect("six are leased");
    fixture.settle(next(), Decision::Done).await;
    fixture.settle(next(), Decision::MarkGone).await;
    fixture.settle(next(), Decision::DeadLetter(DeadReason::Poison)).await;
    fixture.settle(next(), retry(900)).await;
    fixture.settle(next(), Decision::Park { after: secs(900) }).await;
    let states = [State::Sending, State::Retrying, State::Parked, State::Sent, State::Gone]
        .into_iter()
        .chain([State::Failed]);
    let expected = Counts {
        held: 0,
        messages: 1,
        states: states.map(|state| (state, 1)).collect(),
        dead: BTreeMap::from([(DeadReason::Poison, 1)]),
    };
    assert_eq!(fixture.store.counts(Some(&acme())).await.unwrap(), expected);
    let all = fixture.counts().await;
    assert_eq!((all.messages, all.states[&State::Sending]), (2, 2));
    fixture.clock.advance(LEASE);
    let later = fixture.counts().await;
    assert_eq!(later.states.get(&State::Sending), None, "their leases ended");
    assert_eq!(later.states[&State::Queued], 2);
    let Some(fixture) = fixture.reopened().await else { return };
    assert_eq!(fixture.counts().await, later);
}

pub async fn pages_cover_everything_once(fixture: &StoreFixture<'_>) {
    let mut accepted = Vec::new();
    for _ in 0..5 {
        accepted.extend(fixture.accept(batch("acme", &[1, 2, 3])).await.1);
        fixture.clock.advance(secs(1));
    }
    accepted.reverse();
    for limit in [1, 4, 15, 100] {
        let filter = DeliveryFilter { limit, ..DeliveryFilter::default() };
        assert_eq!(fixture.all(filter, false).await, accepted, "limit {limit}");
    }
}

pub async fn filters_find_the_right_deliveries(fixture: &StoreFixture<'_>) {
    let (first, one) = fixture.accept(batch("acme", &[1, 2])).await;
    fixture.clock.advance(secs(10));
    let (_, two) = fixture.accept(message("other", 3)).await;
    let leased = fixture.lease(1).await;
    let sent = leased.iter().find(|l| l.delivery == one[0]).expect("leased");
    fixture.settle(sent, Decision::Done).await;
    let list = |filter: DeliveryFilter| fixture.all(DeliveryFilter { limit: 1, ..filter }, false);
    let none = DeliveryFilter::default;
    assert_eq!(list(DeliveryFilter { state: Some(State::Sent), ..none() }).await, [one[0]]);
    let sending = list(DeliveryFilter { state: Some(State::Sending), ..none() }).await;
    assert_eq!(sending, [two[0], one[1]]);
    assert!(list(DeliveryFilter { state: Some(State::Queued), ..none() }).await.is_empty());
    let tenant = Some(TenantId::new("other"));
    assert_eq!(list(DeliveryFilter { tenant, ..none() }).await, two);
    assert_eq!(list(DeliveryFilter { message: Some(first), ..none() }).await, [one[1], one[0]]);
    let recipient = Some("user-2".into());
    assert_eq!(list(DeliveryFilter { recipient, ..none() }).await, [one[1]]);
    assert_eq!(list(DeliveryFilter { since: Some(fixture.now()), ..none() }).await, two);
    assert_eq!(
        list(DeliveryFilter { until: Some(fixture.now()), ..none() }).await,
        [one[1], one[0]]
    );
    let channel = Some(ChannelKind::new("webpush"));
    assert!(list(DeliveryFilter { channel, ..none() }).await.is_empty());
}

pub async fn deliveries_are_found_by_the_tags_of_their_message(fixture: &StoreFixture<'_>) {
    let tagged = |tenant: &str, numbers: &[u32], tags: &[&str]| {
        let mut new = batch(tenant, numbers);
        new.envelope.tags = tags.iter().map(|tag| (*tag).into()).collect();
        new
    };
    let (first, one) = fixture.accept(tagged("acme", &[1, 2, 3], &["sale", "eu", "sale"])).await;
    fixture.clock.advance(secs(10));
    let between = fixture.now();
    let two = fixture.accept(tagged("acme", &[2], &["sale"])).await.1;
    fixture.accept(batch("acme", &[1, 2])).await;
    let others = fixture.accept(tagged("other", &[1], &["sale"])).await.1;
    let by_tag = |tag: &str| DeliveryFilter {
        tenant: Some(acme()),
        tag: Some(tag.into()),
        ..DeliveryFilter::default()
    };
    let check = async |fixture: &StoreFixture<'_>| {
        for limit in [1, 2, 100] {
            let list =
                |filter: DeliveryFilter| fixture.all(DeliveryFilter { limit, ..filter }, false);
            assert_eq!(list(by_tag("sale")).await, [two[0], one[2], one[1], one[0]]);
            assert_eq!(list(by_tag("eu")).await, [one[2], one[1], one[0]]);
            assert!(list(by_tag("e")).await.is_empty());
            assert!(list(DeliveryFilter { tenant: None, ..by_tag("none") }).await.is_empty());
            let all = list(DeliveryFilter { tenant: None, ..by_tag("sale") }).await;
            assert_eq!((all.len(), all[0]), (5, others[0]));
            let of_nobody = Some(TenantId::new("nobody"));
            assert!(list(DeliveryFilter { tenant: of_nobody, ..by_tag("sale") }).await.is_empty());
            let since = Some(between);
            assert_eq!(list(DeliveryFilter { since, ..by_tag("sale") }).await, two);
            let until = Some(between);
            assert_eq!(list(DeliveryFilter { until, ..by_tag("sale") }).await.len(), 3);
            let recipient = Some("user-2".into());
            let of_one = DeliveryFilter { recipient, ..by_tag("sale") };
            assert_eq!(list(of_one).await, [two[0], one[1]]);
            let message = Some(first);
            assert_eq!(list(DeliveryFilter { message, ..by_tag("sale") }).await.len(), 3);
        }
    };
    check(fixture).await;
    if let Some(reopened) = fixture.reopened().await {
        check(&reopened).await;
    }
}

/// A message to the lane of that number, in a class, of a campaign.
fn sorted_message(tenant: &str, number: u32, class: &str, campaign: Option<&str>) -> NewMessage {
    let mut new = message(tenant, number);
    new.class = class.into();
    let lane = LaneKey { class: class.into(), ..(*new.deliveries[0].lane).clone() };
    new.deliveries[0].lane = Arc::new(lane);
    new.envelope.campaign = campaign.map(Into::into);
    new
}

pub async fn deliveries_and_dead_letters_are_found_by_lane_account_error_and_campaign(
    fixture: &StoreFixture<'_>,
) {
    let mut ids = Vec::new();
    for (tenant, number, class, campaign) in [
        ("acme", 1, "a", Some("spring")),
        ("acme", 2, "b", None),
        ("other", 1, "a", Some("spring")),
        ("acme", 1, "b", Some("autumn")),
    ] {
        let id = fixture.accept(sorted_message(tenant, number, class, campaign)).await.1[0];
        let leased = fixture.lease_one().await;
        let attempt = AttemptRecord {
            account: Some(format!("account-{number}").into()),
            code: Some(format!("code-{class}")),
            ..success(1, fixture.now())
        };
        let decision = Decision::DeadLetter(DeadReason::Permanent);
        fixture.settle_with(&leased, decision, vec![attempt]).await;
        ids.push(id);
        fixture.clock.advance(secs(1));
    }
    let none = DeliveryFilter::default;
    let check = async |fixture: &StoreFixture<'_>| {
        for is_dead in [false, true] {
            for limit in [1, 100] {
                let list = |filter: DeliveryFilter| {
                    fixture.all(DeliveryFilter { limit, ..filter }, is_dead)
                };
                let of_first = || Some("https://host-1.example".into());
                let provider = of_first();
                assert_eq!(
                    list(DeliveryFilter { provider, ..none() }).await,
                    [ids[3], ids[2], ids[0]]
                );
                let class = Some("b".into());
                assert_eq!(list(DeliveryFilter { class, ..none() }).await, [ids[3], ids[1]]);
                let account = Some("account-2".into());
                assert_eq!(list(DeliveryFilter { account, ..none() }).await, [ids[1]]);
                let error = Some("code-a".into());
                assert_eq!(list(DeliveryFilter { error, ..none() }).await, [ids[2], ids[0]]);
                let campaign = || Some("spring".into());
                let of_campaign = DeliveryFilter { campaign: campaign(), ..none() };
                assert_eq!(list(of_campaign).await, [ids[2], ids[0]]);
                let ours = || DeliveryFilter { tenant: Some(acme()), ..none() };
                assert_eq!(list(ours()).await, [ids[3], ids[1], ids[0]]);
                let of_campaign = DeliveryFilter { campaign: campaign(), ..ours() };
                assert_eq!(list(of_campaign).await, [ids[0]]);
                let (provider, class) = (of_first(), Some("b".into()));
                let both = DeliveryFilter { provider, class, ..ours() };
                assert_eq!(list(both).await, [ids[3]]);
                let changed_before = Some(fixture.delivery(ids[2]).await.changed_at);
                let older = DeliveryFilter { changed_before, ..none() };
                assert_eq!(list(older).await, [ids[1], ids[0]]);
                let none_such = DeliveryFilter { provider: Some("x".into()), ..ours() };
                assert!(list(none_such).await.is_empty());
            }
        }
    };
    check(fixture).await;
    if let Some(reopened) = fixture.reopened().await {
        check(&reopened).await;
    }
}

pub async fn a_delivery_that_fell_back_is_found_by_its_new_lane(fixture: &StoreFixture<'_>) {
    let mut new = message("acme", 1);
    let other = delivery_to("acme", 2);
    new.deliveries[0].alternatives = vec![Alternative {
        lane: other.lane.clone(),
        target: other.target.clone(),
        hash: other.hash,
        address: None,
        address_since: None,
    }];
    let id = fixture.accept(new).await.1[0];
    fixture.settle_next(Decision::FallBack).await;
    let by = |number: u32| DeliveryFilter {
        tenant: Some(acme()),
        provider: Some(format!("https://host-{number}.example").into()),
        ..DeliveryFilter::default()
    };
    assert_eq!(fixture.all(by(2), false).await, [id]);
    assert!(fixture.all(by(1), false).await.is_empty());
    if let Some(reopened) = fixture.reopened().await {
        assert_eq!(reopened.all(by(2), false).await, [id]);
    }
}

pub async fn a_tag_chooses_dead_letters_and_held_work(fixture: &StoreFixture<'_>) {
    let tagged = |tag: &str| {
        let mut new = message("acme", 1);
        new.envelope.tags = vec![tag.into()];
        new
    };
    let by_tag = |tag: &str| DeliveryFilter { tag: Some(tag.into()), ..DeliveryFilter::default() };
    let mut dead = Vec::new();
    for tag in ["sale", "news", "sale"] {
        dead.push(fixture.accept(tagged(tag)).await.1[0]);
        fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    }
    for tenant in [None, Some(acme())] {
        let filter = DeliveryFilter { tenant, limit: 1, ..by_tag("sale") };
        assert_eq!(fixture.all(filter, true).await, [dead[2], dead[0]]);
    }
    let chosen = Selection::Filter(by_tag("sale"));
    assert_eq!(fixture.store.replay(Some(&acme()), chosen, Replay::default()).await.unwrap(), 2);
    assert_eq!(fixture.dead().await, [dead[1]]);
    fixture.accept(tagged("news")).await;
    assert_eq!(fixture.store.hold_pending().await.unwrap(), 3);
    let chosen = Selection::Filter(by_tag("news"));
    assert_eq!(fixture.store.release_held(None, chosen, None).await.unwrap(), 1);
    let chosen = Selection::Filter(by_tag("news"));
    assert_eq!(fixture.store.discard(Some(&acme()), chosen).await.unwrap(), 1);
}

pub async fn a_tag_of_forgotten_work_finds_nothing(fixture: &StoreFixture<'_>) {
    let tagged = |numbers: &[u32]| {
        let mut new = batch("acme", numbers);
        new.envelope.tags = vec!["sale".into()];
        new
    };
    for numbers in [&[1][..], &[1, 2], &[3], &[1]] {
        fixture.accept(tagged(numbers)).await;
        for leased in fixture.lease_all().await {
            fixture.settle(&leased, Decision::Done).await;
        }
    }
    fixture.clock.advance(secs(100));
    let kept = fixture.accept(tagged(&[1])).await.1;
    while fixture.store.prune(&Retention::of(secs(50))).await.unwrap().deleted > 0 {}
    for tenant in [None, Some(acme())] {
        let tag = Some("sale".into());
        let filter = DeliveryFilter { tenant, tag, ..DeliveryFilter::default() };
        assert_eq!(fixture.all(filter, false).await, kept);
    }
}

pub async fn bodies_are_erased_when_nothing_needs_them(fixture: &StoreFixture<'_>) {
    let (id, _) = fixture.accept(message("acme", 1)).await;
    assert!(fixture.content(id).await.is_some());
    fixture.settle_next(Decision::Done).await;
    assert_eq!(fixture.content(id).await, None);
    let view = fixture.store.message(None, id).await.unwrap().unwrap();
    assert!(!view.has_content);
    assert_eq!(view.states, BTreeMap::from([(State::Sent, 1)]));
}

pub async fn a_fan_out_keeps_its_body_until_the_last_is_final(fixture: &StoreFixture<'_>) {
    let (id, deliveries) = fixture.accept(batch("acme", &[1, 2, 3])).await;
    let leased = fixture.lease(1).await;
    fixture.settle(&leased[0], Decision::Done).await;
    fixture.settle(&leased[1], Decision::DeadLetter(DeadReason::Permanent)).await;
    fixture.settle(&leased[2], Decision::MarkGone).await;
    assert!(fixture.content(id).await.is_some(), "a dead letter needs the body");
    let dead = leased[1].delivery;
    assert!(deliveries.contains(&dead));
    fixture.store.discard(None, Selection::Ids(vec![dead])).await.unwrap();
    assert_eq!(fixture.content(id).await, None);
}

pub async fn prune_deletes_only_old_final_deliveries(fixture: &StoreFixture<'_>) {
    let (sent, _) = fixture.accept(message("acme", 1)).await;
    fixture.settle_next(Decision::Done).await;
    let (dead, dead_delivery) = fixture.accept(message("acme", 1)).await;
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    let send_at = Some(fixture.now() + secs(500));
    let (waiting, _) = fixture.accept(NewMessage { send_at, ..message("acme", 1) }).await;
    fixture.clock.advance(secs(99));
    assert_eq!(fixture.store.prune(&Retention::of(secs(100))).await.unwrap().deleted, 0);
    let (young, _) = fixture.accept(message("acme", 1)).await;
    fixture.settle_next(Decision::Done).await;
    fixture.clock.advance(secs(1));
    assert_eq!(fixture.store.prune(&Retention::of(secs(100))).await.unwrap().deleted, 1);
    assert_eq!(fixture.store.prune(&Retention::of(secs(100))).await.unwrap().deleted, 0);
    assert_eq!(fixture.store.message(None, sent).await.unwrap(), None);
    for kept in [dead, waiting, young] {
        assert!(fixture.store.message(None, kept).await.unwrap().is_some());
    }
    let counts = fixture.counts().await;
    assert_eq!((counts.messages, counts.states[&State::Sent]), (3, 1));
    fixture.store.discard(None, Selection::Ids(dead_delivery)).await.unwrap();
    assert_eq!(
        fixture.store.prune(&Retention::of(secs(100))).await.unwrap().deleted,
        1,
        "a discarded dead letter is forgotten, too"
    );
}

pub async fn a_tenant_may_have_its_own_retention(fixture: &StoreFixture<'_>) {
    let times = |keep: u64| RetentionTimes { deliveries: secs(keep), dead_letters: None };
    let tenants = [("acme", 50), ("other", 500)];
    let tenants = tenants.map(|(name, keep)| (TenantId::new(name), times(keep)));
    let retention = Retention { default: times(100), tenants: tenants.into() };
    let mut ids = Vec::new();
    for tenant in ["acme", "other", "third"] {
        ids.push(fixture.accept(message(tenant, 1)).await.0);
        fixture.settle_next(Decision::Done).await;
    }
    for (wait, pruned) in [(49, 0), (1, 1), (49, 0), (1, 1), (399, 0), (1, 1)] {
        fixture.clock.advance(secs(wait));
        assert_eq!(fixture.store.prune(&retention).await.unwrap().deleted, pruned);
    }
    for id in ids {
        assert_eq!(fixture.store.message(None, id).await.unwrap(), None);
    }
}

pub async fn a_dead_letter_is_discarded_when_its_time_is_over(fixture: &StoreFixture<'_>) {
    let times = |dead: Option<u64>| RetentionTimes {
        deliveries: secs(1_000),
        dead_letters: dead.map(secs),
    };
    let never = (TenantId::new("other"), times(None));
    let retention = Retention { default: times(Some(100)), tenants: [never].into() };
    let (lone, _) = fixture.accept(message("acme", 1)).await;
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    let (shared, _) = fixture.accept(batch("acme", &[1, 1])).await;
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    fixture.settle_next(Decision::Done).await;
    let (kept, _) = fixture.accept(message("other", 1)).await;
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    fixture.clock.advance(secs(99));
    fixture.store.prune(&retention).await.unwrap();
    assert!(fixture.content(lone).await.is_some() && fixture.content(shared).await.is_some());
    fixture.clock.advance(secs(1));
    assert_eq!(fixture.store.prune(&retention).await.unwrap().deleted, 0, "the history stays");
    assert_eq!((fixture.content(lone).await, fixture.content(shared).await), (None, None));
    assert!(fixture.content(kept).await.is_some());
    assert_eq!(fixture.counts().await.dead[&DeadReason::Permanent], 1);
    fixture.clock.advance(secs(900));
    assert_eq!(fixture.store.prune(&retention).await.unwrap().deleted, 3);
    assert_eq!(fixture.store.message(None, lone).await.unwrap(), None);
    assert!(fixture.store.message(None, kept).await.unwrap().is_some());
}

pub async fn lanes_show_their_depth(fixture: &StoreFixture<'_>) {
    fixture.accept(batch("acme", &[1, 2, 2, 2])).await;
    fixture.accept(batch("other", &[7, 7])).await;
    assert_eq!(fixture.depths(None, 2).await, [(3, 0), (2, 0)]);
    let lanes = fixture.store.lanes(None, 1).await.unwrap();
    assert_eq!(lanes[0].next_due, Some(fixture.now()));
    fixture.store.lease(lanes[0].id, 2, LEASE).await.unwrap();
    assert_eq!(fixture.depths(Some(&acme()), 10).await, [(1, 2), (1, 0)]);
}

pub async fn a_lane_has_an_id_before_it_has_work(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    let known = fixture.store.lanes(None, 1).await.unwrap()[0].id;
    let keys = vec![lane("acme", 7), lane("acme", 1)];
    let ids = fixture.store.lane_ids(keys.clone()).await.unwrap();
    assert_eq!((ids.len(), ids[1]), (2, known));
    let fixture = &fixture.after_crash().await;
    assert_eq!(fixture.store.lane_ids(keys).await.unwrap(), ids);
    fixture.accept(message("acme", 7)).await;
    let lanes = fixture.store.lanes(None, 10).await.unwrap();
    assert!(lanes.iter().any(|depth| depth.id == ids[0] && depth.key == lane("acme", 7)));
}

pub async fn the_oldest_pending_is_known(fixture: &StoreFixture<'_>) {
    assert_eq!(fixture.store.oldest_pending().await.unwrap(), None);
    let start = fixture.now();
    fixture.accept_one().await;
    fixture.clock.advance(secs(10));
    fixture.accept_one().await;
    assert_eq!(fixture.store.oldest_pending().await.unwrap(), Some(start));
    let leased = fixture.lease(1).await;
    assert_eq!(
        fixture.store.oldest_pending().await.unwrap(),
        Some(start),
        "a delivery in flight is pending"
    );
    fixture.settle(&leased[0], Decision::DeadLetter(DeadReason::Permanent)).await;
    assert_eq!(fixture.store.oldest_pending().await.unwrap(), Some(fixture.now()));
    let all = Selection::Filter(DeliveryFilter::default());
    fixture.store.replay(None, all, Default::default()).await.unwrap();
    assert_eq!(fixture.store.oldest_pending().await.unwrap(), Some(start), "it is pending again");
}

pub async fn a_delivery_in_flight_is_shown_as_sending(fixture: &StoreFixture<'_>) {
    let (message, ids) = fixture.accept(message("acme", 1)).await;
    fixture.lease_one().await;
    let view = fixture.delivery(ids[0]).await;
    assert_eq!((view.state, view.due_at), (State::Sending, Some(fixture.now() + LEASE)));
    let of_message = fixture.store.message(None, message).await.unwrap().unwrap();
    assert_eq!(of_message.states, BTreeMap::from([(State::Sending, 1)]));
    fixture.clock.advance(LEASE);
    let view = fixture.delivery(ids[0]).await;
    assert_eq!((view.state, view.due_at), (State::Queued, Some(fixture.now())));
}

pub async fn history_is_kept_and_bounded(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    for _ in 0..70 {
        fixture.settle_next(retry(1)).await;
        fixture.clock.advance(secs(1));
    }
    let log = fixture.delivery(id).await.log;
    let numbers: Vec<_> = log.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (7..=70).collect::<Vec<_>>(), "the oldest attempts are dropped");
}

pub async fn everything_survives_a_restart(fixture: &StoreFixture<'_>) {
    let (id, ids) = fixture.accept(batch("acme", &[1, 2, 3, 4])).await;
    let leased = fixture.lease(1).await;
    fixture.settle(&leased[0], Decision::Done).await;
    fixture.settle(&leased[1], retry(30)).await;
    fixture.settle(&leased[2], Decision::DeadLetter(DeadReason::Ttl)).await;
    fixture.settle(&leased[3], Decision::Release).await;
    let mut before = Vec::new();
    for id in &ids {
        before.push(fixture.delivery(*id).await);
    }
    let view = fixture.store.message(None, id).await.unwrap();
    let Some(fixture) = fixture.reopened().await else { return };
    for (id, before) in ids.iter().zip(before) {
        assert_eq!(fixture.delivery(*id).await, before);
    }
    assert_eq!(fixture.store.message(None, id).await.unwrap(), view);
    assert_eq!(fixture.lease(10).await.len(), 1, "only the released one is due");
    fixture.clock.advance(secs(30));
    let again = fixture.lease_one().await;
    assert_eq!((again.attempts, again.last_delay), (1, secs(30)));
}

pub async fn leases_do_not_survive_a_restart(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let old = fixture.lease_one().await;
    let Some(fixture) = fixture.reopened().await else { return };
    assert_eq!(fixture.state(id).await, State::Queued);
    assert_eq!(fixture.settle(&old, Decision::Done).await, SettleResult::Fenced);
    let new = fixture.lease_one().await;
    assert!(new.token > old.token, "tokens are never used twice");
    assert_eq!(fixture.settle(&old, Decision::Done).await, SettleResult::Fenced);
    assert_eq!(fixture.settle(&new, Decision::Done).await, SettleResult::Done);
}

pub async fn ids_grow_even_if_the_clock_goes_back(fixture: &StoreFixture<'_>) {
    let first = fixture.accept_one().await;
    fixture.settle_next(Decision::Done).await;
    fixture.clock.advance(secs(10));
    fixture.store.prune(&Retention::of(secs(1))).await.unwrap();
    fixture.clock.set(fixture.now() - secs(1000));
    let fixture = &fixture.after_crash().await;
    let second = fixture.accept_one().await;
    assert!(second > first, "even if the first was pruned");
}
