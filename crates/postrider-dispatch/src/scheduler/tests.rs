//! Who is given a turn, and who is not looked at.

use std::collections::HashMap;

use postrider_core::{ChannelKind, TenantId};

use super::*;

const WEBHOOK: ChannelKind = ChannelKind::new("webhook");
const FULL: TurnEnd = TurnEnd::ProviderFull { until: None, shut: false };

struct Town {
    scheduler: LaneScheduler,
    weights: Weights,
    now: Timestamp,
    had: HashMap<TenantId, usize>,
}

impl Town {
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
        self.scheduler
            .join(LaneEntry { id: LaneId(id), key: Arc::new(key), priority, impatient }, terms);
    }

    /// One turn that takes up to `take` of its allowance.
    fn turn(&mut self, take: usize, rest: TurnEnd) -> Option<String> {
        let terms = TurnTerms { weights: &self.weights, now: self.now };
        let pick = self.scheduler.next(terms)?;
        let used = pick.allowance().min(take);
        let tenant = pick.entry.key.tenant.clone();
        *self.had.entry(tenant.clone()).or_default() += used;
        self.scheduler.end(pick, used, rest, terms);
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
    let mut town = Town::new();
    for id in 0..10_000 {
        town.join(id, "many", &format!("https://{id}.example"), Priority::Normal);
    }
    town.join(10_000, "one", "https://a.example", Priority::Normal);
    (0..400).for_each(|_| _ = town.turn(16, TurnEnd::More));
    let (many, one) = (town.had("many"), town.had("one"));
    assert!(many.abs_diff(one) <= 16, "{many} and {one}");
}

#[test]
fn whoever_waits_for_a_full_provider_is_not_looked_at_and_nobody_else_waits() {
    let mut town = Town::new();
    for id in 0..1_000 {
        town.join(id, &format!("t{id}"), "https://full.example", Priority::Normal);
    }
    assert!(town.turn(0, FULL).is_some());
    assert_eq!(town.turn(1, TurnEnd::More), None, "the others find the door closed");
    town.join(1_000, "free", "https://free.example", Priority::Low);
    assert_eq!(town.turn(1, TurnEnd::LaneDone).as_deref(), Some("free"));
    town.reopen("https://full.example");
    let went: std::collections::HashSet<_> =
        (0..1_000).filter_map(|_| town.turn(1, TurnEnd::LaneDone)).collect();
    assert_eq!(went.len(), 1_000);
    assert_eq!((town.scheduler.len(), town.scheduler.queues.len()), (0, 0), "nothing is kept");
}

#[test]
fn a_provider_with_one_place_at_a_time_is_shared_by_weight() {
    let mut town = Town::new();
    town.weights.insert(TenantId::new("heavy"), 3.0);
    for (id, tenant) in ["heavy", "light", "other"].into_iter().enumerate() {
        town.join(id as u32, tenant, "https://a.example", Priority::Normal);
    }
    for _ in 0..5_000 {
        town.now = Timestamp(town.now.0 + 10);
        town.turn(1, TurnEnd::More);
        town.turn(0, FULL);
        town.reopen("https://a.example");
    }
    let shares = ["heavy", "light", "other"].map(|tenant| town.had(tenant));
    assert!(shares[0].abs_diff(3_000) < 50 && shares[1].abs_diff(1_000) < 50, "{shares:?}");
}

#[test]
fn a_closed_door_opens_at_its_time_or_with_a_word() {
    let mut town = Town::new();
    town.join(1, "a", "https://a.example", Priority::Normal);
    let later = Timestamp(town.now.0 + 500);
    town.turn(0, TurnEnd::ProviderFull { until: Some(later), shut: false });
    assert_eq!(town.scheduler.next_wake(), Some(later));
    assert!(town.turn(1, TurnEnd::More).is_none());
    town.now = later;
    town.scheduler.wake(TurnTerms { weights: &town.weights, now: later });
    assert!(
        town.turn(0, TurnEnd::ProviderFull { until: Some(Timestamp(later.0 + 9)), shut: false })
            .is_some()
    );
    town.reopen("https://a.example");
    assert_eq!(town.scheduler.next_wake(), None);
    assert!(town.turn(1, TurnEnd::LaneDone).is_some());
}

#[test]
fn urgent_work_goes_where_the_rest_finds_no_place_and_overtakes_it() {
    let mut town = Town::new();
    town.join(1, "burst", "https://a.example", Priority::Low);
    town.turn(16, FULL);
    assert!(town.turn(16, TurnEnd::More).is_none());
    town.join(2, "codes", "https://a.example", Priority::High);
    assert_eq!(town.turn(1, TurnEnd::LaneDone).as_deref(), Some("codes"), "a place is kept for it");
    town.reopen("https://a.example");
    town.join(3, "codes", "https://a.example", Priority::High);
    assert_eq!(
        town.turn(1, TurnEnd::LaneDone).as_deref(),
        Some("codes"),
        "ahead of who waits longer"
    );
    assert_eq!(town.turn(16, TurnEnd::More).as_deref(), Some("burst"));
}

#[test]
fn a_lane_is_hidden_once_and_listed_again_when_it_leaves() {
    let mut town = Town::new();
    town.join(1, "a", "https://a.example", Priority::Normal);
    assert!(town.scheduler.hide(LaneId(1)) && !town.scheduler.hide(LaneId(1)));
    let terms = TurnTerms { weights: &town.weights, now: town.now };
    let pick = town.scheduler.next(terms).unwrap();
    assert!(town.scheduler.end(pick, 1, TurnEnd::LaneDone, terms));
    assert!(!town.scheduler.hide(LaneId(1)));
}

#[test]
fn who_does_not_wait_for_a_broken_provider_is_asked_while_the_others_wait() {
    let mut town = Town::new();
    town.join(1, "patient", "https://a.example", Priority::Normal);
    town.join(2, "impatient", "https://a.example", Priority::Normal);
    assert_eq!(town.turn(0, FULL).as_deref(), Some("patient"));
    town.reopen("https://a.example");
    let shut = TurnEnd::ProviderFull { until: Some(Timestamp(town.now.0 + 9_000)), shut: true };
    assert_eq!(town.turn(0, shut).as_deref(), Some("patient"));
    for _ in 0..3 {
        assert_eq!(town.turn(16, TurnEnd::More).as_deref(), Some("impatient"), "turned away");
    }
    town.turn(1, TurnEnd::LaneDone);
    assert!(town.turn(1, TurnEnd::More).is_none());
    town.join(3, "impatient", "https://a.example", Priority::Normal);
    assert_eq!(town.turn(1, TurnEnd::LaneDone).as_deref(), Some("impatient"));
}
