//! Counts of receipts. What is recorded is counted apart from what is not.

use postrider_core::{Delivery, ReceiptKind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::labels::{ChannelLabel, OutcomeLabel};
use super::registrar::Registrar;
use super::{EventBody, Metrics};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReceiptLabels {
    channel: ChannelLabel,
    outcome: &'static str,
}

pub(super) struct ReceiptMetrics {
    recorded: Family<ReceiptLabels, Counter>,
    unrecorded: Family<OutcomeLabel, Counter>,
}

impl ReceiptMetrics {
    pub(super) fn new(r: &mut Registrar) -> Self {
        Self {
            recorded: r.add("receipts", "Receipts recorded, by what they report"),
            unrecorded: r.add("receipts_not_recorded", "Receipts that changed nothing, by reason"),
        }
    }
}

impl Metrics {
    /// Counts a receipt that is recorded, and shows it to those who listen.
    pub(crate) fn receipt_recorded(&self, delivery: &Delivery, kind: ReceiptKind) {
        let (channel, outcome) = (ChannelLabel(delivery.channel), kind.name());
        self.receipts.recorded.get_or_create(&ReceiptLabels { channel, outcome }).inc();
        self.events.publish(|| EventBody {
            state: Some(delivery.state.name()),
            outcome: Some(outcome),
            ..EventBody::of_receipt(delivery)
        });
    }

    /// Counts a receipt that is not.
    pub(crate) fn receipt_not_recorded(&self, outcome: &'static str) {
        self.receipts.unrecorded.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
