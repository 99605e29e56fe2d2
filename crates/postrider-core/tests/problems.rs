//! Properties of problems: they open when their signs last, resolve when their causes end, and do not flap.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::policy::problems::signs::signs as look;
use postrider_core::policy::problems::{
    AccountTrouble, AccountTroubleKind, Acknowledgement, AlertEvent, HeldMemory, KnownFailures,
    MinuteRow, Mute, Observations, ProblemBook, ProblemChange, ProblemKey, ProblemKind,
    ProblemLimits, ProblemRecord, ProblemSign, ProblemTimes, ServerFigures,
};
use postrider_core::policy::rollup::{RollupFigures, RollupKey, RollupKind};
use postrider_core::{TenantId, Timestamp};
use proptest::prelude::*;

const STEP: Duration = Duration::from_secs(5);

fn key(kind: ProblemKind, provider: &str) -> ProblemKey {
    let (channel, provider) = ("webhook".to_owned(), provider.to_owned());
    ProblemKey { kind, channel, provider, outcome: String::new() }
}

fn sign(kind: ProblemKind, provider: &str) -> ProblemSign {
    ProblemSign::new(key(kind, provider), 1, "it fails".to_owned())
}

/// A book, what it keeps, and the time.
struct World {
    book: ProblemBook,
    records: BTreeMap<String, ProblemRecord>,
    times: ProblemTimes,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self {
            book: ProblemBook::default(),
            records: BTreeMap::new(),
            times: ProblemTimes::default(),
            now: Timestamp::from_secs(1_790_000_000),
        }
    }

    fn look(&mut self, signs: Vec<ProblemSign>) -> Vec<(String, ProblemChange)> {
        self.now = self.now + STEP;
        self.book.look(&mut self.records, signs, |_| false, &self.times, self.now)
    }

    fn open(&self) -> usize {
        self.records.values().filter(|record| record.is_open()).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However a sign comes and goes, also over restarts: no two resolutions within the time that a resolution takes,
    /// opened and resolved in turns, and everything is resolved some time after the last sign.
    #[test]
    fn a_problem_does_not_flap_and_resolves_when_its_cause_ends(
        runs in prop::collection::vec((any::<bool>(), 1..80_u32), 1..40),
        restarts in prop::collection::vec(0..1_000_usize, 0..4),
        kind in prop::sample::select(ProblemKind::ALL),
    ) {
        let mut world = World::new();
        let mut last: Option<(ProblemChange, Timestamp)> = None;
        let mut steps = 0;
        for (is_there, length) in runs {
            for _ in 0..length {
                steps += 1;
                if restarts.contains(&steps) {
                    world.book = ProblemBook::default();
                }
                let signs = if is_there { vec![sign(kind, "https://a")] } else { Vec::new() };
                for (_, change) in world.look(signs) {
                    if change == ProblemChange::Updated {
                        prop_assert_eq!(world.open(), 1);
                        continue;
                    }
                    if let Some((before, at)) = last {
                        let is_resolved = change == ProblemChange::Resolved;
                        prop_assert_ne!(is_resolved, before == ProblemChange::Resolved, "in turns");
                        if is_resolved {
                            prop_assert!(world.now.since(at) >= world.times.resolves_after);
                        }
                    }
                    last = Some((change, world.now));
                }
                prop_assert!(world.open() <= 1, "one cause is one problem");
            }
        }
        let longest = world.times.resolves_after * 16 + STEP;
        for _ in 0..longest.as_secs() / STEP.as_secs() + 1 {
            world.look(Vec::new());
        }
        prop_assert_eq!(world.open(), 0);
    }

    /// Several signs do not disturb one another.
    #[test]
    fn each_key_has_its_own_problem(there in prop::collection::vec(any::<[bool; 4]>(), 1..60)) {
        let mut world = World::new();
        for at_step in there {
            for _ in 0..30 {
                let signs = (0..4).filter(|n| at_step[*n]);
                let signs = signs.map(|n| sign(ProblemKind::BreakerOpen, &format!("https://h{n}")));
                world.look(signs.collect());
            }
            for (n, is_there) in at_step.into_iter().enumerate() {
                let own = key(ProblemKind::BreakerOpen, &format!("https://h{n}"));
                let open = world.records.values().filter(|r| r.key == own && r.is_open()).count();
                prop_assert!(open <= 1);
                prop_assert!(!is_there || open == 1, "a sign of 150 s is a problem");
            }
        }
    }
}

/// A sign at a host that concerns one tenant.
fn sign_of(tenant: &str, host: &str) -> ProblemSign {
    let mut sign = sign(ProblemKind::CredentialFailing, host);
    sign.tenants.insert(TenantId::new(tenant), 1);
    sign
}

#[test]
fn a_tenant_with_hundreds_of_broken_hosts_hides_nobody_elses_problems() {
    let mut world = World::new();
    // Sorted as signs are: all of the one tenant come first.
    let mut signs: Vec<_> =
        (0..500).map(|n| sign_of("greedy", &format!("https://a{n}.example"))).collect();
    signs.push(sign_of("honest", "https://b.example"));
    signs.push(sign(ProblemKind::BreakerOpen, "https://c.example"));
    for _ in 0..10 {
        world.look(signs.clone());
    }
    let open = |tenant: &str| {
        let tenant = TenantId::new(tenant);
        world.records.values().filter(|record| record.tenants.contains_key(&tenant)).count()
    };
    assert_eq!((open("greedy"), open("honest"), world.open()), (20, 1, 22));
}

#[test]
fn what_a_tenant_said_of_a_problem_ends_when_others_have_it_too() {
    let mut world = World::new();
    world.look(vec![sign_of("a", "https://shared.example")]);
    let now = world.now;
    let until = now + Duration::from_secs(86_400);
    let order = |tenant: Option<&str>| {
        let tenant = tenant.map(TenantId::new);
        let mute = Mute { by: "key".to_owned(), at: now, until, tenant: tenant.clone() };
        (mute, Acknowledgement { by: "key".to_owned(), at: now, tenant })
    };
    let record = world.records.values_mut().next().unwrap();
    let (mute, ack) = order(Some("a"));
    (record.muted, record.acknowledged, record.alert_due) = (Some(mute), Some(ack), None);
    world.look(vec![sign_of("a", "https://shared.example")]);
    assert_eq!(world.records.values().next().unwrap().state(world.now), "muted");

    let mut both = sign_of("a", "https://shared.example");
    both.tenants.insert(TenantId::new("b"), 1);
    world.look(vec![both.clone()]);
    let record = world.records.values_mut().next().unwrap();
    assert_eq!((record.state(now), record.alert_due), ("open", Some(AlertEvent::Opened)));

    let (mute, ack) = order(None);
    (record.muted, record.acknowledged) = (Some(mute), Some(ack));
    both.tenants.insert(TenantId::new("c"), 1);
    world.look(vec![both]);
    let state = world.records.values().next().unwrap().state(world.now);
    assert_eq!(state, "muted", "an operator speaks for all");
}

#[test]
fn a_sign_that_does_not_last_opens_nothing_and_a_new_one_waits_again() {
    let mut world = World::new();
    let failing = || vec![sign(ProblemKind::ManyFailures, "https://a")];
    for _ in 0..3 {
        assert!((0..6).all(|_| world.look(failing()).is_empty()), "30 s are not over");
        assert!(world.look(Vec::new()).is_empty());
    }
    (0..6).for_each(|_| drop(world.look(failing())));
    assert_eq!(world.look(failing())[0].1, ProblemChange::Opened);
}

#[test]
fn a_problem_that_comes_back_soon_is_the_same_one_and_resolves_more_slowly() {
    let mut world = World::new();
    let failing = || vec![sign(ProblemKind::CredentialFailing, "https://a")];
    let opened = world.look(failing());
    let until_resolved = |world: &mut World| {
        let begin = world.now;
        while world.open() > 0 {
            world.look(Vec::new());
        }
        world.now.since(begin)
    };
    assert_eq!(until_resolved(&mut world), Duration::from_secs(120));
    assert_eq!(world.look(failing()), [(opened[0].0.clone(), ProblemChange::Reopened)]);
    assert_eq!(until_resolved(&mut world), Duration::from_secs(240));
    world.now = world.now + Duration::from_secs(3600);
    let later = world.look(failing());
    assert_eq!(later[0].1, ProblemChange::Opened, "after an hour it is another one");
    assert_ne!(later[0].0, opened[0].0);
}

#[test]
fn what_cannot_be_judged_stays_as_it_is() {
    let mut world = World::new();
    world.look(vec![sign(ProblemKind::CredentialFailing, "https://a")]);
    for _ in 0..100 {
        world.now = world.now + STEP;
        let World { book, records, times, now } = &mut world;
        assert!(book.look(records, Vec::new(), |_| true, times, *now).is_empty());
    }
    assert_eq!(world.open(), 1);
}

const NOW: Timestamp = Timestamp(1_790_000_030_000);

fn row(kind: RollupKind, provider: &str, outcome: &str, back: i64, count: u64) -> MinuteRow {
    let at = Timestamp((NOW.0.div_euclid(60_000) - back) * 60_000);
    let channel = if provider == "email" { "email" } else { "webhook" };
    let [channel, provider, class, outcome] =
        [channel, provider, "otp", outcome].map(std::sync::Arc::from);
    let mut figures = RollupFigures { count, ..RollupFigures::default() };
    (0..count).for_each(|_| figures.times.note(20));
    MinuteRow { at, key: RollupKey { kind, channel, provider, class, outcome }, figures }
}

fn attempts(provider: &str, outcome: &str, back: i64, count: u64) -> MinuteRow {
    row(RollupKind::Attempts, provider, outcome, back, count)
}

fn seen(rows: &[MinuteRow], server: &ServerFigures) -> Vec<(ProblemKind, String, u64)> {
    let known = KnownFailures::default();
    let of_tenants = [];
    let seen = Observations { now: NOW, rows, of_tenants: &of_tenants, server, known: &known };
    let found = look(&ProblemLimits::default(), &seen, &mut HeldMemory::default());
    found.into_iter().map(|sign| (sign.key.kind, sign.key.provider, sign.count)).collect()
}

fn kinds(rows: &[MinuteRow]) -> Vec<ProblemKind> {
    seen(rows, &ServerFigures::default()).into_iter().map(|(kind, ..)| kind).collect()
}

#[test]
fn healthy_traffic_shows_no_sign() {
    let mut rows = Vec::new();
    for back in 0..15 {
        rows.push(attempts("https://a", "accepted", back, 5_000));
        rows.push(attempts("https://a", "retry_backoff", back, 40));
        rows.push(attempts("https://a", "retry_after", back, 400));
        rows.push(row(RollupKind::Deliveries, "https://a", "sent", back, 5_000));
        rows.push(row(RollupKind::Deliveries, "https://a", "gone", back, 50));
        rows.push(row(RollupKind::Deliveries, "https://a", "permanent", back, 3));
    }
    assert_eq!(kinds(&rows), []);
}

#[test]
fn an_outage_is_one_sign_also_while_its_failures_are_recent() {
    let mut rows = vec![row(RollupKind::Held, "https://a", "breaker", 0, 20)];
    for back in 0..3 {
        rows.push(attempts("https://a", "retry_backoff", back, 500));
        rows.push(row(RollupKind::Deliveries, "https://a", "retries_exhausted", back, 50));
    }
    let found = seen(&rows[..4], &ServerFigures::default());
    assert_eq!(found, [(ProblemKind::BreakerOpen, "https://a".to_owned(), 1_000)]);
    // It is over for three minutes, and its failures explain nothing new.
    rows[0] = row(RollupKind::Held, "https://a", "breaker", 3, 20);
    rows.drain(1..5);
    assert_eq!(kinds(&rows), []);
}

#[test]
fn a_provider_is_held_only_while_its_seconds_grow() {
    let (known, server) = (KnownFailures::default(), ServerFigures::default());
    let mut memory = HeldMemory::default();
    let mut look_at = |count| {
        let rows = [row(RollupKind::Held, "https://a", "breaker", 0, count)];
        let (rows, of_tenants) = (&rows[..], &[][..]);
        let seen = Observations { now: NOW, rows, of_tenants, server: &server, known: &known };
        look(&ProblemLimits::default(), &seen, &mut memory).len()
    };
    assert_eq!([3, 8, 8, 8, 9].map(&mut look_at), [1, 1, 0, 0, 1]);
}

#[test]
fn each_kind_of_failure_has_its_limit() {
    let dead = |count| row(RollupKind::Deliveries, "https://a", "permanent", 1, count);
    assert_eq!(kinds(&[dead(5)]), []);
    assert_eq!(kinds(&[dead(6)]), [ProblemKind::DeadLetters]);
    let exhausted = |back| row(RollupKind::Deliveries, "https://a", "retries_exhausted", back, 5);
    assert_eq!(kinds(&[exhausted(3), exhausted(6)]), [ProblemKind::RetriesExhausted]);
    let failed = |count| attempts("https://a", "retry_backoff", 4, count);
    assert_eq!(kinds(&[failed(100)]), []);
    assert_eq!(kinds(&[failed(101)]), [ProblemKind::ManyFailures]);
    assert_eq!(kinds(&[failed(101), attempts("https://a", "accepted", 4, 9_000)]), []);
    let mut bad = attempts("https://a", "drop_message", 2, 5);
    bad.figures.bad_requests = 5;
    assert_eq!(kinds(&[bad]), [ProblemKind::BadRequests]);
    let scattered: Vec<_> = (0..6)
        .map(|n| row(RollupKind::Deliveries, &format!("https://h{n}"), "ttl", 0, 1))
        .collect();
    let found = seen(&scattered, &ServerFigures::default());
    assert_eq!(found, [(ProblemKind::DeadLetters, String::new(), 6)]);
}

#[test]
fn objectives_are_judged_by_enough_deliveries() {
    let retried = |outcome, repeats| {
        let mut row = attempts("https://a", outcome, 5, 10);
        row.figures.repeats = repeats;
        row
    };
    assert_eq!(kinds(&[retried("accepted", 60), retried("retry_backoff", 39)]), []);
    assert_eq!(
        kinds(&[retried("accepted", 60), retried("retry_backoff", 60)]),
        [ProblemKind::Objective]
    );
    let ended = |outcome, count| row(RollupKind::Deliveries, "https://a", outcome, 12, count);
    assert_eq!(kinds(&[ended("sent", 100), ended("permanent", 5)]), []);
    assert_eq!(kinds(&[ended("sent", 100), ended("permanent", 6)]), [ProblemKind::Objective]);
    let late = |ms: u64| {
        let mut row = row(RollupKind::Overhead, "", "taken_up", 1, 0);
        row.figures.count = 200;
        (0..200).for_each(|n| row.figures.times.note(if n % 10 == 0 { ms } else { 1 }));
        row
    };
    assert_eq!(kinds(&[late(500)]), []);
    assert_eq!(kinds(&[late(501)]), [ProblemKind::Objective]);
}

#[test]
fn the_server_tells_of_itself() {
    let trouble = |account: &str, trouble| AccountTrouble {
        account: account.to_owned(),
        channel: "email".to_owned(),
        trouble,
        what: "it does not work".to_owned(),
        tenant: None,
    };
    let server = ServerFigures {
        depth: 20_000,
        depth_lowest: Some(10_000),
        depth_unusual_from: Some(19_999.5),
        fill: 0.81,
        full_tenants: vec![(TenantId::new("acme"), 0.9)],
        lag_s: 31.0,
        store: vec![("disk".to_owned(), "the disk is nearly full".to_owned())],
        accounts: vec![
            trouble("ses", AccountTroubleKind::CredentialFails),
            trouble("backup", AccountTroubleKind::CredentialEnds),
        ],
    };
    let failed =
        [attempts("email", "config", 0, 200), row(RollupKind::Held, "email", "credential", 0, 9)];
    let found: Vec<_> =
        seen(&failed, &server).into_iter().map(|(kind, at, _)| (kind, at)).collect();
    use ProblemKind::*;
    let at = |kind, provider: &str| (kind, provider.to_owned());
    assert_eq!(
        found,
        [
            at(CredentialFailing, "ses"),
            at(Capacity, ""),
            at(Capacity, ""),
            at(DepthUnusual, ""),
            at(Lag, ""),
            at(CredentialExpiring, "backup"),
            at(Store, ""),
            at(Objective, ""),
        ]
    );
}

#[test]
fn a_sign_names_the_tenants_that_it_concerns() {
    let (known, server) = (KnownFailures::default(), ServerFigures::default());
    let rows = [row(RollupKind::Held, "https://a", "breaker", 0, 9)];
    let of_tenants = [
        (TenantId::new("acme"), attempts("https://a", "retry_backoff", 0, 7)),
        (TenantId::new("acme"), row(RollupKind::Held, "https://a", "breaker", 0, 9)),
        (TenantId::new("shop"), attempts("https://a", "accepted", 0, 7)),
        (TenantId::new("else"), attempts("https://b", "retry_backoff", 0, 7)),
    ];
    let seen = Observations {
        now: NOW,
        rows: &rows,
        of_tenants: &of_tenants,
        server: &server,
        known: &known,
    };
    let found = look(&ProblemLimits::default(), &seen, &mut HeldMemory::default());
    assert_eq!(found[0].tenants, BTreeMap::from([(TenantId::new("acme"), 7)]));
    let record = ProblemRecord::new(&found[0], NOW, NOW);
    assert_eq!(record.only_tenant(), Some(&TenantId::new("acme")));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<ProblemRecord>(&text).unwrap(), record);
}

#[test]
fn an_open_breaker_says_how_many_of_the_failures_were_retries() {
    let (known, server) = (KnownFailures::default(), ServerFigures::default());
    let mut failed = attempts("https://a", "retry_backoff", 0, 40);
    let held = row(RollupKind::Held, "https://a", "breaker", 0, 9);
    for (retries, words) in [(0, "40 attempts failed"), (33, "33 of them retries")] {
        failed.figures.repeats = retries;
        let (rows, of_tenants) = ([held.clone(), failed.clone()], [].as_slice());
        let seen =
            Observations { now: NOW, rows: &rows, of_tenants, server: &server, known: &known };
        let found = look(&ProblemLimits::default(), &seen, &mut HeldMemory::default());
        assert!(found[0].what.contains(words), "{}", found[0].what);
        assert_eq!(found[0].what.contains("retries"), retries > 0, "{}", found[0].what);
    }
}
