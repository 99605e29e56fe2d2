//! The steps that an operator can take for a delivery. There is always one, if only "nothing is needed".

use postrider_core::{DeadReason, Delivery, State};

use postrider_dispatch::lanes::AddressRest;

use super::ExplainContext;
use super::sentences::{ParkReason, withheld};
use crate::api::lanes;

pub(super) fn can_do(context: &ExplainContext<'_>) -> Vec<String> {
    let delivery = context.delivery;
    let mut steps = match delivery.state {
        State::Failed if delivery.discarded => {
            vec!["nothing; send it as a new message if it is needed after all".into()]
        }
        State::Failed => dead(delivery),
        State::Parked => parked(context),
        State::Queued | State::Retrying => {
            vec![format!("postrider messages cancel {}", delivery.message)]
        }
        State::Sending => vec![format!(
            "wait for the answer; `postrider messages cancel {}` stops another attempt",
            delivery.message
        )],
        State::Gone => vec!["let the client subscribe again and register the new address".into()],
        State::Expired => {
            vec![
                "send it again as a new message, with a longer ttl_s if it is still worth it"
                    .into(),
            ]
        }
        State::Cancelled => vec!["nothing; send it as a new message if that was a mistake".into()],
        State::Suppressed if withheld(delivery).is_some() => vec![
            "nothing, unless the recipient changes their mind; see `postrider recipients would-send`".into(),
        ],
        State::Suppressed => vec![format!(
            "ask the receiver whether it has {}; if not, send it as a new message",
            delivery.id
        )],
        _ => vec!["nothing is needed".into()],
    };
    if context.is_pending() && !context.server_sends {
        steps.push("start the server with server.role = \"all\"".into());
    }
    if let Some(region) = context.unserved_region.filter(|_| context.is_pending()) {
        steps.push(format!("start a worker with server.region = {region:?}"));
    }
    if context.strikes.iter().any(|strike| strike.suspect) && delivery.state != State::Gone {
        steps.push(format!(
            "ask the owner of the address; `postrider addresses forgive {}` if it works",
            delivery.address_hash
        ));
    }
    if let (Some(lane), Some(_)) = (context.lane, context.held()) {
        steps.extend(lanes::can_do(lane.id, context.standing, context.own_place_wait));
    }
    steps
}

fn dead(delivery: &Delivery) -> Vec<String> {
    let id = delivery.id;
    let first = match delivery.reason {
        Some(DeadReason::Permanent) => "fix what the provider complains about".to_owned(),
        Some(DeadReason::RetriesExhausted) => "check that the receiver works again".to_owned(),
        Some(DeadReason::Ttl) => {
            format!("postrider dead replay {id} --ttl SECONDS   (with a new TTL)")
        }
        Some(DeadReason::Poison) => {
            "before you send it again, check the disk and the server's log around its last crashes"
                .to_owned()
        }
        Some(DeadReason::Ambiguous) => {
            format!("ask the receiver whether it has {id}; if so, discard, if not, replay")
        }
        Some(DeadReason::Refused) => {
            "check with `postrider lanes list` that its provider takes calls again".to_owned()
        }
        None => "look at its attempts".to_owned(),
    };
    vec![first, format!("postrider dead replay {id}"), format!("postrider dead discard {id}")]
}

fn shortage(context: &ExplainContext<'_>) -> String {
    let what = match context.shortage.map(|shortage| &*shortage.code) {
        Some("connections" | "descriptors") => {
            "raise the server's limit of open files or network.connections_total_max"
        }
        Some("busy") => {
            "raise network.http1_connections_max, or `connections` of the relay's account"
        }
        _ => "look at this machine's network, name servers, ports and memory",
    };
    format!("wait; if it lasts, {what}")
}

fn parked(context: &ExplainContext<'_>) -> Vec<String> {
    let delivery = context.delivery;
    let cancel = format!("postrider messages cancel {}", delivery.message);
    let mut steps = match ParkReason::of(context) {
        ParkReason::Backup => vec![
            format!("postrider deliveries release {}", delivery.id),
            "postrider deliveries release --all --tenant '*'   (everything that is held)".into(),
        ],
        // If its lane waits for the same, the steps of the lane are enough.
        ParkReason::MassGone if context.held().is_some() => Vec::new(),
        ParkReason::MassGone => {
            context.lane.map(|lane| lanes::mass_gone_steps(lane.id)).unwrap_or_default()
        }
        ParkReason::NoFallback => vec!["give such messages another address (to.fallback)".into()],
        ParkReason::Address(AddressRest::Sick { .. } | AddressRest::Slow { .. }) => {
            vec!["ask the receiver's owner why it fails or is slow".into()]
        }
        ParkReason::Address(AddressRest::AskedToWait { .. }) => {
            vec!["wait, as the receiver asked".into()]
        }
        ParkReason::Shortage => vec![shortage(context)],
        ParkReason::RetryBudget => {
            vec!["wait, or raise [retry_budget] in postrider.toml".into()]
        }
        ParkReason::QuietHours => {
            vec!["wait, or use a class with `quiet_hours = \"ignore\"` for what cannot".into()]
        }
        ParkReason::AddressRate => {
            vec!["wait, or raise the channel's `rate_per_address_s` in postrider.toml".into()]
        }
        ParkReason::Over => vec!["nothing is needed".into()],
        ParkReason::Credential => {
            vec!["check the credential or the VAPID key that the last attempt used".into()]
        }
    };
    steps.push(cancel);
    steps
}
