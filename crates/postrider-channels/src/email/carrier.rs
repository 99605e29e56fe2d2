//! The settings of one e-mail account for all its mails: sender, reply and return addresses, unsubscribing, DKIM
//! keys. Sends nothing.

use std::sync::Arc;

use postrider_core::{Attempt, DeliveryId};

use super::dkim::DkimKey;
use super::mime::{MailDraft, Mailbox, Unsubscribe};
use super::render::RenderedEmail;
use super::sendgrid::SendGrid;
use super::ses::Ses;
use super::smtp::Relay;
use super::{EmailContent, EmailTarget};
use crate::accounts::Material;
use crate::deliver::{Ended, misconfigured};

/// Placeholder of the delivery's id in an address or URL.
const DELIVERY: &str = "{delivery}";

/// The provider that sends the mails of an account.
pub enum Carrier {
    Smtp(Arc<Relay>),
    Ses(Box<Ses>),
    SendGrid(Box<SendGrid>),
}

impl Carrier {
    /// Whether it may accept non-ASCII letters before the @. A relay says so only in a session; the services do not.
    pub fn is_international(&self) -> bool {
        matches!(self, Self::Smtp(_))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmailSender {
    pub address: String,
    pub name: Option<String>,
}

pub struct DkimSettings {
    pub domain: String,
    pub selector: String,
    pub key: Material<DkimKey>,
}

pub struct EmailSettings {
    pub from: EmailSender,
    pub reply_to: Option<EmailSender>,
    /// Where bounces go; `{delivery}` makes it one address per delivery. The sender's if empty.
    pub return_path: String,
    /// One-click unsubscribing for mails without addresses of their own.
    pub unsubscribe_url: Option<String>,
    pub unsubscribe_mailto: Option<String>,
    pub feedback_id: Option<String>,
    /// Every key signs every mail.
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
    pub(super) fn return_addresses(&self, delivery: DeliveryId) -> ReturnAddresses {
        let stamp = |text: &String| match text.contains(DELIVERY) {
            true => text.replace(DELIVERY, &delivery.to_string()),
            false => text.clone(),
        };
        let path = if self.return_path.is_empty() { &self.from.address } else { &self.return_path };
        ReturnAddresses {
            return_path: stamp(path),
            unsubscribe_url: self.unsubscribe_url.as_ref().map(stamp),
            unsubscribe_mailto: self.unsubscribe_mailto.as_ref().map(stamp),
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
        let own_unsubscribe = Unsubscribe {
            url: own.unsubscribe_url.as_deref(),
            mailto: own.unsubscribe_mailto.as_deref(),
        };
        MailDraft {
            delivery: attempt.delivery,
            date: attempt.message.created_at,
            from: self.from.mailbox(),
            to: Mailbox { name: target.name.as_deref(), address: &target.email },
            reply_to: match own.reply_to.as_deref() {
                Some(address) => Some(Mailbox { name: None, address }),
                None => self.reply_to.as_ref().map(EmailSender::mailbox),
            },
            subject: &words.subject,
            text: &words.text,
            html: words.html.as_deref(),
            unsubscribe: if own_unsubscribe == Unsubscribe::default() {
                Unsubscribe {
                    url: return_addresses.unsubscribe_url.as_deref(),
                    mailto: return_addresses.unsubscribe_mailto.as_deref(),
                }
            } else {
                own_unsubscribe
            },
            feedback_id: self.feedback_id.as_deref(),
        }
    }

    /// The mail as bytes with all signatures. A missing key parks the mail, because an unsigned mail harms the
    /// sender's reputation.
    pub(super) async fn write(&self, draft: &MailDraft<'_>) -> Result<Vec<u8>, Ended> {
        let mail = draft.build();
        let mut signatures = Vec::with_capacity(self.dkim.len());
        for dkim in &self.dkim {
            let key = dkim.key.get().await;
            let key = key.map_err(|why| misconfigured("dkim_key_missing", &why))?;
            let signature = key.sign(&dkim.domain, &dkim.selector, &mail, draft.date);
            signatures.push(signature.map_err(|why| misconfigured("dkim", &why.to_string()))?);
        }
        Ok(mail.write(&signatures))
    }
}

impl EmailSender {
    fn mailbox(&self) -> Mailbox<'_> {
        Mailbox { name: self.name.as_deref(), address: &self.address }
    }
}
