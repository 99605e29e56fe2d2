//! Rollups: what happened in one minute or one hour, counted by channel, provider, class and outcome. Rows of the same
//! name add up. Knows no time and no store.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::latency_histogram::LatencyHistogram;

/// The provider of rows that got no row of their own.
pub const OTHER: &str = "other";

/// What a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollupKind {
    /// Calls to a provider, by the outcome of the answer. The times are those of the calls.
    Attempts,
    /// Deliveries that reached a final state, by state; dead letters by their reason. The times count from acceptance.
    Deliveries,
    /// Seconds in which a check held calls of a tenant to a provider, by check. There are no times.
    Held,
    /// Batches that the server took up, for all channels together. The times say how late, because it was busy.
    Overhead,
}

impl RollupKind {
    pub const ALL: [Self; 4] = [Self::Attempts, Self::Deliveries, Self::Held, Self::Overhead];

    pub fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Deliveries => "deliveries",
            Self::Held => "held",
            Self::Overhead => "overhead",
        }
    }
}

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollupKey {
    pub kind: RollupKind,
    pub channel: Arc<str>,
    pub provider: Arc<str>,
    pub class: Arc<str>,
    pub outcome: Arc<str>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RollupFigures {
    pub count: u64,
    /// Attempts that were not the first of their delivery; deliveries that needed more than one.
    pub repeats: u64,
    /// Attempts that were answered with status 400.
    pub bad_requests: u64,
    pub times: LatencyHistogram,
}

impl RollupFigures {
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.repeats = self.repeats.saturating_add(other.repeats);
        self.bad_requests = self.bad_requests.saturating_add(other.bad_requests);
        self.times.add(&other.times);
    }
}

/// Rows by what they are about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RollupTable(BTreeMap<RollupKey, RollupFigures>);

/// Kind, channel, provider, class, outcome, count, repeats, bad requests, times.
type RollupRowText<'a> = (
    RollupKind,
    Cow<'a, str>,
    Cow<'a, str>,
    Cow<'a, str>,
    Cow<'a, str>,
    u64,
    u64,
    u64,
    LatencyHistogram,
);

impl RollupTable {
    pub fn add(&mut self, key: RollupKey, figures: &RollupFigures) {
        self.0.entry(key).or_default().add(figures);
    }

    /// The same with a bound: a row beyond it counts for the provider `other`.
    pub fn add_bounded(&mut self, key: RollupKey, figures: &RollupFigures, rows_max: usize) {
        let key = match self.0.len() < rows_max || self.0.contains_key(&key) {
            true => key,
            false => RollupKey { provider: OTHER.into(), ..key },
        };
        self.add(key, figures);
    }

    pub fn rows(&self) -> impl Iterator<Item = (&RollupKey, &RollupFigures)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As stores keep it.
    pub fn to_text(&self) -> String {
        let row = |(key, figures): (&RollupKey, &RollupFigures)| {
            let text: RollupRowText<'_> = (
                key.kind,
                (*key.channel).into(),
                (*key.provider).into(),
                (*key.class).into(),
                (*key.outcome).into(),
                figures.count,
                figures.repeats,
                figures.bad_requests,
                figures.times,
            );
            serde_json::to_string(&text).unwrap_or_default()
        };
        let rows: Vec<_> = self.0.iter().map(row).collect();
        format!("[{}]", rows.join(","))
    }

    /// Adds the rows of a stored text.
    pub fn add_text(&mut self, text: &str) -> Result<(), serde_json::Error> {
        for row in serde_json::from_str::<Vec<RollupRowText<'_>>>(text)? {
            let (kind, channel, provider, class, outcome, count, repeats, bad_requests, times) =
                row;
            let key = RollupKey {
                kind,
                channel: channel.as_ref().into(),
                provider: provider.as_ref().into(),
                class: class.as_ref().into(),
                outcome: outcome.as_ref().into(),
            };
            self.add(key, &RollupFigures { count, repeats, bad_requests, times });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(provider: &str, outcome: &str) -> RollupKey {
        RollupKey {
            kind: RollupKind::Attempts,
            channel: "webhook".into(),
            provider: provider.into(),
            class: "otp".into(),
            outcome: outcome.into(),
        }
    }

    fn figures(count: u64, ms: u64) -> RollupFigures {
        let mut figures =
            RollupFigures { count, repeats: 1, bad_requests: 2, ..RollupFigures::default() };
        (0..count).for_each(|_| figures.times.note(ms));
        figures
    }

    #[test]
    fn tables_add_up_through_their_texts() {
        let (mut one, mut two) = (RollupTable::default(), RollupTable::default());
        one.add(key("https://a \"b\" \\ \u{fc}", "accepted"), &figures(3, 20));
        two.add(key("https://a \"b\" \\ \u{fc}", "accepted"), &figures(4, 700));
        two.add(key("https://c", "gone"), &figures(1, 5));
        let mut read = RollupTable::default();
        read.add_text(&one.to_text()).unwrap();
        read.add_text(&two.to_text()).unwrap();
        let rows: Vec<_> = read.rows().map(|(key, all)| (&*key.outcome, all.count)).collect();
        assert_eq!(rows, [("accepted", 7), ("gone", 1)]);
        let mut sum = figures(3, 20);
        sum.add(&figures(4, 700));
        assert_eq!(read.rows().next().map(|(_, all)| *all), Some(sum));
        let mut empty = RollupTable::default();
        empty.add_text(&RollupTable::default().to_text()).unwrap();
        assert!(empty.is_empty());
        assert!(empty.add_text("[[1]]").is_err());
    }

    #[test]
    fn rows_beyond_the_bound_count_as_other() {
        let mut table = RollupTable::default();
        for n in 0..10 {
            table.add_bounded(key(&format!("https://h{n}"), "accepted"), &figures(1, 5), 3);
            table.add_bounded(key("https://h0", "accepted"), &figures(1, 5), 3);
        }
        let rows: Vec<_> = table.rows().map(|(key, all)| (&*key.provider, all.count)).collect();
        assert_eq!(rows, [("https://h0", 11), ("https://h1", 1), ("https://h2", 1), ("other", 7)]);
    }
}
