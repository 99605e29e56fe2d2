//! The cookies of the pages: the session, the notice after an action, and the choice of colours.

use aws_lc_rs::hmac;
use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::form_urlencoded;

pub(super) const SESSION: &str = "postrider_session";
pub(super) const NOTICE: &str = "postrider_notice";
pub(super) const THEME: &str = "postrider_theme";

/// The value of a cookie of the request.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| own.trim() == name).map(|(_, value)| value.trim())
}

/// A cookie that only this server reads. Without a value, it is deleted.
pub(super) fn set_cookie(name: &str, value: &str, lives_s: u64, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lives_s}{secure}")
}

/// What an action did, shown once on the next page, with the address that takes it back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ActionNotice {
    pub(super) text: String,
    pub(super) is_bad: bool,
    /// A form posts to it.
    pub(super) undo: Option<String>,
}

impl ActionNotice {
    pub(super) fn write(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.append_pair("text", &self.text.chars().take(400).collect::<String>());
        if self.is_bad {
            text.append_pair("bad", "1");
        }
        if let Some(undo) = &self.undo {
            text.append_pair("undo", undo);
        }
        text.finish()
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let mut notice = Self::default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "text" => notice.text = value.into_owned(),
                "bad" => notice.is_bad = true,
                "undo" if is_own_path(&value) => notice.undo = Some(value.into_owned()),
                _ => {}
            }
        }
        (!notice.text.is_empty()).then_some(notice)
    }
}

/// Whether an address leads to a page of this server.
pub(super) fn is_own_path(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '\\';
    path.starts_with('/') && !path.starts_with("//") && path.chars().all(is_plain)
}

/// What a form has to repeat: nobody can know it who cannot read the page or the session.
pub(super) fn form_token(session: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, session.as_bytes());
    URL_SAFE_NO_PAD.encode(hmac::sign(&key, b"form of the dashboard").as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; postrider_session=prs_x;b=2".parse().unwrap());
        assert_eq!(cookie(&headers, SESSION), Some("prs_x"));
        assert_eq!(cookie(&headers, "c"), None);
    }

    #[test]
    fn a_notice_is_read_as_it_was_written_and_leads_nowhere_else() {
        let undo = Some("/lanes/3/resume".to_owned());
        let notice = ActionNotice { text: "Paused; a=b & c".to_owned(), is_bad: false, undo };
        assert_eq!(ActionNotice::read(&notice.write()), Some(notice));
        let foreign = ActionNotice::read("text=a&undo=https%3A%2F%2Fevil.example").unwrap();
        assert_eq!(foreign.undo, None);
        for path in ["//evil.example", "https://evil.example", "", "/\\evil.example", "/a b"] {
            assert!(!is_own_path(path), "{path}");
        }
        assert!(is_own_path("/problems/prb_1?tenant=acme"));
    }
}
