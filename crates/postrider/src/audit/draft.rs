//! What becomes known during one call, until it is an entry. Each part of the call adds what it knows.

use std::cell::RefCell;
use std::net::IpAddr;

use postrider_core::{KeyId, TenantId};
use serde_json::Value;

/// Who acts, as far as the key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActingKey {
    /// The key of the configuration.
    Configured,
    Stored(KeyId),
}

#[derive(Debug, Default)]
pub(crate) struct AuditDraft {
    pub(crate) address: Option<IpAddr>,
    pub(crate) key: Option<ActingKey>,
    /// The key was accepted.
    pub(crate) is_signed_in: bool,
    /// The tenant acted upon.
    pub(crate) tenant: Option<TenantId>,
    /// What was done; absent if the call has nothing to be remembered.
    pub(crate) action: Option<&'static str>,
    pub(crate) subject: String,
    pub(crate) filter: Option<Value>,
    pub(crate) count: u64,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

tokio::task_local! {
    static DRAFT: RefCell<AuditDraft>;
}

/// Runs a call, and returns what it says about itself.
pub(crate) async fn collected<T>(call: impl Future<Output = T>) -> (T, AuditDraft) {
    let draft = RefCell::new(AuditDraft::default());
    DRAFT
        .scope(draft, async {
            let answer = call.await;
            (answer, DRAFT.with(|draft| draft.take()))
        })
        .await
}

/// Adds to the draft of the present call; nothing outside of a call.
pub(crate) fn with_draft(add: impl FnOnce(&mut AuditDraft)) {
    // Without a draft there is nobody to tell.
    let _ = DRAFT.try_with(|draft| add(&mut draft.borrow_mut()));
}
