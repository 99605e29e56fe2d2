//! Through which account a lane's next calls go, and which providers all workers share. An account is a provider of
//! its own: it has its own places, limits and breakers, like the host of a webhook. Calls nobody.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use postrider_core::policy::account::AccountOffer;
use postrider_core::{Channel, ChannelKind, ChannelTraits, Gate, LaneKey, LaneState, Timestamp};

use super::checks::LaneContext;
use super::{LaneRefusal, Lanes, ProviderKey, provider_key};

/// What is known about the channels, from their start on.
#[derive(Default)]
pub(super) struct LaneChannels {
    with_accounts: OnceLock<HashMap<ChannelKind, Arc<dyn Channel>>>,
    traits: OnceLock<HashMap<ChannelKind, &'static ChannelTraits>>,
}

/// Where a lane's next calls go.
pub(crate) struct LaneRoute {
    pub(crate) provider: ProviderKey,
    /// The account, if the channel has accounts.
    pub(super) account: Option<Arc<str>>,
    /// Why no account can be used at this moment.
    pub(super) refusal: Option<LaneRefusal>,
}

impl LaneRoute {
    fn through(lane: &LaneKey, account: &Arc<str>) -> Self {
        let provider = (lane.channel, account.clone());
        Self { provider, account: Some(account.clone()), refusal: None }
    }
}

impl LaneChannels {
    fn offers(&self, lane: &LaneKey) -> Vec<AccountOffer> {
        let channel = self.with_accounts.get().and_then(|channels| channels.get(&lane.channel));
        channel.map_or_else(Vec::new, |channel| channel.accounts(&lane.tenant))
    }

    #[cfg(test)]
    pub(super) fn set_traits(&self, channel: ChannelKind, traits: &'static ChannelTraits) {
        let _ = self.traits.set([(channel, traits)].into());
    }

    /// Whether all workers send to the provider, each to some of its addresses.
    pub(super) fn is_wide(&self, channel: ChannelKind, provider: &str) -> bool {
        let traits = self.traits.get().and_then(|traits| traits.get(&channel));
        traits.is_some_and(|traits| traits.is_wide(provider))
    }
}

impl Lanes {
    /// Makes known what the channels are and which accounts they have. Only the first call counts.
    pub fn use_channels(&self, channels: impl IntoIterator<Item = Arc<dyn Channel>>) {
        let all: HashMap<_, _> =
            channels.into_iter().map(|channel| (channel.kind(), channel)).collect();
        let traits = all.iter().map(|(kind, channel)| (*kind, channel.traits())).collect();
        let _ = self.channels.traits.set(traits);
        let with_accounts = all.into_iter().filter(|(_, channel)| channel.traits().has_accounts);
        let _ = self.channels.with_accounts.set(with_accounts.collect());
    }

    pub(super) fn offers(&self, lane: &LaneKey) -> Vec<AccountOffer> {
        self.channels.offers(lane)
    }

    /// Everything that the lane's calls can go through: the accounts, or the provider if there are none.
    pub(crate) fn origins(&self, lane: &LaneKey) -> Vec<ProviderKey> {
        let offers = self.offers(lane);
        match offers.is_empty() {
            true => vec![provider_key(lane)],
            false => offers.into_iter().map(|offer| (lane.channel, offer.name)).collect(),
        }
    }

    /// The names of [these](Self::origins): what an operator's order about a breaker concerns.
    pub fn origin_names(&self, lane: &LaneKey) -> Vec<Arc<str>> {
        self.origins(lane).into_iter().map(|(_, name)| name).collect()
    }

    pub(crate) fn route(&self, lane: &LaneKey) -> LaneRoute {
        let route = self.route_among(lane, self.offers(lane));
        route.unwrap_or_else(|| LaneRoute {
            provider: provider_key(lane),
            account: None,
            refusal: None,
        })
    }

    /// The route of a message that only some of the accounts fit; nothing if none does.
    pub(crate) fn route_of(
        &self,
        lane: &LaneKey,
        fits: impl Fn(&AccountOffer) -> bool,
    ) -> Option<LaneRoute> {
        self.route_among(lane, self.offers(lane).into_iter().filter(fits).collect())
    }

    /// The first account that works. One that works and has no place free is waited for: a full account is no
    /// reason to use a more expensive one.
    fn route_among(&self, lane: &LaneKey, offers: Vec<AccountOffer>) -> Option<LaneRoute> {
        let now = self.clock.now();
        if let [only] = &*offers {
            let refusal = only.held.map(|held| LaneRefusal {
                state: held.into(),
                of_provider: true,
                holds_part: false,
            });
            return Some(LaneRoute { refusal, ..LaneRoute::through(lane, &only.name) });
        }
        let mut held = Vec::with_capacity(offers.len());
        for AccountOffer { name, held: hold } in &offers {
            let route = LaneRoute::through(lane, name);
            let provider = self.provider(&route.provider, now);
            let state = match hold {
                Some(hold) => Some(LaneState::from(*hold)),
                None => LaneContext::new(self, lane, &provider, now).provider_refusal(),
            };
            match state {
                None => return Some(route),
                Some(state) => held.push((state, route)),
            }
        }
        most_hopeful(held)
    }
}

/// Of several accounts that are held, the one that may be used first.
fn most_hopeful(held: Vec<(LaneState, LaneRoute)>) -> Option<LaneRoute> {
    let until = |state: &LaneState| match state {
        LaneState::Waiting { until, .. } => *until,
        LaneState::Blocked { .. } | LaneState::Ready => Timestamp::MAX,
    };
    let first = held.iter().map(|(state, _)| until(state)).min()?;
    let is_shut = |state: &LaneState| {
        matches!(state.gate(), Some(Gate::Breaker | Gate::Credential | Gate::MassGone))
    };
    let (state, route) =
        held.into_iter().min_by_key(|(state, _)| (is_shut(state), until(state)))?;
    let state = match state.gate() {
        Some(on) if first < Timestamp::MAX => LaneState::Waiting { on, until: first },
        _ => state,
    };
    // Other lanes may wait for another of the accounts.
    let refusal = LaneRefusal { state, of_provider: false, holds_part: false };
    Some(LaneRoute { refusal: Some(refusal), ..route })
}
