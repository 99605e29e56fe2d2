//! Parts of a page whose calls may be late or fail: then the last good answer is shown with its age, or that there is
//! none. Keeps answers in memory only, and shows nobody an answer that the API would refuse.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use maud::{Markup, html};
use postrider_core::Timestamp;
use serde_json::Value;

use super::api_calls::{PageCallResult, RefusedCall};
use super::page_context::PageContext;
use super::words::{ago, moment};
use crate::keys::KeyScope;

/// A page does not wait longer for a part.
const WAIT_MAX: Duration = Duration::from_secs(2);
const KEPT_MAX: usize = 512;

/// The last good answers, by what they are answers to.
#[derive(Debug, Default)]
pub(crate) struct PageAnswers(Mutex<HashMap<AnswerKey, PageAnswer>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AnswerKey {
    part: &'static str,
    tenant: String,
    sees_server: bool,
}

#[derive(Debug, Clone)]
struct PageAnswer {
    at: Timestamp,
    value: Value,
}

/// An answer, and how old it is.
#[derive(Debug)]
pub(super) struct PagePart {
    /// Null if there is none.
    pub(super) value: Value,
    /// When the answer was good, if that is not now.
    as_of: Option<Timestamp>,
}

impl PagePart {
    pub(super) fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Says that it is old or absent; nothing if it is neither.
    pub(super) fn note(&self, now: Timestamp) -> Markup {
        let at = self.as_of.map(|at| at.to_string());
        html! {
            @if self.is_absent() { p.quiet.old role="note" { "Not available now." } }
            @else if let Some(at) = &at { p.quiet.old role="note" { "As of " (ago(at, now)) ", at " (moment(at, now)) ": there is no answer now." } }
        }
    }
}

/// Waits for an answer for a short time. A refusal that will not pass by itself is an error.
pub(super) async fn part(
    page: &PageContext,
    name: &'static str,
    call: impl Future<Output = PageCallResult<Value>>,
) -> PageCallResult<PagePart> {
    let key =
        AnswerKey { part: name, tenant: page.tenant.clone(), sees_server: page.caller.all_tenants };
    match tokio::time::timeout(WAIT_MAX, call).await {
        Ok(Ok(value)) => {
            page.last_answers.keep(key, &value, page.now);
            Ok(PagePart { value, as_of: None })
        }
        Ok(Err(refused)) if !is_passing(&refused) => Err(refused),
        _ => {
            let last = page.last_answers.find(&key).filter(|_| page.may(KeyScope::Read));
            let (value, as_of) =
                last.map_or((Value::Null, None), |last| (last.value, Some(last.at)));
            Ok(PagePart { value, as_of })
        }
    }
}

fn is_passing(refused: &RefusedCall) -> bool {
    refused.status == 429 || refused.status >= 500
}

impl PageAnswers {
    fn keep(&self, key: AnswerKey, value: &Value, at: Timestamp) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX && !kept.contains_key(&key) {
            let oldest =
                kept.iter().min_by_key(|(_, answer)| answer.at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| kept.remove(&oldest));
        }
        kept.insert(key, PageAnswer { at, value: value.clone() });
    }

    fn find(&self, key: &AnswerKey) -> Option<PageAnswer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

#[cfg(test)]
mod tests;
