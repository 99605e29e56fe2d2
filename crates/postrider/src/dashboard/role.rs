//! What a person may do on the pages, by the scopes of the key that the session stands for. Only for what the pages
//! offer: the API decides.

use crate::keys::{Caller, KeyScope};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DashboardRole {
    ReadOnly,
    /// Replays, pauses, acknowledges.
    Operator,
    /// Everything, also settings and keys.
    Admin,
}

impl DashboardRole {
    pub(super) fn of(caller: &Caller) -> Self {
        let acts = [KeyScope::Replay, KeyScope::Manage, KeyScope::Send];
        if caller.may(KeyScope::Admin) {
            Self::Admin
        } else if acts.into_iter().any(|scope| caller.may(scope)) {
            Self::Operator
        } else {
            Self::ReadOnly
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}
