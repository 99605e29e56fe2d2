//! An ntfy server as it is written in the configuration.

use postrider_core::FieldError;
use serde::{Deserialize, Serialize};

use super::NtfyServer;
use crate::accounts::{CheckFields, CheckedFields, Material, SecretRef, needs};

/// What `[accounts.NAME]` with `channel = "ntfy"` holds beside what all accounts have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtfyAccount(CheckedFields<NtfyAccountFields>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NtfyAccountFields {
    /// The server, other than ntfy.sh.
    #[serde(default = "ntfy_sh", skip_serializing_if = "is_ntfy_sh")]
    endpoint: String,
    /// Whose password the credential is. Without a user, the credential is an access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Absent if everybody may publish there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<SecretRef>,
}

fn ntfy_sh() -> String {
    "https://ntfy.sh".to_owned()
}

fn is_ntfy_sh(endpoint: &str) -> bool {
    endpoint == ntfy_sh()
}

impl CheckFields for NtfyAccountFields {
    fn check(&self) -> Result<(), FieldError> {
        let Some(user) = &self.user else { return Ok(()) };
        if user.is_empty() || user.contains(':') {
            // What follows a colon may be the password.
            let found = if user.is_empty() { "nothing" } else { "a text with a colon" };
            return Err(FieldError::new("user", found, "a name without a colon"));
        }
        needs("credential", self.credential.is_none(), "a reference to the user's password")
    }
}

impl NtfyAccount {
    pub(super) fn server(&self) -> NtfyServer {
        let read = if self.0.user.is_some() { read_password } else { read_token };
        let credential = self.0.credential.clone();
        NtfyServer {
            endpoint: self.0.endpoint.trim_end_matches('/').to_owned(),
            user: self.0.user.clone(),
            secret: credential.map(|reference| Material::new(reference, read)),
        }
    }
}

fn read_password(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A token as a part of a header. The error does not repeat it.
fn read_token(text: &str) -> Result<String, String> {
    match text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("not an access token: letters, digits and _".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_password_and_a_server_may_be_open_to_all() {
        let read = |json: &str| {
            serde_json::from_str::<NtfyAccount>(json).map_err(|error| error.to_string())
        };
        let open = read("{}").unwrap().server();
        assert_eq!((open.endpoint.as_str(), open.secret.is_none()), ("https://ntfy.sh", true));
        let own = read(r#"{"endpoint":"https://a.example/","user":"ada","credential":"env:X"}"#);
        let own = own.unwrap().server();
        assert_eq!(
            (own.endpoint.as_str(), own.user.as_deref()),
            ("https://a.example", Some("ada"))
        );
        assert!(read(r#"{"user":"ada"}"#).unwrap_err().contains("credential: found nothing"));
        assert!(read(r#"{"user":"a:b","credential":"env:X"}"#).unwrap_err().contains("colon"));
    }

    #[test]
    fn a_token_that_is_no_header_is_refused_without_being_repeated() {
        assert!(read_token("tk_0123").is_ok());
        assert!(!read_token("tk_0123\nx: y").unwrap_err().contains("tk_0123"));
    }
}
