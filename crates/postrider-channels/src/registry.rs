//! The list of all channels.

use std::sync::Arc;

use postrider_core::ChannelIntake;

use crate::NetworkPolicy;
use crate::http::HttpIntake;
use crate::webhook::WebhookIntake;
use crate::webpush::WebpushIntake;

/// The intakes of the channels that need no account.
pub fn intakes_without_accounts(policy: NetworkPolicy) -> Vec<Arc<dyn ChannelIntake>> {
    vec![
        Arc::new(WebpushIntake::new(policy)),
        Arc::new(WebhookIntake::new(policy)),
        Arc::new(HttpIntake::new(policy)),
    ]
}
