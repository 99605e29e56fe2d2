//! A bot as it is written in the configuration.

use serde::{Deserialize, Serialize};

use crate::accounts::SecretRef;

/// What `[accounts.NAME]` with `channel = "telegram"` holds beside what all accounts have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelegramAccount {
    /// The bot's token, as BotFather gives it out.
    pub credential: SecretRef,
    /// Where the Bot API is, other than at Telegram: a server of your own, or a test.
    #[serde(default = "telegram", skip_serializing_if = "is_telegram")]
    pub endpoint: String,
}

fn telegram() -> String {
    "https://api.telegram.org".to_owned()
}

fn is_telegram(endpoint: &str) -> bool {
    endpoint == telegram()
}

/// A token as a part of a URL. The error does not repeat it.
pub(super) fn read_token(text: &str) -> Result<String, String> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b":_-".contains(&b);
    match text.bytes().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => {
            Err("not a bot's token: digits, a colon, then letters, digits, _ and -".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_change_the_url_is_refused_without_being_repeated() {
        assert!(read_token("123456:AAF-x_y").is_ok());
        for text in ["123456:AA/../x", "123456:AA?x", "12 34"] {
            assert!(!read_token(text).unwrap_err().contains(text));
        }
    }
}
