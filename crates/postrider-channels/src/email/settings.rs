//! `[email]`, and what the program knows about e-mail.

use async_trait::async_trait;
use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde_json::json;

use super::{
    EmailAccount, EmailChannel, EmailContent, EmailIntake, KIND, ReputationPolicy, render,
};
use crate::Error;
use crate::accounts::{AccountFields, Accounts};
use crate::definition::{
    AccountGuide, AddressField, BuiltChannel, ChannelDefinition, ChannelFacts, ChannelParts,
    SendOption,
};
use crate::preview::ContentPreview;
use crate::settings::{ChannelLimits, channel_section};

channel_section! {
    /// E-mail. The timeout applies until the mail itself is sent. After that, the relay has final_dot_timeout_s of the
    /// account to accept it.
    EmailSection as "email" {
        /// If more than this share of the mails from one sending domain to one receiving domain is refused for
        /// policy (spam, DMARC, SPF, PTR), ...
        reputation_share: f64 = 0.2,
        /// ... out of at least this many ...
        reputation_mails_min: u32 = 20,
        /// ... within this time, ...
        reputation_window_s: u32 = 3_600,
        /// ... the mails of that pair wait for so long, without using up attempts. SMTP accounts only.
        reputation_hold_s: u32 = 900,
    }
    limits "Mails" ", all accounts together" = ChannelLimits::USUAL
}

const ACCOUNTS: &str = "\
# email: provider is smtp (host; port; tls: implicit, starttls, opportunistic or none; user with
# credential, oauth where that is a token; ehlo; connections, mails_per_connection, final_dot_timeout_s),
# ses (region, key_id, credential, session_token, configuration_set) or sendgrid (credential). All have
# from, from_name, reply_to, return_path, unsubscribe_url and unsubscribe_mailto ({delivery} stands for
# the delivery's id), feedback_id, and dkim keys (selector, key, domain): each of them signs.
# [accounts.relay]
# channel = \"email\"
# tenant = \"*\"
# host = \"smtp.example.com\"
# user = \"shop\"
# credential = \"file:/run/secrets/smtp\"
# from = \"news@shop.example\"
# from_name = \"The shop\"
# return_path = \"bounce+{delivery}@shop.example\"
# dkim = [{ selector = \"s1\", key = \"file:/run/secrets/dkim.pem\" }]
";

/// The default of an account's `final_dot_timeout_s`.
const FINAL_DOT_TIMEOUT_S: u64 = 60;

pub(super) static FACTS: ChannelFacts = ChannelFacts {
    kind: KIND,
    part_check: |raw| read_part::<EmailContent<'_>>(KIND, raw).map(drop),
    accounts: Some(AccountGuide::of::<EmailAccount>(ACCOUNTS)),
    address_fields: &[
        AddressField::text("email", "the recipient's address"),
        AddressField::optional_text("name", "the recipient's name"),
    ],
    address_example: r#"{"channel": "email", "email": "ada@example.com", "name": "Ada"}"#,
    content_about: "`{\"subject\": \"…\", \"html\": \"…\", \"text\": \"…\"}`",
    send_option: Some(SendOption {
        value_name: "ADDRESS",
        help: "To an e-mail address; --title is its subject",
        field: "email",
        more: &[],
        example: Some("--email ada@example.org --title Shipped --body 'Order 91 is on its way'"),
    }),
};

#[async_trait]
impl ChannelDefinition for EmailSection {
    fn check(&self) -> Result<(), FieldError> {
        if !(self.reputation_share > 0.0 && self.reputation_share <= 1.0) {
            let allowed = "above 0, up to 1 (nothing is ever held)";
            let found = self.reputation_share.to_string();
            return Err(FieldError::new("reputation_share", found, allowed));
        }
        for (field, found) in [
            ("reputation_mails_min", self.reputation_mails_min),
            ("reputation_window_s", self.reputation_window_s),
            ("reputation_hold_s", self.reputation_hold_s),
        ] {
            if !(1..=86_400).contains(&found) {
                return Err(FieldError::new(field, found.to_string(), "1 to 86400"));
            }
        }
        Ok(())
    }

    fn attempt_s_max(&self, accounts: &[&AccountFields]) -> u64 {
        let final_dot_s = |account: &&AccountFields| {
            let own = account.get("final_dot_timeout_s").and_then(serde_json::Value::as_u64);
            own.unwrap_or(FINAL_DOT_TIMEOUT_S)
        };
        self.timeout_s.saturating_add(accounts.iter().map(final_dot_s).max().unwrap_or(0))
    }

    fn preview(&self, content: &Content<'_>) -> Option<ContentPreview> {
        let own = EmailContent::of(content).ok()?;
        let mail = render(content, &own);
        let html = mail.html.as_deref();
        let bytes = mail.text.len() + html.map_or(0, str::len);
        let parts = json!({"subject": mail.subject, "text": mail.text, "html": html});
        Some(ContentPreview::new(parts, bytes, None))
    }

    async fn build(&self, parts: ChannelParts) -> Result<BuiltChannel, Error> {
        let tls = parts.wiring.pool.tls_without_http();
        let accounts = Accounts::build(KIND, &parts, |own: EmailAccount| own.settings(&tls))?;
        let international = accounts.iter().any(|a| a.settings.carrier.is_international());
        let reputation = ReputationPolicy {
            share: self.reputation_share,
            mails_min: self.reputation_mails_min,
            window_s: self.reputation_window_s,
            hold_s: self.reputation_hold_s,
        };
        let channel = EmailChannel::new(parts.wiring, accounts.clone()).reputation(reputation);
        let intake =
            EmailIntake { policy: parts.network, serves: accounts.serving(), international };
        Ok(BuiltChannel::with_accounts(channel, intake, accounts))
    }
}
