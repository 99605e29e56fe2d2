//! Google's token endpoint (`POST /token`) and the service account that it knows: made when first asked
//! for, given out by `GET /sandbox/fcm/service-account`. Issues tokens; remembers no message.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::FakeAnswer;
use crate::correlation::mix;

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
    /// Tokens with the second in which each ends.
    issued: Mutex<HashMap<Box<str>, i64>>,
    count: std::sync::atomic::AtomicU64,
}

#[derive(Deserialize)]
struct OauthJwtHead {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

#[derive(Deserialize)]
struct OauthJwtClaims {
    iss: String,
    #[serde(default)]
    scope: String,
    aud: String,
    iat: i64,
    exp: i64,
}

impl FakeGoogleOauth {
    fn key(&self) -> Option<&KeyPair> {
        self.key.get_or_init(|| KeyPair::generate(KeySize::Rsa2048).ok()).as_ref()
    }

    /// The key file as Google's console gives it out; its `token_uri` leads here.
    pub(super) fn service_account(&self, origin: &str) -> Option<Value> {
        let der = self.key()?.as_der().ok()?;
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(der.as_ref())
        );
        Some(json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": pem,
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
            let told = format!("Invalid grant_type: {}", field("grant_type"));
            return refused("unsupported_grant_type", &told);
        }
        match self.check(field("assertion"), origin, now_s) {
            Ok(()) => self.issue(now_s),
            Err((error, told)) => refused(error, told),
        }
    }

    fn check(
        &self,
        assertion: &str,
        origin: &str,
        now: i64,
    ) -> Result<(), (&'static str, &'static str)> {
        const BAD: (&str, &str) = ("invalid_grant", "Bad Request");
        const SIGNATURE: (&str, &str) = ("invalid_grant", "Invalid JWT Signature.");
        let (signed, signature) = assertion.rsplit_once('.').ok_or(BAD)?;
        let (head, claims) = signed.split_once('.').ok_or(BAD)?;
        let head: OauthJwtHead = decode(head).ok_or(BAD)?;
        let claims: OauthJwtClaims = decode(claims).ok_or(BAD)?;
        if head.alg != "RS256" || head.kid.is_some_and(|kid| kid != KEY_ID) {
            return Err(SIGNATURE);
        }
        let key = self.key().ok_or(BAD)?.public_key();
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| SIGNATURE)?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| SIGNATURE)?;
        if claims.iss != EMAIL {
            return Err(("invalid_grant", "Invalid grant: account not found"));
        }
        // Google's own libraries name its endpoint whatever the key file says.
        if claims.aud != TOKEN_URI && claims.aud != format!("{origin}/token") {
            return Err(("invalid_grant", "Invalid JWT: Failed audience check."));
        }
        if !claims.scope.split(' ').any(|scope| scope == SCOPE || scope.ends_with("cloud-platform"))
        {
            return Err(("invalid_scope", "Invalid OAuth scope or ID token audience provided."));
        }
        let timely = claims.iat <= now + SKEW_S
            && claims.exp > now - SKEW_S
            && claims.exp > claims.iat
            && claims.exp <= claims.iat + 3600;
        timely.then_some(()).ok_or((
            "invalid_grant",
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable \
             timeframe. Check your iat and exp values in the JWT claim.",
        ))
    }

    fn issue(&self, now_s: i64) -> FakeAnswer {
        let number = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let token = format!("ya29.sandbox-{number}-{:016x}", mix(number ^ now_s as u64));
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() >= TOKENS_MAX {
            issued.clear();
        }
        issued.insert(token.as_str().into(), now_s + LIFE_S);
        FakeAnswer::json(
            200,
            &json!({ "access_token": token, "expires_in": LIFE_S, "token_type": "Bearer" }),
        )
    }

    /// Whether this is a token that was given out here and has not ended.
    pub(super) fn knows(&self, token: &str, now_s: i64) -> bool {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        issued.get(token).is_some_and(|until| now_s < *until)
    }

    /// How many tokens were given out: a sender should need few.
    pub(super) fn granted(&self) -> u64 {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn refused(error: &str, description: &str) -> FakeAnswer {
    FakeAnswer::json(400, &json!({ "error": error, "error_description": description }))
}
