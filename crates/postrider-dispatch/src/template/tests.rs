//! What templates promise, without a server.

use postrider_channels::registry::content_schema;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn source(json: Value) -> TemplateSource {
    serde_json::from_value(json).unwrap()
}

/// A template in one language.
fn english(content: Value) -> TemplateSource {
    source(json!({"locales": {"en": content}}))
}

fn compile(source: &TemplateSource) -> Template {
    Template::compile("shipped", source, &content_schema()).unwrap()
}

fn refused(content: Value) -> FieldError {
    let mut errors =
        Template::compile("shipped", &english(content), &content_schema()).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

fn render(template: &Template, variables: Value, own: &str) -> Result<Value, Vec<FieldError>> {
    let variables = variables.as_object().unwrap();
    let call = TemplateCall { locale: None, variables, content: own, deadline: None };
    match template.render(&call) {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap()),
        Err(TemplateFailure::Invalid(errors)) => Err(errors),
        Err(TemplateFailure::Late) => panic!("late without a deadline"),
    }
}

fn rendered(content: Value, variables: Value) -> Value {
    render(&compile(&english(content)), variables, "{}").unwrap()
}

fn title(text: &str, variables: Value) -> String {
    rendered(json!({ "title": text }), variables)["title"].as_str().unwrap().to_owned()
}

#[test]
fn every_string_is_filled_in_also_inside_of_payloads_and_keys_are_not() {
    let content = json!({
        "title": "Hi {{ name }}",
        "data": {"{{ name }}": "{{ order.number }}", "n": 5, "list": ["{{ name }}", true, null]},
        "webhook": {"payload": "{\"who\": {{ name | tojson }}}\n"},
    });
    let made = rendered(content, json!({"name": "A\"da", "order": {"number": 91}}));
    assert_eq!(
        made,
        json!({
            "title": "Hi A\"da",
            "data": {"{{ name }}": "91", "n": 5, "list": ["A\"da", true, null]},
            "webhook": {"payload": "{\"who\": \"A\\\"da\"}\n"},
        })
    );
}

#[test]
fn only_html_is_escaped() {
    let content = json!({
        "body": "{{ name }}",
        "email": {"html": "<p>{{ name }} {{ trusted | safe }} {{ url }}</p>", "text": "{{ name }}"},
    });
    let made = rendered(
        content,
        json!({"name": "<b>&\"'", "trusted": "<i>", "url": "https://a.example/"}),
    );
    assert_eq!(made["email"]["html"], "<p>&lt;b&gt;&amp;&quot;&#39; <i> https://a.example/</p>");
    assert_eq!((&made["body"], &made["email"]["text"]), (&json!("<b>&\"'"), &json!("<b>&\"'")));
}

#[test]
fn conditions_loops_and_filters_work() {
    let text = "{% for item in items if item.n > 0 %}{{ loop.index }}. {{ item.name | upper }}\
                {% if not loop.last %}, {% endif %}{% else %}nothing{% endfor %}";
    let items = json!({"items": [{"name": "pen", "n": 1}, {"name": "ink", "n": 0}, {"name": "cap", "n": 2}]});
    assert_eq!(title(text, items), "1. PEN, 2. CAP");
    assert_eq!(title(text, json!({"items": []})), "nothing");
    assert_eq!(
        title("{{ items | map(attribute='n') | sum }}", json!({"items": [{"n": 2}, {"n": 3}]})),
        "5"
    );
    assert_eq!(title("{{ text | truncate(6) }}", json!({"text": "naïve words"})), "naïve…");
    assert_eq!(
        title("{% set n = count + 1 %}{{ n }} of {{ -3 | abs }}", json!({"count": 1})),
        "2 of 3"
    );
    assert_eq!(title("{{ 'yes' if tag in ['a', 'b'] else 'no' }}", json!({"tag": "b"})), "yes");
}

#[test]
fn a_strict_template_names_every_missing_variable_and_where_it_is_used() {
    let template = compile(&english(json!({
        "title": "{{ order.number }} for {{ name }}",
        "email": {"html": "{{ name }}{% for i in items %}{{ i }}{% endfor %}", "text": "{{ order.sum }}"},
        "body": "{{ gift | default('-') }}{% if note is defined %}{{ note }}{% endif %}",
    })));
    let errors = render(&template, json!({"order": {"sum": null}}), "{}").unwrap_err();
    let told: Vec<_> = errors.iter().map(|e| (e.field.as_str(), e.allowed.as_str())).collect();
    let uses = |fields: &str| {
        format!("a value: the template shipped (en) uses it in {fields}, without a default")
    };
    assert_eq!(
        told,
        [
            ("template.variables.name", &*uses("email.html, title")),
            ("template.variables.items", &*uses("email.html")),
            ("template.variables.order.sum", &*uses("email.text")),
            ("template.variables.order.number", &*uses("title")),
        ]
    );
    assert!(errors.iter().all(|e| e.found == "nothing"));
}

#[test]
fn without_strictness_nothing_stands_where_something_is_missing() {
    let lenient =
        source(json!({"strict": false, "locales": {"en": {"title": "a{{ x }}{{ y.z.w }}b"}}}));
    let template = compile(&lenient);
    assert_eq!(render(&template, json!({}), "{}").unwrap()["title"], "ab");
    let variables = Map::new();
    let call = TemplateCall { locale: None, variables: &variables, content: "{}", deadline: None };
    let preview = template.preview(&lenient, &content_schema(), &call).unwrap();
    let missing: Vec<_> = preview.missing.iter().map(|m| &*m.variable).collect();
    assert_eq!(missing, ["x", "y.z.w"], "told all the same");
    assert!(preview.errors.is_empty());
}

#[test]
fn own_fields_win_and_what_they_replace_needs_no_variables() {
    let template = compile(&english(json!({
        "title": "{{ a }}", "data": {"x": 1, "y": 2},
        "email": {"subject": "{{ b }}", "html": "{{ c }}"},
    })));
    let own = r#"{"title":"mine","data":{"z":[1,  2]},"email":{"subject":"S"},"sms":{"text":"T"}}"#;
    assert_eq!(
        render(&template, json!({"c": "C"}), own).unwrap(),
        json!({
            "title": "mine", "data": {"z": [1, 2]},
            "email": {"subject": "S", "html": "C"}, "sms": {"text": "T"},
        })
    );
}

#[test]
fn the_next_best_locale_is_used() {
    let template = compile(&source(json!({
        "default_locale": "en",
        "locales": {
            "en": {"title": "en"}, "de": {"title": "de"}, "de-AT": {"title": "at"},
            "zh_Hant": {"title": "hant"}, "pt-BR": {"title": "br"},
        },
    })));
    let variables = Map::new();
    for (wished, used) in [
        (None, "en"),
        (Some("de-AT"), "at"),
        (Some("DE_at"), "at"),
        (Some("de-CH"), "de"),
        (Some("de-DE-1996"), "de"),
        (Some("zh-hant-TW"), "hant"),
        (Some("zh"), "en"),
        (Some("pt"), "en"),
        (Some("fr"), "en"),
    ] {
        let call =
            TemplateCall { locale: wished, variables: &variables, content: "{}", deadline: None };
        let made: Value = serde_json::from_str(&template.render(&call).unwrap()).unwrap();
        assert_eq!(made["title"], used, "{wished:?}");
    }
    assert_eq!(template.locales(), ["en", "de", "de-AT", "pt-BR", "zh_Hant"]);
    let call = TemplateCall {
        locale: Some("de/.."),
        variables: &variables,
        content: "{}",
        deadline: None,
    };
    let failure = template.render(&call).unwrap_err();
    let wrong = FieldError::new("template.locale", "de/..", locale::ALLOWED);
    assert_eq!(failure, TemplateFailure::Invalid(vec![wrong]));
}

#[test]
fn what_cannot_be_rendered_is_refused_when_it_is_saved_with_field_and_line() {
    for (text, found) in [
        ("ok\n{{ name", "line 2: "),
        ("{% if x %}", "line 1: "),
        ("{{ name | shout }}", "line 1: the filter shout"),
        ("{{ 1 if x is shiny }}", "line 1: the test shiny"),
        ("{{ range(3) }}", "line 1: a call"),
        ("\n\n{{ name.upper() }}", "line 3: a call"),
        ("{% include 'x' %}", "line 1: "),
        ("{% macro x() %}{% endmacro %}", "line 1: "),
        ("{% set x %}a{% endset %}", "line 1: set without ="),
        ("{% filter upper %}a{% endfilter %}", "line 1: filter as a block"),
        ("{% autoescape false %}{% endautoescape %}", "line 1: autoescape"),
        ("{{ a ~ b }}", "line 1: ~"),
        ("{{ a + b }}", "line 1: +"),
        ("{{ 'a' * 100000000 }}", "line 1: *"),
        ("{% for x in [[a, a]] %}{% endfor %}", "line 1: a list"),
        ("{% for x in (a, a) %}{% endfor %}", "line 1: a list"),
        ("{{ x[::-1] }}", "line 1: a slice with a step"),
        ("{% for x in y recursive %}{% endfor %}", "line 1: for … recursive"),
    ] {
        let error = refused(json!({"email": {"html": text}}));
        assert_eq!(error.field, "locales.en.email.html", "{text}");
        assert!(error.found.starts_with(found), "{text}: {error:?}");
        assert!(!error.allowed.is_empty());
    }
}

#[test]
fn what_is_no_template_is_refused_with_its_field() {
    let errors =
        |json: Value| Template::compile("shipped", &source(json), &content_schema()).unwrap_err();
    let field = |json: Value| errors(json).remove(0).field;
    assert_eq!(field(json!({"locales": {}})), "locales");
    assert_eq!(field(json!({"locales": {"en": {"titel": "x"}}})), "locales.en.titel");
    assert_eq!(field(json!({"locales": {"en": {"title": 5}}})), "locales.en.title");
    assert_eq!(field(json!({"locales": {"in english": {}}})), "locales.in english");
    assert_eq!(field(json!({"locales": {"en": {}, "de": {}}})), "default_locale");
    assert_eq!(field(json!({"default_locale": "fr", "locales": {"en": {}}})), "default_locale");
    let twice = json!({"default_locale": "de", "locales": {"de_AT": {}, "de-at": {}, "de": {}}});
    assert_eq!(errors(twice)[0].found, "the same locale twice");
    let large = json!({"locales": {"en": {"title": "x".repeat(SOURCE_MAX)}}});
    assert_eq!(field(large), "locales");
    for name in ["", "..", "a/b", "preview", &"x".repeat(65)] {
        assert!(check_name(name).is_err(), "{name}");
    }
}

#[test]
fn a_template_cannot_hang_or_bloat_the_gate() {
    let list: Vec<u32> = (0..2_000).collect();
    let many: Map<String, Value> = (0..100).map(|n| (n.to_string(), json!(n))).collect();
    let variables = json!({"l": list, "s": "x".repeat(30_000), "m": many});
    let grow = "{{ s | replace('x', s) | length }}";
    let loops = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}";
    let wide = format!("{{% for a in l %}}{}{{% endfor %}}", "y".repeat(10_000));
    let often = "{% for a in l %}{{ s | upper | length }}{% endfor %}";
    let joined = "{{ l | join(s) | length }}";
    let spaced = "{{ l | tojson(indent=60000) | length }}";
    let named = "{{ l | join(d=s) | length }}";
    let lazy = "{{ m | items | join(s) | length }}";
    let listed = "{{ l | replace(',', s) | length }}";
    for text in [grow, loops, &wide, often, joined, named, lazy, listed, spaced] {
        let template = compile(&english(json!({ "title": text })));
        let errors = render(&template, variables.clone(), "{}").unwrap_err();
        assert_eq!(errors[0].field, "template", "{text:.40}");
        assert!(errors[0].found.starts_with("shipped (en), title"), "{:?}", errors[0]);
    }
}

/// A text that touches four items per step of a pair: few steps, no filter, no long text.
fn pairs_compared(pairs: usize, times: usize) -> (Template, Value) {
    let list: Vec<_> = (0..pairs).map(|n| json!([n, 1])).collect();
    let text = "{% for i in l %}{% if a == b %}{% endif %}{% endfor %}";
    let template = compile(&english(json!({ "title": text })));
    (template, json!({"a": list, "b": list, "l": vec![0; times]}))
}

#[test]
fn items_are_counted_also_where_steps_and_bytes_are_few() {
    let (template, variables) = pairs_compared(300, 10);
    render(&template, variables, "{}").unwrap();
    let (template, variables) = pairs_compared(300, 500);
    let errors = render(&template, variables, "{}").unwrap_err();
    assert!(errors[0].found.contains("too much work"), "{errors:?}");
}

#[test]
fn a_rendering_ends_at_its_deadline() {
    let (template, variables) = pairs_compared(300, 10);
    let Value::Object(variables) = variables else { unreachable!() };
    let at = |deadline| TemplateCall {
        locale: None,
        variables: &variables,
        content: "{}",
        deadline: Some(deadline),
    };
    let now = std::time::Instant::now();
    assert!(template.render(&at(now + std::time::Duration::from_secs(600))).is_ok());
    assert_eq!(template.render(&at(now)), Err(TemplateFailure::Late));
}

#[test]
fn many_texts_share_one_bound() {
    let list: Vec<u32> = (0..1_500).collect();
    let texts = vec!["{% for a in l %}{% endfor %}"; 900];
    let template = compile(&english(json!({"data": {"texts": texts}})));
    let started = std::time::Instant::now();
    let errors = render(&template, json!({"l": list}), "{}").unwrap_err();
    assert_eq!(errors.len(), 1, "told once: {errors:?}");
    assert!(started.elapsed().as_secs() < 5, "and not worked on any more");
    let names: Vec<_> = (0..900).map(|n| format!("{{{{ v{n} }}}}")).collect();
    let template = compile(&english(json!({"data": {"texts": names}})));
    let errors = render(&template, json!({}), "{}").unwrap_err();
    assert_eq!(errors.len(), 900, "each is told");
}

#[test]
fn what_is_endless_is_refused_before_anybody_walks_down_its_tree() {
    let long = 60_000;
    let fits = 190;
    for (begin, link, end) in [
        ("{{ x", "-1", " }}"),
        ("{{ x", ".b", " }}"),
        ("{{ x", "|e", " }}"),
        ("{{ x", "[0]", " }}"),
        ("{{ ", "not ", "x }}"),
        ("{{ ", "(", "x"),
        ("{{ x", " if x", " }}"),
        ("{% if x %}", "{% elif x %}", "{% endif %}"),
        ("", "{% if x %}", ""),
        ("", "{% for a in x %}", ""),
    ] {
        let text = |times: usize| format!("{begin}{}{end}", link.repeat(times));
        let compiled = |times: usize| {
            Template::compile("deep", &english(json!({"title": text(times)})), &content_schema())
        };
        assert!(compiled(long.min(250_000 / link.len())).is_err(), "{link}");
        // Whatever the parser says to it, it comes back.
        let _ = compiled(fits).map(|template| render(&template, json!({"x": {}}), "{}"));
    }
    let many = vec!["{{ x }}"; TEXTS_MAX + 1];
    assert_eq!(refused(json!({"data": many})).found, "1001 texts");
}

#[test]
fn what_fails_with_these_variables_says_in_which_field_and_line() {
    let template = compile(&english(json!({"body": "a\n{{ n | round }}"})));
    let errors = render(&template, json!({"n": "seven"}), "{}").unwrap_err();
    assert!(errors[0].found.starts_with("shipped (en), body, line 2: "), "{:?}", errors[0]);
}

#[test]
fn a_template_tells_which_variables_it_looks_at() {
    let template = compile(&source(json!({
        "default_locale": "en",
        "locales": {
            "en": {"title": "{{ order.number }}{% for i in items %}{{ i.name }}{{ loop.index }}{% endfor %}"},
            "de": {"title": "{{ name }}"},
        },
    })));
    let names: Vec<_> = template.variables().iter().map(String::as_str).collect();
    assert_eq!(names, ["items", "name", "order.number"]);
}

/// What templates are made of, and what breaks them.
const FRAGMENTS: [&str; 22] = [
    "{{ ", " }}", "{% ", " %}", "{# ", "if ", "elif ", "else ", "endif", "for ", " in ", "endfor",
    "set ", " = ", "raw", "x", "s", "l[0]", "'a'", "1", "{%- ", "ü\n",
];
/// What is looked at, and what may be done to it.
const BASES: [&str; 9] = ["x", "s", "l", "m", "n", "m.a", "'ü€'", "99999999999999999999", "-0.5"];
const STEPS: [&str; 62] = [
    ".a",
    "[0]",
    "[-1]",
    "['a']",
    "[1:2]",
    "[::-1]",
    "[9:]",
    " - 1",
    " - n",
    " / 0",
    " / n",
    " // 0",
    " % 0",
    " % n",
    " + 1",
    " == s",
    " < l",
    " >= n",
    " in l",
    " in s",
    " is even",
    " | select('divisibleby', 0)",
    " is startingwith(s)",
    " and x",
    " or s",
    " if n else l",
    " | abs",
    " | bool",
    " | capitalize",
    " | count",
    " | default(s)",
    " | dictsort",
    " | e",
    " | first",
    " | float",
    " | int",
    " | items",
    " | join(s)",
    " | join(',', attribute='a')",
    " | last",
    " | lines",
    " | list",
    " | lower",
    " | map('upper')",
    " | map(attribute='a')",
    " | max",
    " | min",
    " | reject('odd')",
    " | replace('a', s)",
    " | reverse",
    " | round(n)",
    " | round(-400)",
    " | safe",
    " | selectattr('a')",
    " | sort(attribute='a')",
    " | split('')",
    " | sum",
    " | title",
    " | tojson",
    " | truncate(1)",
    " | unique",
    " | urlencode",
];

/// Compiles and renders, strictly and not; nothing that is written may do more than fail.
fn survive(text: &str) {
    let strict = english(json!({"title": text, "email": {"html": text}}));
    let lenient = TemplateSource { strict: false, ..strict.clone() };
    let list = json!([3, "b", null, {"a": 1}, [2]]);
    let variables = json!({"s": "a<b>&ü", "l": list, "m": {"a": {"b": 2}}, "n": -3});
    for source in [strict, lenient] {
        let Ok(template) = Template::compile("any", &source, &content_schema()) else { continue };
        match render(&template, variables.clone(), "{}") {
            Ok(made) => assert!(made.to_string().len() < 4 << 20),
            Err(errors) => assert!(errors.iter().all(|e| !e.found.contains("gave up")), "{text}"),
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_written_comes_back(parts in prop::collection::vec(0..FRAGMENTS.len(), 0..30)) {
        survive(&parts.into_iter().map(|n| FRAGMENTS[n]).collect::<String>());
    }

    #[test]
    fn whatever_is_done_to_a_variable_comes_back(
        base in 0..BASES.len(),
        steps in prop::collection::vec(0..STEPS.len(), 0..6),
        is_loop: bool,
    ) {
        let steps: String = steps.into_iter().map(|n| STEPS[n]).collect();
        let expression = format!("{}{steps}", BASES[base]);
        survive(&match is_loop {
            true => format!("{{% for i in {expression} %}}{{{{ i }}}}{{{{ loop.index }}}}{{% endfor %}}"),
            false => format!("{{% if {expression} %}}yes{{% endif %}}{{{{ {expression} }}}}"),
        });
    }
}
