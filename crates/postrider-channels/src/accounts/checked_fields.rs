//! An account as it is written in the configuration: nobody sees its fields before they were checked. Knows no
//! channel.

use postrider_core::FieldError;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// What fields must be to make an account.
pub(crate) trait CheckFields {
    fn check(&self) -> Result<(), FieldError>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct CheckedFields<F>(F);

impl<'de, F: Deserialize<'de> + CheckFields> Deserialize<'de> for CheckedFields<F> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = F::deserialize(from)?;
        fields.check().map_err(|wrong| {
            let FieldError { field, found, allowed } = wrong;
            D::Error::custom(format!("{field}: found {found}, allowed is {allowed}"))
        })?;
        Ok(Self(fields))
    }
}

impl<F> std::ops::Deref for CheckedFields<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

/// An error if the field, or what goes with it, is not there.
pub(crate) fn needs(field: &str, missing: bool, allowed: &str) -> Result<(), FieldError> {
    match missing {
        true => Err(FieldError::new(field, "nothing", allowed)),
        false => Ok(()),
    }
}
