//! Measures what a template costs at the intake, over the store in memory:
//! `cargo run --release -p postrider-dispatch --example template_bench`. Nothing is timed by the tests.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::sync::Arc;
use std::time::Instant;

use postrider_channels::NetworkPolicy;
use postrider_channels::email::EmailIntake;
use postrider_channels::http::{EnvAndFiles, HttpIntake, SecretNames};
use postrider_channels::webhook::WebhookIntake;
use postrider_channels::webpush::WebpushIntake;
use postrider_core::{Class, TenantId};
use postrider_dispatch::template::{CurrentTemplates, Template, TemplateSet, TemplateSource};
use postrider_dispatch::{DispatchLimits, MessageIntake, Policies, Policy, Submission};
use postrider_store::{MemoryStore, SystemClock};

const BATCHES: usize = 200;
const BATCH: usize = 500;

const TO: &str = r#""to":{"address":{"channel":"webhook","url":"https://hooks.example/a"}}"#;
const PLAIN: &str = r#""content":{"title":"OperatorOrder 91 shipped","body":"Hello Ada, your order 91 is on its way to you.","url":"https://shop.example/orders/91"}"#;
const SHORT: &str = r#""template":{"name":"short","variables":{"n":91,"name":"Ada"}}"#;
const MAIL: &str = r#""template":{"name":"mail","locale":"de-AT","variables":{"name":"Ada","order":{"number":91,"items":[{"name":"pen","n":1},{"name":"ink","n":2},{"name":"cap","n":3}]}}}"#;

const TEMPLATES: [(&str, &str); 2] = [
    (
        "short",
        r#"{"locales":{"en":{"title":"OperatorOrder {{ n }} shipped","body":"Hello {{ name }}, your order {{ n }} is on its way to you.","url":"https://shop.example/orders/{{ n }}"}}}"#,
    ),
    (
        "mail",
        r#"{"default_locale":"en","locales":{"en":{"title":"x"},"de":{"title":"Bestellung {{ order.number }}","body":"Hallo {{ name }}","email":{"subject":"{{ order.number }} für {{ name | upper }}","html":"<h1>Hallo {{ name }}</h1><ul>{% for item in order.items %}<li>{{ loop.index }}. {{ item.name | title }}, {{ item.n }}</li>{% endfor %}</ul>"}}}}"#,
    ),
];

fn intake() -> MessageIntake {
    let clock = Arc::new(SystemClock);
    let mut templates = TemplateSet::default();
    for (name, json) in TEMPLATES {
        let source: TemplateSource = serde_json::from_str(json).unwrap();
        templates.put(
            None,
            Arc::new(
                Template::compile(name, &source, &postrider_channels::registry::content_schema())
                    .unwrap(),
            ),
        );
    }
    let current = CurrentTemplates::default();
    current.replace(templates);
    let policies = Policies::new(Policy::new(Class::built_in(), DispatchLimits::default()));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let policy = NetworkPolicy::default();
    MessageIntake::new(
        store,
        vec![
            Arc::new(WebpushIntake { policy, receipts: None }),
            Arc::new(WebhookIntake { policy }),
            Arc::new(HttpIntake {
                policy,
                credentials: Arc::new(EnvAndFiles::default()),
                names: SecretNames::default(),
            }),
            Arc::new(EmailIntake { policy, serves: Arc::new(|_| true), international: false }),
        ],
        policies,
        &[b"hash key".to_vec()],
    )
    .with_templates(Arc::new(current))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let tenant = TenantId::new("bench");
    for (what, words) in [
        ("plain content", PLAIN),
        ("a template of three texts", SHORT),
        ("a mail with a loop, four texts", MAIL),
        ("plain content again", PLAIN),
    ] {
        let intake = intake();
        let body = format!("{{{TO},{words}}}");
        let started = Instant::now();
        for _ in 0..BATCHES {
            let submission = || Submission {
                body: body.clone().into(),
                idempotency_key: None,
                traceparent: None,
            };
            let batch = (0..BATCH).map(|_| submission()).collect();
            let answers = intake.admit(&tenant, batch).await;
            assert!(answers.iter().all(Result::is_ok), "{:?}", answers[0]);
        }
        let each = started.elapsed().as_secs_f64() * 1e6 / (BATCHES * BATCH) as f64;
        println!("{what:<32} {each:>6.2} µs per message at the intake");
    }
}
