//! How names are resolved, asked of a name server on loopback.

use std::time::Duration;

use futures_util::future::join_all;
use postrider_channels::pool::TransportError;
use postrider_channels::{Pool, PoolConfig};

use crate::many_origins::{ManyOrigins, get};
use crate::name_server::{LoopbackNameServer, NameReply};

const LONG: Duration = Duration::from_secs(20);

fn pool(server: &LoopbackNameServer, allow_private_targets: bool) -> Pool {
    let config = PoolConfig {
        allow_private_targets,
        allow_plain_http: true,
        name_server: Some(server.address),
        ..PoolConfig::default()
    };
    Pool::new(config).unwrap()
}

#[tokio::test]
async fn a_burst_to_one_name_asks_for_it_once() {
    let (server, names) =
        (ManyOrigins::start().await, LoopbackNameServer::start(NameReply::Loopback).await);
    let pool = pool(&names, true);
    let url = server.named_url("hooks.example");
    let answers = join_all((0..100).map(|_| get(&pool, &url, LONG))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
    assert_eq!(names.asked(), 1);
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_remembered() {
    let (server, names) =
        (ManyOrigins::start().await, LoopbackNameServer::start(NameReply::NoSuchName).await);
    let pool = pool(&names, true);
    for port in [1, 2, 3] {
        let end = get(&pool, &format!("http://nowhere.example:{port}/"), LONG).await;
        let unknown = matches!(end, Err(TransportError::Unopened { code: "no_such_host", .. }));
        assert!(unknown, "{end:?}");
    }
    assert_eq!(names.asked(), 1);
    names.replies(NameReply::Loopback);
    assert_eq!(get(&pool, &server.named_url("hooks.example"), LONG).await, Ok(200));
}

#[tokio::test]
async fn a_name_whose_servers_fail_is_to_blame_itself() {
    let names = LoopbackNameServer::start(NameReply::ServerFailure).await;
    let end = get(&pool(&names, true), "http://hooks.example/", LONG).await;
    assert!(matches!(end, Err(TransportError::Unopened { code: "dns", .. })), "{end:?}");
}

#[tokio::test]
async fn a_silent_name_server_of_ours_is_nobodys_fault() {
    let names = LoopbackNameServer::start(NameReply::Silence).await;
    let end = get(&pool(&names, true), "http://hooks.example/", LONG).await;
    assert!(matches!(end, Err(TransportError::Local { code: "resolver", .. })), "{end:?}");
}

#[tokio::test]
async fn a_name_of_a_private_address_is_refused() {
    let (server, names) =
        (ManyOrigins::start().await, LoopbackNameServer::start(NameReply::Loopback).await);
    let end = get(&pool(&names, false), &server.named_url("hooks.example"), LONG).await;
    assert_eq!(end, Err(TransportError::Blocked { code: "private_address" }));
    assert!(server.requests().is_empty());
}
