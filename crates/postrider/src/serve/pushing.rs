//! FCM and APNs: their accounts, what the intake knows about them and the channels that send, made from
//! the configuration.

use std::sync::Arc;

use postrider_channels::accounts::AccountBook;
use postrider_channels::accounts::health::AccountHealth;
use postrider_channels::apns::ApnsIntake;
use postrider_channels::fcm::FcmIntake;
use postrider_channels::{ApnsChannel, FcmChannel, Wiring};
use postrider_core::{Channel, ChannelIntake, ChannelKind};

use crate::config::{Config, accounts};

pub(crate) struct Pushing {
    fcm: Arc<FcmChannel>,
    apns: Arc<ApnsChannel>,
}

impl Pushing {
    /// Also reads the credentials. One that cannot be read is no reason not to start: the others go
    /// on, and it is tried again when it is needed.
    pub(crate) async fn new(
        config: &Config,
        wiring: impl Fn(u64) -> Wiring,
    ) -> anyhow::Result<Self> {
        let policy = config.breaker.policy();
        let fcm = accounts::of_channel(&config.accounts, ChannelKind::Fcm)?;
        let fcm = FcmChannel::new(wiring(config.fcm.timeout_s), fcm, policy);
        let apns = accounts::of_channel(&config.accounts, ChannelKind::Apns)?;
        let apns = ApnsChannel::new(wiring(config.apns.timeout_s), apns, policy);
        // What cannot be read, the watch and `doctor` say.
        let _ = (fcm.load().await, apns.load().await);
        Ok(Self { fcm: Arc::new(fcm), apns: Arc::new(apns) })
    }

    pub(crate) fn intakes(&self) -> Vec<Arc<dyn ChannelIntake>> {
        vec![
            Arc::new(FcmIntake::new(self.fcm.accounts().clone())),
            Arc::new(ApnsIntake::new(self.apns.accounts().clone())),
        ]
    }

    pub(crate) fn channels(&self) -> Vec<Arc<dyn Channel>> {
        vec![self.fcm.clone(), self.apns.clone()]
    }

    pub(crate) fn health(&self) -> Vec<Arc<dyn AccountHealth>> {
        vec![self.fcm.accounts().clone(), self.apns.accounts().clone()]
    }

    pub(crate) fn books(&self) -> Vec<Arc<dyn AccountBook>> {
        vec![self.fcm.accounts().clone(), self.apns.accounts().clone()]
    }
}
