//! The documented reference of every setting, made from the sections themselves.

use std::fmt::Write as _;

use postrider_channels::{answers, registry};
use toml::Value;

use super::{Config, DEFAULT_FILE, sections};

/// A complete `postrider.toml` with every setting at its default, explained. It can be used as it is.
pub fn reference() -> String {
    let defaults = Value::try_from(Config::default()).ok();
    let mut out = format!(
        "# {DEFAULT_FILE}: every setting of Postrider with its default.\n\
         # Each can be set by environment: POSTRIDER_SECTION__FIELD, e.g. POSTRIDER_SERVER__LISTEN.\n\
         # Secrets also as POSTRIDER_SECTION__FIELD_FILE: the path of a file that holds the value.\n"
    );
    for section in sections::all() {
        out.push('\n');
        comment(&mut out, section.about);
        let _ = writeln!(out, "[{}]", section.name);
        for field in section.settings {
            comment(&mut out, field.about);
            let default =
                defaults.as_ref().and_then(|d| d.get(section.name)).and_then(|s| s.get(field.name));
            let _ = match default {
                Some(value) => writeln!(out, "{} = {value}", field.name),
                None => writeln!(out, "# {} =", field.name),
            };
        }
    }
    out.push_str(TENANTS);
    accounts(&mut out);
    out.push_str(TEMPLATES);
    classes(&mut out);
    classify(&mut out);
    out
}

const TENANTS: &str = "
# Single tenants, by name: requests per second, all providers together (0 for no limit), and how many
# of them may come at once; and the weight, its share where tenants compete (1 if not named).
# [tenants.acme]
# rate_per_s = 50.0
# rate_burst = 10
# weight = 2.0
# deliveries_max = 100000        # pending at the most; see [capacity]
# bytes_max = 1000000000
# region = \"eu\"                  # only workers of this region send for it; see store.regions
# addresses_max = 100000         # and every other name of [limits] that ends with _max
";

const ACCOUNTS: &str = "
# Accounts at providers, by name, for the channels that need one. All have: channel; tenant (whose it is;
# \"*\" for every tenant that has none of its own for this channel); priority (lower is used first);
# cost (decides between equals); near (a region whose servers use it first); rate_per_s (its quota; 0 for
# none), rate_burst, rate_ramp_s; and a credential: env:NAME, file:PATH or command:PROGRAM ARGUMENTS. When
# an account's credential is refused, its breaker opens or its quota is spent, the next one takes over.
";

const TEMPLATES: &str = "
# Templates for all tenants, by name (docs/templates.md): per locale the fields of a message's content, in
# which every string may have variables. default_locale may be left out where there is one locale; with
# strict = false a missing variable is rendered as nothing instead of refusing the message.
# [templates.shipped]
# default_locale = \"en\"
# strict = true
# [templates.shipped.locales.en]
# title = \"Order {{ order.number }} shipped\"
# body = \"Hello {{ name | default('there') }}, it is on its way.\"
# email.subject = \"Your order {{ order.number }}\"
# [templates.shipped.locales.de]
# title = \"Bestellung {{ order.number }} ist unterwegs\"
";

/// What `[[classify]]` takes beside `service`.
const CLASSIFY: &str = "code is optional, a* matches by its start, *a* by a part of it; outcome is accepted, \
    retry_backoff, retry_after, retry_tomorrow (midnight UTC), gone, drop_message, config, ambiguous, expired, \
    resign_once, resign_if_stale or reconnect. For retry_backoff and retry_after also: scope (target, credential, \
    host), default_s (the wait where the provider names none), at_least_s, and retries: so many at the most, then \
    it was refused for good. strike holds the answer against the address: endpoint, mailbox, number, unreachable, \
    blocked, device, key, host or failing; see [strikes].";

const CLASSIFY_EXAMPLE: &str = "\
# [[classify]]
# service = \"webhook\"
# status = 404                   # or \"500-599\"
# code = \"not_yet*\"
# outcome = \"retry_backoff\"
";

fn accounts(out: &mut String) {
    out.push_str(ACCOUNTS);
    for guide in registry::all().filter_map(|channel| channel.facts().accounts) {
        out.push_str(guide.reference);
    }
}

fn classify(out: &mut String) {
    let text = format!(
        "What an answer means, where you know better than the built-in tables; your row wins. service is {} (a name also \
         covers the names that begin with it and a dot); {CLASSIFY}",
        list(&answers::services())
    );
    out.push('\n');
    wrap(out, &text);
    out.push_str(CLASSIFY_EXAMPLE);
}

/// `a, b or c`
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// A comment of lines that are about 100 characters long.
fn wrap(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() >= 104 {
            let _ = writeln!(out, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

fn comment(out: &mut String, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(out, "#{line}");
    }
}

fn classes(out: &mut String) {
    out.push_str(
        "\n# Classes. A class named here changes only what it mentions of a built-in class; a new name\n\
         # starts from the values of `transactional`. Fields: ttl_s, priority (low, normal, high),\n\
         # urgency (very-low, low, normal, high), on_ambiguous (resend, park, drop),\n\
         # on_expiry (dead_letter, expire), when_open (wait, reject, fall_back), retry_all,\n\
         # category, quiet_hours (defer, drop, ignore),\n\
         # and the table retry: retries, base_ms, factor, cap_ms, kind (exponential, linear, fixed,\n\
         # schedule), jitter (none, additive, proportional, full, doubling, equal, decorrelated),\n\
         # jitter_ms (of additive), jitter_share (of proportional), schedule_ms.\n",
    );
    for class in postrider_core::Class::built_in() {
        let Ok(Value::Table(fields)) = Value::try_from(&class) else { continue };
        let _ = writeln!(out, "[classes.{}]", class.name);
        for (name, value) in fields {
            let _ = writeln!(out, "{name} = {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[test]
    fn the_reference_is_itself_a_valid_configuration() {
        Config::parse(&reference(), "reference", &Environment::empty()).unwrap();
    }

    #[test]
    fn the_example_of_an_overridden_answer_can_be_used_as_it_is() {
        let lines = CLASSIFY_EXAMPLE.lines();
        let example: Vec<_> = lines.map(|line| line.trim_start_matches("# ")).collect();
        let config = Config::parse(&example.join("\n"), "test", &Environment::empty()).unwrap();
        assert_eq!(config.classify.len(), 1);
        assert_eq!(config.classify[0].service, "webhook");
    }

    #[test]
    fn the_examples_of_accounts_can_be_used_as_they_are() {
        let mut text = String::new();
        accounts(&mut text);
        let example: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("# [") || line.contains(" = "))
            .map(|line| line.trim_start_matches("# "))
            .collect();
        let config = Config::parse(&example.join("\n"), "test", &Environment::empty()).unwrap();
        let with_accounts = registry::all().filter(|channel| channel.facts().accounts.is_some());
        for channel in with_accounts {
            let kind = channel.facts().kind;
            assert!(config.accounts.values().any(|account| account.channel == kind), "{kind}");
        }
    }

    #[test]
    fn the_example_of_a_template_can_be_used_as_it_is() {
        let lines = TEMPLATES.lines().map(|line| line.trim_start_matches("# "));
        let example: Vec<_> = lines.skip_while(|line| !line.starts_with('[')).collect();
        let config = Config::parse(&example.join("\n"), "test", &Environment::empty()).unwrap();
        assert_eq!(config.templates["shipped"].locales.len(), 2);
    }

    #[test]
    fn a_template_that_cannot_be_rendered_is_refused_with_its_field_and_line() {
        let text =
            "[templates.shipped.locales.en]\nemail.html = \"\"\"<p>\n{{ name | shout }}\"\"\"\n";
        let error = Config::parse(text, "test", &Environment::empty()).unwrap_err().to_string();
        let wanted =
            "templates.shipped.locales.en.email.html = line 2: the filter shout: one of abs, ";
        assert!(error.starts_with(wanted), "{error}");
    }

    #[test]
    fn a_retry_policy_that_cannot_work_is_refused_by_name() {
        let text = "[classes.otp.retry]\nfactor = 0.5\n";
        let error = Config::parse(text, "test", &Environment::empty()).unwrap_err();
        assert_eq!(error.to_string(), "classes.otp.retry.factor = 0.5: 1…100");
    }

    #[test]
    fn the_settings_of_lanes_are_all_in_the_docs_with_their_defaults() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lanes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let defaults = Value::try_from(Config::default()).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: std::collections::BTreeMap<_, _> = rows
            .filter_map(|row| {
                let (name, rest) = row.split_once("` | ")?;
                let is_setting = name.contains('.') && !name.contains(['`', ' ']);
                is_setting.then_some((name, rest.split(" |").next()?))
            })
            .collect();
        for (name, default) in &documented {
            let (section, field) = name.split_once('.').unwrap();
            assert_eq!(&defaults[section][field].to_string(), default, "{name}");
        }
        for section in ["breaker", "retry_budget"] {
            for field in defaults[section].as_table().unwrap().keys() {
                let name = format!("{section}.{field}");
                assert!(documented.contains_key(&*name), "docs/lanes.md does not list {name}");
            }
        }
    }

    #[test]
    fn every_field_that_has_a_default_is_listed() {
        let Value::Table(sections) = Value::try_from(Config::default()).unwrap() else { panic!() };
        let text = reference();
        for (name, section) in sections.iter().filter(|(name, _)| *name != "classes") {
            assert!(text.contains(&format!("[{name}]")), "section {name}");
            for field in section.as_table().unwrap().keys() {
                assert!(text.contains(&format!("\n{field} = ")), "{name}.{field}");
            }
        }
    }
}
