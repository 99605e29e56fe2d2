//! One suite that every channel passes, against a scripted provider on real sockets, and what each
//! channel alone promises about its wire.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod apns;
mod fcm;
mod promises;
mod provider;
mod push;
mod rig;
mod wire;

macro_rules! every_channel {
    ($($promise:ident),* $(,)?) => {
        every_channel!(@ webpush, Webpush, [$($promise),*]);
        every_channel!(@ webhook, Webhook, [$($promise),*]);
        every_channel!(@ http, Http, [$($promise),*]);
        every_channel!(@ chat, Chat, [$($promise),*]);
    };
    (@ $module:ident, $kind:ident, [$($promise:ident),*]) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    crate::promises::$promise(postrider_core::ChannelKind::$kind).await;
                }
            )*
        }
    };
}

/// What holds for the channels with accounts, too. The rest is about URLs that callers give, about
/// HTTP/1.1, which Apple does not speak, or about answers that they word in their own way.
macro_rules! push_channels {
    ($($promise:ident),* $(,)?) => {
        every_channel!(@ fcm_promises, Fcm, [$($promise),*]);
        every_channel!(@ apns_promises, Apns, [$($promise),*]);
    };
}

push_channels!(
    an_acceptance_is_an_acceptance,
    a_429_that_names_no_time_waits_a_minute,
    gone_is_gone,
    a_refusal_drops_the_message_and_says_why_without_the_endpoint,
    a_503_is_tried_again,
    a_redirect_is_not_followed,
    silence_is_ambiguous,
    a_connection_that_never_came_to_be_is_tried_again,
    a_name_that_does_not_resolve_is_tried_again,
    a_connection_lost_after_the_request_is_ambiguous,
    a_goaway_costs_nothing_and_leads_to_a_new_connection,
    a_goaway_in_anger_is_not_answered_at_once,
    a_refused_stream_costs_nothing_and_leads_to_a_new_connection,
    a_huge_answer_is_cut_short,
    nothing_is_sent_at_or_after_its_expiry,
    a_large_batch_ends_exactly_once_each_over_few_connections,
    the_peer_s_stream_limit_is_kept,
    a_storm_of_attempts_knocks_once_at_a_closed_door,
);

every_channel!(
    an_acceptance_is_an_acceptance,
    the_url_goes_out_as_it_was_written,
    a_429_waits_as_long_as_it_says,
    a_429_that_names_no_time_waits_a_minute,
    gone_is_gone,
    a_refusal_drops_the_message_and_says_why_without_the_endpoint,
    a_503_is_tried_again,
    a_redirect_is_not_followed,
    silence_is_ambiguous,
    a_connection_that_never_came_to_be_is_tried_again,
    a_name_that_does_not_resolve_is_tried_again,
    a_stranger_s_certificate_is_refused,
    a_connection_lost_after_the_request_is_ambiguous,
    a_goaway_costs_nothing_and_leads_to_a_new_connection,
    a_goaway_in_anger_is_not_answered_at_once,
    a_refused_stream_costs_nothing_and_leads_to_a_new_connection,
    a_huge_answer_is_cut_short,
    http_1_1_is_spoken_where_the_peer_knows_nothing_newer,
    a_connection_that_the_peer_closes_is_not_used_again,
    plain_http_is_refused_unless_allowed,
    a_private_address_is_refused_after_its_name_was_resolved,
    nothing_is_sent_at_or_after_its_expiry,
    a_large_batch_ends_exactly_once_each_over_few_connections,
    the_peer_s_stream_limit_is_kept,
    a_storm_of_attempts_knocks_once_at_a_closed_door,
    unused_connections_make_room_for_others,
    one_bad_attempt_does_not_harm_the_others,
    refusals_of_webhooks_and_http_are_retried_where_the_class_asks,
);
