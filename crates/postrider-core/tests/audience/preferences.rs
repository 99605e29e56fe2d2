//! The order of resolution, as a table and as properties over random words of random people.

use postrider_core::policy::audience::*;
use postrider_core::{ChannelKind, Timestamp};
use proptest::prelude::*;

const EMAIL: ChannelKind = ChannelKind::new("email");
const SMS: ChannelKind = ChannelKind::new("sms");
const NOW: Timestamp = Timestamp(1_794_722_400_000);

fn mark() -> SuppressionMark {
    SuppressionMark { at: NOW, source: "api".into() }
}

fn category(text: &str) -> Category {
    serde_json::from_str(text).unwrap()
}

fn ask(
    category: Option<&Category>,
    suppression: &Suppression,
    said: &Preferences,
) -> Result<ConsentGrounds, WithheldReason> {
    let category = category.map(|category| ("news", category));
    let question = ConsentQuestion { category, tenant_default: None, channel: EMAIL, now: NOW };
    resolve(question, Some(suppression), Some(said))
}

fn said(text: &str) -> Preferences {
    serde_json::from_str(text).unwrap()
}

/// Category, suppression, what the recipient said, and the answer.
type ConsentRow<'a> =
    (Option<&'a Category>, &'a Suppression, &'a str, Result<ConsentGrounds, WithheldReason>);

#[test]
fn the_order_is_suppression_mandatory_own_words_defaults() {
    use ConsentGrounds::*;
    use WithheldReason::*;
    let marketing = category(r#"{"purpose":"marketing"}"#);
    let plain = category("{}");
    let mandatory = category(r#"{"mandatory":true}"#);
    let open = category(r#"{"purpose":"marketing","default":"yes"}"#);
    let none = Suppression::default();
    let undeliverable = Suppression { undeliverable: Some(mark()), ..none.clone() };
    let complaint = Suppression { complaint: Some(mark()), ..none.clone() };
    let all = Suppression { unsubscribed: Some(mark()), ..none.clone() };
    let news = Suppression { categories: [("news".into(), mark())].into(), ..none.clone() };
    let other = Suppression { categories: [("other".into(), mark())].into(), ..none.clone() };
    let later = NOW.0 + 1;
    let snoozed = format!(r#"{{"all":"yes","snooze_until":{later}}}"#);
    let over = format!(r#"{{"snooze_until":{}}}"#, NOW.0);
    let own_snooze = format!(r#"{{"categories":{{"news":{{"snooze_until":{later}}}}}}}"#);
    let table: &[ConsentRow<'_>] = &[
        (None, &none, "{}", Ok(NoCategory)),
        (None, &all, "{}", Err(Unsubscribed)),
        (None, &news, "{}", Ok(NoCategory)),
        (None, &none, r#"{"all":"no"}"#, Err(OptedOut)),
        (Some(&plain), &none, "{}", Ok(ByDefault)),
        (Some(&marketing), &none, "{}", Err(NotOptedIn)),
        (Some(&open), &none, "{}", Ok(ByDefault)),
        (Some(&marketing), &none, r#"{"all":"yes"}"#, Ok(SaidYes)),
        (Some(&marketing), &none, r#"{"categories":{"news":{"choice":"yes"}}}"#, Ok(SaidYes)),
        (Some(&marketing), &none, r#"{"categories":{"other":{"choice":"yes"}}}"#, Err(NotOptedIn)),
        (Some(&marketing), &none, r#"{"channels":{"sms":"yes"}}"#, Err(NotOptedIn)),
        (Some(&plain), &none, r#"{"channels":{"sms":"no"}}"#, Ok(ByDefault)),
        (Some(&plain), &none, r#"{"channels":{"email":"no"}}"#, Err(OptedOut)),
        // Any covering no wins, whichever is more specific.
        (
            Some(&plain),
            &none,
            r#"{"all":"no","categories":{"news":{"choice":"yes"}}}"#,
            Err(OptedOut),
        ),
        (
            Some(&plain),
            &none,
            r#"{"all":"yes","categories":{"news":{"choice":"no"}}}"#,
            Err(OptedOut),
        ),
        (
            Some(&plain),
            &none,
            r#"{"categories":{"news":{"choice":"yes","channels":{"email":"no"}}}}"#,
            Err(OptedOut),
        ),
        (Some(&plain), &none, &snoozed, Err(Snoozed)),
        (Some(&plain), &none, &over, Ok(ByDefault)),
        (Some(&plain), &none, &own_snooze, Err(Snoozed)),
        (None, &none, &own_snooze, Ok(NoCategory)),
        (Some(&mandatory), &none, r#"{"all":"no"}"#, Ok(Mandatory)),
        (Some(&mandatory), &none, &snoozed, Ok(Mandatory)),
        (Some(&mandatory), &all, "{}", Ok(Mandatory)),
        (Some(&mandatory), &news, "{}", Ok(Mandatory)),
        (Some(&mandatory), &undeliverable, "{}", Err(Undeliverable)),
        (Some(&mandatory), &complaint, "{}", Err(Complaint)),
        (Some(&plain), &news, r#"{"all":"yes"}"#, Err(Unsubscribed)),
        (Some(&plain), &other, "{}", Ok(ByDefault)),
        (Some(&plain), &all, "{}", Err(Unsubscribed)),
    ];
    for (number, (category, suppression, words, expected)) in table.iter().enumerate() {
        assert_eq!(ask(*category, suppression, &said(words)), *expected, "row {number}: {words}");
    }
}

fn choices() -> impl Strategy<Value = Option<Choice>> {
    prop_oneof![Just(None), Just(Some(Choice::Yes)), Just(Some(Choice::No))]
}

prop_compose! {
    fn words()(all in choices(), email in choices(), sms in choices(), news in choices(), news_email in choices(),
               other in choices()) -> Preferences {
        let channels = [(EMAIL, email), (SMS, sms)];
        let of_news = CategoryPreference {
            choice: news,
            channels: news_email.map(|choice| (EMAIL, choice)).into_iter().collect(),
            snooze_until: None,
        };
        let of_other = CategoryPreference { choice: other, ..CategoryPreference::default() };
        Preferences {
            all,
            channels: channels.into_iter().filter_map(|(kind, choice)| Some((kind, choice?))).collect(),
            categories: [("news".into(), of_news), ("other".into(), of_other)].into(),
            snooze_until: None,
        }
    }
}

proptest! {
    #[test]
    fn a_no_is_never_weakened_by_a_yes_elsewhere(words in words()) {
        let plain = category("{}");
        let covering_no = words.all == Some(Choice::No)
            || words.channels.get(&EMAIL) == Some(&Choice::No)
            || words.categories["news"].choice == Some(Choice::No)
            || words.categories["news"].channels.get(&EMAIL) == Some(&Choice::No);
        let answer = ask(Some(&plain), &Suppression::default(), &words);
        prop_assert_eq!(answer.is_err(), covering_no);
    }

    #[test]
    fn an_undeliverable_address_gets_nothing_and_a_mandatory_one_ignores_words(words in words(), mandatory: bool) {
        let about = Category { mandatory, ..category("{}") };
        let dead = Suppression { undeliverable: Some(mark()), ..Suppression::default() };
        prop_assert_eq!(ask(Some(&about), &dead, &words), Err(WithheldReason::Undeliverable));
        if mandatory {
            prop_assert!(ask(Some(&about), &Suppression::default(), &words).is_ok());
        }
    }

    #[test]
    fn a_choice_for_one_category_changes_nothing_for_another(words in words(), other in choices()) {
        let mut changed = words.clone();
        changed.categories.insert(
            "other".into(),
            CategoryPreference { choice: other, ..CategoryPreference::default() },
        );
        let marketing = category(r#"{"purpose":"marketing"}"#);
        let none = Suppression::default();
        prop_assert_eq!(ask(Some(&marketing), &none, &words), ask(Some(&marketing), &none, &changed));
    }
}
