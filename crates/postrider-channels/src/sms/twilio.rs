//! Status callbacks of Twilio: each is signed with the account's auth token, over the URL and the sorted fields.

use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::ReceiptKind;

use super::SmsSettings;
use crate::accounts::Accounts;
use crate::callbacks::{
    CallbackCall, CallbackNews, CallbackRefusal, CallbackSuppression, ProviderCallbacks,
};

const SIGNATURE: &str = "x-twilio-signature";

/// The calls of the gateways of all accounts.
pub struct SmsCallbacks {
    pub accounts: Arc<Accounts<SmsSettings>>,
}

#[async_trait]
impl ProviderCallbacks for SmsCallbacks {
    async fn read(
        &self,
        account: &str,
        call: CallbackCall<'_>,
    ) -> Result<CallbackNews, CallbackRefusal> {
        let settings = self.accounts.settings(account);
        let secret = settings.and_then(|settings| settings.callback_secret.as_ref());
        let secret = secret.ok_or(CallbackRefusal::NoAccount)?;
        let token = secret.get().await.map_err(CallbackRefusal::NoSecret)?;
        let mut fields: Vec<(String, String)> =
            url::form_urlencoded::parse(call.body).into_owned().collect();
        match is_signed(&call, &mut fields, &token) {
            true => news(&fields),
            false => Err(CallbackRefusal::Forged),
        }
    }
}

fn is_signed(call: &CallbackCall<'_>, fields: &mut [(String, String)], token: &str) -> bool {
    let given = call.headers.get(SIGNATURE).and_then(|given| STANDARD.decode(given).ok());
    let Some(given) = given else { return false };
    fields.sort();
    let mut text = call.url.to_owned();
    for (name, value) in fields.iter() {
        text.push_str(name);
        text.push_str(value);
    }
    // The algorithm is Twilio's choice.
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
    hmac::verify(&key, text.as_bytes(), &given).is_ok()
}

fn news(fields: &[(String, String)]) -> Result<CallbackNews, CallbackRefusal> {
    let field = |name: &str| {
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let receipt = |kind| CallbackNews { receipt: Some(kind), suppression: None };
    Ok(match field("MessageStatus").ok_or(CallbackRefusal::Malformed)? {
        "delivered" => receipt(ReceiptKind::Delivered),
        "read" => receipt(ReceiptKind::Displayed),
        "undelivered" | "failed" => undelivered(field("ErrorCode").unwrap_or_default()),
        _ => CallbackNews::default(),
    })
}

fn undelivered(code: &str) -> CallbackNews {
    let (receipt, suppression) = match code {
        // No such number, or one that takes no text messages.
        "21211" | "21614" | "30006" => {
            (ReceiptKind::Bounced, Some(CallbackSuppression::Undeliverable))
        }
        // The recipient said STOP.
        "21610" => (ReceiptKind::Undelivered, Some(CallbackSuppression::Complaint)),
        _ => (ReceiptKind::Undelivered, None),
    };
    CallbackNews { receipt: Some(receipt), suppression }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    /// The example of Twilio's own documentation.
    const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
    const TOKEN: &str = "12345";
    const BODY: &str = "To=%2B18005551212&From=%2B14158675309&Digits=1234&Caller=%2B14158675309\
                        &CallSid=CA1234567890ABCDE";
    const SIGNED: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";

    fn check(url: &str, body: &str, token: &str, signature: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.extend(signature.map(|text| {
            (http::HeaderName::from_static(SIGNATURE), HeaderValue::from_static(text))
        }));
        let call = CallbackCall { url, headers: &headers, body: body.as_bytes() };
        let mut fields: Vec<_> =
            url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        is_signed(&call, &mut fields, token)
    }

    #[test]
    fn twilio_s_own_example_is_signed_and_any_other_is_not() {
        assert!(check(URL, BODY, TOKEN, Some(SIGNED)));
        assert!(!check(URL, BODY, "12346", Some(SIGNED)));
        assert!(!check("https://mycompany.com/myapp.php?foo=1", BODY, TOKEN, Some(SIGNED)));
        assert!(!check(URL, &format!("{BODY}&More=1"), TOKEN, Some(SIGNED)));
        for signature in [None, Some(""), Some("?"), Some("RSOYDt4T1cUTdK1PDd93/VVr8B9=")] {
            assert!(!check(URL, BODY, TOKEN, signature), "{signature:?}");
        }
    }

    #[test]
    fn each_status_says_what_became_of_the_message() {
        use CallbackSuppression::{Complaint, Undeliverable};
        use ReceiptKind::{Bounced, Delivered, Displayed, Undelivered};
        for (status, code, receipt, suppression) in [
            ("queued", "", None, None),
            ("sent", "", None, None),
            ("delivered", "", Some(Delivered), None),
            ("read", "", Some(Displayed), None),
            ("undelivered", "30003", Some(Undelivered), None),
            ("undelivered", "30006", Some(Bounced), Some(Undeliverable)),
            ("failed", "21610", Some(Undelivered), Some(Complaint)),
            ("a new one", "", None, None),
        ] {
            let fields = [("MessageStatus", status), ("ErrorCode", code)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let expected = CallbackNews { receipt, suppression };
            assert_eq!(news(&fields), Ok(expected), "{status} {code}");
        }
        assert_eq!(news(&[]), Err(CallbackRefusal::Malformed));
    }
}
