//! A browser's subscription with fixed keys, and pushes that we encrypt for it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postrider_channels::webpush::{Padding, PlainPayload, encrypt_batch};

pub(crate) const PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
pub(crate) const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const PUBLIC: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

/// One body per text.
pub(crate) fn encrypt(texts: &[String]) -> Vec<Vec<u8>> {
    let bytes = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let plain = |text: &String| PlainPayload {
        ua_public: bytes(PUBLIC).try_into().unwrap(),
        auth: bytes(AUTH).try_into().unwrap(),
        plaintext: text.clone().into_bytes(),
    };
    let batch: Vec<PlainPayload> = texts.iter().map(plain).collect();
    let bodies = encrypt_batch(&batch, Padding::default());
    bodies.into_iter().map(|body| body.unwrap().to_vec()).collect()
}
