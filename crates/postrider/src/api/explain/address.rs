//! Why calls to one address are put off, in words: what it did, until when, who waits with it and who does not.

use postrider_dispatch::lanes::{AddressRest, LongPlaceHolder, SlowPlaces};

use super::ExplainContext;

/// Other deliveries that wait for the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitingCount {
    pub(crate) others: usize,
    /// There may be more.
    pub(crate) is_minimum: bool,
}

/// Who is to blame that calls to an address are put off.
pub(super) fn address_rest(rest: AddressRest, context: &ExplainContext<'_>) -> String {
    match rest {
        AddressRest::Sick { failures, since, others_well, until } => {
            let next = match until > context.now {
                true => format!("one call tries at {until}"),
                false => "one call at a time tries".to_owned(),
            };
            format!(
                "its address failed {failures} times in a row since {since} while {others_well} others of the tenant \
                 there work; {next}, and others are not affected"
            )
        }
        AddressRest::AskedToWait { until } => {
            format!("its address asked to be left alone until {until}; others there are called")
        }
        AddressRest::Slow { took_ms, places } => {
            let long = match took_ms {
                0 => "long".to_owned(),
                ms => seconds(ms),
            };
            let places = slow_places(places, context.long_place_holder);
            format!("answers of its address take {long}{places}; other addresses are not affected")
        }
    }
}

/// How many deliveries wait for the same address.
pub(super) fn waiting_with(waiting: Option<WaitingCount>) -> String {
    match waiting {
        Some(WaitingCount { others: 1, is_minimum: false }) => "; 1 other waits with it".to_owned(),
        Some(WaitingCount { others: n @ 1.., is_minimum: false }) => {
            format!("; {n} others wait with it")
        }
        Some(WaitingCount { others: n @ 1.., is_minimum: true }) => {
            format!("; {n} others or more wait with it")
        }
        _ => String::new(),
    }
}

/// Who holds the most of this server's long places, for those who may know it.
pub(super) fn holder(holder: Option<&LongPlaceHolder>) -> String {
    holder.map_or(String::new(), |LongPlaceHolder { tenant, places }| {
        format!("; the tenant {tenant} holds the most, {places}")
    })
}

fn slow_places(places: SlowPlaces, most: Option<&LongPlaceHolder>) -> String {
    match places {
        SlowPlaces::OfOrigin { used, of } => {
            format!(", and {used} of {of} long places there are in use")
        }
        SlowPlaces::OfAddress { under_way, free } => {
            format!(
                ", and it has {under_way} calls under way, an eighth of the {free} long places that are free there"
            )
        }
        SlowPlaces::OfServer(places) => format!(", and {places}{}", holder(most)),
        SlowPlaces::Free => ", so it waits for one of the long places there".to_owned(),
    }
}

fn seconds(ms: u32) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", f64::from(ms) / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_in_seconds() {
        assert_eq!([2_140, 999].map(seconds), ["2.1 s", "999 ms"]);
    }

    #[test]
    fn those_who_wait_for_the_same_address_are_counted() {
        let count = |others, is_minimum| waiting_with(Some(WaitingCount { others, is_minimum }));
        assert_eq!(count(31, false), "; 31 others wait with it");
        assert_eq!(count(999, true), "; 999 others or more wait with it");
        assert_eq!([count(0, false), waiting_with(None)], ["", ""]);
    }
}
