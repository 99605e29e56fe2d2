//! Set-ups that cannot work, and those that have to: replicas, TLS, Sentinel.

use postrider_core::ports::store::*;
use postrider_store::conformance::message;
use postrider_store::{RedisOptions, RedisStore};
use postrider_testkit::redis::RedisServer;

use crate::fixture::{SERVER, accept, options, prefix, until};

async fn error(options: RedisOptions) -> String {
    match RedisStore::open(options).await {
        Ok(_) => panic!("it should be refused"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_setup_that_cannot_work_is_refused_with_words() {
    let server = RedisServer::start().unwrap();
    let url = |user: &str, query: &str| {
        RedisOptions::parse(&format!(
            "redis://{user}127.0.0.1:{}/0?prefix=refused&{query}",
            server.port
        ))
        .unwrap()
    };
    let set = |name: &str, value: &str| server.run(&["CONFIG", "SET", name, value]).unwrap();
    server.run(&["ACL", "SETUSER", "guarded", "on", ">right", "~other:*", "+@all"]).unwrap();
    let wrong = error(url("guarded:wrong@", "")).await;
    assert!(wrong.contains("store.password") && !wrong.contains("wrong@"), "{wrong}");
    let denied = error(url("guarded@", "").with_password("right")).await;
    assert!(denied.contains("NOPERM") && denied.contains("ACL SETUSER"), "{denied}");
    set("maxmemory-policy", "allkeys-lru");
    let evicts = error(url("", "")).await;
    assert!(evicts.contains("noeviction") && evicts.contains("risk=eviction"), "{evicts}");
    set("maxmemory-policy", "noeviction");
    set("maxmemory", "0");
    let unlimited = error(url("", "")).await;
    assert!(unlimited.contains("risk=no_maxmemory"), "{unlimited}");
    set("maxmemory", "1gb");
    set("appendfsync", "everysec");
    let relaxed = error(url("", "")).await;
    assert!(relaxed.contains("risk=everysec"), "{relaxed}");
    let store = RedisStore::open(url("", "risk=everysec")).await.unwrap();
    let health = store.check_health();
    assert!(health.engine.unwrap().promise.contains("last second or two"));
    assert_eq!(health.problems[0].code, "appendfsync_everysec");
    set("appendonly", "no");
    let volatile = error(url("", "")).await;
    assert!(volatile.contains("risk=no_persistence"), "{volatile}");
    set("appendonly", "yes");
    set("appendfsync", "always");
    let alone = error(url("", "replicas=1")).await;
    assert!(alone.contains("a master has 0"), "{alone}");
    let replica = RedisServer::start().unwrap();
    replica.run(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]).unwrap();
    let read_only = error(options(&replica, "refused")).await;
    assert!(read_only.contains("read-only replica"), "{read_only}");
    let nobody = error(RedisOptions::parse("redis://127.0.0.1:1/0").unwrap()).await;
    assert!(nobody.contains("cannot connect to 127.0.0.1:1/0"), "{nobody}");
    server.run(&["SET", "refused:{d}:layout", "99"]).unwrap();
    let newer = error(url("", "")).await;
    assert!(newer.contains("layout 99") && newer.contains("newer version"), "{newer}");
}

#[tokio::test]
async fn a_write_waits_for_the_replicas_that_were_asked_for() {
    let server = RedisServer::start().unwrap();
    let replica = RedisServer::start().unwrap();
    replica.run(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]).unwrap();
    until("the replica follows", async || {
        replica
            .run(&["INFO", "replication"])
            .is_ok_and(|said| said.contains("master_link_status:up"))
    })
    .await;
    let url = server.url("prefix=copied&replicas=1");
    let store = RedisStore::open(RedisOptions::parse(&url).unwrap()).await.unwrap();
    assert!(store.check_health().engine.unwrap().promise.contains("promoted"));
    accept(&store, message("acme", 1)).await;
    replica.crash().unwrap();
    let refused = store.accept(vec![message("acme", 2)]).await.remove(0).unwrap_err();
    assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
}

#[tokio::test]
async fn connections_are_encrypted_and_the_server_proves_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certify = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (names.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = certify("localhost");
    let (ours, key) = (file("ours.pem", &certificate), file("key.pem", &key));
    let other = file("other.pem", &certify("localhost").0);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "bind 127.0.0.1 ::1\ntls-port {port}\ntls-cert-file {ours}\ntls-key-file {key}\ntls-ca-cert-file {ours}\n\
         tls-auth-clients no"
    );
    let _server = RedisServer::start_with(&settings).unwrap();
    let open = |host: &str, authority: &str| {
        let url = format!("rediss://{host}:{port}/0?prefix=tls&tls_ca={authority}");
        let options = RedisOptions::parse(&url).unwrap();
        async move { RedisStore::open(options).await.map_err(|error| error.to_string()) }
    };
    let store = open("localhost", &ours).await.unwrap();
    accept(&store, message("acme", 1)).await;
    let strange = open("localhost", &other).await.err().unwrap();
    assert!(strange.contains("certificate"), "{strange}");
    let misnamed = open("127.0.0.1", &ours).await.err().unwrap();
    assert!(misnamed.contains("certificate"), "{misnamed}");
    let absent = open("localhost", "/nowhere.pem").await.err();
    assert!(absent.unwrap().contains("tls_ca"));
}

/// A Sentinel that knows a master.
struct SentinelProcess(std::process::Child);

impl Drop for SentinelProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_master_is_where_the_sentinels_say() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mail 127.0.0.1 {} 1\n",
        folder.path().display(),
        SERVER.port
    );
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, settings).unwrap();
    let mut command = std::process::Command::new("redis-server");
    command.arg(&file).arg("--sentinel").stdout(std::process::Stdio::null());
    let _sentinel = SentinelProcess(command.spawn().unwrap());
    until("the Sentinel answers", async || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    let url = |name: &str| {
        format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/{name}?prefix={}", prefix())
    };
    let store = RedisStore::open(RedisOptions::parse(&url("mail")).unwrap()).await.unwrap();
    accept(&store, message("acme", 1)).await;
    assert!(store.check_health().engine.unwrap().name.starts_with("Redis with Sentinel 7"));
    let unknown = error(RedisOptions::parse(&url("nobody")).unwrap()).await;
    assert!(
        unknown.contains("cannot connect") || unknown.contains("knows the master"),
        "{unknown}"
    );
}

#[tokio::test]
async fn nodes_that_start_together_set_the_store_up_once() {
    let prefix = prefix();
    let mut opening = Vec::new();
    for _ in 0..6 {
        let options = options(&SERVER, &prefix);
        opening.push(tokio::spawn(async move { RedisStore::open(options).await.map(drop) }));
    }
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(SERVER.run(&["GET", &format!("{prefix}:{{d}}:layout")]).unwrap(), "1");
}
