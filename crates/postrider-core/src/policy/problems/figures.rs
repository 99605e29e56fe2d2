//! The figures that signs are judged by: rows of the last minutes, summed by provider, and what the server says of
//! itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::message::TenantId;
use crate::model::time::Timestamp;
use crate::policy::problems::known::KnownFailures;
use crate::policy::rollup::{RollupFigures, RollupKey, RollupKind};

pub const MINUTE_MS: i64 = 60_000;

/// A row of one minute.
#[derive(Debug, Clone)]
pub struct MinuteRow {
    pub at: Timestamp,
    pub key: RollupKey,
    pub figures: RollupFigures,
}

/// A credential that does not work or ends soon, or an account that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountTrouble {
    pub account: String,
    pub channel: String,
    pub trouble: AccountTroubleKind,
    pub what: String,
    /// Whose account it is, if not everybody's.
    pub tenant: Option<TenantId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountTroubleKind {
    CredentialFails,
    CredentialEnds,
    BreakerOpen,
}

/// What the server says of itself at this moment.
#[derive(Debug, Clone, Default)]
pub struct ServerFigures {
    /// Deliveries that are not final.
    pub depth: u64,
    /// The lowest depth of the last quarter of an hour; absent if the server did not run for so long.
    pub depth_lowest: Option<u64>,
    /// From how many on the depth is unusual, if that is known.
    pub depth_unusual_from: Option<f64>,
    /// The used share of the capacity.
    pub fill: f64,
    /// Tenants whose own capacity is nearly used.
    pub full_tenants: Vec<(TenantId, f64)>,
    /// How late deliveries are taken up.
    pub lag_s: f64,
    /// What the store says is wrong: a code and a text.
    pub store: Vec<(String, String)>,
    pub accounts: Vec<AccountTrouble>,
}

/// Everything that is known at this moment.
pub struct Observations<'a> {
    pub now: Timestamp,
    /// Rows of all tenants together, of the last quarter of an hour.
    pub rows: &'a [MinuteRow],
    /// Rows of single tenants, of the last two minutes.
    pub of_tenants: &'a [(TenantId, MinuteRow)],
    pub server: &'a ServerFigures,
    pub known: &'a KnownFailures,
}

/// A channel and a provider.
pub type Place = (String, String);

pub fn place(key: &RollupKey) -> Place {
    (key.channel.to_string(), key.provider.to_string())
}

/// Which providers a check holds at this moment. The counts of a minute only grow while it does, so that two looks
/// have to be compared.
#[derive(Debug, Default)]
pub struct HeldMemory(HashMap<(Timestamp, Place, String), u64>);

impl HeldMemory {
    /// The checks that hold each provider. At the first look, all that were counted in the last minutes.
    pub fn look(
        &mut self,
        rows: &[MinuteRow],
        now: Timestamp,
    ) -> BTreeMap<Place, BTreeSet<String>> {
        let recent = Timestamp(now.0 - 2 * MINUTE_MS);
        let mut counts: HashMap<_, u64> = HashMap::new();
        for row in rows.iter().filter(|row| row.key.kind == RollupKind::Held && row.at > recent) {
            let name = (row.at, place(&row.key), row.key.outcome.to_string());
            *counts.entry(name).or_default() += row.figures.count;
        }
        let mut held: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
        for (name, count) in &counts {
            if self.0.get(name).is_none_or(|before| count > before) {
                held.entry(name.1.clone()).or_default().insert(name.2.clone());
            }
        }
        self.0 = counts;
        held
    }
}

/// Minutes of providers in which a check held calls, and the minutes beside them: what fails then has a known cause.
pub struct ExcusedMinutes(BTreeSet<(Place, i64)>);

impl ExcusedMinutes {
    pub fn of(rows: &[MinuteRow]) -> Self {
        let held = rows.iter().filter(|row| row.key.kind == RollupKind::Held);
        let minutes = held.flat_map(|row| {
            let minute = row.at.0.div_euclid(MINUTE_MS);
            [minute - 1, minute, minute + 1].map(|minute| (place(&row.key), minute))
        });
        Self(minutes.collect())
    }

    pub fn has(&self, row: &MinuteRow) -> bool {
        self.0.contains(&(place(&row.key), row.at.0.div_euclid(MINUTE_MS)))
    }
}
