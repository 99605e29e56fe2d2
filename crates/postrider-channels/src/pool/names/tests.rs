//! What the cache of names promises, with a lookup that a test scripts and a clock that it moves.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::time::{advance, sleep};

use super::*;

#[derive(Default)]
struct ScriptedLookup {
    asked: AtomicUsize,
    answers: Mutex<VecDeque<LookupResult>>,
}

impl NameLookup for ScriptedLookup {
    async fn look_up(&self, _: &str) -> LookupResult {
        self.asked.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(10)).await;
        self.answers.lock().unwrap().pop_front().unwrap_or(Err(LookupFailure::Failed))
    }
}

fn found(last: u8, valid_s: u64) -> LookupResult {
    let addresses = Arc::from([IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))]);
    Ok(NameAnswer { addresses, valid_for: Duration::from_secs(valid_s) })
}

fn no_such_name(valid_s: u64) -> LookupResult {
    Err(LookupFailure::NoSuchName { valid_for: Duration::from_secs(valid_s) })
}

fn silent() -> LookupResult {
    Err(LookupFailure::Local("no answer".to_owned()))
}

fn cache(answers: impl IntoIterator<Item = LookupResult>) -> Arc<NameCache<ScriptedLookup>> {
    let answers = Mutex::new(answers.into_iter().collect());
    NameCache::new(ScriptedLookup { answers, ..ScriptedLookup::default() })
}

fn asked(cache: &NameCache<ScriptedLookup>) -> usize {
    cache.lookup.asked.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_name_share_one_lookup() {
    let cache = cache([found(1, 60)]);
    let answers = join_all((0..100).map(|_| cache.resolve("a.example"))).await;
    assert!(answers.iter().all(|answer| *answer == found(1, 60).map(|found| found.addresses)));
    assert_eq!(asked(&cache), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_stop_the_lookup() {
    let cache = cache([found(1, 60)]);
    drop(cache.resolve("a.example").now_or_never());
    sleep(Duration::from_millis(20)).await;
    assert!(cache.resolve("a.example").now_or_never().is_some_and(|answer| answer.is_ok()));
    assert_eq!(asked(&cache), 1);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_kept_as_long_as_their_record_says() {
    let cache = cache([found(1, 60), found(2, 60)]);
    for (wait_s, last) in [(0, 1), (59, 1), (2, 2)] {
        advance(Duration::from_secs(wait_s)).await;
        let expected = found(last, 60).map(|found| found.addresses);
        assert_eq!(cache.resolve("a.example").await, expected);
    }
    assert_eq!(asked(&cache), 2);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_exist_is_asked_for_again_after_a_minute() {
    let cache = cache([no_such_name(86_400), found(1, 60)]);
    assert!(cache.resolve("a.example").await.is_err());
    advance(Duration::from_secs(59)).await;
    assert!(cache.resolve("a.example").await.is_err());
    assert_eq!(asked(&cache), 1);
    advance(Duration::from_secs(2)).await;
    assert!(cache.resolve("a.example").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_is_repeated_after_five_seconds() {
    let cache = cache([Err(LookupFailure::Failed), found(1, 60)]);
    assert_eq!(cache.resolve("a.example").await, Err(LookupFailure::Failed));
    advance(Duration::from_secs(4)).await;
    assert_eq!(cache.resolve("a.example").await, Err(LookupFailure::Failed));
    advance(Duration::from_secs(2)).await;
    assert!(cache.resolve("a.example").await.is_ok());
    assert_eq!(asked(&cache), 2);
}

#[tokio::test(start_paused = true)]
async fn old_addresses_are_used_for_an_hour_while_no_server_answers() {
    let cache = cache([found(1, 60), silent(), silent(), silent()]);
    let old = found(1, 60).map(|found| found.addresses);
    assert_eq!(cache.resolve("a.example").await, old);
    for wait_s in [61, 3_530] {
        advance(Duration::from_secs(wait_s)).await;
        assert_eq!(cache.resolve("a.example").await, old);
    }
    advance(Duration::from_secs(80)).await;
    assert!(matches!(cache.resolve("a.example").await, Err(LookupFailure::Local(_))));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_given_up_has_no_old_addresses() {
    let cache = cache([found(1, 60), no_such_name(60)]);
    assert!(cache.resolve("a.example").await.is_ok());
    advance(Duration::from_secs(61)).await;
    assert!(cache.resolve("a.example").await.is_err());
}

#[test]
fn the_number_of_names_is_bounded() {
    let mut names = KnownNames::default();
    let now = Instant::now();
    for nth in 0..NAMES_MAX + 1_000 {
        names.settle(&format!("{nth}.example"), found(1, 60), now).unwrap();
    }
    assert!(names.entries.len() <= NAMES_MAX && names.round.len() == names.entries.len());
}
