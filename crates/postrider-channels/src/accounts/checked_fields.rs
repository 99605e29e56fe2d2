//! The fields of an account as they are configured. They cannot be used before they are checked. Knows no channel.

use postrider_core::FieldError;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Checks that the fields make a usable account.
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

/// Returns an error if the field is missing.
pub(crate) fn needs(field: &str, missing: bool, allowed: &str) -> Result<(), FieldError> {
    match missing {
        true => Err(FieldError::new(field, "nothing", allowed)),
        false => Ok(()),
    }
}
