//! One e-mail account with its provider and its DKIM keys. Writes and signs mails; sends nothing.

use std::sync::Arc;

use postrider_core::{Attempt, DeliveryId};

use super::account::EmailAccount;
use super::dkim::DkimKey;
use super::mime::{MailDraft, Mailbox, Unsubscribe};
use super::render::RenderedEmail;
use super::sendgrid::SendGrid;
use super::ses::Ses;
use super::smtp::Relay;
use super::{EmailContent, EmailTarget};
use crate::accounts::Material;
use crate::deliver::{Ended, hidden_cause, misconfigured};

/// Placeholder of the delivery's id in an address or URL.
pub(super) const DELIVERY: &str = "{delivery}";

/// The provider that sends the mails of an account.
pub enum Carrier {
    Smtp(Arc<Relay>),
    Ses(Box<Ses>),
    SendGrid(Box<SendGrid>),
}

impl Carrier {
    /// Whether it may accept non-ASCII letters before the @. A relay tells it only in a session; the services refuse.
    pub fn is_international(&self) -> bool {
        matches!(self, Self::Smtp(_))
    }
}

pub struct DkimSettings {
    pub domain: String,
    pub selector: String,
    pub key: Material<DkimKey>,
}

pub struct EmailSettings {
    pub account: EmailAccount,
    pub dkim: Vec<DkimSettings>,
    pub carrier: Carrier,
}

/// The account's addresses with the delivery's id filled in.
pub(super) struct ReturnAddresses {
    pub(super) return_path: String,
    unsubscribe_url: Option<String>,
    unsubscribe_mailto: Option<String>,
}

impl EmailSettings {
    /// Whether the account may accept a mail to this address.
    pub(super) fn may_send_to(&self, email: &str) -> bool {
        email.is_ascii() || self.carrier.is_international()
    }

    pub(super) fn return_addresses(&self, delivery: DeliveryId) -> ReturnAddresses {
        let fields = &self.account.0;
        let stamp = |text: &String| match text.contains(DELIVERY) {
            true => text.replace(DELIVERY, &delivery.to_string()),
            false => text.clone(),
        };
        let path = fields.return_path.as_ref().filter(|path| !path.is_empty());
        ReturnAddresses {
            return_path: stamp(path.unwrap_or(&fields.from)),
            unsubscribe_url: fields.unsubscribe_url.as_ref().map(stamp),
            unsubscribe_mailto: fields.unsubscribe_mailto.as_ref().map(stamp),
        }
    }

    pub(super) fn draft<'a>(
        &'a self,
        attempt: &'a Attempt,
        target: &'a EmailTarget<'a>,
        own: &'a EmailContent<'a>,
        words: &'a RenderedEmail<'a>,
        return_addresses: &'a ReturnAddresses,
    ) -> MailDraft<'a> {
        let fields = &self.account.0;
        let reply_to = own.reply_to.as_deref().or(fields.reply_to.as_deref());
        let unsubscribe = match (own.unsubscribe_url.as_deref(), own.unsubscribe_mailto.as_deref())
        {
            (None, None) => Unsubscribe {
                url: return_addresses.unsubscribe_url.as_deref(),
                mailto: return_addresses.unsubscribe_mailto.as_deref(),
            },
            (url, mailto) => Unsubscribe { url, mailto },
        };
        MailDraft {
            delivery: attempt.delivery,
            date: attempt.message.created_at,
            from: Mailbox { name: fields.from_name.as_deref(), address: &fields.from },
            to: Mailbox { name: target.name.as_deref(), address: &target.email },
            reply_to: reply_to.map(|address| Mailbox { name: None, address }),
            subject: &words.subject,
            text: &words.text,
            html: words.html.as_deref(),
            unsubscribe,
            feedback_id: fields.feedback_id.as_deref(),
        }
    }

    /// The mail as bytes with all signatures. A missing key parks the mail, because an unsigned mail harms the
    /// sender's reputation.
    pub(super) async fn write(&self, draft: &MailDraft<'_>) -> Result<Vec<u8>, Ended> {
        let mail = draft.build();
        let mut signatures = Vec::with_capacity(self.dkim.len());
        for dkim in &self.dkim {
            let key = dkim.key.get().await;
            let key = key.map_err(|why| hidden_cause("dkim_key_missing", &why))?;
            let signature = key.sign(&dkim.domain, &dkim.selector, &mail, draft.date);
            signatures.push(signature.map_err(|why| misconfigured("dkim", &why.to_string()))?);
        }
        Ok(mail.write(&signatures))
    }
}
