//! Every account of a configuration where it can be examined: for `doctor`, without a server, and for the
//! watch of a running one. Examines nothing itself.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::accounts::health::AccountHealth;
use postrider_channels::{CurrentAnswerTable, Wiring};
use postrider_core::Clock;

use super::mailing::Mailing;
use super::parts;
use super::pushing::Pushing;
use crate::config::Config;

pub(crate) struct Ward {
    pub(crate) books: Vec<Arc<dyn AccountHealth>>,
    pub(crate) wiring: Wiring,
}

impl Ward {
    /// Accounts of their own, with a pool of their own: nothing of a server's.
    pub(crate) async fn open(
        config: &Config,
        clock: Arc<dyn Clock>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let pool = parts::pool(config)?;
        let answers = CurrentAnswerTable::new(parts::answers(config));
        let wiring = parts::wiring(&pool, &clock, &answers);
        let mailing = Mailing::new(config, &pool, &clock)?;
        let pushing = Pushing::new(config, &wiring).await?;
        let wiring = Wiring { attempt_timeout: timeout, ..wiring(1) };
        Ok(Self { books: mailing.health().into_iter().chain(pushing.health()).collect(), wiring })
    }
}
