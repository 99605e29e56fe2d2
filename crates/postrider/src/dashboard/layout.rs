//! The frame of every page: navigation, tenant, time, search, and what the last action did.

use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Response};
use maud::{DOCTYPE, Markup, html};

use super::action_form::hidden;
use super::cookies;
use super::deliveries_search::quoted;
use super::notes::notes;
use super::page_context::{ALL, PageContext};
use super::refusal_page::body_headers;
use super::role::DashboardRole;

/// Path, name, and the key that leads there after `g`.
const PAGES: [(&str, &str, &str); 9] = [
    ("/", "Now", "n"),
    ("/deliveries", "Deliveries", "d"),
    ("/dead", "Dead letters", "f"),
    ("/jobs", "Jobs", "b"),
    ("/lanes", "Lanes", "l"),
    ("/providers", "Providers", "p"),
    ("/settings", "Settings", "s"),
    ("/audit", "Audit", "a"),
    ("/docs", "API", "i"),
];
/// Keys that work on every page.
const KEYS: [(&str, &str); 6] = [
    ("/", "search"),
    ("j  k", "next and previous row"),
    ("Enter", "open the row"),
    ("x", "select the row"),
    ("?", "this help"),
    ("Esc", "close"),
];
const HTMX: &str = r#"{"allowEval":false,"includeIndicatorStyles":false,"historyCacheSize":0,"selfRequestsOnly":true,"allowScriptTags":false}"#;

/// What a page adds to its frame.
#[derive(Debug, Default)]
pub(super) struct PageParts<'a> {
    pub(super) title: &'a str,
    /// The same on the command line, without the tenant.
    pub(super) cli: Vec<String>,
    /// The address with absolute times, if the view has relative ones.
    pub(super) lasting_link: Option<String>,
    /// The zone of the recipient that the page is about.
    pub(super) recipient_zone: Option<String>,
}

/// A complete answer.
pub(super) fn answer(page: &PageContext, parts: &PageParts<'_>, body: &Markup) -> Response {
    let text = self::page(page, parts, body).into_string();
    let mut answer = (body_headers(), text).into_response();
    if page.notice.is_some() {
        let gone = cookies::set_cookie(cookies::NOTICE, "", 0, page.is_secure);
        if let Ok(gone) = gone.parse() {
            answer.headers_mut().append(SET_COOKIE, gone);
        }
    }
    answer
}

pub(super) fn page(page: &PageContext, parts: &PageParts<'_>, body: &Markup) -> Markup {
    if page.is_part {
        return html! { main #main { (notes(page)) (body) } };
    }
    let content = html! {
        a.skip href="#main" { "Skip to the content" }
        (side(page))
        div.column {
            (top(page, parts))
            @if let Some(notice) = &page.notice {
                div.notice.bad[notice.is_bad] role="status" {
                    span { (notice.text) }
                    @if let Some(undo) = &notice.undo {
                        form.inline method="post" action=(undo) { (hidden(page, &page.here())) button.link { "Undo" } }
                    }
                }
            }
            p.stale-banner role="alert" hidden { "No news from the server for some seconds. What is shown is " b {} "." }
            main #main tabindex="-1" { (notes(page)) (body) }
        }
        (help())
    };
    bare(page.theme, parts.title, &content)
}

/// A document without navigation.
pub(super) fn bare(theme: &str, title: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[Some(theme).filter(|theme| !theme.is_empty())] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                title { (title) " · Postrider" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/uplot-1.6.32.min.css";
                link rel="stylesheet" href="/assets/dashboard.css";
                link rel="stylesheet" href="/assets/parts.css";
                script defer src="/assets/htmx-2.0.11.min.js" {}
                script defer src="/assets/idiomorph-ext-0.8.0.min.js" {}
                script defer src="/assets/uplot-1.6.32.iife.min.js" {}
                script defer src="/assets/charts.js" {}
                script defer src="/assets/dashboard.js" {}
            }
            body { (content) }
        }
    }
}

fn side(page: &PageContext) -> Markup {
    let is_here = |path: &str| match path {
        "/" => page.path == "/" || page.path.starts_with("/problems"),
        other => page.path == other || page.path.starts_with(&format!("{other}/")),
    };
    html! {
        nav.side aria-label="Pages" {
            a.brand href=(page.link("/")) { img src="/assets/icon.svg" alt="" width="22" height="22"; "Postrider" }
            ul {
                @for (path, name, key) in PAGES {
                    li { a href=(page.link(path)) data-key=(key) aria-current=[is_here(path).then_some("page")] { (name) } }
                }
            }
            div.who {
                p { span.role { (page.role.name()) } }
                p.quiet { (who(page)) }
                form method="post" action="/sign-out" { (hidden(page, "/")) button.link { "Sign out" } }
                p.quiet { a href="#help" data-help="1" { "Keys" } " (press ?)" }
            }
        }
    }
}

fn who(page: &PageContext) -> Markup {
    html! {
        @match (page.caller.key, page.role) {
            (Some(key), _) => (super::words::short_id(&key.to_string())),
            (None, DashboardRole::Admin) => "configured admin key",
            (None, _) => "no key",
        }
    }
}

fn top(page: &PageContext, parts: &PageParts<'_>) -> Markup {
    let cli = command_line(page, &parts.cli);
    html! {
        header.top {
            h1 { (parts.title) }
            form.search role="search" action="/deliveries" {
                (tenant_field(page))
                label.unseen for="find" { "Search" }
                input #find type="search" name="q" placeholder="Any id, recipient or key" value=(page.query.get("q").unwrap_or_default()) autocomplete="off" spellcheck="false";
            }
            (tenant_choice(page))
            div.tools {
                @if !cli.is_empty() { button.quiet-button type="button" data-copy=(cli) title=(cli) { "Copy as CLI" } }
                button.quiet-button type="button" data-copy-link=(parts.lasting_link.as_deref().unwrap_or("")) { "Copy link" }
                button.quiet-button #zone type="button" title=(zones(parts)) data-recipient=[parts.recipient_zone.as_deref()] { "UTC" }
                button.quiet-button #theme type="button" aria-label="Switch colours" title="Light or dark" { "◐" }
                span #live.live role="status" data-stream=(page.link("/live")) { "as of " (super::words::moment(&page.now.to_string(), page.now)) }
            }
        }
    }
}

/// The time zones that the button goes through.
fn zones(parts: &PageParts<'_>) -> &'static str {
    match parts.recipient_zone {
        Some(_) => "Switch between UTC, your time zone and the recipient's",
        None => "Switch between UTC and your time zone",
    }
}

/// The commands with the tenant that is looked at. A key for one tenant needs no name of it.
fn command_line(page: &PageContext, commands: &[String]) -> String {
    let tenant = match page.caller.all_tenants {
        true => format!(" --tenant {}", quoted(&page.tenant)),
        false => String::new(),
    };
    let whole = |command: &String| match command.contains(" --tenant ") {
        true => command.clone(),
        false => format!("{command}{tenant}"),
    };
    commands.iter().map(whole).collect::<Vec<_>>().join("; ")
}

/// Forms that lead to another view keep the tenant.
pub(super) fn tenant_field(page: &PageContext) -> Markup {
    html! {
        @if let Some(tenant) = page.query.get("tenant") { input type="hidden" name="tenant" value=(tenant); }
    }
}

/// For a key of all tenants: which one is looked at.
fn tenant_choice(page: &PageContext) -> Markup {
    if !page.caller.all_tenants {
        return html! { span.tenant { "Tenant " b { (page.tenant) } } };
    }
    let mut names = page.app.known_tenants();
    if page.tenant != ALL && !names.contains(&page.tenant) {
        names.push(page.tenant.clone());
    }
    let others = page.query.with("tenant", None);
    html! {
        form.tenant action=(page.path) {
            @for (name, value) in others.pairs() { input type="hidden" name=(name) value=(value); }
            label for="tenant" { "Tenant" }
            select #tenant name="tenant" data-submit="1" {
                option value="" selected[page.tenant == ALL] { "all" }
                @for name in &names { option value=(name) selected[*name == page.tenant] { (name) } }
            }
            noscript { button { "Go" } }
        }
    }
}

fn help() -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            table.plain { tbody {
                @for (key, what) in KEYS { tr { td { kbd { (key) } } td { (what) } } }
                @for (_, name, key) in PAGES { tr { td { kbd { "g  " (key) } } td { "to " (name) } } }
            } }
            p.quiet { "No single key changes anything." }
            form method="dialog" { button { "Close" } }
        }
        p #announce .unseen role="status" {}
    }
}

/// A part of a page that is fetched anew when the server says that it changed.
pub(super) fn region(page: &PageContext, name: &str, body: &Markup) -> Markup {
    let id = format!("region-{name}");
    let select = format!("#{id}");
    html! {
        section.region id=(id) data-region=(name) hx-get=(page.here()) hx-select=(select) hx-target="this"
            hx-swap="morph:outerHTML" hx-trigger="changed" hx-ext="morph" {
            p.held role="status" hidden { button.link type="button" { "Show what is new" } }
            (body)
        }
    }
}
