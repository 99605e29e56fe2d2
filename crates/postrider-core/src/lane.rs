//! A lane is tenant × provider × class: the unit of scheduling, pacing and isolation.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address::ChannelKind;
use crate::message::TenantId;

/// A lane's name, interned by its store. Means nothing outside that store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u32);

/// What a lane stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    pub tenant: TenantId,
    pub channel: ChannelKind,
    /// The origin for Web Push, webhooks and HTTP: `https://host[:port]`.
    pub provider: Arc<str>,
    pub class: Arc<str>,
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.channel, self.provider, self.class)
    }
}
