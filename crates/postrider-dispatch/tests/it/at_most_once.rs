//! Classes for which a duplicate is worse than a loss: no attempt is made twice, not even after a crash.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::model::class::OnAmbiguous;
use postrider_core::ports::store::Store as _;
use postrider_core::{Class, DeadReason, State};
use postrider_dispatch::DispatchLimits;

use crate::fixture::{DispatchFixture, ObservedEvent, settle_down};
use crate::flaky_consumer::FlakyConsumer;

fn careful(name: &str, on_ambiguous: OnAmbiguous) -> Class {
    Class { name: name.into(), on_ambiguous, ..Class::default() }
}

#[tokio::test]
async fn what_left_before_a_crash_is_not_sent_again_where_a_duplicate_is_worse_than_a_loss() {
    let ends = [
        (OnAmbiguous::Park, (State::Failed, Some(DeadReason::Ambiguous))),
        (OnAmbiguous::Drop, (State::Suppressed, None)),
    ];
    for (on_ambiguous, end) in ends {
        let mut fixture = DispatchFixture::new(vec![]);
        fixture.add_class(careful("paid", on_ambiguous));
        let id = fixture.webhook(r#","class":"paid""#).await;
        // An earlier process leased and noted it, and crashed.
        let earlier = fixture.store.consumer("node").await.unwrap();
        let lane = earlier.ready_lanes(9).await.unwrap().remove(0);
        let leased = earlier.lease(lane.id, 9, Duration::from_secs(90)).await.unwrap();
        let start = vec![(leased[0].delivery, leased[0].token)];
        assert_eq!(earlier.start(start).await.unwrap(), [true]);
        fixture.clock.advance(Duration::from_secs(90));
        fixture.start().await;
        assert_eq!(fixture.finished().await, end);
        assert_eq!(fixture.calls(), 0);
        let delivery = fixture.delivery(id).await;
        assert_eq!(delivery.log.len(), 1, "the attempt whose end nobody knows is remembered");
        assert_eq!(delivery.log[0].code.as_deref(), Some("crash"));
    }
}

#[tokio::test]
async fn no_call_is_made_before_its_start_is_durable_where_that_matters() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.add_class(careful("paid", OnAmbiguous::Park));
    let disk = Arc::new(FlakyConsumer::of(&fixture.store).await);
    disk.full.store(true, Ordering::SeqCst);
    fixture.start_over(disk.clone(), DispatchLimits::default());
    let id = fixture.webhook(r#","class":"paid""#).await;
    while fixture.event().await != ObservedEvent::Trouble {}
    settle_down().await;
    assert_eq!((fixture.calls(), fixture.delivery(id).await.attempts), (0, 0));
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.calls(), 1);
}
