//! Which lane is given a turn, and which are not looked at.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::{ChannelKind, TenantId};

use super::*;

const WEBHOOK: ChannelKind = ChannelKind::new("webhook");
const FULL: TurnEnd = TurnEnd::ProviderFull { until: None, shut: false, full: true };

struct SchedulerFixture {
    scheduler: LaneScheduler,
    weights: Weights,
    now: Timestamp,
    had: HashMap<TenantId, usize>,
}

impl SchedulerFixture {
    fn new() -> Self {
        let now = Timestamp(1_800_000_000_000);
        Self {
            scheduler: LaneScheduler::default(),
            weights: Weights::new(),
            now,
            had: HashMap::new(),
        }
    }

    fn join(&mut self, id: u32, tenant: &str, provider: &str, priority: Priority) {
        let impatient = tenant == "impatient";
        let key = LaneKey {
            tenant: TenantId::new(tenant),
            channel: WEBHOOK,
            provider: provider.into(),
            class: format!("class of lane {id}").into(),
        };
        let terms = TurnTerms { weights: &self.weights, now: self.now };
        let (id, provider) = (LaneId(id), (WEBHOOK, provider.into()));
        let (key, free_since) = (Arc::new(key), Timestamp(0));
        let entry = LaneEntry { id, key, provider, priority, impatient, free_since };
        self.scheduler.join(entry, terms);
    }

    /// One turn that takes up to `take` of its allowance.
    fn turn(&mut self, take: usize, rest: TurnEnd) -> Option<String> {
        let terms = TurnTerms { weights: &self.weights, now: self.now };
        let turn = self.scheduler.next(terms)?;
        let used = turn.allowance().min(take);
        let tenant = turn.entry.key.tenant.clone();
        *self.had.entry(tenant.clone()).or_default() += used;
        let provider = turn.entry.provider.clone();
        self.scheduler.end(turn, provider, used, rest, terms);
        Some(tenant.to_string())
    }

    fn reopen(&mut self, provider: &str) {
        let terms = TurnTerms { weights: &self.weights, now: self.now };
        self.scheduler.reopen(&(WEBHOOK, provider.into()), terms);
    }

    fn had(&self, tenant: &str) -> usize {
        self.had.get(&TenantId::new(tenant)).copied().unwrap_or(0)
    }
}

#[test]
fn ten_thousand_lanes_of_one_do_not_keep_the_one_lane_of_another() {
    let mut fixture = SchedulerFixture::new();
    for id in 0..10_000 {
        fixture.join(id, "many", &format!("https://{id}.example"), Priority::Normal);
    }
    fixture.join(10_000, "one", "https://a.example", Priority::Normal);
    (0..400).for_each(|_| _ = fixture.turn(16, TurnEnd::More));
    let (many, one) = (fixture.had("many"), fixture.had("one"));
    assert!(many.abs_diff(one) <= 16, "{many} and {one}");
}

#[test]
fn whoever_waits_for_a_full_provider_is_not_looked_at_and_nobody_else_waits() {
    let mut fixture = SchedulerFixture::new();
    for id in 0..1_000 {
        fixture.join(id, &format!("t{id}"), "https://full.example", Priority::Normal);
    }
    assert!(fixture.turn(0, FULL).is_some());
    assert_eq!(fixture.turn(1, TurnEnd::More), None, "the others find the door closed");
    fixture.join(1_000, "free", "https://free.example", Priority::Low);
    assert_eq!(fixture.turn(1, TurnEnd::LaneDone).as_deref(), Some("free"));
    fixture.reopen("https://full.example");
    let went: std::collections::HashSet<_> =
        (0..1_000).filter_map(|_| fixture.turn(1, TurnEnd::LaneDone)).collect();
    assert_eq!(went.len(), 1_000);
    assert_eq!(
        (fixture.scheduler.len(), fixture.scheduler.queues.len()),
        (0, 0),
        "nothing is kept"
    );
}

#[test]
fn a_provider_with_one_place_at_a_time_is_shared_by_weight() {
    let mut fixture = SchedulerFixture::new();
    fixture.weights.insert(TenantId::new("heavy"), 3.0);
    for (id, tenant) in ["heavy", "light", "other"].into_iter().enumerate() {
        fixture.join(id as u32, tenant, "https://a.example", Priority::Normal);
    }
    for _ in 0..5_000 {
        fixture.now = Timestamp(fixture.now.0 + 10);
        fixture.turn(1, TurnEnd::More);
        fixture.turn(0, FULL);
        fixture.reopen("https://a.example");
    }
    let shares = ["heavy", "light", "other"].map(|tenant| fixture.had(tenant));
    assert!(shares[0].abs_diff(3_000) < 50 && shares[1].abs_diff(1_000) < 50, "{shares:?}");
}

#[test]
fn a_tenant_that_holds_its_part_does_not_keep_the_next_one_from_its_turn() {
    let mut fixture = SchedulerFixture::new();
    for (id, tenant) in ["slow", "quick"].into_iter().enumerate() {
        fixture.join(id as u32, tenant, "https://a.example", Priority::Normal);
        fixture.turn(0, FULL);
    }
    fixture.reopen("https://a.example");
    let terms = TurnTerms { weights: &fixture.weights, now: fixture.now };
    let turn = fixture.scheduler.next(terms).unwrap();
    let (provider, first) = (turn.entry.provider.clone(), turn.entry.key.tenant.to_string());
    assert_eq!(turn.part_at(&provider).of(16), 8);
    assert_eq!(turn.part_at(&(WEBHOOK, "another account".into())), WeightPart::WHOLE);
    fixture.scheduler.end(turn, provider, 0, TurnEnd::HoldsPart, terms);
    let second = fixture.turn(1, TurnEnd::LaneDone);
    assert!(second.is_some_and(|second| second != first));
    assert_eq!(fixture.turn(1, TurnEnd::LaneDone), Some(first), "it still waits");
    assert_eq!(fixture.scheduler.queues.len(), 0);
}

#[test]
fn a_closed_door_opens_at_its_time_or_with_a_word() {
    let mut fixture = SchedulerFixture::new();
    fixture.join(1, "a", "https://a.example", Priority::Normal);
    let later = Timestamp(fixture.now.0 + 500);
    fixture.turn(0, TurnEnd::ProviderFull { until: Some(later), shut: false, full: false });
    assert_eq!(fixture.scheduler.next_wake(), Some(later));
    assert!(fixture.turn(1, TurnEnd::More).is_none());
    fixture.now = later;
    fixture.scheduler.wake(TurnTerms { weights: &fixture.weights, now: later });
    assert!(
        fixture
            .turn(
                0,
                TurnEnd::ProviderFull {
                    until: Some(Timestamp(later.0 + 9)),
                    shut: false,
                    full: false
                }
            )
            .is_some()
    );
    fixture.reopen("https://a.example");
    assert_eq!(fixture.scheduler.next_wake(), None);
    assert!(fixture.turn(1, TurnEnd::LaneDone).is_some());
}

#[test]
fn urgent_work_goes_where_the_rest_finds_no_place_and_overtakes_it() {
    let mut fixture = SchedulerFixture::new();
    fixture.join(1, "burst", "https://a.example", Priority::Low);
    fixture.turn(16, FULL);
    assert!(fixture.turn(16, TurnEnd::More).is_none());
    fixture.join(2, "codes", "https://a.example", Priority::High);
    assert_eq!(
        fixture.turn(1, TurnEnd::LaneDone).as_deref(),
        Some("codes"),
        "a place is kept for it"
    );
    fixture.reopen("https://a.example");
    fixture.join(3, "codes", "https://a.example", Priority::High);
    assert_eq!(
        fixture.turn(1, TurnEnd::LaneDone).as_deref(),
        Some("codes"),
        "ahead of who waits longer"
    );
    assert_eq!(fixture.turn(16, TurnEnd::More).as_deref(), Some("burst"));
}

#[test]
fn a_lane_is_hidden_once_and_listed_again_when_it_leaves() {
    let mut fixture = SchedulerFixture::new();
    fixture.join(1, "a", "https://a.example", Priority::Normal);
    assert!(fixture.scheduler.hide(LaneId(1)) && !fixture.scheduler.hide(LaneId(1)));
    let terms = TurnTerms { weights: &fixture.weights, now: fixture.now };
    let turn = fixture.scheduler.next(terms).unwrap();
    let provider = turn.entry.provider.clone();
    assert!(fixture.scheduler.end(turn, provider, 1, TurnEnd::LaneDone, terms));
    assert!(!fixture.scheduler.hide(LaneId(1)));
}

#[test]
fn who_does_not_wait_for_a_broken_provider_is_asked_while_the_others_wait() {
    let mut fixture = SchedulerFixture::new();
    fixture.join(1, "patient", "https://a.example", Priority::Normal);
    fixture.join(2, "impatient", "https://a.example", Priority::Normal);
    assert_eq!(fixture.turn(0, FULL).as_deref(), Some("patient"));
    fixture.reopen("https://a.example");
    let shut = TurnEnd::ProviderFull {
        until: Some(Timestamp(fixture.now.0 + 9_000)),
        shut: true,
        full: false,
    };
    assert_eq!(fixture.turn(0, shut).as_deref(), Some("patient"));
    for _ in 0..3 {
        assert_eq!(fixture.turn(16, TurnEnd::More).as_deref(), Some("impatient"), "turned away");
    }
    fixture.turn(1, TurnEnd::LaneDone);
    assert!(fixture.turn(1, TurnEnd::More).is_none());
    fixture.join(3, "impatient", "https://a.example", Priority::Normal);
    assert_eq!(fixture.turn(1, TurnEnd::LaneDone).as_deref(), Some("impatient"));
}

#[test]
fn a_lane_that_goes_through_another_account_no_longer_waits_for_the_first() {
    let mut fixture = SchedulerFixture::new();
    for (id, tenant) in [(1, "a"), (2, "b")] {
        fixture.join(id, tenant, "full", Priority::Normal);
        fixture.turn(0, FULL);
    }
    assert!(fixture.turn(1, TurnEnd::More).is_none(), "both wait");
    fixture.reopen("full");
    let terms = TurnTerms { weights: &fixture.weights, now: fixture.now };
    let turn = fixture.scheduler.next(terms).unwrap();
    let mover = turn.entry.key.tenant.to_string();
    fixture.scheduler.end(turn, (WEBHOOK, "free".into()), 1, TurnEnd::More, terms);
    let mut seen: Vec<_> = (0..2).filter_map(|_| fixture.turn(0, FULL)).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b"], "the other one is asked too");
    fixture.reopen("free");
    assert_eq!(fixture.turn(1, TurnEnd::LaneDone), Some(mover));
    assert!(fixture.turn(1, TurnEnd::More).is_none(), "the first is still full");
}

#[test]
fn a_lane_is_free_since_its_provider_took_calls_again() {
    let mut fixture = SchedulerFixture::new();
    let start = fixture.now;
    fixture.join(1, "a", "https://a.example", Priority::Normal);
    let free_since = |fixture: &mut SchedulerFixture, rest: TurnEnd| {
        let terms = TurnTerms { weights: &fixture.weights, now: fixture.now };
        let turn = fixture.scheduler.next(terms).expect("it has its turn");
        let (provider, free_since) = (turn.entry.provider.clone(), turn.free_since);
        fixture.scheduler.end(turn, provider, 1, rest, terms);
        free_since
    };
    assert_eq!(free_since(&mut fixture, TurnEnd::More), Timestamp(0));
    fixture.now = start + Duration::from_secs(5);
    assert_eq!(free_since(&mut fixture, FULL), Timestamp(0), "it was served late by us");
    fixture.now = start + Duration::from_secs(60);
    fixture.reopen("https://a.example");
    fixture.now = start + Duration::from_secs(61);
    let reopened = start + Duration::from_secs(60);
    assert_eq!(free_since(&mut fixture, TurnEnd::More), reopened, "the wait was the provider's");
}
