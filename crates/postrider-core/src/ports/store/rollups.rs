//! Rollups: counts of a minute or an hour, as texts. Each server writes its own parts again and again while they grow;
//! whoever reads adds the parts of all servers up. The log of events is kept the same way, except that each of its
//! parts has a time of its own and is written once. Knows nothing of what the texts say.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreResult;
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// How long a rollup is, or that it is a part of the log of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollupSpan {
    Minute,
    Hour,
    /// Events, in the order in which they happened. Times are in microseconds, so that each part has its own. A part is
    /// as durable as a settlement once it is written.
    Events,
}

impl RollupSpan {
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Events];
    /// Those that are counts.
    pub const COUNTED: [Self; 2] = [Self::Minute, Self::Hour];

    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Events => "events",
        }
    }

    pub fn ms(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Events => 1,
        }
    }

    /// As stores keep it.
    pub fn code(self) -> u8 {
        match self {
            Self::Minute => 0,
            Self::Hour => 1,
            Self::Events => 2,
        }
    }

    pub fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|span| i64::from(span.code()) == code)
    }

    /// When the one began that this time is in.
    pub fn begin(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.div_euclid(self.ms()) * self.ms())
    }
}

/// Whose part it is, and of which time. A part with the same name replaces the one before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RollupName {
    pub span: RollupSpan,
    /// When it began.
    pub at: Timestamp,
    /// Whose counts they are; absent for those of all tenants together.
    pub tenant: Option<TenantId>,
    /// Who wrote it. No two servers have the same number, and none has that of an earlier run.
    pub writer: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RollupPart {
    #[serde(flatten)]
    pub name: RollupName,
    pub text: String,
}

/// Which parts to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupFilter {
    pub span: RollupSpan,
    /// Those that began at or after this time.
    pub from: Timestamp,
    /// Those that began before this time.
    pub until: Timestamp,
    pub of: RollupOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollupOwner {
    /// Of all tenants together.
    Server,
    Tenant(TenantId),
    /// Of the server and of every tenant.
    Everybody,
}

impl RollupOwner {
    pub fn has(&self, tenant: Option<&TenantId>) -> bool {
        match self {
            Self::Server => tenant.is_none(),
            Self::Tenant(own) => tenant == Some(own),
            Self::Everybody => true,
        }
    }
}

#[async_trait]
pub trait Rollups: Send + Sync {
    /// Writes parts, each as a whole. A repeat changes nothing, so that a write whose answer was lost is made again.
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()>;

    /// By time; parts of one time in any order.
    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>>;

    /// At most so many parts behind a name, in the order of their names. For a copy of the store.
    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>>;

    /// Deletes parts that began before this time. Answers how many.
    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64>;
}
