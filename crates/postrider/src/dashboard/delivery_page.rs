//! One delivery: why it is in its state, what happened when, what providers answered, and what can be done.

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::delivery_person::DeliveryPerson;
use super::delivery_timeline::{is_pending, timeline};
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts, region};
use super::now_page::answer_text;
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, number, provider, short_id, span, state};
use crate::keys::KeyScope;

pub(super) async fn show(page: PageContext, Path(id): Path<String>) -> PageResult {
    rendered(&page, &id, None).await
}

/// The same with the stored body. The API writes an entry of the audit log for it.
pub(super) async fn content(
    mut page: PageContext,
    Path(id): Path<String>,
    _: ActionForm,
) -> PageResult {
    let content = stored_content(&page, &id).await.map_err(refusing(&page))?;
    let text = match serde_json::from_slice::<Value>(&content) {
        Ok(value) => format!("{value:#}"),
        Err(_) => String::from_utf8_lossy(&content).into_owned(),
    };
    // What leads back here leads to the page without the body.
    page.path = format!("/deliveries/{}", encoded(&id));
    rendered(&page, &id, Some(&text)).await
}

async fn stored_content(page: &PageContext, id: &str) -> PageCallResult<Bytes> {
    let delivery = found(page, id).await?;
    let path = format!("/v1/messages/{}/content", delivery.text("message"));
    page.calls.for_tenant(delivery.text("tenant")).text(Method::GET, &path, None).await
}

async fn found(page: &PageContext, id: &str) -> PageCallResult<Value> {
    page.calls.get(&format!("/v1/deliveries/{}", encoded(id))).await
}

async fn rendered(page: &PageContext, id: &str, content: Option<&str>) -> PageResult {
    let refusing = refusing(page);
    let explain = format!("/v1/deliveries/{}/explain", encoded(id));
    let (delivery, explained) = tokio::join!(found(page, id), page.calls.get(&explain));
    let delivery = delivery.map_err(&refusing)?;
    let explained = explained.map_err(&refusing)?;
    let message = format!("/v1/messages/{}", delivery.text("message"));
    let (message, person) =
        tokio::join!(page.calls.get(&message), DeliveryPerson::of(page, &delivery));
    let message = message.unwrap_or_default();
    let body = html! {
        (region(page, "delivery", &html! {
            (answer_part(page, &delivery, &explained))
            div.card { (timeline(&explained, page.now)) }
            (attempts(page, &delivery))
            (receipts(page, &delivery))
        }))
        div.pair {
            (gates(&explained))
            (facts(page, &delivery, &message))
        }
        (person.history(page, &delivery))
        (body_part(page, &delivery, &message, content))
    };
    let parts = PageParts {
        title: "Delivery",
        cli: vec![format!("postrider explain {id}")],
        recipient_zone: person.zone,
        ..PageParts::default()
    };
    Ok(layout::answer(page, &parts, &body).into_response())
}

fn answer_part(page: &PageContext, delivery: &Value, explained: &Value) -> Markup {
    html! {
        article.card.why {
            header { (state(delivery.text("state")))
                @if delivery.has("reason") { b { (delivery.text("reason").replace('_', " ")) } }
                code { (delivery.text("id")) }
            }
            p.lead #why { (explained.text("summary")) }
            @if explained.has("waits_for") {
                p { "It waits for " (explained.text("waits_for"))
                    @if explained.has("until") { ", until " (moment(explained.text("until"), page.now)) " (" (ago(explained.text("until"), page.now)) ")" }
                    "." }
            }
            @if explained.number("ttl_left_s") > 0 { p.quiet { "It expires in " (span(explained.at("ttl_left_s").as_i64().unwrap_or_default())) "." } }
            @if explained.has("can_do") {
                p.quiet { "You can: " }
                ul.can-do { @for step in explained.list("can_do") { li { code { (step.as_str().unwrap_or_default()) } } } }
            }
            (actions(page, delivery))
        }
    }
}

fn actions(page: &PageContext, delivery: &Value) -> Markup {
    let to = |action: &str| page.link(&format!("/deliveries/{}/{action}", delivery.text("id")));
    html! {
        div.actions {
            @if delivery.text("state") == "failed" {
                (button(page, &to("replay"), "Replay it", KeyScope::Replay, &[]))
                details.confirm {
                    summary.button { "Discard …" }
                    form method="post" action=(to("discard")) {
                        (hidden(page, &page.here()))
                        p { "Its body and its address are erased for good. Its history stays." }
                        (submit("Discard it", "bad", page.may(KeyScope::Replay), KeyScope::Replay))
                    }
                }
            }
            @if is_pending(delivery.text("state")) {
                (button(page, &to("cancel"), "Cancel its message", KeyScope::Send, &[]))
            }
        }
    }
}

fn attempts(page: &PageContext, delivery: &Value) -> Markup {
    let log = delivery.list("log");
    html! {
        h2 { "Attempts" span.count { (log.len()) } }
        @if log.is_empty() { p.quiet { "It was never attempted." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Attempts" {
                table.cards { thead { tr { th scope="col" { "#" } th scope="col" { "At" } th scope="col" { "Outcome" } th scope="col" { "Answer" } th.n scope="col" { "Took" } th scope="col" { "Then" } } }
                    tbody { @for attempt in log { tr {
                        td { (attempt.number("number")) @if !attempt.at("counted").as_bool().unwrap_or(true) { span.quiet title="Does not count against the retry policy" { " free" } } }
                        td data-label="At" { (moment(attempt.text("at"), page.now)) }
                        td data-label="Outcome" { (outcome(attempt.text("outcome"))) }
                        td.wrap data-label="Answer" { (answer_text(attempt))
                            @if attempt.has("retry_after") { span.quiet { " · Retry-After " (attempt.text("retry_after")) } }
                            @if attempt.has("provider_id") { span.quiet { " · provider's id " code { (attempt.text("provider_id")) } } }
                            @if attempt.has("strike") { span.quiet { " · strike against the address: " (attempt.text("strike")) } }
                        }
                        td.n data-label="Took" { (number(attempt.number("latency_ms"))) " ms" }
                        td data-label="Then" { (attempt.text("decision").replace('_', " ")) @if attempt.has("next_at") { " at " (moment(attempt.text("next_at"), page.now)) } }
                    } } }
                }
            }
        }
    }
}

/// What the far end reported.
fn receipts(page: &PageContext, delivery: &Value) -> Markup {
    let receipts = delivery.list("receipts");
    html! {
        @if !receipts.is_empty() {
            h2 { "Receipts" span.count { (receipts.len()) } }
            div.scroll tabindex="0" role="region" aria-label="Receipts" {
                table.cards { thead { tr { th scope="col" { "What" } th scope="col" { "At" } th scope="col" { "Recorded" } } }
                    tbody { @for receipt in receipts { tr {
                        td { (receipt.text("event")) }
                        td data-label="At" { (moment(receipt.text("at"), page.now)) }
                        td data-label="Recorded" { (moment(receipt.text("recorded_at"), page.now)) }
                    } } }
                }
            }
        }
    }
}

/// An outcome by shape and word.
pub(super) fn outcome(name: &str) -> Markup {
    let (shape, tone) = match name {
        "accepted" => ("●", "good"),
        "gone" | "expired" => ("×", "over"),
        "drop_message" | "config" => ("■", "bad"),
        _ => ("▲", "warns"),
    };
    html! { span.state.(tone) { span.shape aria-hidden="true" { (shape) } (name.replace('_', " ")) } }
}

fn gates(explained: &Value) -> Markup {
    html! {
        section.card {
            h2 { "Checks" }
            ul.gates { @for gate in explained.list("gates") {
                @let (shape, tone) = match gate.text("verdict") { "open" => ("●", "good"), "waiting" => ("▲", "warns"), _ => ("■", "bad") };
                li { span.state.(tone) { span.shape aria-hidden="true" { (shape) } span.unseen { (gate.text("verdict")) ": " } (gate.text("gate")) } span.quiet { (gate.text("detail")) } }
            } }
        }
    }
}

fn facts(page: &PageContext, delivery: &Value, message: &Value) -> Markup {
    let by = |name: &str, value: &str| page.link_with("/deliveries", &[(name, value)]);
    html! {
        section.card {
            h2 { "Facts" }
            dl.facts {
                dt { "Channel" } dd { (delivery.text("channel")) }
                dt { "Provider" } dd { (provider(delivery.text("provider"))) }
                dt { "Class" } dd { (delivery.text("class")) }
                dt { "Tenant" } dd { (delivery.text("tenant")) }
                @if delivery.has("recipient") { dt { "Recipient" } dd { a href=(by("recipient", delivery.text("recipient"))) { (delivery.text("recipient")) } } }
                dt { "Message" } dd { a href=(by("message", delivery.text("message"))) { (short_id(delivery.text("message"))) } }
                dt { "Address" } dd { code title="A keyed hash: the address itself is not shown" { (delivery.text("address_hash")) } }
                @if message.has("idempotency_key") { dt { "Idempotency key" } dd { code { (message.text("idempotency_key")) } } }
                @if message.has("collapse_key") { dt { "Collapse key" } dd { code { (message.text("collapse_key")) } } }
                @if message.has("campaign") { dt { "Campaign" } dd { (message.text("campaign")) } }
                @if message.has("tags") { dt { "Tags" } dd { @for tag in message.list("tags") { a.chip href=(by("tag", tag.as_str().unwrap_or_default())) { (tag.as_str().unwrap_or_default()) } } } }
                dt { "Created" } dd { (moment(delivery.text("created_at"), page.now)) }
                dt { "Changed" } dd { (moment(delivery.text("changed_at"), page.now)) }
                dt { "Expires" } dd { (moment(delivery.text("expires_at"), page.now)) }
            }
        }
    }
}

fn body_part(
    page: &PageContext,
    delivery: &Value,
    message: &Value,
    content: Option<&str>,
) -> Markup {
    let action = page.link(&format!("/deliveries/{}/content", delivery.text("id")));
    html! {
        section.card #body {
            h2 { "Body" }
            @match content {
                Some(content) => pre tabindex="0" { (content) },
                None if !message.at("has_content").as_bool().unwrap_or(false) => p.quiet {
                    "It is erased. A body is erased when the message is final, as its class and the retention say, or when it is discarded."
                }
                None => form method="post" action=(action) {
                    (hidden(page, &page.here()))
                    p.quiet { "Looking at it is written to the audit log with your key." }
                    (submit("Show the body", "button", page.may(KeyScope::Content), KeyScope::Content))
                }
            }
        }
    }
}

pub(super) async fn act(
    page: PageContext,
    Path((id, action)): Path<(String, String)>,
    form: ActionForm,
) -> Response {
    let done = order(&page, &id, &action).await;
    page.back(form.back(), done)
}

async fn order(page: &PageContext, id: &str, action: &str) -> PageCallResult<ActionNotice> {
    let delivery = found(page, id).await?;
    let calls = page.calls.for_tenant(delivery.text("tenant"));
    let ids = json!({"ids": [id]});
    let (path, body) = match action {
        "replay" => ("/v1/dead-letters/replay".to_owned(), ids),
        "discard" => ("/v1/dead-letters/discard".to_owned(), ids),
        "cancel" => (format!("/v1/messages/{}/cancel", delivery.text("message")), Value::Null),
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    let done = calls.post(&path, &body).await?;
    let text = match action {
        "replay" if done.number("replayed") > 0 => "It is queued again.".to_owned(),
        "discard" if done.number("discarded") > 0 => {
            "It is discarded; its body is erased.".to_owned()
        }
        "cancel" => format!(
            "{} cancelled, {} are being sent at this moment.",
            done.number("cancelled"),
            done.number("in_flight")
        ),
        _ => return Err(RefusedCall::new(409, "Changed", "It is not a dead letter any more.")),
    };
    Ok(ActionNotice { text, is_bad: false, undo: None })
}
