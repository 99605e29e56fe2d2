//! What can be ordered on the page of providers: verify an account, pause and resume an account or a provider.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::json_read::JsonRead as _;
use super::lanes_page::PAUSES;
use super::layout::{self, PageParts};
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::refusal_page::{PageResult, refusing};
use super::words::{ago, moment, provider, state};
use crate::keys::KeyScope;

/// The buttons of one account.
pub(super) fn account_actions(page: &PageContext, account: &Value) -> Markup {
    let name = account.text("name");
    let to = |action: &str| page.link(&format!("/accounts/{}/{action}", encoded(name)));
    html! {
        div.actions {
            (button(page, &to("verify"), "Verify", KeyScope::Admin, &[]))
            @if account.has("paused") { (button(page, &to("resume"), "Resume", KeyScope::Admin, &[])) }
            @else { (pause_form(page, &to("pause"), name, &[])) }
        }
    }
}

/// Who paused it, why and until when.
pub(super) fn order_text(page: &PageContext, paused: &Value) -> Markup {
    html! {
        div.answer {
            "paused by " code { (paused.text("by")) } " " (ago(paused.text("at"), page.now))
            @if paused.has("until") { ", until " (moment(paused.text("until"), page.now)) }
            @if paused.has("reason") { ": " (paused.text("reason")) }
        }
    }
}

/// A provider without accounts: its lanes of all tenants.
pub(super) fn provider_actions(page: &PageContext, channel: &str, name: &str) -> Markup {
    let fields = [("channel", channel), ("provider", name)];
    let action = page.link("/providers/pause");
    html! { div.actions { (pause_form(page, &action, &format!("{channel}-{name}"), &fields)) } }
}

fn pause_form(page: &PageContext, action: &str, name: &str, fields: &[(&str, &str)]) -> Markup {
    let may = page.may(KeyScope::Admin);
    let (reason, time) = (format!("reason-{name}"), format!("for-{name}"));
    html! {
        details.confirm {
            summary.button { "Pause …" }
            form.stack method="post" action=(action) {
                (hidden(page, &page.here()))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                label for=(reason) { "Why it is paused" }
                input id=(reason) name="reason" required maxlength="200" disabled[!may];
                label for=(time) { "How long" }
                select id=(time) name="for_s" disabled[!may] { @for (seconds, words) in PAUSES { option value=(seconds) { (words) } } }
                (submit("Pause", "main", may, KeyScope::Admin))
            }
        }
    }
}

/// Providers without accounts that are paused.
pub(super) fn paused_part(page: &PageContext, found: &Value) -> Markup {
    let paused: Vec<&Value> =
        found.list("providers").iter().filter(|paused| !paused.has("is_account")).collect();
    html! {
        @if !paused.is_empty() {
            h2 { "Paused providers" span.count { (paused.len()) } }
            div.scroll tabindex="0" role="region" aria-label="Paused providers" {
                table.cards { thead { tr { th scope="col" { "Provider" } th scope="col" { "Order" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for own in paused { tr data-row="1" {
                        td { span.channel { (own.text("channel")) } " " b { (provider(own.text("provider"))) } }
                        td.wrap data-label="Order" { (state("paused")) (order_text(page, own.at("paused"))) }
                        td.does { (button(page, &page.link("/providers/resume"), "Resume", KeyScope::Admin,
                            &[("channel", own.text("channel")), ("provider", own.text("provider"))])) }
                    } } }
                }
            }
        }
    }
}

pub(super) async fn act_on_account(
    page: PageContext,
    Path((name, action)): Path<(String, String)>,
    form: ActionForm,
) -> PageResult {
    let path = format!("/v1/accounts/{}", encoded(&name));
    if action == "verify" {
        return verified(page, &name, &path).await;
    }
    let done = order(&page, &path, &action, &name, &form).await;
    Ok(page.back(form.back(), done))
}

async fn order(
    page: &PageContext,
    path: &str,
    action: &str,
    name: &str,
    form: &ActionForm,
) -> PageCallResult<ActionNotice> {
    let (body, notice) = match action {
        "pause" => {
            let undo = page.link(&format!("/accounts/{}/resume", encoded(name)));
            let text = format!("Account {name} is paused: others take over where there are any.");
            let body = pause_body(form)?;
            (body, ActionNotice { text, is_bad: false, undo: Some(undo) })
        }
        "resume" => {
            let text = format!("Account {name} is used again.");
            (Value::Null, ActionNotice { text, is_bad: false, undo: None })
        }
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    page.calls.post(&format!("{path}/{action}"), &body).await?;
    Ok(notice)
}

/// Why, and for how long.
fn pause_body(form: &ActionForm) -> PageCallResult<Value> {
    let reason = form.get("reason").ok_or_else(|| {
        let detail = "Say why it is paused: others will want to know.";
        RefusedCall::new(422, "A reason is missing", detail)
    })?;
    let for_s = form.get("for_s").and_then(|seconds| seconds.parse::<u64>().ok());
    let mut body = json!({"reason": reason});
    if let Some(for_s) = for_s {
        body["for_s"] = for_s.into();
    }
    Ok(body)
}

pub(super) async fn act_on_provider(
    page: PageContext,
    Path(action): Path<String>,
    form: ActionForm,
) -> Response {
    let done = provider_order(&page, &action, &form).await;
    page.back(form.back(), done)
}

async fn provider_order(
    page: &PageContext,
    action: &str,
    form: &ActionForm,
) -> PageCallResult<ActionNotice> {
    let name = form.get("provider").unwrap_or_default();
    let (mut body, text) = match action {
        "pause" => (pause_body(form)?, format!("Nothing is sent to {} now.", provider(name))),
        "resume" => (json!({}), format!("What waits for {} is sent again.", provider(name))),
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    body["channel"] = form.get("channel").unwrap_or_default().into();
    body["provider"] = name.into();
    page.calls.post(&format!("/v1/providers/{action}"), &body).await?;
    Ok(ActionNotice { text, is_bad: false, undo: None })
}

/// What the checks of an account found.
async fn verified(mut page: PageContext, name: &str, path: &str) -> PageResult {
    let found = page.calls.post(&format!("{path}/verify"), &Value::Null).await;
    let found = found.map_err(refusing(&page))?;
    // What leads back here leads to the accounts.
    page.path = "/providers".to_owned();
    let ok = found.has("ok");
    let title = format!("Account {name}");
    let body = html! {
        article.card.why {
            header { (state(if ok { "ok" } else { "failed" })) b { @if ok { "No check failed." } @else { "A check failed." } } span.quiet { (moment(found.text("at"), page.now)) } }
            ul.gates #findings { @for finding in found.list("findings") { (finding_row(finding)) } }
            @if !found.has("findings") { p.quiet { "There is nothing to check." } }
            p.quiet { "Asked by this server, without a message. " code { "postrider doctor" } " makes the same checks without a server." }
            div.actions {
                (button(&page, &page.link(&format!("/accounts/{}/verify", encoded(name))), "Verify again", KeyScope::Admin, &[]))
                a.button.link href=(page.link("/providers")) { "All accounts" }
            }
        }
    };
    let cli = vec![format!("postrider accounts verify {name}")];
    let parts = PageParts { title: &title, cli, ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn finding_row(finding: &Value) -> Markup {
    let (shape, tone) = match finding.text("verdict") {
        "ok" => ("●", "good"),
        "warn" => ("▲", "warns"),
        "fail" => ("■", "bad"),
        _ => ("·", "plain"),
    };
    html! {
        li {
            span.state.(tone) { span.shape aria-hidden="true" { (shape) } span.unseen { (finding.text("verdict")) ": " } (finding.text("check")) }
            span { (finding.text("found")) @if finding.has("remedy") { div.answer { "What helps: " (finding.text("remedy")) } } }
        }
    }
}
