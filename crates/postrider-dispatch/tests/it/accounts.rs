//! An account is a provider of its own: what is wrong with one costs nothing where another is used.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::account::AccountHold;
use postrider_core::policy::breaker::{BreakerOverride, BreakerState};
use postrider_core::{
    Class, DeadReason, DeliveryId, Gate, LaneKey, LaneState, Outcome, State, TenantId,
};
use postrider_dispatch::DispatchLimits;
use postrider_dispatch::lanes::OperatorOrder;

use crate::account_channel::{AccountBehavior, AccountChannel};
use crate::fixture::{DispatchFixture, WEBHOOK, order, settle_down};

fn failing() -> AccountBehavior {
    AccountBehavior::Answers(Outcome::RetryBackoff { at_least: Duration::ZERO })
}

fn lane(tenant: &str, class: &str) -> LaneKey {
    LaneKey {
        tenant: TenantId::new(tenant),
        channel: WEBHOOK,
        provider: "https://hooks.example".into(),
        class: class.into(),
    }
}

/// With room for so many calls per account.
async fn started(
    accounts: &[(&'static str, &[&'static str])],
    room: usize,
) -> (DispatchFixture, Arc<AccountChannel>) {
    let mut fixture = DispatchFixture::new(vec![]);
    let channel = AccountChannel::new(accounts);
    let limits =
        DispatchLimits { per_origin: [(WEBHOOK, room)].into(), ..DispatchLimits::default() };
    fixture.start_on(channel.clone(), limits).await;
    (fixture, channel)
}

async fn submit(
    fixture: &mut DispatchFixture,
    tenant: &str,
    count: usize,
    more: &str,
) -> Vec<DeliveryId> {
    fixture.tenant = TenantId::new(tenant);
    fixture.submit_many(count, more).await
}

async fn all_sent(fixture: &DispatchFixture, ids: &[DeliveryId]) {
    for id in ids {
        fixture.becomes(*id, State::Sent).await;
    }
}

#[tokio::test]
async fn a_failing_and_a_hanging_account_cost_a_third_tenant_nothing() {
    let (mut fixture, channel) =
        started(&[("a", &["bad"]), ("b", &["slow"]), ("c", &["good"])], 8).await;
    channel.behave("bad", failing());
    channel.behave("slow", AccountBehavior::Hangs);
    submit(&mut fixture, "a", 60, "").await;
    submit(&mut fixture, "b", 60, "").await;
    settle_down().await;
    let healthy = submit(&mut fixture, "c", 60, "").await;
    all_sent(&fixture, &healthy).await;
    assert_eq!(channel.calls("good", "c"), 60);
    assert!(channel.calls("slow", "b") <= 8, "no more than its own places");
    let report = fixture.lanes.report(&lane("c", "transactional"));
    assert_eq!((report.state, report.breaker), (LaneState::Ready, BreakerState::Closed));
    let held = fixture.lanes.report(&lane("a", "transactional"));
    assert_eq!(held.state.gate(), Some(Gate::Breaker), "{held:?}");
    let why = &held.held_by().unwrap().detail;
    assert!(why.starts_with("account bad: open"), "{why}");
    let hold = |account: &str| fixture.lanes.account_hold(WEBHOOK, &account.into());
    assert_eq!(hold("bad").map(|(gate, _)| gate), Some(Gate::Breaker));
    assert_eq!((hold("slow"), hold("good")), (None, None));
}

#[tokio::test]
async fn tenants_that_share_an_account_are_served_while_one_of_them_fails_there() {
    let (mut fixture, channel) = started(&[("a", &["shared"]), ("b", &["shared"])], 64).await;
    channel.behave("shared", failing());
    submit(&mut fixture, "a", 30, "").await;
    settle_down().await;
    channel.behave("shared", AccountBehavior::Answers(Outcome::Accepted));
    let ids = submit(&mut fixture, "b", 30, "").await;
    all_sent(&fixture, &ids).await;
    assert_eq!(fixture.lanes.report(&lane("a", "transactional")).state.gate(), Some(Gate::Breaker));
}

#[tokio::test]
async fn while_the_first_account_is_down_the_second_sends_and_probes_bring_the_first_back() {
    let (mut fixture, channel) = started(&[("a", &["first", "second"])], 64).await;
    channel.behave("first", failing());
    let ids = submit(&mut fixture, "a", 60, "").await;
    settle_down().await;
    let report = fixture.lanes.report(&lane("a", "transactional"));
    assert_eq!(report.state, LaneState::Ready);
    let breaker = report.gates.iter().find(|verdict| verdict.gate == Gate::Breaker).unwrap();
    assert!(breaker.detail.contains("account first is left out: open"), "{}", breaker.detail);
    channel.behave("first", AccountBehavior::Answers(Outcome::Accepted));
    for _ in 0..40 {
        fixture.clock.advance(Duration::from_secs(10));
        settle_down().await;
    }
    all_sent(&fixture, &ids).await;
    assert!(channel.calls("second", "a") > 0);
    let before = channel.calls("first", "a");
    let more = submit(&mut fixture, "a", 5, "").await;
    all_sent(&fixture, &more).await;
    assert_eq!(channel.calls("first", "a"), before + 5, "it is preferred again");
}

#[tokio::test]
async fn a_full_account_is_waited_for_and_the_next_one_is_not_used() {
    let (mut fixture, channel) = started(&[("a", &["cheap", "dear"])], 4).await;
    channel.behave("cheap", AccountBehavior::Hangs);
    submit(&mut fixture, "a", 20, "").await;
    settle_down().await;
    assert_eq!((channel.calls("cheap", "a"), channel.calls("dear", "a")), (4, 0));
    assert_eq!(
        fixture.lanes.report(&lane("a", "transactional")).state.gate(),
        Some(Gate::Concurrency)
    );
}

#[tokio::test]
async fn an_account_without_quota_is_passed_over_before_anything_is_leased() {
    let (mut fixture, channel) =
        started(&[("a", &["spent", "other"]), ("b", &["spent"])], 64).await;
    let until = fixture.now() + Duration::from_secs(30);
    channel.hold("spent", AccountHold { by: Gate::RateLimit, until });
    let ids = submit(&mut fixture, "a", 5, "").await;
    all_sent(&fixture, &ids).await;
    assert_eq!((channel.calls("spent", "a"), channel.calls("other", "a")), (0, 5));
    let waits = submit(&mut fixture, "b", 1, "").await;
    settle_down().await;
    assert_eq!(fixture.delivery(waits[0]).await.state, State::Queued);
    let report = fixture.lanes.report(&lane("b", "transactional"));
    assert_eq!(report.state, LaneState::Waiting { on: Gate::RateLimit, until });
    assert!(report.held_by().unwrap().detail.starts_with("account spent: its quota"));
}

#[tokio::test]
async fn a_message_that_only_one_account_fits_goes_through_it_or_waits_for_it() {
    let (mut fixture, channel) = started(&[("a", &["first", "second"])], 64).await;
    fixture.tenant = TenantId::new("a");
    let only = |name: &str| {
        format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://hooks.example/?only={name}"}}}}}}"#
        )
    };
    let sent = fixture.submit(&only("second")).await;
    all_sent(&fixture, &[sent]).await;
    assert_eq!((channel.calls("first", "a"), channel.calls("second", "a")), (0, 1));
    let until = fixture.now() + Duration::from_secs(30);
    channel.hold("second", AccountHold { by: Gate::Credential, until });
    let waits = fixture.submit(&only("second")).await;
    let parked = fixture.becomes(waits, State::Parked).await;
    assert_eq!(parked.attempts, 0);
    assert_eq!((channel.calls("first", "a"), channel.calls("second", "a")), (0, 1));
}

#[tokio::test]
async fn a_class_that_does_not_wait_is_refused_while_its_account_fails() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.add_class(Class {
        name: "eager".into(),
        when_open: WhenOpen::Reject,
        ..Class::default()
    });
    let channel = AccountChannel::new(&[("a", &["bad"]), ("b", &["good"])]);
    channel.behave("bad", failing());
    fixture.start_on(channel.clone(), DispatchLimits::default()).await;
    submit(&mut fixture, "a", 30, "").await;
    settle_down().await;
    let refused = submit(&mut fixture, "a", 1, r#","class":"eager""#).await;
    let refused = fixture.becomes(refused[0], State::Failed).await;
    assert_eq!((refused.reason, refused.attempts), (Some(DeadReason::Refused), 0));
    let sent = submit(&mut fixture, "b", 1, r#","class":"eager""#).await;
    all_sent(&fixture, &sent).await;
}

#[tokio::test]
async fn an_operators_order_concerns_all_accounts_of_the_lane_and_no_others() {
    let (mut fixture, channel) =
        started(&[("a", &["first", "second"]), ("b", &["other"]), ("c", &["first", "second"])], 64)
            .await;
    let forced = lane("a", "transactional");
    fixture.lanes.force_breaker(&forced, Some((BreakerOverride::Open, order())));
    let waits = submit(&mut fixture, "a", 2, "").await;
    let also = submit(&mut fixture, "c", 2, "").await;
    let sent = submit(&mut fixture, "b", 2, "").await;
    all_sent(&fixture, &sent).await;
    settle_down().await;
    assert_eq!(channel.calls("first", "a") + channel.calls("second", "a"), 0);
    assert_eq!(fixture.lanes.report(&forced).breaker, BreakerState::ForcedOpen);
    fixture.lanes.force_breaker(&forced, None);
    all_sent(&fixture, &waits).await;
    all_sent(&fixture, &also).await;
}

#[tokio::test]
async fn a_reload_keeps_what_was_learned_about_an_account() {
    let (mut fixture, channel) = started(&[("a", &["bad"])], 64).await;
    channel.behave("bad", failing());
    submit(&mut fixture, "a", 30, "").await;
    settle_down().await;
    let before = fixture.lanes.report(&lane("a", "transactional")).state;
    assert_eq!(before.gate(), Some(Gate::Breaker));
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 7)].into(), ..DispatchLimits::default() };
    fixture.adopt(limits);
    settle_down().await;
    assert_eq!(fixture.lanes.report(&lane("a", "transactional")).state, before);
}

fn paused_for(fixture: &DispatchFixture, for_s: Option<u64>) -> OperatorOrder {
    let until = for_s.map(|for_s| fixture.now() + Duration::from_secs(for_s));
    OperatorOrder { reason: Some("a new contract".into()), until, ..order() }
}

#[tokio::test]
async fn a_paused_account_is_not_chosen_and_explain_names_it() {
    let (mut fixture, channel) =
        started(&[("a", &["first", "second"]), ("b", &["first"])], 64).await;
    let order = paused_for(&fixture, None);
    fixture.lanes.pause_provider(WEBHOOK, "first".into(), order);
    let ids = submit(&mut fixture, "a", 5, "").await;
    all_sent(&fixture, &ids).await;
    assert_eq!((channel.calls("first", "a"), channel.calls("second", "a")), (0, 5));
    let report = fixture.lanes.report(&lane("a", "transactional"));
    let breaker = report.gates.iter().find(|verdict| verdict.gate == Gate::Breaker).unwrap();
    assert!(breaker.detail.contains("account first is left out: paused by"), "{breaker:?}");
    let waits = submit(&mut fixture, "b", 2, "").await;
    fixture.clock.advance(Duration::from_secs(3_600));
    settle_down().await;
    assert_eq!(fixture.delivery(waits[0]).await.state, State::Queued, "however long");
    let held = fixture.lanes.report(&lane("b", "transactional"));
    assert_eq!(held.state, LaneState::Blocked { on: Gate::ProviderPaused });
    let why = &held.held_by().unwrap().detail;
    assert!(
        why.starts_with("account first: paused by") && why.ends_with(": a new contract"),
        "{why}"
    );
    assert!(fixture.lanes.resume_provider(WEBHOOK, &"first".into()));
    all_sent(&fixture, &waits).await;
    assert_eq!(channel.calls("first", "b"), 2);
}

#[tokio::test]
async fn a_pause_of_a_provider_holds_its_lanes_of_all_tenants_and_ends_by_itself() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.start().await;
    let until = fixture.now() + Duration::from_secs(60);
    let order = paused_for(&fixture, Some(60));
    let first = fixture.lanes.pause_provider(WEBHOOK, "https://hooks.example".into(), order);
    let later = fixture.lanes.pause_provider(
        WEBHOOK,
        "https://hooks.example".into(),
        OperatorOrder::new("another", fixture.now()),
    );
    assert_eq!(later, first, "the first order stands");
    let mut waits = Vec::new();
    for tenant in ["a", "b"] {
        waits.extend(submit(&mut fixture, tenant, 1, "").await);
    }
    settle_down().await;
    for (tenant, id) in ["a", "b"].into_iter().zip(&waits) {
        assert_eq!(fixture.delivery(*id).await.state, State::Queued);
        let report = fixture.lanes.report(&lane(tenant, "transactional"));
        assert_eq!(report.state, LaneState::Waiting { on: Gate::ProviderPaused, until });
    }
    assert_eq!(fixture.lanes.paused_providers().len(), 1);
    fixture.clock.advance(Duration::from_secs(61));
    all_sent(&fixture, &waits).await;
    assert!(fixture.lanes.paused_providers().is_empty(), "it is over");
}
