//! What happens when this process has no descriptors left. A program of its own: the limit holds for all its tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "conformance/many_origins.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod many_origins;

use std::os::fd::AsRawFd;
use std::time::Duration;

use many_origins::{ManyOrigins, get, pool};
use postrider_channels::pool::{TransportError, raise_descriptor_limit};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_process_without_descriptors_blames_nobody_and_recovers() {
    let server = ManyOrigins::start().await;
    let pool = pool(1_000);
    assert_eq!(get(&pool, &server.url(0), LONG).await, Ok(200));
    let before = getrlimit(Resource::Nofile);
    // The next descriptor would get the lowest number that is free.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), ..before }).unwrap();
    let end = get(&pool, &server.url(1), LONG).await;
    assert!(matches!(end, Err(TransportError::Local { code: "descriptors", .. })), "{end:?}");
    assert_eq!(raise_descriptor_limit(), before.maximum.unwrap(), "as at the start of a server");
    // The failure is repeated for a moment.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(get(&pool, &server.url(1), LONG).await, Ok(200));
}
