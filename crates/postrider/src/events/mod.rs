//! Events for others: what happens to deliveries, addresses and problems is logged while somebody has a subscription,
//! and sent to webhooks through Postrider's own queue or read by cursor. Deliveries of events are no events.

mod kind;
mod log;
mod logged;
mod pattern;
mod position;
mod recorder;
mod relay;
mod relay_state;
mod subscription;
mod subscriptions;

pub(crate) use kind::EventKind;
pub(crate) use log::{EventLog, EventPageLimits};
pub(crate) use logged::LoggedEvent;
pub(crate) use pattern::EventPattern;
pub(crate) use position::EventPosition;
pub(crate) use recorder::EventRecorder;
pub(crate) use relay::{oldest as oldest_event, relay, send_test};
pub(crate) use relay_state::RelayState;
pub(crate) use subscription::{EventSubscription, is_of_events};
pub(crate) use subscriptions::{EventSubscriptions, SubscriptionError};
