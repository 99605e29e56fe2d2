//! Every parser of foreign input is called with changed inputs for a while: none may panic or take very long.
//! `cargo xtask prove fuzz` gives each a minute. Inputs that once failed are in `tests/corpus`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::config::{Config, Environment};
use postrider_channels::ip_network::IpNetwork;
use postrider_channels::pool::{EgressRule, Nat64Prefix, Origin};
use postrider_channels::registry;
use postrider_channels::webhook::WebhookSecret;
use postrider_channels::webpush::VapidKey;
use postrider_core::model::content::Content;
use postrider_core::policy::classify::classify;
use postrider_core::policy::retry_after;
use postrider_core::{DeliveryId, KeyId, MessageId, Target, TenantId, Timestamp};
use postrider_dispatch::template::{Template, TemplateCall, TemplateSource};
use postrider_testkit::fuzz::fuzz;
use postrider_testkit::server::ServerFixture;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn texts(target: &str, seeds: &[&str], parse: impl Fn(&str)) {
    let seeds: Vec<_> = seeds.iter().map(|seed| seed.as_bytes()).collect();
    fuzz(target, &corpus(), &seeds, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            parse(text);
        }
    });
}

#[test]
fn no_retry_after_breaks_its_parser() {
    let seeds =
        ["120", "Wed, 21 Oct 2026 07:28:00 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "-1", "1e3"];
    texts("retry_after", &seeds, |text| {
        let now = Timestamp(1_790_000_000_000);
        let _ = retry_after::parse(text, now);
        let _ = retry_after::date(text, now);
    });
}

#[test]
fn no_content_or_stored_address_breaks_its_parser() {
    let seeds = [
        r#"{"title":"Hello","body":"World","url":"https://example.com","data":{"a":[1,2.5,null]}}"#,
        r#"{"webhook":{"payload":{"x":1}},"email":{"subject":"s","html":"<b>x</b>"}}"#,
        r#"{"channel":"webhook","url":"https://example.com/hook"}"#,
    ];
    let schema = registry::content_schema();
    texts("content", &seeds, |text| {
        let _ = Content::parse(text);
        let _ = schema.read(text);
        let _ = Target::from_stored(text);
    });
}

#[test]
fn no_template_breaks_the_compiler() {
    let seeds = [
        r#"{"locales":{"en":{"title":"Hello {{ name }}","body":"{% if a == 1 %}x{% endif %}"}}}"#,
        r#"{"locales":{"de":{"body":"{% for x in list %}{{ x|upper }}{% endfor %}"}}}"#,
    ];
    let schema = registry::content_schema();
    texts("template", &seeds, |text| {
        if let Ok(source) = serde_json::from_str::<TemplateSource>(text) {
            let _ = Template::compile("fuzz", &source, &schema);
        }
    });
}

/// What a rendering may take, as in the server.
const RENDERING: Duration = Duration::from_millis(100);
/// What it and a preview may last, because no single step is interrupted.
const RENDERINGS_MAX: Duration = Duration::from_secs(1);

/// The template and the variables of a message: both are written by the caller.
#[test]
fn no_template_breaks_or_holds_up_the_renderer() {
    let seeds = [
        r#"{"t":{"locales":{"en":{"title":"Hello {{ name }}","body":"{% if a == 1 %}x{% endif %}"}}},"v":{"name":"Ada","a":1}}"#,
        r#"{"t":{"locales":{"de":{"body":"{% for x in l %}{{ x|upper }}{{ loop.index }}{% endfor %}"}}},"v":{"l":["a","ß",null,1.5]}}"#,
        r#"{"t":{"strict":false,"locales":{"en":{"body":"{{ a.b.c[0]|join(',')|replace('a','bb')|length }}"}}},"v":{"a":{"b":{"c":[["a","b"]]}}}}"#,
        r#"{"t":{"locales":{"en":{"data":{"x":"{{ n * n }}{{ n ~ n }}{{ l|sort|reverse|first }}"}}}},"v":{"n":9007199254740993,"l":[3,1,2]}}"#,
        r#"{"t":{"locales":{"en":{"body":"{% for a in l %}{% for b in l %}{% if a == b or a in l %}{{ a }}{% endif %}{% endfor %}{% endfor %}"}}},"v":{"l":[[1,2],[1,2],[3]]}}"#,
        r#"{"t":{"locales":{"en":{"body":"{% set x = n|default('y') %}{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x) }}{{ range(9)|list }}"}}},"v":{"n":null}}"#,
    ];
    // Two equal lists of pairs that are compared in a loop: few steps, and much work.
    let pairs: Vec<_> = (0..2_000).map(|n| [n, 1]).collect();
    let text = "{% for i in l %}{% if a == b %}{% endif %}{% endfor %}";
    let costly = serde_json::json!({"t": {"locales": {"en": {"body": text}}},
        "v": {"a": pairs, "b": pairs, "l": vec![0; 1_500]}});
    let costly = costly.to_string();
    let seeds: Vec<&str> = seeds.into_iter().chain([costly.as_str()]).collect();
    #[derive(serde::Deserialize)]
    struct FuzzedRendering {
        t: TemplateSource,
        v: serde_json::Map<String, serde_json::Value>,
    }
    let schema = registry::content_schema();
    let time_of = |t: &TemplateSource, v: &serde_json::Map<String, serde_json::Value>| {
        let Ok(template) = Template::compile("fuzz", t, &schema) else { return Duration::ZERO };
        let begin = Instant::now();
        let (deadline, content) = (Some(begin + RENDERING), "{}");
        let call = TemplateCall { locale: None, variables: v, content, deadline };
        if let Ok(content) = template.render(&call) {
            Content::parse(&content).expect("a rendering is a JSON object");
        }
        drop(template.preview(t, &schema, &call));
        begin.elapsed()
    };
    texts("render", &seeds, |text| {
        let Ok(FuzzedRendering { t, v }) = serde_json::from_str(text) else { return };
        // A busy machine may hold up one try, hardly three.
        let is_slow = (0..3).all(|_| time_of(&t, &v) > RENDERINGS_MAX);
        assert!(!is_slow, "a rendering goes on after its deadline");
    });
}

#[test]
fn no_configuration_breaks_its_reader() {
    let seeds = [
        "[server]\nlisten = \"127.0.0.1:1\"\n[network]\nallow = [\"* 443\"]\n",
        "[classes.otp]\nttl_s = 60\n[tenants.acme]\nweight = 2\n[log]\nlevel = \"debug\"\n",
        "[[classify]]\nservice = \"webhook\"\nstatus = 404\noutcome = \"gone\"\n",
        "[http]\ncredentials = [\"env:A https://a.example *\"]\nsecret_names = [\"x-*\"]\n",
        "[accounts.a]\nchannel = \"sms\"\ntenant = \"*\"\naccount_sid = \"AC1\"\nfrom = \"+1\"\n\
         credential = \"env:A\"\n",
        "[alerts.routes.a]\nkind = \"webhook\"\nurl = \"https://a.example/\"\n",
    ];
    for seed in seeds {
        Config::parse(seed, "seed", &Environment::empty()).unwrap();
    }
    texts("config", &seeds, |text| {
        let _ = Config::parse(text, "fuzz", &Environment::empty());
    });
}

#[test]
fn no_id_or_cursor_breaks_its_parser() {
    let id = DeliveryId(1 << 100).to_string();
    let seeds = [id.as_str(), "msg_01", "key_", "dlv_zzzzzzzzzzzzzzzzzzzzzzzzzz"];
    texts("cursor", &seeds, |text| {
        drop(postrider::api::read_cursor(text));
        let _ = text.parse::<DeliveryId>();
        let _ = text.parse::<MessageId>();
        let _ = text.parse::<KeyId>();
    });
}

#[test]
fn no_key_or_secret_breaks_its_parser() {
    let seeds =
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"];
    texts("key", &seeds, |text| {
        let _ = WebhookSecret::parse(text);
        let _ = VapidKey::from_raw_private(KeyId(1), text);
        let _ = postrider_store::sealed::MasterKey::parse(text);
    });
}

#[test]
fn no_url_network_or_rule_breaks_its_parser() {
    let seeds = [
        "https://user@[::1]:8443/a?b#c",
        "http://127.1/",
        "10.0.0.0/8",
        "* 8000-8999",
        "64:ff9b::/96",
    ];
    texts("url", &seeds, |text| {
        let _ = Origin::parse(text);
        let _ = text.parse::<IpNetwork>();
        let _ = text.parse::<EgressRule>();
        let _ = text.parse::<Nat64Prefix>();
    });
}

/// A whole message, as the intake reads it: JSON, address of each channel, content.
#[test]
fn no_message_breaks_the_intake() {
    let seeds = [
        r#"{"to":{"address":{"channel":"webhook","url":"https://example.com/hook"}},"content":{"title":"x"}}"#,
        r#"{"to":{"address":{"channel":"email","email":"a@example.com"}},"content":{"title":"x"},"ttl_s":60}"#,
        r#"{"to":{"address":{"channel":"sms","phone":"+15550100"}},"content":{"body":"x"},"tags":["a"]}"#,
        r#"{"to":{"recipients":["a","b"]},"content":{},"send_at":"2027-01-01T00:00:00Z","class":"otp"}"#,
        r#"{"to":{"address":{"channel":"webpush","endpoint":"https://p.example/x","keys":{"p256dh":"BA","auth":"AA"}}},"content":{}}"#,
    ];
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let server = runtime.block_on(ServerFixture::start());
    let intake = server.running.app.intake.clone();
    texts("message", &seeds, |text| {
        let submission = postrider_dispatch::Submission {
            body: text.to_owned().into(),
            idempotency_key: None,
            traceparent: None,
        };
        let tenant = TenantId::new("default");
        drop(runtime.block_on(intake.check_address(&tenant, text.as_bytes())));
        drop(runtime.block_on(intake.admit(&tenant, vec![submission])));
    });
}

/// The bodies of providers' answers, in all tables.
#[test]
fn no_answer_of_a_provider_breaks_the_tables() {
    let table = Arc::new(postrider_channels::answers::built_in());
    let seeds = [
        r#"{"error":{"code":404,"status":"NOT_FOUND","details":[{"errorCode":"UNREGISTERED"}]}}"#,
        r#"{"reason":"BadDeviceToken","timestamp":1790000000000}"#,
        "550 5.1.1 User unknown",
        "rate limited",
    ];
    let services = postrider_channels::answers::services();
    texts("answer", &seeds, |text| {
        for service in &services {
            for status in [200u16, 400, 404, 410, 429, 500, 503] {
                let answer = postrider_core::policy::classify::ProviderAnswer {
                    service,
                    status,
                    code: Some(text),
                    retry_after: Some(text),
                    ..Default::default()
                };
                let _ = classify(&table, &answer, Timestamp(1_790_000_000_000));
            }
        }
    });
}
