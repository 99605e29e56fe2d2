//! What a person sees instead of a page that cannot be shown.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::api_calls::RefusedCall;
use super::layout::{self, PageParts};
use super::page_context::PageContext;

/// A page, or the reason why there is none.
pub(super) type PageResult = Result<Response, RefusedPage>;

/// A refusal that becomes a page with the navigation of the person.
pub(super) struct RefusedPage(pub(super) Response);

impl axum::response::IntoResponse for RefusedPage {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Turns a refused call into its page.
pub(super) fn refusing(page: &PageContext) -> impl Fn(RefusedCall) -> RefusedPage + '_ {
    |refused| {
        let parts = PageParts { title: "Refused", ..PageParts::default() };
        let body = layout::page(page, &parts, &explanation(&refused));
        RefusedPage(answer(&refused, body))
    }
}

/// For a person who is not known.
pub(super) fn without_context(refused: &RefusedCall) -> Response {
    let body = layout::bare(
        "",
        "Refused",
        &html! {
            main.narrow { (explanation(refused)) p { a href="/" { "To the first page" } } }
        },
    );
    answer(refused, body)
}

fn explanation(refused: &RefusedCall) -> Markup {
    let advice = match refused.status {
        403 => Some("Ask for a key with the right that is named, or choose another tenant."),
        404 => Some("It may have been pruned, or it belongs to another tenant."),
        429 | 503 => Some("Try again in some seconds."),
        _ => None,
    };
    html! {
        section.card.refusal {
            h1 { (refused.title) }
            p { (refused.detail) }
            @if let Some(advice) = advice { p.quiet { (advice) } }
        }
    }
}

fn answer(refused: &RefusedCall, body: Markup) -> Response {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, body_headers(), body.into_string()).into_response()
}

/// The headers of every page.
pub(super) fn body_headers() -> [(&'static str, &'static str); 2] {
    [("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store")]
}
