//! A problem as stores keep it, and the signs that it is made of.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::kind::{ProblemKind, ProblemSeverity};
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// Tenants that a problem names.
pub const TENANTS_MAX: usize = 20;

/// What a problem is about. Two signs with the same key are the same problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProblemKey {
    pub kind: ProblemKind,
    /// Empty if it is about the whole server, as are the other fields.
    pub channel: String,
    /// An origin, an account, or a channel that has accounts.
    pub provider: String,
    /// An outcome, a reason, or what the kind tells apart.
    pub outcome: String,
}

impl ProblemKey {
    pub fn of_server(kind: ProblemKind, outcome: &str) -> Self {
        let (channel, provider) = (String::new(), String::new());
        Self { kind, channel, provider, outcome: outcome.to_owned() }
    }

    /// A name for a problem with this key that opens now. Nobody has to be able to guess it, or not to.
    fn id(&self, at: Timestamp) -> String {
        let text = format!("{self}\n{}", at.0);
        // FNV-1a.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("prb_{hash:016x}")
    }
}

impl fmt::Display for ProblemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        for part in [&self.channel, &self.provider, &self.outcome] {
            if !part.is_empty() {
                write!(f, " {part}")?;
            }
        }
        Ok(())
    }
}

/// Something is wrong at this moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ProblemSign {
    pub key: ProblemKey,
    pub severity: ProblemSeverity,
    /// How many deliveries, attempts or seconds it is about.
    pub count: u64,
    /// Whom it concerns, if it is not about the whole server.
    pub tenants: BTreeMap<TenantId, u64>,
    /// What was found, in words.
    pub what: String,
}

impl ProblemSign {
    pub fn new(key: ProblemKey, count: u64, what: String) -> Self {
        Self { severity: key.kind.severity(), key, count, tenants: BTreeMap::new(), what }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub by: String,
    pub at: Timestamp,
    /// The tenant whose key it was, if that key sees one tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

/// No alerts until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    pub by: String,
    pub at: Timestamp,
    pub until: Timestamp,
    /// The tenant whose key it was, if that key sees one tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProblemRecord {
    pub id: String,
    #[serde(flatten)]
    pub key: ProblemKey,
    pub severity: ProblemSeverity,
    /// When its sign was first seen.
    pub since: Timestamp,
    pub opened_at: Timestamp,
    /// When its sign was last seen. Written from time to time only.
    pub seen_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// How often it opened again soon after it was resolved.
    #[serde(default)]
    pub reopened: u32,
    /// At the last look.
    pub count: u64,
    /// The highest count.
    pub peak: u64,
    pub what: String,
    /// Whom it concerns; at most [`TENANTS_MAX`].
    #[serde(default)]
    pub tenants: BTreeMap<TenantId, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted: Option<Mute>,
    /// What is to be told and is not told yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_due: Option<AlertEvent>,
    /// Somebody was told that it opened.
    #[serde(default)]
    pub alerted: bool,
}

/// What an alert tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertEvent {
    Opened,
    Resolved,
    /// Nothing is wrong: somebody tries whether alerts arrive.
    Test,
}

impl AlertEvent {
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }
}

impl ProblemRecord {
    pub fn new(sign: &ProblemSign, since: Timestamp, now: Timestamp) -> Self {
        let mut record = Self {
            id: sign.key.id(now),
            key: sign.key.clone(),
            severity: sign.severity,
            since,
            opened_at: now,
            seen_at: now,
            resolved_at: None,
            reopened: 0,
            count: 0,
            peak: 0,
            what: String::new(),
            tenants: BTreeMap::new(),
            acknowledged: None,
            muted: None,
            alert_due: Some(AlertEvent::Opened),
            alerted: false,
        };
        record.take_over(sign, now);
        record
    }

    pub(super) fn take_over(&mut self, sign: &ProblemSign, now: Timestamp) {
        (self.seen_at, self.count) = (now, sign.count);
        self.peak = self.peak.max(sign.count);
        self.severity = self.severity.max(sign.severity);
        self.what.clone_from(&sign.what);
        for (tenant, count) in &sign.tenants {
            if self.tenants.contains_key(tenant) || self.tenants.len() < TENANTS_MAX {
                self.tenants.insert(tenant.clone(), *count);
            }
        }
        self.end_orders_of_a_tenant();
    }

    /// What a tenant said of a problem of its own does not hold when others have it, too.
    fn end_orders_of_a_tenant(&mut self) {
        let only = self.only_tenant().cloned();
        let is_over = |tenant: &Option<TenantId>| tenant.is_some() && *tenant != only;
        let acknowledged = self.acknowledged.take_if(|ack| is_over(&ack.tenant));
        let muted = self.muted.take_if(|mute| is_over(&mute.tenant));
        if (acknowledged.is_some() || muted.is_some()) && !self.alerted {
            self.alert_due = Some(AlertEvent::Opened);
        }
    }

    pub fn is_open(&self) -> bool {
        self.resolved_at.is_none()
    }

    pub fn is_muted(&self, now: Timestamp) -> bool {
        self.muted.as_ref().is_some_and(|mute| mute.until > now)
    }

    /// The present problem is over.
    pub(super) fn resolve(&mut self, now: Timestamp) {
        self.resolved_at = Some(now);
        self.alert_due = self.alerted.then_some(AlertEvent::Resolved);
    }

    /// It came back. Who acknowledged it knows already.
    pub(super) fn reopen(&mut self, sign: &ProblemSign, now: Timestamp) {
        self.resolved_at = None;
        self.reopened += 1;
        // If nobody was told yet that it was resolved, there is nothing to tell.
        let is_end_untold = self.alerted && self.alert_due.is_some();
        self.take_over(sign, now);
        let is_told = self.acknowledged.is_some() || is_end_untold;
        self.alert_due = (!is_told).then_some(AlertEvent::Opened);
    }

    /// `resolved`, `muted`, `acknowledged` or `open`.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match (self.is_open(), self.is_muted(now), &self.acknowledged) {
            (false, ..) => "resolved",
            (true, true, _) => "muted",
            (true, false, Some(_)) => "acknowledged",
            (true, false, None) => "open",
        }
    }

    /// The tenant, if only one is concerned.
    pub fn only_tenant(&self) -> Option<&TenantId> {
        match self.tenants.len() {
            1 => self.tenants.keys().next(),
            _ => None,
        }
    }
}
