//! The documented reference of every setting, made from the sections themselves.

use std::fmt::Write as _;

use toml::Value;

use super::sections::ALL;
use super::{Config, DEFAULT_FILE};

/// A complete `postrider.toml` with every setting at its default, explained. It can be used as it is.
pub fn reference() -> String {
    let defaults = Value::try_from(Config::default()).ok();
    let mut out = format!(
        "# {DEFAULT_FILE}: every setting of Postrider with its default.\n\
         # Each can be set by environment: POSTRIDER_SECTION__FIELD, e.g. POSTRIDER_SERVER__LISTEN.\n\
         # Secrets also as POSTRIDER_SECTION__FIELD_FILE: the path of a file that holds the value.\n"
    );
    for section in ALL {
        out.push('\n');
        comment(&mut out, section.about);
        let _ = writeln!(out, "[{}]", section.name);
        for field in section.fields {
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
    out.push_str(ACCOUNTS);
    out.push_str(TEMPLATES);
    classes(&mut out);
    out.push_str(CLASSIFY);
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
";

const ACCOUNTS: &str = "
# Accounts at providers, by name, for the channels that need one. All have: channel; tenant (whose it is;
# \"*\" for every tenant that has none of its own for this channel); priority (lower is used first);
# cost (decides between equals); rate_per_s (its quota; 0 for none; fcm: 8000 with a ramp of 60 s where it is
# not named), rate_burst, rate_ramp_s; and a
# credential: env:NAME, file:PATH or command:PROGRAM ARGUMENTS. When an account's credential is
# refused, its breaker opens or its quota is spent, the next one takes over.
# fcm: credential is a service account's JSON key; project, endpoint where they differ from its own.
# [accounts.firebase]
# channel = \"fcm\"
# credential = \"file:/run/secrets/firebase.json\"
# apns: credential is the signing key (.p8) of team_id and key_id, or, without those, a PEM file with
# certificate and key; topics are the bundle ids that it may send to (all if empty).
# [accounts.apple]
# channel = \"apns\"
# credential = \"file:/run/secrets/AuthKey_ABCDE12345.p8\"
# team_id = \"FGHIJ67890\"
# key_id = \"ABCDE12345\"
# topics = [\"com.example.app\"]
# email: provider is smtp (host; port; tls: implicit, starttls, opportunistic or none; user with
# credential, oauth where that is a token; ehlo; connections, mails_per_connection, final_dot_timeout_s),
# ses (region, key_id, credential, session_token, configuration_set) or sendgrid (credential). All have
# from, from_name, reply_to, return_path, unsubscribe_url and unsubscribe_mailto ({delivery} stands for
# the delivery's id), feedback_id, and dkim keys (selector, key, domain): each of them signs.
# [accounts.relay]
# channel = \"email\"
# host = \"smtp.example.com\"
# user = \"shop\"
# credential = \"file:/run/secrets/smtp\"
# from = \"news@shop.example\"
# from_name = \"The shop\"
# return_path = \"bounce+{delivery}@shop.example\"
# dkim = [{ selector = \"s1\", key = \"file:/run/secrets/dkim.pem\" }]
# sms: provider is twilio (account_sid, user where an API key is used, credential, from: a number or MG…,
# status_callback) or http, any gateway: url; format (form or json); fields with {to}, {from}, {text},
# {validity_s}, {delivery} and {secret} in them; auth (none, basic, bearer, header:NAME); id_at, code_at,
# ok_at with ok_values: JSON pointers into its answer; service: its name in [[classify]], behind sms.
# Builds with the feature smpp also have provider smpp: host, port, user (system id), credential,
# system_type, window, from.
# [accounts.twilio]
# channel = \"sms\"
# account_sid = \"AC00000000000000000000000000000000\"
# credential = \"env:TWILIO_AUTH_TOKEN\"
# from = \"+15550100\"
# [accounts.gateway]
# channel = \"sms\"
# provider = \"http\"
# priority = 1
# url = \"https://gateway.example/messages\"
# format = \"json\"
# fields = { to = \"{to}\", text = \"{text}\", ttl = \"{validity_s}\", ref = \"{delivery}\" }
# auth = \"bearer\"
# credential = \"env:GATEWAY_KEY\"
# id_at = \"/id\"
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

const CLASSIFY: &str = "
# What an answer means, where you know better than the built-in tables; your row wins. service is
# webhook, http, fcm, apns, webpush (any push service), webpush.fcm, webpush.mozilla, webpush.apple,
# webpush.wns, email.smtp (or one stage of it, e.g. email.smtp.rcpt), email.ses, email.sendgrid,
# sms.twilio, sms.NAME, chat, chat.slack, chat.discord or chat.teams; code is optional, a* matches by
# its start, *a* by a part of it; outcome is accepted, retry_backoff, retry_after, retry_tomorrow
# (midnight UTC), gone, drop_message, config, ambiguous, expired, resign_once, resign_if_stale or
# reconnect. For retry_backoff and retry_after also: scope (target, credential, host), default_s (the
# wait where the provider names none), at_least_s, and retries: so many at the most, then it was refused
# for good. strike holds the answer against the address: endpoint, mailbox, number, unreachable, blocked,
# device, key, host or failing; see [strikes].
# [[classify]]
# service = \"webhook\"
# status = 404                   # or \"500-599\"
# code = \"not_yet*\"
# outcome = \"retry_backoff\"
";

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
         # and the table retry: retries, base_ms, factor, cap_ms, kind (exponential, linear, fixed,\n\
         # schedule), jitter (none, additive, proportional, full, doubling, equal, decorrelated),\n\
         # schedule_ms.\n",
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
        let example: Vec<_> = CLASSIFY
            .lines()
            .skip_while(|line| !line.contains("[[classify]]"))
            .map(|line| line.trim_start_matches("# "))
            .collect();
        let config = Config::parse(&example.join("\n"), "test", &Environment::empty()).unwrap();
        assert_eq!(config.classify.len(), 1);
        assert_eq!(config.classify[0].service, "webhook");
    }

    #[test]
    fn the_examples_of_accounts_can_be_used_as_they_are() {
        let example: Vec<_> = ACCOUNTS
            .lines()
            .filter(|line| line.starts_with("# [") || line.contains(" = "))
            .map(|line| line.trim_start_matches("# "))
            .collect();
        let config = Config::parse(&example.join("\n"), "test", &Environment::empty()).unwrap();
        assert_eq!(config.accounts.len(), 5);
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
