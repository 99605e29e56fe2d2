//! Google's token endpoint (`POST /token`) and its one service account (`GET /sandbox/fcm/service-account`), which is
//! made at the first use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256};
use serde_json::{Value, json};

use crate::answer::FakeAnswer;
use crate::correlation::mix;
use crate::fakes::jwt::{FakeJwt, private_key_pem};

pub(super) const PROJECT: &str = "sandbox-project";
const EMAIL: &str = "sender@sandbox-project.iam.gserviceaccount.com";
const KEY_ID: &str = "5a6e64626f78206b6579206f6620676f6f676c65";
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const LIFE_S: i64 = 3599;
const SKEW_S: i64 = 300;
const TOKENS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct FakeGoogleOauth {
    key: OnceLock<Option<KeyPair>>,
    /// Tokens, each with its end.
    issued: Mutex<HashMap<Box<str>, i64>>,
    count: AtomicU64,
}

impl FakeGoogleOauth {
    fn key(&self) -> Option<&KeyPair> {
        self.key.get_or_init(|| KeyPair::generate(KeySize::Rsa2048).ok()).as_ref()
    }

    /// The key file in the form of Google's console; its `token_uri` leads here.
    pub(super) fn service_account(&self, origin: &str) -> Option<Value> {
        let der = self.key()?.as_der().ok()?;
        Some(json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": private_key_pem(der.as_ref()),
            "client_email": EMAIL,
            "client_id": "100000000000000000000",
            "auth_uri": format!("{origin}/auth"),
            "token_uri": format!("{origin}/token"),
            "universe_domain": "googleapis.com",
        }))
    }

    /// The answer to a request for a token.
    pub(super) fn grant(&self, form: &[u8], origin: &str, now_s: i64) -> FakeAnswer {
        let fields: HashMap<String, String> =
            url::form_urlencoded::parse(form).into_owned().collect();
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        if field("grant_type") != GRANT {
            let why = format!("Invalid grant_type: {}", field("grant_type"));
            return refused("unsupported_grant_type", &why);
        }
        match self.check(field("assertion"), origin, now_s) {
            Ok(()) => self.issue(now_s),
            Err((error, why)) => refused(error, why),
        }
    }

    fn check(
        &self,
        assertion: &str,
        origin: &str,
        now: i64,
    ) -> Result<(), (&'static str, &'static str)> {
        const BAD: (&str, &str) = ("invalid_grant", "Bad Request");
        // Google refuses padding.
        let jwt = FakeJwt::read(assertion).filter(|_| !assertion.contains('=')).ok_or(BAD)?;
        let text = |name: &str| jwt.claims[name].as_str().ok_or(BAD);
        let (iss, aud) = (text("iss")?, text("aud")?);
        let second = |name: &str| jwt.claims[name].as_i64().ok_or(BAD);
        let (iat, exp) = (second("iat")?, second("exp")?);
        let is_known = jwt.head["kid"].is_null() || jwt.head["kid"] == KEY_ID;
        let key = self.key().ok_or(BAD)?.public_key().as_ref();
        if jwt.head["alg"] != "RS256"
            || !is_known
            || !jwt.is_signed_by(&RSA_PKCS1_2048_8192_SHA256, key)
        {
            return Err(("invalid_grant", "Invalid JWT Signature."));
        }
        if iss != EMAIL {
            return Err(("invalid_grant", "Invalid grant: account not found"));
        }
        // Google's own libraries always name Google's endpoint, even if the key file names another.
        if aud != TOKEN_URI && aud != format!("{origin}/token") {
            return Err(("invalid_grant", "Invalid JWT: Failed audience check."));
        }
        let suits = |scope: &str| scope == SCOPE || scope.ends_with("cloud-platform");
        if !text("scope").unwrap_or_default().split(' ').any(suits) {
            return Err(("invalid_scope", "Invalid OAuth scope or ID token audience provided."));
        }
        let is_timely = iat <= now + SKEW_S && exp > now - SKEW_S && exp > iat && exp <= iat + 3600;
        is_timely.then_some(()).ok_or((
            "invalid_grant",
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable \
             timeframe. Check your iat and exp values in the JWT claim.",
        ))
    }

    fn issue(&self, now_s: i64) -> FakeAnswer {
        let number = self.count.fetch_add(1, Relaxed);
        let token = format!("ya29.sandbox-{number}-{:016x}", mix(number ^ now_s as u64));
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() >= TOKENS_MAX {
            issued.clear();
        }
        issued.insert(token.as_str().into(), now_s + LIFE_S);
        let grant = json!({ "access_token": token, "expires_in": LIFE_S, "token_type": "Bearer" });
        FakeAnswer::json(200, &grant)
    }

    /// Whether this token was issued here and is still valid.
    pub(super) fn knows(&self, token: &str, now_s: i64) -> bool {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        issued.get(token).is_some_and(|until| now_s < *until)
    }

    /// How many tokens were issued: a sender should need few.
    pub(super) fn granted(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

fn refused(error: &str, description: &str) -> FakeAnswer {
    FakeAnswer::json(400, &json!({ "error": error, "error_description": description }))
}
