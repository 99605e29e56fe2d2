//! What is in force, and where each value comes from: tenants, keys, classes, limits, templates, VAPID keys.

use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::PageCallResult;
use super::json_read::JsonRead as _;
use super::layout::{self, PageParts};
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use super::settings_change;
use super::words::{ago, moment, number};
use crate::keys::KeyScope;

/// Parts of the page with their names and their commands.
const PARTS: [(&str, &str, &str); 6] = [
    ("tenants", "Tenants", "postrider tenants list"),
    ("keys", "Keys", "postrider keys list"),
    ("classes", "Classes", "postrider classes list"),
    ("limits", "Limits", "postrider limits list"),
    ("templates", "Templates", "postrider templates list"),
    ("vapid", "VAPID", "postrider vapid show"),
];

pub(super) async fn act(page: PageContext, form: ActionForm) -> Response {
    settings_change::act(page, form).await.into_response()
}

pub(super) async fn show(page: PageContext) -> PageResult {
    let first = if page.caller.all_tenants { "tenants" } else { "keys" };
    let part = page.query.get("part").unwrap_or(first).to_owned();
    let (_, _, cli) = PARTS.iter().find(|(name, ..)| *name == part).unwrap_or(&PARTS[1]);
    let shown = match part.as_str() {
        "tenants" => tenants(&page).await,
        "classes" => settings(&page, "classes").await,
        "limits" => settings(&page, "limits").await,
        "templates" => templates(&page).await,
        "vapid" => vapid(&page).await,
        _ => keys(&page).await,
    };
    let body = html! {
        nav.tabs aria-label="Settings" { @for (name, label, _) in PARTS {
            a href=(page.query.with("part", Some(name)).to(&page.path)) aria-current=[(part == name).then_some("page")] { (label) }
        } }
        (shown.map_err(refusing(&page))?)
    };
    let parts =
        PageParts { title: "Settings", cli: vec![(*cli).to_owned()], ..PageParts::default() };
    Ok(layout::answer(&page, &parts, &body).into_response())
}

fn source(page: &PageContext, setting: &Value) -> Markup {
    html! {
        span.source.(setting.text("source")) { (setting.text("source")) }
        @if setting.has("set_by") { span.quiet { " by " code { (setting.text("set_by")) } " " (ago(setting.text("set_at"), page.now)) } }
    }
}

async fn tenants(page: &PageContext) -> PageCallResult<Markup> {
    let found = page.calls.get("/v1/tenants").await?;
    Ok(html! {
        @for tenant in found.list("tenants") {
            @let name = tenant.text("name");
            article.card.setting {
                header { h2 { (name) } (source(page, tenant))
                    @if tenant.has("paused") { span.state.warns { span.shape aria-hidden="true" { "▲" } "paused" } span.quiet { "by " code { (tenant.text("paused.by")) } " " (ago(tenant.text("paused.at"), page.now)) } }
                    a.more href=(page.query.with("tenant", Some(name)).with("part", None).to("/")) { "See it as this tenant" }
                }
                div.values {
                    div { span.quiet { "Pending" } " " b { (number(tenant.number("capacity.deliveries"))) } @if tenant.number("capacity.deliveries_max") > 0 { span.quiet { " of " (number(tenant.number("capacity.deliveries_max"))) } } }
                    @for quota in tenant.list("quotas").iter().filter(|quota| quota.number("used") > 0) {
                        div { span.quiet { (quota.text("quota").trim_end_matches("_max").replace('_', " ")) } " " b { (number(quota.number("used"))) } @if quota.number("allowed") > 0 { span.quiet { " of " (number(quota.number("allowed"))) } } }
                    }
                }
                (values(tenant))
                div.actions {
                    (settings_change::form(page, "tenants", tenant))
                    @if tenant.has("paused") { (button(page, &page.link("/settings"), "Resume", KeyScope::Admin, &[("do", "resume-tenant"), ("name", name)])) }
                    @else { (button(page, &page.link("/settings"), "Pause", KeyScope::Admin, &[("do", "pause-tenant"), ("name", name)])) }
                    @if tenant.has("set") { (button(page, &page.link("/settings"), "As in the file", KeyScope::Admin, &[("do", "reset"), ("kind", "tenants"), ("name", name)])) }
                }
            }
        }
    })
}

/// Values of a setting that say something, those that were set by API with a mark.
fn values(setting: &Value) -> Markup {
    const OTHER: [&str; 9] =
        ["name", "source", "set", "set_by", "set_at", "capacity", "quotas", "paused", "default"];
    let all = setting.as_object();
    let set = setting.at("set");
    html! {
        details { summary { "Values in force" }
            dl.facts { @for (name, value) in all.into_iter().flatten().filter(|(name, _)| !OTHER.contains(&name.as_str())) {
                dt { code { (name) } } dd { code { (value.to_string()) } @if set.get(name).is_some() { " " span.source.api { "api" } } }
            } }
        }
    }
}

async fn settings(page: &PageContext, kind: &str) -> PageCallResult<Markup> {
    let found = page.calls.get(&format!("/v1/{kind}")).await?;
    let all = found.at(kind).as_object().map(|all| all.values().cloned().collect::<Vec<_>>());
    let all = all.unwrap_or_else(|| found.list(kind).to_vec());
    Ok(html! {
        @for setting in &all {
            article.card.setting {
                header { h2 { (setting.text("name")) } (source(page, setting)) }
                (values(setting))
                div.actions {
                    (settings_change::form(page, kind, setting))
                    @if setting.has("set") { (button(page, &page.link("/settings"), "As in the file", KeyScope::Admin, &[("do", "reset"), ("kind", kind), ("name", setting.text("name"))])) }
                }
            }
        }
    })
}

async fn keys(page: &PageContext) -> PageCallResult<Markup> {
    let calls = match (page.one_tenant(), page.caller.all_tenants) {
        (None, true) => page.calls.without_tenant(),
        _ => page.calls.clone(),
    };
    let found = calls.get("/v1/keys").await?;
    Ok(html! {
        (new_key(page))
        div.scroll tabindex="0" role="region" aria-label="Keys" {
            table.cards { thead { tr { th scope="col" { "Key" } th scope="col" { "For" } th scope="col" { "May" } th scope="col" { "Last used" } th scope="col" { "Ends" } th scope="col" { span.unseen { "Actions" } } } }
                tbody { @for key in found.list("keys") {
                    tr data-row="1" {
                        td.wrap { b { (key.text("name")) } " " code { (key.text("id")) } @if key.has("networks") { span.quiet { " from " (key.list("networks").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")) } } }
                        td data-label="For" { (if key.has("all_tenants") { "all tenants" } else { key.text("tenant") }) }
                        td data-label="May" { (key.text("scope")) }
                        td data-label="Last used" { @if key.has("last_used_at") { (ago(key.text("last_used_at"), page.now)) } @else { span.quiet { "never" } } }
                        td data-label="Ends" { @if key.has("revoked_at") { span.state.over { span.shape aria-hidden="true" { "×" } "revoked" } " " (ago(key.text("revoked_at"), page.now)) } @else if key.has("expires_at") { (moment(key.text("expires_at"), page.now)) } @else { span.quiet { "never" } } }
                        td.does { @if !key.has("revoked_at") {
                            details.confirm { summary.button.link { "Revoke …" }
                                (button(page, &page.link("/settings"), "Revoke it for good", KeyScope::Admin, &[("do", "revoke-key"), ("name", key.text("id"))]))
                            }
                        } }
                    }
                } }
            }
        }
    })
}

fn new_key(page: &PageContext) -> Markup {
    let may = page.may(KeyScope::Admin);
    html! {
        details.confirm {
            summary.button { "New key …" }
            form.stack.card method="post" action=(page.link("/settings")) {
                (hidden(page, &page.here()))
                input type="hidden" name="do" value="create-key";
                label for="key-name" { "What it is for" } input #key-name name="name" required maxlength="200";
                label for="key-for" { "Tenant; * for all" } input #key-for name="for" value=(page.one_tenant().unwrap_or("default")) required;
                fieldset { legend { "What it may do" }
                    @for scope in KeyScope::ALL { label.check { input type="checkbox" name="scope" value=(scope.name()) checked[scope == KeyScope::Read]; " " (scope.name()) } }
                }
                label for="key-days" { "Days until it ends; empty for never" } input #key-days name="days" type="number" min="1" max="3650";
                (submit("Create", "main", may, KeyScope::Admin))
            }
        }
    }
}

async fn templates(page: &PageContext) -> PageCallResult<Markup> {
    let found = page.calls.get("/v1/templates").await?;
    let all = found.list("templates");
    let names =
        |list: &[Value]| list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    Ok(html! {
        @if all.is_empty() { div.card.empty { p { "There are no templates. " code { "postrider templates set NAME FILE" } " makes one." } } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Templates" {
                table.cards { thead { tr { th scope="col" { "Template" } th scope="col" { "Owner" } th scope="col" { "Source" } th scope="col" { "Locales" } th scope="col" { "Variables" } } }
                    tbody { @for template in all { tr data-row="1" {
                        td { b { (template.text("name")) } }
                        td data-label="Owner" { (template.text("owner")) }
                        td data-label="Source" { (source(page, template)) }
                        td data-label="Locales" { (names(template.list("locales"))) }
                        td.wrap data-label="Variables" { (names(template.list("variables"))) }
                    } } }
                }
            }
        }
    })
}

async fn vapid(page: &PageContext) -> PageCallResult<Markup> {
    let Some(tenant) = page.one_tenant() else {
        return Ok(
            html! { div.card.empty { p { "VAPID keys belong to one tenant: choose it above." } } },
        );
    };
    let found = page.calls.get("/v1/vapid").await?;
    Ok(html! {
        article.card {
            h2 { "VAPID keys of " (tenant) }
            ul.gates { @for key in found.list("keys") { li {
                @if key.at("active").as_bool().unwrap_or(false) { (super::words::state("ok")) } @else { (super::words::state("expired")) }
                code { (key.text("public_key")) } span.quiet { "since " (moment(key.text("created_at"), page.now)) }
            } } }
            details.confirm { summary.button { "Rotate …" }
                p { "New subscriptions use the new key. Older subscriptions go on with theirs." }
                (button(page, &page.link("/settings"), "Make a new key", KeyScope::Manage, &[("do", "rotate-vapid")]))
            }
        }
    })
}
