//! Rates that all nodes share.

use async_trait::async_trait;

use super::StoreResult;
use crate::policy::limiter::Rate;
use crate::policy::rate_slice::RateSlice;

#[async_trait]
pub trait Shares: Send + Sync {
    /// Gives out a part of the rate under this name: at most `want` calls, none if the others have them all for now.
    /// All nodes together never make more calls than the rate allows. The state of a rate may be lost with the store's
    /// memory, as if there had been a rest.
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice>;
}
