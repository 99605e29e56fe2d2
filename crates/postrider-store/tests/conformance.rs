//! All stores keep the same promises.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use postrider_core::ports::store::Store;
use postrider_store::conformance::StoreFactory;
use postrider_store::{EmbeddedStore, ManualClock, MemoryStore, StoreOptions};

/// Crashes as a durable store does, without having written anything.
#[derive(Default)]
struct Memory {
    last: Mutex<Option<Arc<MemoryStore>>>,
}

#[async_trait]
impl StoreFactory for Memory {
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let store = Arc::new(MemoryStore::new(clock));
        *self.last.lock().unwrap() = Some(store.clone());
        store
    }

    async fn reopen(&self, _: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        // A new consumer of the same name takes over what the dead one held.
        Some(self.last.lock().unwrap().clone()?)
    }
}

/// Reopens a copy of the files as a crash would leave them: nothing was closed or folded in.
struct Embedded {
    options: StoreOptions,
    folders: Mutex<Vec<tempfile::TempDir>>,
}

impl Embedded {
    fn new(options: StoreOptions) -> Self {
        Self { options, folders: Mutex::default() }
    }

    fn folder(&self) -> PathBuf {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        self.folders.lock().unwrap().push(folder);
        path
    }
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["postrider.db", "postrider.db-wal", "postrider.flight"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[async_trait]
impl StoreFactory for Embedded {
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(EmbeddedStore::open(&self.folder(), clock, self.options).unwrap())
    }

    async fn reopen(&self, _: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        let last = self.folders.lock().unwrap().last().unwrap().path().to_owned();
        let copy = self.folder();
        copy_files(&last, &copy);
        Some(Arc::new(EmbeddedStore::open(&copy, clock, self.options).unwrap()))
    }
}

mod memory {
    use super::*;
    postrider_store::promises!(Memory::default());
}

mod embedded {
    use super::*;
    postrider_store::promises!(Embedded::new(StoreOptions::default()));
}

/// Encrypted, around the embedded store.
mod sealed {
    use super::*;
    use postrider_store::SealedStore;
    use postrider_store::sealed::MasterKey;

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    struct Sealed(Embedded);

    async fn sealed(inner: Arc<dyn Store>) -> Arc<dyn Store> {
        let masters = vec![MasterKey::parse(KEY).unwrap()];
        Arc::new(SealedStore::open(inner, masters).await.unwrap())
    }

    #[async_trait]
    impl StoreFactory for Sealed {
        async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
            sealed(self.0.open(clock).await).await
        }

        async fn reopen(
            &self,
            store: Arc<dyn Store>,
            clock: Arc<ManualClock>,
        ) -> Option<Arc<dyn Store>> {
            Some(sealed(self.0.reopen(store, clock).await?).await)
        }

        fn keeps_sizes(&self) -> bool {
            false
        }
    }

    postrider_store::promises!(Sealed(Embedded::new(StoreOptions::default())));
}

/// With so little memory that everything is read again and again.
mod embedded_small {
    use super::*;

    const SMALL: StoreOptions = StoreOptions {
        lane_window: 3,
        window_total: 10,
        delivery_cache_bytes: 3_000,
        page_cache_kib: 256,
        listed_at_once: 2,
        dedup_bucket_keys: 100,
        reserve_bytes: 0,
        journal_bytes_max: u64::MAX,
    };
    postrider_store::promises!(Embedded::new(SMALL));
}

/// A schema of its own for each store, on one server for all tests of this process.
#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use postrider_store::{PostgresOptions, PostgresStore};
    use postrider_testkit::postgres::PostgresServer;

    static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);

    struct Postgres {
        options: PostgresOptions,
    }

    impl Postgres {
        fn new() -> Self {
            let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
            let url = SERVER.url(&format!("schema=store_{number}"));
            Self { options: PostgresOptions::parse(&url).unwrap() }
        }
    }

    #[async_trait]
    impl StoreFactory for Postgres {
        async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
            Arc::new(PostgresStore::open_on(self.options.clone(), clock).await.unwrap())
        }

        /// A new consumer of the same name takes over what the dead one held.
        async fn reopen(
            &self,
            _: Arc<dyn Store>,
            clock: Arc<ManualClock>,
        ) -> Option<Arc<dyn Store>> {
            Some(self.open(clock).await)
        }
    }

    postrider_store::promises!(Postgres::new());
}

/// A prefix of its own for each store, on one server for all tests of this process.
#[cfg(feature = "redis")]
mod redis {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use postrider_store::{RedisOptions, RedisStore};
    use postrider_testkit::redis::RedisServer;

    static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::start().unwrap());
    static PREFIXES: AtomicU32 = AtomicU32::new(0);

    pub(crate) struct Redis {
        options: RedisOptions,
    }

    impl Redis {
        fn new() -> Self {
            Self::of(&SERVER.url(""))
        }

        pub(crate) fn of(url: &str) -> Self {
            let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
            let options = RedisOptions::parse(url).unwrap();
            Self { options: options.with_prefix(&format!("store_{number}")).unwrap() }
        }
    }

    #[async_trait]
    impl StoreFactory for Redis {
        async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
            Arc::new(RedisStore::open_on(self.options.clone(), clock).await.unwrap())
        }

        /// A new consumer of the same name takes over what the dead one held.
        async fn reopen(
            &self,
            _: Arc<dyn Store>,
            clock: Arc<ManualClock>,
        ) -> Option<Arc<dyn Store>> {
            Some(self.open(clock).await)
        }
    }

    postrider_store::promises!(Redis::new());
}

/// Three masters and three replicas.
#[cfg(feature = "redis")]
mod redis_cluster {
    use std::sync::LazyLock;

    use super::redis::Redis;
    use postrider_testkit::redis::RedisClusterServers;

    static CLUSTER: LazyLock<RedisClusterServers> =
        LazyLock::new(|| RedisClusterServers::start().unwrap());

    postrider_store::promises!(Redis::of(&CLUSTER.url("")));
}
