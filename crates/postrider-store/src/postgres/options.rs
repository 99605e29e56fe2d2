//! The URL of a store in PostgreSQL.

use std::str::FromStr;

use postrider_core::ports::store::{StoreError, StoreResult};
use tokio_postgres::Config;

const POOL_SIZE: usize = 16;
const SCHEMA: &str = "postrider";

/// Where the store is, and how it is reached.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) schema: String,
    /// Connections of this process at most, besides two that wait for news.
    pub(super) pool_size: usize,
    pub(super) ssl: SslMode,
    /// A file with the certificates that are trusted; the system's if absent.
    pub(super) root_certificates: Option<String>,
    /// The server as errors name it.
    pub(super) shown: String,
}

/// How the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    /// If the server can.
    Prefer,
    /// Always, but whoever answers is believed.
    Require,
    /// Always, and the server must prove its name.
    VerifyFull,
}

impl PostgresOptions {
    /// Reads `postgres://user@host:port/database?schema=…&sslmode=…&sslrootcert=…&pool_size=…`.
    pub fn parse(url: &str) -> StoreResult<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        let mut options = Self {
            config: Config::new(),
            schema: SCHEMA.to_owned(),
            pool_size: POOL_SIZE,
            ssl: SslMode::Prefer,
            root_certificates: None,
            shown: String::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => options.schema = schema(value)?,
                "pool_size" => options.pool_size = pool_size(value)?,
                "sslmode" => options.ssl = ssl_mode(value)?,
                "sslrootcert" => options.root_certificates = Some(value.to_owned()),
                _ => rest.push(pair),
            }
        }
        let url = match rest.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", rest.join("&")),
        };
        // The parser's words may repeat the URL, which may have a password.
        options.config = Config::from_str(&url).map_err(|_| unusable(
            "the store's URL cannot be read; expected postgres://user@host:5432/database, with special \
             characters of user and password written as %xx",
        ))?;
        if options.config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            options.config.password(password);
        }
        options.shown = shown(&options.config);
        Ok(options)
    }

    /// Replaces the password of the URL.
    pub fn with_password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }

    /// Another schema of the same database.
    pub fn with_schema(mut self, name: &str) -> StoreResult<Self> {
        self.schema = schema(name)?;
        Ok(self)
    }

    /// The server, its database and the schema, without user and password.
    pub fn shown(&self) -> String {
        format!("{}, schema {}", self.shown, self.schema)
    }
}

fn unusable(what: &str) -> StoreError {
    StoreError::Unusable { what: what.to_owned() }
}

fn schema(name: &str) -> StoreResult<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match is_name && name.len() <= 40 && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(unusable(
            "schema of the store's URL: expected at most 40 lower-case letters, digits and underscores",
        )),
    }
}

fn pool_size(text: &str) -> StoreResult<usize> {
    let size = text.parse().ok().filter(|size| (4..=1_000).contains(size));
    size.ok_or_else(|| unusable("pool_size of the store's URL: expected a number from 4 to 1000"))
}

fn ssl_mode(text: &str) -> StoreResult<SslMode> {
    Ok(match text {
        "disable" => SslMode::Disable,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-full" => SslMode::VerifyFull,
        _ => {
            return Err(unusable(
                "sslmode of the store's URL: expected disable, prefer, require or verify-full",
            ));
        }
    })
}

fn shown(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let hosts = config.get_hosts().iter().zip(config.get_ports().iter().chain([&5432]));
    let hosts: Vec<_> = hosts
        .map(|(host, port)| match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    format!("{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let url = "postgres://ann:secret@db.example:5433/mail?schema=post_1&sslmode=verify-full&pool_size=8";
        let options = PostgresOptions::parse(url).unwrap();
        assert_eq!((options.schema.as_str(), options.pool_size), ("post_1", 8));
        assert_eq!(options.ssl, SslMode::VerifyFull);
        assert_eq!(options.shown(), "db.example:5433/mail, schema post_1");
    }

    #[test]
    fn a_wrong_url_is_refused_without_showing_it() {
        for url in [
            "postgres://ann:secret@/mail?schema=Bad-Name",
            "postgres://ann:secret@db/mail?pool_size=1",
            "postgres://ann:secret@db/mail?sslmode=maybe",
            "postgres://ann:secret@db:port/mail",
            "postgres://ann:secret@db/mail?colour=red",
        ] {
            let error = PostgresOptions::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("expected"), "{error}");
        }
    }
}
