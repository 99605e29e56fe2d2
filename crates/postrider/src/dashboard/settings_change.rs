//! Changes of settings: first shown as a difference, then made.

use axum::http::Method;
use axum::response::IntoResponse as _;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::action_form::{ActionForm, hidden, submit};
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts};
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::refusal_page::{PageResult, refusing};
use crate::keys::KeyScope;

/// Settings that a person can change: the last part of their path.
const KINDS: [&str; 3] = ["classes", "tenants", "limits"];

/// The form with what is set by API, as JSON.
pub(super) fn form(page: &PageContext, kind: &str, setting: &Value) -> Markup {
    let name = setting.text("name");
    let set = setting.at("set");
    let text = if set.is_object() { format!("{set:#}") } else { "{}".to_owned() };
    let field = format!("values-{kind}-{name}");
    let may = page.may(KeyScope::Admin) && page.caller.all_tenants;
    html! {
        details.confirm {
            summary.button { "Change …" }
            form.stack method="post" action=(page.link("/settings")) {
                (hidden(page, &page.here()))
                input type="hidden" name="do" value="show";
                input type="hidden" name="kind" value=(kind);
                input type="hidden" name="name" value=(name);
                label for=(field) { "Values that win over file and environment, as JSON" }
                textarea id=(field) name="values" rows="5" spellcheck="false" disabled[!may] { (text) }
                (submit("Show what changes", "button", may, KeyScope::Admin))
            }
        }
    }
}

pub(super) async fn act(page: PageContext, form: ActionForm) -> PageResult {
    if form.get("do") == Some("show") {
        return difference(&page, &form).await;
    }
    if form.get("do") == Some("create-key") {
        return create_key(&page, &form).await;
    }
    let done = order(&page, &form).await;
    Ok(page.back(form.back(), done))
}

fn path(form: &ActionForm) -> PageCallResult<String> {
    let kind = form.get("kind").filter(|kind| KINDS.contains(kind));
    let (Some(kind), Some(name)) = (kind, form.get("name")) else {
        return Err(RefusedCall::new(422, "The form is incomplete", "It names no setting."));
    };
    Ok(format!("/v1/{kind}/{}", encoded(name)))
}

fn values(form: &ActionForm) -> PageCallResult<Map<String, Value>> {
    let text = form.get("values").unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| {
        RefusedCall::new(
            422,
            "The values are no JSON object",
            format!("{error}; for example {{\"weight\": 2}}"),
        )
    })
}

/// What the change would do, field by field. Nothing is changed yet.
async fn difference(page: &PageContext, form: &ActionForm) -> PageResult {
    let refusing = refusing(page);
    let path = path(form).map_err(&refusing)?;
    let values = values(form).map_err(&refusing)?;
    let now = page.calls.get(&path).await.map_err(&refusing)?;
    let before = now.at("set").as_object().cloned().unwrap_or_default();
    let names: std::collections::BTreeSet<&String> = before.keys().chain(values.keys()).collect();
    let changed: Vec<&String> =
        names.into_iter().filter(|name| before.get(*name) != values.get(*name)).collect();
    let body = html! {
        article.card.plan {
            p.lead { "Nothing has been changed yet. " b { (changed.len()) } " values of " code { (form.get("name").unwrap_or_default()) } " would change." }
            div.scroll tabindex="0" role="region" aria-label="Changes" {
                table { thead { tr { th scope="col" { "Value" } th scope="col" { "In force" } th scope="col" { "Then" } } }
                    tbody { @for name in changed { tr {
                        td { code { (name) } }
                        td.wrap { del { (now.at(name).to_string()) } }
                        td.wrap { @match values.get(name) { Some(value) => ins { (value.to_string()) }, None => "as in file and environment" } }
                    } } }
                }
            }
            form method="post" action=(page.link("/settings")) {
                (hidden(page, form.back()))
                input type="hidden" name="do" value="set";
                input type="hidden" name="kind" value=(form.get("kind").unwrap_or_default());
                input type="hidden" name="name" value=(form.get("name").unwrap_or_default());
                input type="hidden" name="values" value=(Value::Object(values.clone()).to_string());
                div.actions { (submit("Change it", "main", page.may(KeyScope::Admin), KeyScope::Admin)) a.button.link href=(form.back()) { "Back" } }
            }
        }
    };
    let parts = PageParts { title: "Change a setting", ..PageParts::default() };
    Ok(layout::answer(page, &parts, &body).into_response())
}

/// Shows the new key: only this answer has it.
async fn create_key(page: &PageContext, form: &ActionForm) -> PageResult {
    let scopes: Vec<&str> = form.all("scope");
    let mut body = json!({"name": form.get("name").unwrap_or_default(), "scopes": scopes});
    if let Some(tenant) = form.get("for") {
        body["tenant"] = tenant.into();
    }
    if let Some(days) = form.get("days").and_then(|days| days.parse::<u64>().ok()) {
        body["expires_in_s"] = (days.saturating_mul(86_400)).into();
    }
    let calls =
        if page.caller.all_tenants { page.calls.without_tenant() } else { page.calls.clone() };
    let made = calls.post("/v1/keys", &body).await.map_err(refusing(page))?;
    let body = html! {
        article.card {
            p.lead { "This key is shown once. Copy it now." }
            pre #new-key tabindex="0" { (made.text("key")) }
            div.actions { button type="button" data-copy=(made.text("key")) { "Copy" } a.button.link href=(form.back()) { "Back to the keys" } }
        }
    };
    let parts = PageParts { title: "New key", ..PageParts::default() };
    Ok(layout::answer(page, &parts, &body).into_response())
}

async fn order(page: &PageContext, form: &ActionForm) -> PageCallResult<ActionNotice> {
    let name = form.get("name").unwrap_or_default();
    let text = match form.get("do").unwrap_or_default() {
        "set" => {
            let body = Value::Object(values(form)?);
            page.calls.call(Method::PUT, &path(form)?, Some(&body)).await?;
            format!("{name} is changed; the change is in force.")
        }
        "reset" => {
            page.calls.call(Method::DELETE, &path(form)?, None).await?;
            format!("{name} is as in file and environment again.")
        }
        "pause-tenant" => {
            page.calls.post(&format!("/v1/tenants/{}/pause", encoded(name)), &Value::Null).await?;
            format!("Nothing more is sent for {name}.")
        }
        "resume-tenant" => {
            page.calls.post(&format!("/v1/tenants/{}/resume", encoded(name)), &Value::Null).await?;
            format!("{name} sends again.")
        }
        "revoke-key" => {
            let calls = if page.caller.all_tenants {
                page.calls.without_tenant()
            } else {
                page.calls.clone()
            };
            calls.call(Method::DELETE, &format!("/v1/keys/{}", encoded(name)), None).await?;
            format!("The key {name} is revoked.")
        }
        "rotate-vapid" => {
            page.calls.post("/v1/vapid/rotate", &Value::Null).await?;
            "There is a new VAPID key. Browsers that subscribe from now on use it; older subscriptions go on.".to_owned()
        }
        _ => return Err(RefusedCall::new(404, "Not found", "There is no such action.")),
    };
    Ok(ActionNotice { text, is_bad: false, undo: None })
}
