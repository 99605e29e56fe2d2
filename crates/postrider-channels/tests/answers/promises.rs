//! What holds for every answer, whatever a provider says.

use std::time::Duration;

use postrider_core::policy::classify::{ProviderAnswer, RetryAfterMax, classify};
use postrider_core::{Outcome, Timestamp};
use proptest::prelude::*;

use super::TABLE;

const NOW: Timestamp = Timestamp(1_794_722_400_000);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn what_a_provider_asks_for_is_never_shortened(
        status in prop::sample::select(vec![429u16, 500, 502, 503, 504, 406]), secs in 0u64..100_000,
        service in prop::sample::select(vec![
            "webpush", "webpush.fcm", "webpush.mozilla", "webpush.apple", "webpush.wns", "webhook", "http",
        ]),
    ) {
        let text = secs.to_string();
        let answer = ProviderAnswer { service, status, retry_after: Some(&text), ..ProviderAnswer::default() };
        let found = classify(&TABLE, &answer, NOW);
        let Outcome::RetryAfter { after, scope } = found else {
            prop_assert_eq!((found, status), (Outcome::DropMessage, 406));
            return Ok(());
        };
        let at_most = RetryAfterMax::default().of(scope);
        let asked = Duration::from_secs(secs).min(at_most);
        prop_assert!(after >= asked && after <= at_most);
    }

    #[test]
    fn any_answer_has_a_meaning(
        service in ".{0,12}", status in any::<u16>(), code in prop::option::of(".{0,20}"),
        retry_after in prop::option::of(".{0,12}"), retry_all in any::<bool>(),
    ) {
        let answer = ProviderAnswer {
            service: &service, status, code: code.as_deref(), retry_after: retry_after.as_deref(),
            token_age: None, retry_all,
        };
        let _ = classify(&TABLE, &answer, NOW);
    }
}
