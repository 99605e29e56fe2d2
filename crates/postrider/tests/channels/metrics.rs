//! The metrics of a server that sent, retried and gave up: `promtool` finds nothing wrong with a scrape, and the alert
//! rules and dashboards of `deploy/` use no metric that the server does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use postrider_sandbox::ReceiverRequest;
use postrider_testkit::foreign;
use serde_json::{Value, json};

use super::fixture::{ChannelsFixture, state};

/// Metrics that a rule or a dashboard uses and that a healthy server does not show: they appear with what they count.
const ONLY_WITH_TROUBLE: [&str; 9] = [
    "postrider_alerts_total",
    "postrider_api_calls_limited_total",
    "postrider_credential_expiry_seconds",
    "postrider_lane_pace_per_second",
    "postrider_problems_opened_total",
    "postrider_refused_total",
    "postrider_shortages_total",
    "postrider_store_errors_total",
    "postrider_store_problems",
];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

/// Needs no network if it is installed already.
fn promtool() -> Command {
    let mut version = Command::new("promtool");
    version.arg("--version");
    foreign::run_after(&["install", "-y", "--no-install-recommends", "prometheus"], version);
    Command::new("promtool")
}

#[test]
fn promtool_accepts_the_scrape_and_every_metric_of_rules_and_dashboards_exists() {
    let fixture = ChannelsFixture::with_settings("\n[http]\nrate_per_address_s = 2\n");
    send_everywhere(&fixture);
    leave_one_waiting(&fixture);
    let scrape = complete_scrape(&fixture);
    check_metrics(&scrape);

    let samples = samples(&scrape);
    let used = used_metrics();
    assert!(used.len() > 30, "{used:?}");
    let known = documented();
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "docs/metrics.md does not have {unknown:?}");
    let exists = |name: &str| samples.contains_key(name);
    let missing: Vec<_> = used
        .iter()
        .filter(|name| !exists(name) && !ONLY_WITH_TROUBLE.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "the server does not show {missing:?} in\n{scrape}");

    let of = |name: &str, labels: &[&str]| -> f64 {
        let all = samples.get(name).unwrap_or_else(|| panic!("no {name} in\n{scrape}"));
        let wanted = |(text, _): &&(String, f64)| labels.iter().all(|label| text.contains(label));
        all.iter().filter(wanted).map(|(_, value)| value).sum()
    };
    assert_eq!(of("postrider_retries_total", &["outcome=\"accepted\""]), 1.0);
    assert_eq!(of("postrider_retries_total", &["outcome=\"retry_backoff\""]), 1.0);
    assert_eq!(of("postrider_dead_lettered_total", &["outcome=\"retries_exhausted\""]), 1.0);
    assert_eq!(of("postrider_dead_letters", &["outcome=\"retries_exhausted\""]), 1.0);
    assert_eq!(of("postrider_dead_lettered_total", &["outcome=\"permanent\""]), 1.0);
    assert_eq!(of("postrider_lane_waits_total", &["outcome=\"tenant_paused\""]), 1.0);
    assert_eq!(of("postrider_put_off_total", &["channel=\"http\"", "\"address_rate\""]), 2.0);
    assert_eq!(of("postrider_provider_pending_deliveries", &["channel=\"webhook\""]), 1.0);
    assert!(of("postrider_account_connections", &["channel=\"email\""]) >= 1.0, "SMTP counts");
    assert_eq!(of("postrider_account_sent_total", &["channel=\"email\""]), 1.0);
    assert_eq!(of("postrider_in_flight", &[]), 0.0);
    assert!(of("postrider_provider_in_flight_limit", &["channel=\"email\""]) >= 1.0);
    let first_calls = of("postrider_first_call_seconds", &["_count"]);
    let finished = of("postrider_finished_total", &[]);
    assert_eq!(first_calls, finished, "each delivery has one first call");
    assert!(of("postrider_settle_duration_seconds", &["_count"]) >= 1.0);
}

#[test]
fn promtool_accepts_the_alert_rules_and_every_rule_is_tested() {
    let (rules, tests) = (deploy("prometheus/alerts.yml"), deploy("prometheus/alerts.test.yml"));
    foreign::run(promtool().args(["check", "rules"]).arg(&rules));
    foreign::run(promtool().args(["test", "rules"]).arg(&tests));
    let (rules, tests) = (fs::read_to_string(rules).unwrap(), fs::read_to_string(tests).unwrap());
    let named = |line: &str| line.trim().strip_prefix("- alert: ").map(str::to_owned);
    let names: Vec<String> = rules.lines().filter_map(named).collect();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let test = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tests.contains(&test), "no test in which {name} fires");
    }
}

/// One message that arrives per channel, one that arrives by a retry, one that uses up its retries, and one that is
/// refused for good.
fn send_everywhere(fixture: &ChannelsFixture) {
    let samples = fixture.samples(|_| ReceiverRequest::default());
    for sample in &samples {
        send(fixture, &sample.receiver.address, "sent");
    }
    let http = samples.iter().find(|sample| sample.channel == "http").unwrap();
    let url = http.receiver.address["url"].as_str().unwrap();
    let (base, _) = url.rsplit_once('/').unwrap();
    for (name, script, wanted) in [
        ("later", json!(["503", "200"]), "sent"),
        ("never", json!(["503"]), "failed"),
        ("refusing", json!(["400"]), "failed"),
    ] {
        fixture.sandbox("PUT", &format!("/sandbox/http/{name}"), &json!({"script": script}));
        send(fixture, &json!({"channel": "http", "url": format!("{base}/{name}")}), wanted);
    }
}

fn send(fixture: &ChannelsFixture, address: &Value, wanted: &str) {
    let message = json!({
        "to": {"address": address},
        "ttl_s": 600,
        "retry": {"retries": 1, "base_ms": 1, "cap_ms": 1, "jitter": "none"},
        "content": {"title": "Shipped", "body": "Order 91"},
    });
    fixture.once(&fixture.send(&message), |delivery| state(delivery) == wanted);
}

/// One message whose lane an operator paused.
fn leave_one_waiting(fixture: &ChannelsFixture) {
    fixture.api("POST", "/v1/tenants/default/pause", &json!({"reason": "a test"}));
    let samples = fixture.samples(|_| ReceiverRequest::default());
    let webhook = samples.iter().find(|sample| sample.channel == "webhook").unwrap();
    fixture.send(&json!({
        "to": {"address": webhook.receiver.address},
        "ttl_s": 600,
        "content": {"title": "Shipped", "body": "Order 92"},
    }));
}

/// A scrape after everything that was sent is counted.
fn complete_scrape(fixture: &ChannelsFixture) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = fixture.try_api("GET", "/metrics", &Value::Null);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let is_idle = answer.body.contains("\npostrider_unsettled_deliveries 0\n");
        let has_problems = answer.body.contains("\npostrider_problems_open{");
        let has_credentials = answer.body.contains("\npostrider_credential_usable{");
        let has_waited = answer.body.contains("\npostrider_lane_waits_total{");
        if is_idle && has_problems && has_credentials && has_waited {
            return answer.body;
        }
        assert!(Instant::now() < deadline, "not within 30 s:\n{}", answer.body);
        std::thread::yield_now();
    }
}

fn check_metrics(scrape: &str) {
    let mut check = promtool();
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut check = check.stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(scrape.as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(done.status.success() && said.is_empty(), "{said}\n{scrape}");
}

/// The samples of each metric, with all that stands before the value. Those of a histogram are under its own name.
fn samples(scrape: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut kinds = BTreeMap::new();
    let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in scrape.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            kinds.extend(typed.split_once(' '));
        } else if !line.starts_with('#') {
            let (text, value) = line.rsplit_once(' ').unwrap();
            let name = text.split('{').next().unwrap_or(text);
            let own = base_name(name);
            let name = if kinds.get(own) == Some(&"histogram") { own } else { name };
            let sample = (text.to_owned(), value.parse().unwrap());
            samples.entry(name.to_owned()).or_default().push(sample);
        }
    }
    samples
}

fn base_name(name: &str) -> &str {
    let ends = ["_bucket", "_count", "_sum"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// The metrics that the alert rules and the dashboards name.
fn used_metrics() -> BTreeSet<String> {
    let mut texts = vec![fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap()];
    for file in fs::read_dir(deploy("grafana")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        collect_expressions(&dashboard, &mut texts);
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = texts.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let own = words.filter(|word| word.starts_with("postrider_"));
    own.map(|name| base_name(name).to_owned()).collect()
}

fn collect_expressions(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_expressions(item, into)),
        Value::Object(fields) => {
            let named = ["expr", "definition"].iter().filter_map(|name| fields.get(*name));
            into.extend(named.filter_map(Value::as_str).map(str::to_owned));
            fields.values().for_each(|item| collect_expressions(item, into));
        }
        _ => {}
    }
}

/// The metrics of the tables in docs/metrics.md. A test of the telemetry compares them with the code.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `postrider_"));
    rows.filter_map(|row| Some(format!("postrider_{}", row.split_once('`')?.0))).collect()
}
