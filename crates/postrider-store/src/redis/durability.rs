//! What the servers' settings promise, what they do not, and what is refused.

use postrider_core::ports::store::{EngineStatus, StoreError, StoreResult};
use redis::Value;

use super::failure::{RedisFailure, RedisResult};
use super::link::{RedisLink, words};
use super::options::{RedisKind, RedisOptions};
use super::pack::{pairs, text, text_int};

/// The oldest version of the servers that is supported.
const VERSION_MIN: u32 = 7;

/// The settings of servers that decide what a crash can lose. Of several servers, the worst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    pub version: String,
    pub major: u32,
    /// The append-only file is on.
    pub appends: bool,
    /// Absent if the server does not tell.
    pub appendfsync: Option<String>,
    pub eviction: String,
    /// Used bytes, and `maxmemory`; 0 if there is none. Of the fullest server.
    pub memory: (u64, u64),
    pub is_replica: bool,
    pub is_cluster: bool,
    /// Replicas that receive changes now; of the server that has the fewest.
    pub replicas: u32,
}

/// What a look at servers finds, without changing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReport {
    pub settings: RedisSettings,
    /// What an acknowledged message survives.
    pub promise: String,
    /// Why a store is not opened there.
    pub refusal: Option<String>,
    /// The layout of the keys, and the one that this version knows. Absent if there are none.
    pub layout: Option<u32>,
    pub layout_known: u32,
}

/// A setting that loses what was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisGap {
    /// Such as `appendonly_off`.
    pub code: &'static str,
    pub what: &'static str,
    pub remedy: &'static str,
    /// What the URL has to name, so that a store is opened nevertheless.
    pub risk: &'static str,
}

/// Looks at servers. Writes nothing.
pub async fn examine(options: RedisOptions) -> StoreResult<RedisReport> {
    let link = RedisLink::new(options)?;
    let settings = settings(&link).await?;
    let layout = super::layout::found(&link).await?;
    let promise = settings.promise(link.options());
    let refusal = settings.refuse_unusable(link.options()).err().map(|error| error.to_string());
    Ok(RedisReport { settings, promise, refusal, layout, layout_known: super::layout::LAYOUT })
}

fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| *known == name).map(|(_, value)| value.trim())
}

fn number(info: &str, name: &str) -> u64 {
    line(info, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn read(info: &str, appendfsync: Option<String>) -> RedisSettings {
    let version = line(info, "redis_version").unwrap_or_default().to_owned();
    RedisSettings {
        major: version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0),
        version,
        appends: line(info, "aof_enabled") == Some("1"),
        appendfsync,
        eviction: line(info, "maxmemory_policy").unwrap_or("noeviction").to_owned(),
        memory: (number(info, "used_memory"), number(info, "maxmemory")),
        is_replica: line(info, "role").is_some_and(|role| role != "master"),
        is_cluster: line(info, "cluster_enabled") == Some("1"),
        replicas: number(info, "connected_slaves") as u32,
    }
}

/// The settings of all masters.
pub(super) async fn settings(link: &RedisLink) -> RedisResult<RedisSettings> {
    let config = words(&[b"CONFIG", b"GET", b"appendfsync"]);
    // A server of a provider may not let everybody read its configuration.
    let fsync = link.ask_masters(&config).await.unwrap_or_default();
    let mut all = Vec::new();
    let infos = link.ask_masters(&words(&[b"INFO", b"everything"])).await?;
    for (place, info) in infos.into_iter().enumerate() {
        let info =
            text(verbatim(info)).ok_or_else(|| RedisFailure::damaged("the server's settings"))?;
        let fsync = fsync.get(place).cloned().map(pairs).transpose()?;
        let fsync = fsync.and_then(|pairs| pairs.into_iter().next()).map(|(_, value)| value);
        all.push(read(&info, fsync.and_then(|value| String::from_utf8(value).ok())));
    }
    let worst = all.into_iter().reduce(worse);
    worst.ok_or_else(|| RedisFailure::damaged("the servers' settings"))
}

fn verbatim(value: Value) -> Value {
    match value {
        Value::VerbatimString { text, .. } => Value::BulkString(text.into_bytes()),
        other => other,
    }
}

/// What two servers promise together.
fn worse(one: RedisSettings, other: RedisSettings) -> RedisSettings {
    let fullness = |of: &RedisSettings| of.memory.0.saturating_mul(1_000) / of.memory.1.max(1);
    let rank = |fsync: &Option<String>| match fsync.as_deref() {
        Some("no") => 0,
        Some("everysec") => 1,
        None => 2,
        Some(_) => 3,
    };
    let has_limit = one.memory.1 > 0 && other.memory.1 > 0;
    let fuller = if fullness(&other) > fullness(&one) { other.memory } else { one.memory };
    RedisSettings {
        appends: one.appends && other.appends,
        appendfsync: if rank(&other.appendfsync) < rank(&one.appendfsync) {
            other.appendfsync
        } else {
            one.appendfsync
        },
        eviction: if other.eviction == "noeviction" { one.eviction } else { other.eviction },
        memory: if has_limit { fuller } else { (fuller.0, 0) },
        is_replica: one.is_replica || other.is_replica,
        replicas: one.replicas.min(other.replicas),
        major: one.major.min(other.major),
        ..one
    }
}

impl RedisSettings {
    /// What an acknowledged message survives.
    pub(super) fn promise(&self, options: &RedisOptions) -> String {
        let survives = match (self.appends, self.appendfsync.as_deref()) {
            (false, _) => {
                "a crash of Postrider; a crash of the server loses everything since its last snapshot"
            }
            (true, Some("always")) => {
                "a crash and a loss of power of the server, but not the loss of its disk"
            }
            (true, Some("everysec")) => {
                "a crash of Postrider; a crash of the server loses the last second or two"
            }
            (true, Some(_)) => {
                "a crash of Postrider; a crash of the server loses what the system had not written"
            }
            (true, None) => {
                "a crash of Postrider, and what the server's appendfsync covers, which it does not tell"
            }
        };
        let replicas = match options.replicas {
            0 => String::new(),
            n => format!(
                "; {n} replica(s) have it in memory, so that it survives the loss of the master if one of them is \
                 promoted"
            ),
        };
        format!("an acknowledged message survives {survives}{replicas}")
    }

    pub fn gaps(&self) -> Vec<RedisGap> {
        let mut gaps = Vec::new();
        if !self.appends {
            gaps.push(RedisGap {
                code: "appendonly_off",
                what: "appendonly is off: a crash of the server loses acknowledged messages",
                remedy: "set appendonly yes and appendfsync always",
                risk: "no_persistence",
            });
        } else if self.appendfsync.as_deref() == Some("everysec") {
            gaps.push(RedisGap {
                code: "appendfsync_everysec",
                what: "appendfsync is everysec: a crash of the server loses the last second or two",
                remedy: "set appendfsync always",
                risk: "everysec",
            });
        } else if self.appendfsync.as_deref() == Some("no") {
            gaps.push(RedisGap {
                code: "appendfsync_no",
                what: "appendfsync is no: a crash of the server loses what the system had not written",
                remedy: "set appendfsync always",
                risk: "no_persistence",
            });
        }
        if self.eviction != "noeviction" {
            gaps.push(RedisGap {
                code: "eviction",
                what: "maxmemory-policy evicts keys: a full server deletes messages",
                remedy: "set maxmemory-policy noeviction",
                risk: "eviction",
            });
        }
        if self.memory.1 == 0 {
            gaps.push(RedisGap {
                code: "no_maxmemory",
                what: "maxmemory is not set: a growing queue takes all memory, and the system ends the server",
                remedy: "set maxmemory to what the server may use",
                risk: "no_maxmemory",
            });
        }
        gaps
    }

    pub(super) fn status(&self, options: &RedisOptions) -> EngineStatus {
        let kind = match options.kind {
            RedisKind::Single => "Redis",
            RedisKind::Sentinel(_) => "Redis with Sentinel",
            RedisKind::Cluster => "Redis Cluster",
        };
        EngineStatus { name: format!("{kind} {}", self.version), promise: self.promise(options) }
    }

    /// An error if a store must not be kept there.
    pub(super) fn refuse_unusable(&self, options: &RedisOptions) -> StoreResult<()> {
        let refused = |what: String| Err(StoreError::Unusable { what });
        if self.major < VERSION_MIN {
            return refused(format!(
                "Redis {} is too old: version 7 or newer is needed",
                self.version
            ));
        }
        if self.is_replica {
            return refused(
                "the Redis server is a read-only replica: the store needs the master, Sentinel or a cluster".to_owned(),
            );
        }
        let is_cluster = options.kind == RedisKind::Cluster;
        if self.is_cluster != is_cluster {
            return refused(match is_cluster {
                true => "the Redis server is not part of a cluster: use redis:// instead of redis+cluster://",
                false => "the Redis server is part of a cluster: use redis+cluster:// instead of redis://",
            }
            .to_owned());
        }
        if self.replicas < options.replicas {
            return refused(format!(
                "replicas of the store's URL is {}, but a master has {}",
                options.replicas, self.replicas
            ));
        }
        let accepted = options.accepted;
        let is_accepted = |gap: &RedisGap| match gap.risk {
            "everysec" => accepted.everysec,
            "no_persistence" => accepted.no_persistence,
            "eviction" => accepted.eviction,
            _ => accepted.no_limit,
        };
        match self.gaps().into_iter().find(|gap| !is_accepted(gap)) {
            None => Ok(()),
            Some(gap) => refused(format!(
                "Redis: {}; {}, or accept it with risk={} in the store's URL",
                gap.what, gap.remedy, gap.risk
            )),
        }
    }
}

/// The number in a field of a hash.
pub(super) fn count(value: Option<Vec<u8>>) -> RedisResult<i64> {
    value.map_or(Ok(0), |value| text_int(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nconnected_slaves:1\r\naof_enabled:1\r\n\
                        used_memory:900\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

    fn options(query: &str) -> RedisOptions {
        RedisOptions::parse(&format!("redis://localhost/0?{query}")).unwrap()
    }

    #[test]
    fn settings_that_lose_messages_are_refused_unless_they_are_named() {
        let safe = read(INFO, Some("always".to_owned()));
        assert_eq!(safe.memory, (900, 1000));
        safe.refuse_unusable(&options("replicas=1")).unwrap();
        assert!(safe.promise(&options("")).contains("loss of power of the server"));
        assert!(safe.promise(&options("replicas=1")).contains("promoted"));
        let lossy = [
            (RedisSettings { appends: false, ..safe.clone() }, "no_persistence"),
            (
                RedisSettings { appendfsync: Some("everysec".to_owned()), ..safe.clone() },
                "everysec",
            ),
            (RedisSettings { eviction: "allkeys-lru".to_owned(), ..safe.clone() }, "eviction"),
            (RedisSettings { memory: (900, 0), ..safe.clone() }, "no_maxmemory"),
        ];
        for (settings, risk) in lossy {
            let error = settings.refuse_unusable(&options("")).unwrap_err().to_string();
            assert!(error.contains(&format!("risk={risk}")), "{error}");
            settings.refuse_unusable(&options(&format!("risk={risk}"))).unwrap();
        }
        for broken in [
            RedisSettings { major: 6, version: "6.2.1".to_owned(), ..safe.clone() },
            RedisSettings { is_replica: true, ..safe.clone() },
            RedisSettings { is_cluster: true, ..safe.clone() },
            RedisSettings { replicas: 0, ..safe.clone() },
        ] {
            broken.refuse_unusable(&options("replicas=1")).unwrap_err();
        }
    }

    #[test]
    fn of_several_servers_the_worst_counts() {
        let one = read(INFO, Some("always".to_owned()));
        let other = RedisSettings {
            appendfsync: Some("everysec".to_owned()),
            memory: (990, 1000),
            replicas: 0,
            ..one.clone()
        };
        let both = worse(one, other);
        assert_eq!(
            (both.appendfsync.as_deref(), both.memory, both.replicas),
            (Some("everysec"), (990, 1000), 0)
        );
    }
}
