//! Notes of incidents on every page: what operators should know, or a tenant. Pinned and taken away by forms.

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::{ActionForm, button, hidden, submit};
use super::api_calls::PageCallResult;
use super::cookies::ActionNotice;
use super::json_read::JsonRead as _;
use super::layout::region;
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::words::{ago, moment};
use crate::keys::KeyScope;

/// How long a note is pinned, in seconds, with its words. The first is what the form begins with.
const TIMES: [(&str, &str); 5] = [
    ("14400", "for 4 hours"),
    ("3600", "for 1 hour"),
    ("43200", "for 12 hours"),
    ("86400", "for 1 day"),
    ("604800", "for 1 week"),
];

/// The notes above every page.
pub(super) fn notes(page: &PageContext) -> Markup {
    let all = page.notes.list("notes");
    region(page, "notes", &html! { @for note in all { (shown(page, note)) } })
}

fn shown(page: &PageContext, note: &Value) -> Markup {
    let id = note.text("id");
    let to = match note.text("to") {
        "" => "operators only".to_owned(),
        "*" => "everybody".to_owned(),
        tenant => format!("tenant {tenant}"),
    };
    html! {
        aside.note id=(id) aria-label="Note" {
            p { (note.text("text")) }
            p.quiet { "by " code { (note.text("by")) } " " (ago(note.text("at"), page.now)) ", until " (moment(note.text("until"), page.now)) ", for " (to) }
            @if note.has("is_removable") && page.may(KeyScope::Manage) {
                (button(page, &page.link(&format!("/notes/{id}/remove")), "Take it away", KeyScope::Manage, &[]))
            }
        }
    }
}

/// The form that pins one.
pub(super) fn pin_form(page: &PageContext) -> Markup {
    let may = page.may(KeyScope::Manage);
    html! {
        details.confirm {
            summary.button { "Pin a note …" }
            form.stack.card method="post" action=(page.link("/notes")) {
                (hidden(page, &page.here()))
                label for="note-text" { "What others should know" }
                input #note-text name="text" required maxlength="500" autocomplete="off" placeholder="Their data centre moves until noon; do not force the breaker" disabled[!may];
                @if page.caller.all_tenants {
                    label for="note-to" { "Who sees it besides the operators" }
                    select #note-to name="to" disabled[!may] {
                        option value="" { "nobody" }
                        @if let Some(tenant) = page.one_tenant() { option value=(tenant) { "tenant " (tenant) } }
                        option value="*" { "everybody" }
                    }
                }
                label for="note-for" { "How long" }
                select #note-for name="for_s" disabled[!may] { @for (seconds, words) in TIMES { option value=(seconds) { (words) } } }
                (submit("Pin", "main", may, KeyScope::Manage))
            }
        }
    }
}

pub(super) async fn pin(page: PageContext, form: ActionForm) -> Response {
    let done = pinned(&page, &form).await;
    page.back(form.back(), done)
}

async fn pinned(page: &PageContext, form: &ActionForm) -> PageCallResult<ActionNotice> {
    let for_s = form.get("for_s").and_then(|seconds| seconds.parse::<u64>().ok());
    let body =
        json!({"text": form.get("text").unwrap_or_default(), "to": form.get("to"), "for_s": for_s});
    let note = page.calls.post("/v1/notes", &body).await?;
    let undo = page.link(&format!("/notes/{}/remove", note.text("id")));
    let text = "The note is on every page until its end.".to_owned();
    Ok(ActionNotice { text, is_bad: false, undo: Some(undo) })
}

pub(super) async fn remove(
    page: PageContext,
    Path(id): Path<String>,
    form: ActionForm,
) -> Response {
    let path = format!("/v1/notes/{}", encoded(&id));
    let done = page.calls.call(Method::DELETE, &path, None).await.map(|_| ActionNotice {
        text: "The note is taken away.".to_owned(),
        is_bad: false,
        undo: None,
    });
    page.back(form.back(), done)
}
