//! The configuration: `postrider.toml`, and environment variables, which win. Checks every value; an error
//! names the value and what is allowed. Opens no socket and no store.

pub(crate) mod accounts;
mod classes;
mod environment;
mod read;
mod reference;
mod regions;
pub mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_channels::registry::ChannelSections;
use postrider_core::model::json_fields;
use postrider_core::policy::classify::AnswerRow;
use postrider_core::{Class, FieldError};
use postrider_dispatch::template::{Template, TemplateSource};
use serde::Serialize;
use toml::{Table, Value};

pub use accounts::AccountSection;
pub use environment::Environment;
pub use reference::reference;
use sections::{
    AdminSection, AlertSection, BreakerSection, CapacitySection, DispatchSection,
    EncryptionSection, EventSection, LogSection, NetworkSection, ProblemSection, QuotaSection,
    ReceiptSection, RetentionSection, RetryBudgetSection, RollupSection, ServerSection,
    StoreSection, StrikesSection, TenantSection, TraceSection,
};

/// The file that `serve` uses by default.
pub const DEFAULT_FILE: &str = "postrider.toml";

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{origin}: {message}")]
    Malformed { origin: String, message: String },
    #[error(
        "the environment variable {variable} names no setting; `postrider config reference` lists them all"
    )]
    UnknownVariable { variable: String },
    #[error("{field} = {found}: {allowed}")]
    Invalid { field: String, found: String, allowed: String },
}

impl ConfigError {
    pub(crate) fn invalid(field: &str, found: impl ToString, allowed: &str) -> Self {
        let (found, allowed) = (found.to_string(), allowed.to_owned());
        Self::Invalid { field: field.to_owned(), found, allowed }
    }

    pub(crate) fn malformed(origin: &str, error: impl ToString) -> Self {
        Self::Malformed { origin: origin.to_owned(), message: error.to_string() }
    }

    /// What is wrong and where, without the line itself: it may have a secret.
    fn malformed_toml(origin: &str, text: &str, error: &toml::de::Error) -> Self {
        let message = without_texts(error.message());
        let place = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            format!("line {line}, column {column}: ")
        });
        Self::malformed(origin, format!("{}{message}", place.unwrap_or_default()))
    }

    fn in_section(section: &str, wrong: FieldError) -> Self {
        let FieldError { field, found, allowed } = wrong;
        Self::Invalid { field: format!("{section}.{field}"), found, allowed }
    }
}

impl From<FieldError> for ConfigError {
    fn from(FieldError { field, found, allowed }: FieldError) -> Self {
        Self::Invalid { field, found, allowed }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Config {
    pub server: ServerSection,
    pub admin: AdminSection,
    pub store: StoreSection,
    pub encryption: EncryptionSection,
    pub network: NetworkSection,
    #[serde(flatten)]
    pub channels: ChannelSections,
    pub dispatch: DispatchSection,
    pub breaker: BreakerSection,
    pub retry_budget: RetryBudgetSection,
    pub strikes: StrikesSection,
    pub capacity: CapacitySection,
    pub limits: QuotaSection,
    pub receipts: ReceiptSection,
    pub retention: RetentionSection,
    pub rollups: RollupSection,
    pub problems: ProblemSection,
    pub events: EventSection,
    pub traces: TraceSection,
    pub alerts: AlertSection,
    pub log: LogSection,
    /// All classes, built in or configured, by name.
    pub classes: BTreeMap<String, Class>,
    /// Settings of single tenants, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, TenantSection>,
    /// Accounts at providers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, AccountSection>,
    /// Templates of all tenants, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, TemplateSource>,
    /// Rows that win over the built-in tables of answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classify: Vec<AnswerRow>,
    /// The paths of the settings that file and environment set.
    #[serde(skip)]
    named: BTreeSet<String>,
}

impl Config {
    /// Reads `file`, or [`DEFAULT_FILE`] if that exists, and the environment.
    pub fn load(file: Option<&Path>, environment: &Environment) -> Result<Self, ConfigError> {
        let path = file.map(Path::to_owned).or_else(|| {
            let default = PathBuf::from(DEFAULT_FILE);
            default.exists().then_some(default)
        });
        let text = match &path {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?,
            None => String::new(),
        };
        let origin = path.map_or_else(|| "defaults".to_owned(), |p| p.display().to_string());
        Self::parse(&text, &origin, environment)
    }

    /// `origin` names the text in errors.
    pub fn parse(text: &str, origin: &str, environment: &Environment) -> Result<Self, ConfigError> {
        // Parsed once without the environment: only then have errors a line and a column.
        let malformed = |error| ConfigError::malformed_toml(origin, text, &error);
        toml::from_str::<Self>(text).map_err(malformed)?;
        let mut table: Table = toml::from_str(text).map_err(malformed)?;
        environment.apply(&mut table)?;
        let named = paths(&table);
        classes::complete(&mut table);
        let mut config: Self = table.try_into().map_err(|error: toml::de::Error| {
            let origin = format!("{origin} with the environment over it");
            ConfigError::malformed_toml(&origin, "", &error)
        })?;
        config.named = named;
        config.name_classes();
        config.check()?;
        Ok(config)
    }

    /// The same origin with other values.
    pub(crate) fn with_values(&self, values: serde_json::Value) -> Result<Self, ConfigError> {
        let mut config: Self = serde_path_to_error::deserialize(values).map_err(invalid_type)?;
        config.named = self.named.clone();
        config.name_classes();
        config.check()?;
        Ok(config)
    }

    /// Whether file or environment set this path, e.g. `classes.otp`, or one below it.
    pub fn names(&self, path: &str) -> bool {
        let below = |named: &String| named.strip_prefix(path).is_some_and(|r| r.starts_with('.'));
        self.named.contains(path) || self.named.iter().any(below)
    }

    /// The classes, ready for the intake and the dispatcher.
    pub fn class_list(&self) -> Vec<Class> {
        self.classes.values().cloned().collect()
    }

    fn name_classes(&mut self) {
        for (name, class) in &mut self.classes {
            class.name = Arc::from(name.as_str());
        }
    }

    /// Checks every value; needed again only if something was changed after loading.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.server.validate()?;
        self.admin.validate()?;
        self.store.validate()?;
        self.server.validate_role(&self.store)?;
        for channel in self.channels.iter() {
            let checked = channel.check().and_then(|()| channel.limits().check());
            checked.map_err(|wrong| ConfigError::in_section(channel.kind().name(), wrong))?;
        }
        self.dispatch.validate()?;
        self.breaker.validate()?;
        self.retry_budget.validate()?;
        self.strikes.validate()?;
        self.limits.validate()?;
        self.receipts.validate()?;
        self.rollups.validate()?;
        self.problems.validate()?;
        self.events.validate()?;
        self.traces.validate()?;
        self.alerts.validate()?;
        self.log.validate()?;
        for (name, tenant) in &self.tenants {
            tenant.validate(name)?;
        }
        regions::check(self)?;
        for (name, account) in &self.accounts {
            account.validate(name)?;
            account.check_way_out(name, &self.network)?;
        }
        for (name, source) in &self.templates {
            let schema = postrider_channels::registry::content_schema();
            let errors = Template::compile(name, source, &schema).err();
            if let Some(wrong) = errors.and_then(|errors| errors.into_iter().next()) {
                return Err(ConfigError::in_section(&format!("templates.{name}"), wrong));
            }
        }
        if self.dispatch.lease_s < self.longest_attempt_s().saturating_mul(2) {
            return Err(ConfigError::invalid(
                "dispatch.lease_s",
                self.dispatch.lease_s,
                "at least twice the longest timeout_s of the channels; for email that and the longest \
                 final_dot_timeout_s of its accounts (60 if not given)",
            ));
        }
        classes::check(&self.classes)
    }

    /// The longest time that an attempt may take, over all channels.
    fn longest_attempt_s(&self) -> u64 {
        let longest = self.channels.iter().map(|channel| {
            let ours = self.accounts.values().filter(|account| account.channel == channel.kind());
            let accounts: Vec<_> = ours.map(|account| &account.settings).collect();
            channel.attempt_s_max(&accounts)
        });
        longest.max().unwrap_or(0)
    }
}

/// A message of the parser without the texts that it found: `string "…"` becomes `a text`.
fn without_texts(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, found)) = rest.split_once("string \"") {
        out.push_str(before);
        out.push_str("a text");
        let mut escaped = false;
        let end = found.find(|c| {
            let is_end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        });
        rest = end.map_or("", |end| &found[end + 1..]);
    }
    out.push_str(rest);
    out
}

/// Names the path of a value that has the wrong type, what was found and what is allowed.
fn invalid_type(error: serde_path_to_error::Error<serde_json::Error>) -> ConfigError {
    let error = json_fields::describe(&error.path().to_string(), error.inner(), "");
    ConfigError::invalid(&error.field, error.found, &error.allowed)
}

/// The paths of all values.
fn paths(table: &Table) -> BTreeSet<String> {
    fn walk(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Table(inner) => {
                inner.iter().for_each(|(key, v)| walk(&format!("{prefix}.{key}"), v, into));
            }
            _ => {
                into.insert(prefix.to_owned());
            }
        }
    }
    let mut found = BTreeSet::new();
    table.iter().for_each(|(key, value)| walk(key, value, &mut found));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, "postrider.toml", &Environment::empty())
    }

    #[test]
    fn a_class_keeps_what_the_file_does_not_mention() {
        let config = parse("[classes.otp]\nttl_s = 60\n[classes.otp.retry]\nretries = 2").unwrap();
        let otp = &config.classes["otp"];
        assert_eq!((otp.ttl_s, otp.retry.retries, otp.retry.base_ms), (60, 2, 2_000));
        assert_eq!(otp.priority, postrider_core::model::message::Priority::High);
        assert_eq!(&*otp.name, "otp");
        assert!(config.classes.contains_key("marketing"));
    }

    #[test]
    fn a_rate_is_read_for_a_channel_and_for_a_tenant_and_nonsense_is_refused() {
        let config = parse("[webhook]\nrate_per_s = 50\n[tenants.acme]\nrate_per_s = 5").unwrap();
        assert_eq!(config.channels.webhook.rate_per_s, 50.0);
        assert_eq!(
            (config.tenants["acme"].rate_per_s, config.tenants["acme"].rate_burst),
            (5.0, 10)
        );
        let error = parse("[tenants.acme]\nrate_per_s = -1").unwrap_err();
        insta::assert_snapshot!(error.to_string(), @"tenants.acme.rate_per_s = -1: 0 (no limit), or 0.001 to 1000000");
    }

    #[test]
    fn tenants_and_rows_of_answers_can_be_set_by_environment() {
        let row = r#"[{ service = "http", status = 418, outcome = "accepted" }]"#;
        let environment = Environment::of([
            ("POSTRIDER_TENANTS__ACME__WEIGHT", "2.5"),
            ("POSTRIDER_LIMITS__KEYS_MAX", "7"),
            ("POSTRIDER_TENANTS__ACME__KEYS_MAX", "9"),
            ("POSTRIDER_CLASSIFY", row),
        ]);
        let config = Config::parse("", "postrider.toml", &environment).unwrap();
        assert_eq!(config.tenants["acme"].weight, 2.5);
        assert_eq!(config.limits.of(config.tenants.get("acme")).keys_max, 9);
        assert_eq!((config.limits.keys_max, config.classify.len()), (7, 1));
    }

    #[test]
    fn no_error_shows_a_secret_of_the_file() {
        for text in [
            "[admin]\nkey = s3cr3t",
            "[admin]\nkey = \"s3cr3t",
            "[admin]\nkey = [\"s3cr3t\"]",
            "[admin]\nkeys = \"s3cr3t\"",
            "[server]\nbody_bytes_max = \"s3cr3t \\\" s3cr3t\"",
            "[webpush]\nvapid_private_key = \"s3cr3t\" \"x\"",
            "admin.key = \"s3cr3t\"\nadmin.key = 1",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("s3cr3t"), "{error}");
            assert!(error.contains("line"), "{error}");
        }
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error = parse("[server]\nlisten = \"127.0.0.1:1\"\nlissten = 3").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 3") && text.contains("lissten"), "{text}");
    }

    #[test]
    fn what_is_wrong_in_the_section_of_a_channel_is_named_with_its_line() {
        for (text, line, word) in [
            ("[webhook]\nrate_per_s = 1\nconcurency = 3", "line 3, column 1", "`concurency`"),
            (
                "[webhook]\nrate_per_s = 1\ntimeout_s = \"x\"",
                "line 3, column 13",
                "a text, expected u64",
            ),
            ("\n[webhok]\nrate_per_s = 1", "line 2, column 2", "`webhok`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_credential_is_listed_with_the_origin_that_it_may_go_to() {
        let listed = |entry: &str| parse(&format!("[http]\ncredentials = [\"{entry}\"]"));
        let config = listed("env:BILLING_TOKEN https://api.example.com acme,shop").unwrap();
        let allowed = config.channels.http.allowed_credentials().remove(0);
        assert_eq!(allowed.reference, "env:BILLING_TOKEN");
        assert_eq!(allowed.origin, "https://api.example.com");
        assert_eq!(allowed.tenants.into_iter().collect::<Vec<_>>(), ["acme", "shop"]);
        for wrong in
            ["env:BILLING_TOKEN", "env: https://a.example *", "vault:x https://a.example *"]
        {
            assert!(listed(wrong).is_err(), "{wrong}");
        }
        assert!(listed("env:A https://api.example.com/path *").is_err(), "an origin has no path");
        let error = listed("env:A https://api.example.com").unwrap_err().to_string();
        assert!(error.contains("the tenants that may name it"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_says_what_is_allowed() {
        let error = parse("[webpush]\nsubject = \"mailto:me@localhost\"").unwrap_err();
        insta::assert_snapshot!(error.to_string(), @r#"webpush.subject = "mailto:me@localhost": a mailto: or https: contact that push services can reach, e.g. mailto:ops@example.com"#);
    }

    #[test]
    fn a_role_that_does_not_exist_is_refused_with_the_reason() {
        let error = parse("[server]\nrole = \"boss\"").unwrap_err().to_string();
        assert!(error.contains("line 2, column 8"), "{error}");
        assert!(error.contains("\"boss\" is not a role: use \"all\", \"api\""), "{error}");
        let error = parse("[server]\nrole = \"worker\"").unwrap_err().to_string();
        assert!(error.contains("only one process can use"), "{error}");
        let shared = "[server]\nrole = \"worker\"\n[store]\nurl = \"postgres://ann@db/mail\"";
        assert!(parse(shared).unwrap().server.role.sends());
    }

    #[test]
    fn the_url_of_a_store_has_no_password() {
        let error = parse("[store]\nurl = \"postgres://ann:secret@db/mail\"").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("store.password") && !error.contains("secret@"), "{error}");
        let error = parse("[store]\nurl = \"mysql://db/mail\"").unwrap_err().to_string();
        assert!(error.contains("store.url") && error.contains("mysql"), "{error}");
    }

    #[test]
    fn an_attempt_has_some_time() {
        let error = parse("[http]\ntimeout_s = 0").unwrap_err();
        insta::assert_snapshot!(error.to_string(), @"http.timeout_s = 0: at least 1");
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let environment = Environment::of([
            ("POSTRIDER_NETWORK__ALLOW_PRIVATE_TARGETS", "true"),
            ("POSTRIDER_WEBPUSH__CONCURRENCY", "7"),
            ("POSTRIDER_CLASSES__OTP__TTL_S", "30"),
            ("POSTRIDER_ADMIN_KEY", "QyHn0v6kPz3tXwLm9aBsRf2uJd8eGc5iVo7TqYhK1xE"),
            ("POSTRIDER_SERVER", "http://127.0.0.1:8080"),
        ]);
        let config =
            Config::parse("[webpush]\nconcurrency = 3", "postrider.toml", &environment).unwrap();
        assert!(config.network.allow_private_targets.is_any());
        assert_eq!(config.channels.webpush.concurrency, 7);
        assert_eq!(config.classes["otp"].ttl_s, 30);
        assert_eq!(
            config.admin.key.unwrap().reveal(),
            "QyHn0v6kPz3tXwLm9aBsRf2uJd8eGc5iVo7TqYhK1xE"
        );
    }

    #[test]
    fn a_variable_that_names_no_setting_is_an_error() {
        let environment = Environment::of([("POSTRIDER_SERVER__LISSTEN", "1")]);
        let error = Config::parse("", "x", &environment).unwrap_err().to_string();
        assert!(error.contains("POSTRIDER_SERVER__LISSTEN"), "{error}");
    }

    #[test]
    fn a_secret_is_never_printed() {
        let config =
            parse("[admin]\nkey = \"QyHn0v6kPz3tXwLm9aBsRf2uJd8eGc5iVo7TqYhK1xE\"").unwrap();
        assert!(!format!("{config:?}").contains("QyHn0v6k"));
    }
}
