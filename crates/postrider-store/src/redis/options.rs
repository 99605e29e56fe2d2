//! The URL of a store in Redis.

use postrider_core::ports::store::{StoreError, StoreResult};

const PREFIX: &str = "postrider";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// Where the store is, and how it is reached.
#[derive(Clone)]
pub struct RedisOptions {
    pub(super) kind: RedisKind,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    /// All keys begin with it.
    pub(super) prefix: String,
    pub(super) is_encrypted: bool,
    /// A file with the certificates that are trusted; the system's if absent.
    pub(super) root_certificates: Option<String>,
    /// Writes wait for so many replicas.
    pub(super) replicas: u32,
    pub(super) accepted: AcceptedRisks,
}

/// Set-ups that lose messages, and are refused unless the URL names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AcceptedRisks {
    /// `appendfsync everysec`.
    pub(super) everysec: bool,
    /// No append-only file, or `appendfsync no`.
    pub(super) no_persistence: bool,
    /// A server that evicts keys.
    pub(super) eviction: bool,
    /// No `maxmemory`.
    pub(super) no_limit: bool,
}

/// What the servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RedisKind {
    Single,
    /// The name of the master.
    Sentinel(String),
    Cluster,
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisOptions({})", self.shown())
    }
}

const EXPECTED: &str = "expected redis://user@host:6379/0, rediss://…, redis+sentinel://host:26379/master or \
     redis+cluster://host:6379,host:6379, with special characters of user and password written as %xx";

impl RedisOptions {
    /// Reads `redis://user@host:port/database?prefix=…&replicas=…&risk=…&tls_ca=…`.
    pub fn parse(url: &str) -> StoreResult<Self> {
        let unreadable = || unusable(&format!("the store's URL cannot be read; {EXPECTED}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(unreadable)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (None, None),
        };
        let (kind, is_encrypted, port) = match scheme {
            "redis" => (RedisKind::Single, false, PORT),
            "rediss" => (RedisKind::Single, true, PORT),
            "redis+cluster" => (RedisKind::Cluster, false, PORT),
            "rediss+cluster" => (RedisKind::Cluster, true, PORT),
            "redis+sentinel" | "rediss+sentinel" => {
                if path.is_empty() {
                    return Err(unusable(
                        "the store's URL: expected the master's name after redis+sentinel://host:26379/",
                    ));
                }
                (RedisKind::Sentinel(path.to_owned()), scheme.starts_with("rediss"), SENTINEL_PORT)
            }
            _ => return Err(unreadable()),
        };
        let mut options = Self {
            hosts: hosts
                .split(',')
                .map(|host| host_and_port(host, port))
                .collect::<Option<_>>()
                .ok_or_else(unreadable)?,
            user,
            password,
            database: 0,
            prefix: PREFIX.to_owned(),
            is_encrypted,
            root_certificates: None,
            replicas: 0,
            accepted: AcceptedRisks::default(),
            kind,
        };
        if options.kind == RedisKind::Single {
            options.database =
                if path.is_empty() { 0 } else { path.parse().map_err(|_| unreadable())? };
            if options.hosts.len() > 1 {
                return Err(unusable(
                    "the store's URL: expected one server; a cluster is redis+cluster://",
                ));
            }
        }
        if options.kind == RedisKind::Cluster && !path.is_empty() && path != "0" {
            return Err(unusable("the store's URL: expected no database, a cluster has only 0"));
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(name, value)?;
        }
        if options.password.is_none() {
            let given = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
            // A user without a password signs in, too; else the client would act as the default user.
            options.password = given.or_else(|| options.user.as_ref().map(|_| String::new()));
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> StoreResult<()> {
        match name {
            "prefix" => self.prefix = prefix(value)?,
            "replicas" => self.replicas = replicas(value)?,
            "tls_ca" => self.root_certificates = Some(value.to_owned()),
            "risk" => {
                for risk in value.split(',') {
                    self.accepted.add(risk)?;
                }
            }
            _ => {
                return Err(unusable(&format!(
                    "the store's URL: expected prefix, replicas, risk or tls_ca, not {name:?}"
                )));
            }
        }
        Ok(())
    }

    /// Replaces the password of the URL.
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Other keys of the same server.
    pub fn with_prefix(mut self, name: &str) -> StoreResult<Self> {
        self.prefix = prefix(name)?;
        Ok(self)
    }

    /// The servers and the prefix, without user and password.
    pub fn shown(&self) -> String {
        let hosts: Vec<_> =
            self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let hosts = hosts.join(",");
        let of = match &self.kind {
            RedisKind::Single => format!("{hosts}/{}", self.database),
            RedisKind::Sentinel(master) => format!("{master} of the Sentinels {hosts}"),
            RedisKind::Cluster => format!("the cluster of {hosts}"),
        };
        format!("{of}, prefix {}", self.prefix)
    }
}

impl AcceptedRisks {
    fn add(&mut self, risk: &str) -> StoreResult<()> {
        match risk {
            "everysec" => self.everysec = true,
            "no_persistence" => self.no_persistence = true,
            "eviction" => self.eviction = true,
            "no_maxmemory" => self.no_limit = true,
            _ => {
                return Err(unusable(
                    "risk of the store's URL: expected everysec, no_persistence, eviction or no_maxmemory",
                ));
            }
        }
        Ok(())
    }
}

fn unusable(what: &str) -> StoreError {
    StoreError::Unusable { what: what.to_owned() }
}

fn host_and_port(text: &str, port: u16) -> Option<(String, u16)> {
    // An IPv6 address is in brackets.
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None if rest.is_empty() => port,
        None => return None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A part of the URL with its %xx; absent if it is empty.
fn decoded(text: &str) -> StoreResult<Option<String>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hex = rest.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.ok_or_else(|| unusable(&format!("the store's URL: {EXPECTED}")))?);
        rest = rest.get(2..).unwrap_or_default();
    }
    let text =
        String::from_utf8(bytes).map_err(|_| unusable(&format!("the store's URL: {EXPECTED}")))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn prefix(name: &str) -> StoreResult<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.len() <= 40 && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(unusable(
            "prefix of the store's URL: expected at most 40 letters, digits, hyphens and underscores",
        )),
    }
}

fn replicas(text: &str) -> StoreResult<u32> {
    let count = text.parse().ok().filter(|count| *count <= 5);
    count.ok_or_else(|| unusable("replicas of the store's URL: expected a number from 0 to 5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let url = "rediss://ann:s%40cret@db.example:6380/3?prefix=post_1&replicas=1&risk=everysec,no_maxmemory";
        let options = RedisOptions::parse(url).unwrap();
        assert!(options.is_encrypted && options.accepted.everysec && options.accepted.no_limit);
        assert_eq!((options.database, options.replicas), (3, 1));
        assert_eq!(options.password.as_deref(), Some("s@cret"));
        assert_eq!(options.shown(), "db.example:6380/3, prefix post_1");
        assert!(!format!("{options:?}").contains("cret"));
        let cluster = RedisOptions::parse("redis+cluster://a,b:7001,[::1]:7002").unwrap();
        assert_eq!(cluster.hosts.last().unwrap(), &("::1".to_owned(), 7002));
        let sentinel = RedisOptions::parse("redis+sentinel://s1,s2/mymaster").unwrap();
        assert_eq!(sentinel.kind, RedisKind::Sentinel("mymaster".to_owned()));
    }

    #[test]
    fn a_wrong_url_is_refused_without_showing_it() {
        for url in [
            "redis://ann:secret@/0",
            "redis://ann:secret@db/notes",
            "redis://ann:secret@db/0?prefix=a:b",
            "redis://ann:secret@db/0?replicas=many",
            "redis://ann:secret@db/0?risk=all",
            "redis://ann:secret@db:port/0",
            "redis://ann:secret@db/0?colour=red",
            "redis+sentinel://ann:secret@db",
            "redis+cluster://ann:secret@db/4",
            "redis:ann:secret@db",
        ] {
            let error = RedisOptions::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("expected"), "{error}");
        }
    }
}
