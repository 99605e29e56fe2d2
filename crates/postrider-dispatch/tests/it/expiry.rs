//! Expired deliveries leave the queue, whatever holds their lane.

use std::time::Duration;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::{LaneKey, State};

use crate::fixture::{DispatchFixture, WEBHOOK, order, settle_down};

#[tokio::test]
async fn what_has_expired_leaves_the_queue_while_its_lane_is_held() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.start().await;
    let lane = LaneKey {
        tenant: fixture.tenant.clone(),
        channel: WEBHOOK,
        provider: "https://hooks.example".into(),
        class: "flexible".into(),
    };
    fixture.lanes.force_breaker(&lane, Some((BreakerOverride::Open, order())));
    let short = fixture.webhook(r#","ttl_s":30"#).await;
    let later = fixture.webhook(r#","ttl_s":30,"send_at":"2027-01-15T08:10:00Z""#).await;
    let long = fixture.webhook("").await;
    settle_down().await;
    fixture.clock.advance(Duration::from_secs(31));
    assert_eq!(fixture.finished().await, (State::Expired, None));
    assert_eq!(fixture.delivery(short).await.state, State::Expired);
    assert_eq!(fixture.delivery(later).await.state, State::Queued, "its time has not begun");
    assert_eq!(fixture.delivery(long).await.state, State::Queued);
    assert_eq!(fixture.calls(), 0);
}

#[tokio::test]
async fn what_is_over_by_one_of_two_clocks_is_neither_sent_nor_ended() {
    let mut fixture = DispatchFixture::new(vec![]);
    let id = fixture.webhook(r#","ttl_s":30"#).await;
    let day = Duration::from_secs(86_400);
    fixture.clock.doubt(day);
    fixture.clock.advance(day);
    fixture.start().await;
    settle_down().await;
    assert_eq!(fixture.delivery(id).await.state, State::Parked);
    fixture.clock.doubt(Duration::ZERO);
    assert_eq!(fixture.finished().await, (State::Expired, None));
    assert_eq!(fixture.calls(), 0);
}
