//! Measures what it costs to ask for each delivery whether its recipient wants it, over the embedded store with 100 000
//! recipients: `cargo run --release -p postrider-dispatch --example audience_cost`. Nothing is timed by the tests.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::model::recipient::RecipientProfile;
use postrider_core::policy::audience::{AudienceRules, IntendedSend, OnQuiet, SendVerdict};
use postrider_core::ports::store::{Entries as _, EntryKey, EntryKind, EntryWrite};
use postrider_core::{AddressHash, ChannelKind, Clock as _, TenantId};
use postrider_dispatch::audience::{AudienceBook, ReachedPerson};
use postrider_store::SystemClock;
use postrider_store::embedded::{EmbeddedStore, StoreOptions};

const PEOPLE: usize = 100_000;
const BATCH: usize = 16;
const BATCHES: usize = 20_000;
const EMAIL: ChannelKind = ChannelKind::new("email");

/// With zone, quiet hours, two choices and a few attributes.
fn profile(n: usize) -> String {
    let text = format!(
        r#"{{"created_at":1,"updated_at":2,"zone":"Europe/Berlin","locale":"de","preferences":
        {{"channels":{{"sms":"no"}},"categories":{{"news":{{"choice":"yes"}}}}}},
        "attributes":{{"plan":"pro","n":{n},"city":"Berlin"}}}}"#
    );
    serde_json::to_string(&serde_json::from_str::<RecipientProfile>(&text).unwrap()).unwrap()
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock);
    let options = StoreOptions::default();
    let store = Arc::new(EmbeddedStore::open(folder.path(), clock.clone(), options).unwrap());
    let tenant = TenantId::new("acme");
    let begin = Instant::now();
    for first in (0..PEOPLE).step_by(500) {
        let write = |n: usize| EntryWrite {
            key: EntryKey::new(&tenant, EntryKind::Recipient, &format!("u-{n}")),
            json: Some(profile(n).into()),
            expected: None,
        };
        store.write_entries((first..first + 500).map(write).collect()).await.unwrap();
    }
    println!("{:.0} recipients written per second", PEOPLE as f64 / begin.elapsed().as_secs_f64());
    let book = AudienceBook::default();
    book.use_store(store.clone());
    let rules: AudienceRules = serde_json::from_str(
        r#"{"zone":"UTC","quiet_hours":[{"from":"22:00","to":"07:00"}],
        "categories":{"news":{"purpose":"marketing"}},"has_recipients":true,"has_suppressions":true}"#,
    )
    .unwrap();
    let bare = TenantId::new("bare");
    let begin = Instant::now();
    let none = (0..BATCHES).filter(|_| book.rules(&bare).is_some()).count();
    assert_eq!(none, 0);
    println!("{:.0} ns per batch of a tenant without rules", per(begin.elapsed(), BATCHES) * 1e3);
    let (mut number, mut sent) = (7_usize, 0);
    let begin = Instant::now();
    for _ in 0..BATCHES {
        let person = |_| {
            number = (number * 48_271) % 2_147_483_647;
            let hash = AddressHash((number as u128).to_be_bytes());
            ReachedPerson { recipient: Some(format!("u-{}", number % PEOPLE).into()), hash }
        };
        let people: Vec<_> = (0..BATCH).map(person).collect();
        for record in book.look_up(&tenant, &rules, &people).await.unwrap() {
            let now = clock.now();
            let send = IntendedSend {
                category: Some("news"),
                channel: EMAIL,
                on_quiet: OnQuiet::Defer,
                expires_at: now + Duration::from_secs(86_400),
                now,
                random: 0.5,
            };
            let verdict = record.assess(&rules, send);
            sent += usize::from(matches!(verdict, SendVerdict::Send(_) | SendVerdict::Wait { .. }));
        }
    }
    assert_eq!(sent, BATCH * BATCHES);
    let each = per(begin.elapsed(), BATCH * BATCHES);
    println!("{each:.2} µs per delivery with preferences, suppressions and quiet hours");
}

/// Microseconds for each of so many.
fn per(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_secs_f64() * 1e6 / count as f64
}
