//! Messages that name a template, at the intake.

use std::sync::Arc;

use postrider_channels::registry;
use postrider_core::TenantId;
use postrider_core::ports::store::Ledger as _;
use postrider_dispatch::template::{CurrentTemplates, Template, TemplateSet, TemplateSource};
use postrider_dispatch::{IntakeAnswer, IntakeRefusal, RefusalKind, Submission};
use serde_json::{Value, json};

use crate::fixture::DispatchFixture;

struct TemplateFixture {
    fixture: DispatchFixture,
    templates: Arc<CurrentTemplates>,
}

impl TemplateFixture {
    fn new() -> Self {
        let templates = Arc::new(CurrentTemplates::default());
        let mut fixture = DispatchFixture::new(vec![]);
        fixture.intake = fixture.intake.with_templates(templates.clone());
        Self { fixture, templates }
    }

    fn shelve(&self, owner: Option<&str>, title: &str) {
        let json = json!({"locales": {"en": {"title": title, "url": "https://shop.example"}}});
        let source: TemplateSource = serde_json::from_value(json).unwrap();
        let mut templates = TemplateSet::clone(&self.templates.now());
        let owner = owner.map(TenantId::new);
        templates.put(
            owner.as_ref(),
            Arc::new(Template::compile("shipped", &source, &registry::content_schema()).unwrap()),
        );
        self.templates.replace(templates);
    }

    async fn admit(&self, message: Value) -> Result<IntakeAnswer, IntakeRefusal> {
        let submission = Submission {
            body: message.to_string().into(),
            idempotency_key: None,
            traceparent: None,
        };
        self.fixture.intake.admit(&self.fixture.tenant, vec![submission]).await.pop().unwrap()
    }

    /// The stored content of what was accepted.
    async fn said(&self, message: Value) -> Value {
        let admission = self.admit(message).await;
        let Ok(IntakeAnswer { message, duplicate: false, .. }) = admission else {
            panic!("{admission:?}")
        };
        let content = self.fixture.store.content(None, message).await.unwrap().unwrap();
        serde_json::from_str(&content).unwrap()
    }
}

fn shipped(variables: Value) -> Value {
    json!({
        "to": {"address": {"channel": "webhook", "url": "https://hooks.example/a"}},
        "template": {"name": "shipped", "variables": variables},
    })
}

#[tokio::test]
async fn what_is_stored_is_plain_content_with_the_messages_own_fields_in_it() {
    let house = TemplateFixture::new();
    house.shelve(None, "OperatorOrder {{ n }}");
    let mut message = shipped(json!({"n": 91}));
    message["content"] = json!({"body": "mine", "url": "https://mine.example"});
    let said = house.said(message).await;
    assert_eq!(
        said,
        json!({"title": "OperatorOrder 91", "body": "mine", "url": "https://mine.example"})
    );
}

#[tokio::test]
async fn a_tenants_own_template_is_used_before_the_servers() {
    let house = TemplateFixture::new();
    house.shelve(None, "server");
    house.shelve(Some("other"), "other");
    assert_eq!(house.said(shipped(json!({}))).await["title"], "server");
    house.shelve(Some("acme"), "own");
    assert_eq!(house.said(shipped(json!({}))).await["title"], "own");
}

#[tokio::test]
async fn a_repeat_gets_its_first_answer_also_when_the_template_changed_or_went() {
    let house = TemplateFixture::new();
    house.shelve(None, "OperatorOrder {{ n }}");
    let keyed = |n: u32| {
        let mut message = shipped(json!({"n": n}));
        message["idempotency_key"] = json!("k");
        message
    };
    let Ok(IntakeAnswer { message, duplicate: false, .. }) = house.admit(keyed(91)).await else {
        panic!()
    };
    house.shelve(None, "Parcel {{ n }} {{ another }}");
    let same = |answer: &Result<IntakeAnswer, IntakeRefusal>| matches!(answer, Ok(IntakeAnswer { message: m, duplicate: true, .. }) if *m == message);
    assert!(same(&house.admit(keyed(91)).await), "it cannot be rendered any more");
    house.templates.replace(TemplateSet::default());
    assert!(same(&house.admit(keyed(91)).await), "the template is gone");
    house.shelve(None, "OperatorOrder {{ n }}");
    assert!(same(&house.admit(keyed(91)).await));
    assert_eq!(
        house.admit(keyed(92)).await.unwrap_err().kind,
        RefusalKind::IdempotencyConflict,
        "other variables"
    );
}

#[tokio::test]
async fn the_same_words_to_the_same_place_are_a_repeat_where_content_decides() {
    let house = TemplateFixture::new();
    house.shelve(None, "OperatorOrder {{ n }}");
    let by_content = |n: u32| {
        let mut message = shipped(json!({"n": n}));
        message["dedupe"] = json!("content");
        message
    };
    assert!(matches!(house.admit(by_content(1)).await, Ok(IntakeAnswer { duplicate: false, .. })));
    assert!(matches!(house.admit(by_content(2)).await, Ok(IntakeAnswer { duplicate: false, .. })));
    assert!(matches!(house.admit(by_content(1)).await, Ok(IntakeAnswer { duplicate: true, .. })));
}

#[tokio::test]
async fn what_cannot_be_rendered_is_refused_with_field_and_reason() {
    let house = TemplateFixture::new();
    house.shelve(None, "OperatorOrder {{ n }} for {{ name }}");
    let refused = async |template: Value| {
        let mut message = shipped(json!({}));
        message["template"] = template;
        let refusal = house.admit(message).await.unwrap_err();
        let fields: Vec<_> = refusal.errors.iter().map(|e| e.field.clone()).collect();
        (refusal.kind, fields.join(" "))
    };
    let wrong = |kind, fields: &str| (kind, fields.to_owned());
    for (template, answer) in [
        (
            json!({"name": "shipped"}),
            wrong(RefusalKind::Template, "template.variables.n template.variables.name"),
        ),
        (json!({"name": "lost"}), wrong(RefusalKind::Template, "template.name")),
        (
            json!({"name": "shipped", "variables": [1]}),
            wrong(RefusalKind::Template, "template.variables"),
        ),
        (
            json!({"name": "shipped", "variables": {"n": "x".repeat(70_000)}}),
            wrong(RefusalKind::Template, "template.variables"),
        ),
        (
            json!({"name": "shipped", "locale": "?", "variables": {"n": 1, "name": "x"}}),
            wrong(RefusalKind::Template, "template.locale"),
        ),
        (
            json!({"name": "shipped", "vars": {}}),
            wrong(RefusalKind::InvalidMessage, "template.vars"),
        ),
        (json!("shipped"), wrong(RefusalKind::InvalidMessage, "template")),
    ] {
        assert_eq!(refused(template.clone()).await, answer, "{template:.60}");
    }
}
