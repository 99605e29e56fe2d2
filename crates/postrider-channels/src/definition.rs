//! What a channel tells the rest of the program about itself. [`crate::registry`] lists the channels.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::content::{Content, PartCheck};
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::limiter::Rate;
use postrider_core::{Channel, ChannelIntake, ChannelKind, FieldError};
use serde::de::DeserializeOwned;

use crate::accounts::health::{AccountHealth, Finding};
use crate::accounts::{AccountConfig, AccountFields, check_fields};
use crate::callbacks::ProviderCallbacks;
use crate::settings::ChannelSection;
use crate::{
    ContentPreview, Error, NetworkPolicy, ReceiptLinks, VapidKeys, WebhookSecrets, Wiring,
};

/// What a channel says about itself, whatever its settings are. `FACTS` in its `settings.rs`.
pub struct ChannelFacts {
    pub kind: ChannelKind,
    /// Checks the form of the channel's part of a content.
    pub part_check: PartCheck,
    /// What accounts of this channel need; none for a channel without accounts.
    pub accounts: Option<AccountGuide>,
    /// The fields of an address, for the API's description.
    pub address_fields: &'static [AddressField],
    /// An address as JSON, for the API's description.
    pub address_example: &'static str,
    /// What `content` can say for this channel alone, for the API's description.
    pub content_about: &'static str,
    /// The option of `postrider send` for an address of this channel.
    pub send_option: Option<SendOption>,
}

/// A channel, as the rest of the program knows it. The channel's section of the configuration implements it:
/// a section with default settings answers all questions that do not depend on settings.
#[async_trait]
pub trait ChannelDefinition: ChannelSection {
    fn kind(&self) -> ChannelKind {
        self.facts().kind
    }

    /// Checks the settings that only this channel has. Fields are named relative to the section.
    fn check(&self) -> Result<(), FieldError> {
        Ok(())
    }

    /// The longest time that one attempt can take, given all accounts of this channel.
    fn attempt_s_max(&self, _accounts: &[&AccountFields]) -> u64 {
        self.limits().timeout_s
    }

    /// What the channel would send; none where it could not send the content at all.
    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview>;

    /// Checks of `doctor` that concern the section itself. Calls nobody.
    fn examine_settings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Builds the channel as these settings describe it.
    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error>;
}

/// What a channel is built from, beside its settings.
pub struct ChannelParts {
    /// With the deadline of this channel's attempts.
    pub wiring: Wiring,
    pub network: NetworkPolicy,
    /// When an account counts as failing.
    pub breaker: BreakerPolicy,
    /// The accounts of this channel.
    pub accounts: Vec<AccountConfig<AccountFields>>,
    pub vapid_keys: Arc<dyn VapidKeys>,
    pub webhook_secrets: Arc<dyn WebhookSecrets>,
    /// Absent if no receipts are taken.
    pub receipts: Option<Arc<dyn ReceiptLinks>>,
}

impl ChannelParts {
    /// The accounts with their settings read.
    pub(crate) fn read_accounts<C: DeserializeOwned>(
        &self,
    ) -> Result<Vec<AccountConfig<C>>, Error> {
        self.accounts.iter().map(AccountConfig::read).collect()
    }
}

/// A channel that can be used.
pub struct BuiltChannel {
    pub channel: Arc<dyn Channel>,
    pub intake: Arc<dyn ChannelIntake>,
    /// None for a channel without accounts.
    pub accounts: Option<Arc<dyn AccountHealth>>,
    /// Reads the calls of its providers; none if they make none.
    pub callbacks: Option<Arc<dyn ProviderCallbacks>>,
}

impl BuiltChannel {
    pub(crate) fn without_accounts(
        channel: impl Channel + 'static,
        intake: impl ChannelIntake + 'static,
    ) -> Self {
        let (channel, intake) = (Arc::new(channel), Arc::new(intake));
        Self { channel, intake, accounts: None, callbacks: None }
    }

    pub(crate) fn with_accounts(
        channel: impl Channel + 'static,
        intake: impl ChannelIntake + 'static,
        accounts: Arc<dyn AccountHealth>,
    ) -> Self {
        Self { accounts: Some(accounts), ..Self::without_accounts(channel, intake) }
    }

    pub(crate) fn with_callbacks(self, callbacks: impl ProviderCallbacks + 'static) -> Self {
        Self { callbacks: Some(Arc::new(callbacks)), ..self }
    }
}

/// What accounts of one channel need.
#[derive(Clone, Copy)]
pub struct AccountGuide {
    /// The fields, and examples of accounts, as commented lines of the reference page.
    pub reference: &'static str,
    /// What the provider usually grants an account; none where nothing is known.
    pub usual_rate: Option<Rate>,
    /// Checks the fields of one account.
    pub check: fn(&AccountFields) -> Result<(), serde_json::Error>,
}

impl AccountGuide {
    /// For accounts with the settings `C`.
    pub(crate) const fn of<C: DeserializeOwned>(reference: &'static str) -> Self {
        Self { reference, usual_rate: None, check: check_fields::<C> }
    }
}

/// A field of an address, for the API's description.
#[derive(Debug, Clone, Copy)]
pub struct AddressField {
    pub name: &'static str,
    pub about: &'static str,
    pub form: FieldForm,
    /// False: an address without it is complete.
    pub required: bool,
}

impl AddressField {
    /// A text that every address has.
    pub(crate) const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, about, form: FieldForm::Text, required: true }
    }

    pub(crate) const fn optional_text(name: &'static str, about: &'static str) -> Self {
        Self { name, about, form: FieldForm::Text, required: false }
    }
}

/// The form of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldForm {
    Text,
    TextList,
    /// Texts by name, whatever the names are.
    TextMap,
    /// An object with these texts in it.
    Object {
        name: &'static str,
        fields: &'static [&'static str],
    },
}

/// An option of `postrider send`. It is called like the channel, and its value is one field of the address.
#[derive(Debug, Clone, Copy)]
pub struct SendOption {
    pub value_name: &'static str,
    pub help: &'static str,
    pub field: &'static str,
    /// Options for more fields of the address, each called like its field.
    pub more: &'static [SendOptionField],
    /// How it is used, without `postrider send` in front.
    pub example: Option<&'static str>,
}

/// An option of `postrider send` for one more field of an address.
#[derive(Debug, Clone, Copy)]
pub struct SendOptionField {
    pub name: &'static str,
    pub value_name: &'static str,
    pub help: &'static str,
    pub is_required: bool,
}

/// Gives a channel's part of a content the function `of`.
macro_rules! impl_content {
    ($content:ident) => {
        impl<'a> $content<'a> {
            /// The channel's part of a content; empty if it has none.
            pub fn of(
                content: &postrider_core::model::content::Content<'a>,
            ) -> Result<Self, postrider_core::FieldError> {
                content.part(super::KIND).map(Option::unwrap_or_default)
            }
        }
    };
}

/// The functions of a `ChannelIntake` that follow from the channel's facts and its target. With `serves`, the intake
/// has a field that says which tenants have an account.
macro_rules! intake_of {
    ($target:ident, serves) => {
        $crate::definition::intake_of!($target);

        fn serves(&self, tenant: &postrider_core::TenantId) -> bool {
            (self.serves)(tenant)
        }
    };
    ($target:ident) => {
        fn kind(&self) -> postrider_core::ChannelKind {
            super::KIND
        }

        fn traits(&self) -> &'static postrider_core::ChannelTraits {
            &super::TRAITS
        }

        fn locator<'a>(&self, target: &'a postrider_core::Target) -> std::borrow::Cow<'a, str> {
            $crate::target::locator_of::<$target<'a>>(target)
        }

        fn provider(&self, target: &postrider_core::Target) -> std::sync::Arc<str> {
            $crate::target::provider_of::<$target<'_>>(target)
        }

        fn part_check(&self) -> postrider_core::model::content::PartCheck {
            super::settings::FACTS.part_check
        }
    };
}
pub(crate) use {impl_content, intake_of};
