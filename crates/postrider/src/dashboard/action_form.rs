//! Forms that do something: what they send, and proof that a page of ours sent it.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, Limited};
use maud::{Markup, html};

use super::DashboardState;
use super::api_calls::RefusedCall;
use super::cookies::{SESSION, cookie, form_token};
use super::page_context::PageContext;
use super::refusal_page;
use crate::keys::KeyScope;

const LENGTH_MAX: usize = 64 * 1024;

/// The fields of a form.
pub(super) struct ActionForm {
    fields: Vec<(String, String)>,
}

impl ActionForm {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// All values of a field that can be chosen more than once.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let own = self.fields.iter().filter(|(own, _)| own == name);
        own.map(|(_, value)| value.as_str()).collect()
    }

    /// Where the person comes from.
    pub(super) fn back(&self) -> &str {
        self.get("back").unwrap_or("/")
    }

    fn query(bytes: &Bytes) -> Vec<(String, String)> {
        let pairs = url::form_urlencoded::parse(bytes).take(2_000);
        pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }
}

impl FromRequest<DashboardState> for ActionForm {
    type Rejection = Response;

    async fn from_request(request: Request, _: &DashboardState) -> Result<Self, Response> {
        let headers = request.headers().clone();
        let is_sign_in = request.uri().path() == "/sign-in";
        if !is_from_here(&headers) {
            return Err(refused("the form was sent by another site"));
        }
        let body = Limited::new(request.into_body(), LENGTH_MAX).collect().await;
        let Ok(body) = body else { return Err(refused("the form is too large or incomplete")) };
        let form = Self { fields: Self::query(&body.to_bytes()) };
        let session = cookie(&headers, SESSION);
        let given = form.get("token").unwrap_or_default().as_bytes();
        // Nobody is signed in by the sign-in form yet, whatever cookie is left.
        let session = session.filter(|_| !is_sign_in);
        let is_ours = session.is_none_or(|session| {
            let expected = form_token(session);
            aws_lc_rs::constant_time::verify_slices_are_equal(given, expected.as_bytes()).is_ok()
        });
        if is_ours { Ok(form) } else { Err(refused("the page is too old; load it again")) }
    }
}

fn refused(why: &str) -> Response {
    let refused = RefusedCall::new(403, "The form cannot be used", why);
    refusal_page::without_context(&refused).into_response()
}

/// Browsers say which site sends a form; other programs do not, and have no cookies of a person either.
pub(super) fn is_from_here(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(ORIGIN) else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == text(HOST)
}

/// The hidden fields of every form.
pub(super) fn hidden(page: &PageContext, back: &str) -> Markup {
    html! {
        input type="hidden" name="token" value=(page.form_token);
        input type="hidden" name="back" value=(back);
    }
}

/// A form with one button. Whoever lacks the right sees the button, and why it does nothing.
pub(super) fn button(
    page: &PageContext,
    action: &str,
    label: &str,
    needs: KeyScope,
    fields: &[(&str, &str)],
) -> Markup {
    let allowed = page.may(needs);
    html! {
        form.inline method="post" action=(action) {
            (hidden(page, &page.here()))
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            (submit(label, "button", allowed, needs))
        }
    }
}

/// The button of a form.
pub(super) fn submit(label: &str, class: &str, allowed: bool, needs: KeyScope) -> Markup {
    let why = format!("Needs a key with the right “{}”.", needs.name());
    html! {
        @if allowed { button class=(class) { (label) } }
        @else { button class=(class) disabled title=(why) { (label) span.lock { " (no right)" } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_known_as_one() {
        let with = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            is_from_here(&headers)
        };
        assert!(with(&[("sec-fetch-site", "same-origin")]));
        assert!(!with(&[("sec-fetch-site", "cross-site")]));
        assert!(!with(&[("sec-fetch-site", "same-site")]));
        assert!(with(&[("origin", "https://p.example"), ("host", "p.example")]));
        assert!(!with(&[("origin", "https://evil.example"), ("host", "p.example")]));
        assert!(!with(&[("origin", "null"), ("host", "p.example")]));
        assert!(with(&[]), "a program without cookies");
    }
}
