//! Templates: what an author writes and a caller fills in costs the server little time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Attacker, server};

/// What one request may take at the most, also in a build without optimisation on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

/// Two equal lists of pairs.
fn pairs(count: usize) -> Value {
    (0..count).map(|n| json!([n, 1])).collect()
}

fn preview(title: &str, variables: &Value) -> Value {
    json!({"template": {"locales": {"en": {"title": title}}}, "variables": variables})
}

#[tokio::test]
async fn a_preview_cannot_hold_a_core() {
    let server = server("");
    let attacker = Attacker::admin(&server).scoped("manage", "default").await;
    let other = Attacker::admin(&server);
    let missing: String = (0..100).map(|n| format!("{{{{ missing_{n} }}}}")).collect();
    let long = "x".repeat(30_000);
    let lists = json!({"a": pairs(3_000), "b": pairs(3_000), "l": vec![0; 1_500]});
    let texts = json!({"s": long, "t": format!("{long}y"), "l": vec![0; 400]});
    let compare = "{% for i in l %}{% if a == b %}{% endif %}{% endfor %}";
    let cases = [
        ("comparisons and missing variables", format!("{compare}{missing}"), &lists),
        ("missing variables", format!("{}{missing}", "{% for i in l %}{% endfor %}"), &lists),
        ("ordered lists", "{% for i in l %}{% if a < b %}{% endif %}{% endfor %}".into(), &lists),
        ("a list in itself", "{% for i in l %}{% if [0] in a %}{% endif %}{% endfor %}".into(), &lists),
        ("copies of lists", "{% set c = a | list %}{% set d = b | list %}{% for i in l %}{% if c == d %}{% endif %}{% endfor %}".into(), &lists),
        ("slices", "{% for i in l %}{% if a[0:] == b[0:] %}{% endif %}{% endfor %}".into(), &lists),
        ("texts in texts", "{% for i in l %}{% for j in l %}{% if t in s %}{% endif %}{% endfor %}{% endfor %}".into(), &texts),
        ("slices of texts", "{% for i in l %}{% for j in l %}{% set x = s[1:] %}{% endfor %}{% endfor %}".into(), &texts),
        ("many tests", "{% for i in l %}{{ l | select('in', s) | length }}{% endfor %}".into(), &texts),
        ("sorted pairs", "{% for i in l %}{{ a | sort | length }}{% endfor %}".into(), &lists),
        ("joined", "{% for i in l %}{{ a | join(',') | length }}{% endfor %}".into(), &lists),
    ];
    for (what, title, variables) in &cases {
        let started = Instant::now();
        let body = preview(title, variables);
        let attack = attacker.post("/v1/templates/preview", &body);
        // Others are served meanwhile.
        let (answer, stats) = tokio::join!(attack, other.get("/v1/stats"));
        let taken = started.elapsed();
        assert_eq!(stats.status, 200);
        assert!(taken < SHORT, "{what}: {taken:?}: {}", answer.body);
        let refused = answer.status == 503 || answer.body.contains("too much work");
        let is_complete = answer.status == 200 && *what == "missing variables";
        assert!(refused || is_complete, "{what}: {} {:.300}", answer.status, answer.body);
    }
}

#[tokio::test]
async fn all_missing_variables_are_told_at_once() {
    let server = server("");
    let caller = Attacker::admin(&server).scoped("send", "default").await;
    let title: String = (0..90).map(|n| format!("{{{{ order.field_{n} }}}}")).collect();
    let answer = caller.post("/v1/templates/preview", &preview(&title, &json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["missing"].as_array().unwrap().len(), 90);
}

#[tokio::test]
async fn a_batch_of_expensive_messages_does_not_hold_up_others() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let attacker = admin.scoped("send,manage", "a").await;
    let title = "{% for i in l %}{% if a == b %}{% endif %}{% endfor %}";
    let template = json!({"locales": {"en": {"title": title}}});
    let set = attacker.call("PUT", "/v1/templates/dear", &template.to_string()).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let variables = json!({"a": pairs(2_000), "b": pairs(2_000), "l": vec![0; 1_500]});
    let line = json!({
        "to": {"address": {"channel": "webhook", "url": "https://example.com/"}},
        "template": {"name": "dear", "variables": variables},
    });
    let batch = format!("{line}\n").repeat(20);
    let attack =
        tokio::spawn(async move { attacker.call("POST", "/v1/messages/batch", &batch).await });
    let mut slowest = Duration::ZERO;
    while !attack.is_finished() {
        let started = Instant::now();
        assert_eq!(admin.get("/v1/stats").await.status, 200);
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "others waited {slowest:?}");
    let answer = attack.await.unwrap();
    assert_eq!(answer.body.matches("\"status\":422,\"error\"").count(), 20, "{:.300}", answer.body);
}
