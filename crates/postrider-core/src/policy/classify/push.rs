//! The rows of the two push networks that are spoken to directly. Order does not matter: the more
//! precise row wins.

use super::built_in::{ANY, Block, RETRY, is, says, starts};
use super::row::Verdict;
use crate::model::outcome::Scope;

/// FCM HTTP v1. The code is `FcmError.errorCode` where the answer has one, else `error.status`. Behind
/// an `INVALID_ARGUMENT` follows the message, behind a 429 what it is about (`.device`, `.topic`).
pub(super) fn fcm() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        // Nothing but the text tells a malformed token from a malformed message.
        (
            400,
            400,
            starts(
                "INVALID_ARGUMENT: The registration token is not a valid FCM registration token",
            ),
            Gone,
        ),
        (400, 400, starts("INVALID_ARGUMENT"), DropMessage),
        // A key that the Firebase project lacks: a new token of ours would not help.
        (401, 401, is("THIRD_PARTY_AUTH_ERROR"), Config),
        (401, 401, is("APNS_AUTH_ERROR"), Config),
        (401, 401, is("UNAUTHENTICATED"), ResignOnce),
        (401, 401, ANY, ResignOnce),
        (403, 403, is("SENDER_ID_MISMATCH"), Gone),
        (403, 403, is("PERMISSION_DENIED"), Config),
        (403, 403, is("SERVICE_DISABLED"), Config),
        (403, 403, ANY, Config),
        (404, 404, is("UNREGISTERED"), Gone),
        // The project is not there. The device may well be.
        (404, 404, ANY, Config),
        (429, 429, is("QUOTA_EXCEEDED"), Verdict::wait(Scope::Credential, 60)),
        (429, 429, is("RESOURCE_EXHAUSTED"), Verdict::wait(Scope::Credential, 60)),
        (429, 429, says(".device"), Verdict::wait(Scope::Target, 60)),
        (429, 429, says(".topic"), Verdict::wait(Scope::Target, 60)),
        (429, 429, ANY, Verdict::wait(Scope::Credential, 60)),
        (500, 500, is("INTERNAL"), Verdict::not_before(10)),
        (503, 503, is("UNAVAILABLE"), Verdict::not_before(10)),
        (500, 599, ANY, Verdict::not_before(10)),
    ];
    ("fcm", rows)
}

/// APNs. The code is `reason`; the channel adds what only it can know: `.proven` to a `BadDeviceToken`
/// of an account whose other devices work, `.earlier` to an `Unregistered` from before the device was
/// registered with us, `.again` to a server's failure that is not the first.
pub(super) fn apns() -> Block {
    use Verdict::*;
    let mut rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (400, 400, is("BadDeviceToken.proven"), Gone),
        // About this device and this topic alone: no reason to hold the account up, nor to erase.
        (400, 400, is("DeviceTokenNotForTopic"), DropMessage),
        (400, 400, is("IdleTimeout"), Reconnect),
        (403, 403, is("ExpiredProviderToken"), ResignIfStale),
        (403, 403, is("UnrelatedKeyIdInToken"), Reconnect),
        (403, 403, is("Forbidden"), Config),
        (403, 403, ANY, Config),
        (404, 404, is("BadPath"), DropMessage),
        (405, 405, is("MethodNotAllowed"), DropMessage),
        (410, 410, is("Unregistered"), Gone),
        (410, 410, is("Unregistered.earlier"), Verdict::not_before(60)),
        (410, 410, is("ExpiredToken"), Gone),
        (410, 410, ANY, Gone),
        (413, 413, is("PayloadTooLarge"), DropMessage),
        (429, 429, is("TooManyProviderTokenUpdates"), Verdict::wait(Scope::Credential, 1_200)),
        (429, 429, is("TooManyRequests"), Verdict::not_before(60)),
        (429, 429, ANY, Verdict::wait(Scope::Target, 60)),
        (500, 500, is("InternalServerError"), RETRY),
        (503, 503, is("ServiceUnavailable"), RETRY),
        (503, 503, is("Shutdown"), Reconnect),
        (500, 599, ANY, RETRY),
        // Apple asks for a quarter of an hour once a quick repeat did not help.
        (500, 599, says(".again"), Verdict::not_before(900)),
    ];
    let ours = [
        "BadCollapseId",
        "BadExpirationDate",
        "BadMessageId",
        "BadPriority",
        "InvalidPushType",
        "DuplicateHeaders",
        "PayloadEmpty",
        "MissingDeviceToken",
    ];
    rows.extend(ours.map(|reason| (400, 400, is(reason), DropMessage)));
    let topic = ["BadTopic", "MissingTopic", "TopicDisallowed"];
    rows.extend(topic.map(|reason| (400, 400, is(reason), Config)));
    let identity = [
        "InvalidProviderToken",
        "MissingProviderToken",
        "BadCertificate",
        "BadCertificateEnvironment",
        "BadEnvironmentKeyIdInToken",
    ];
    rows.extend(identity.map(|reason| (403, 403, is(reason), Config)));
    ("apns", rows)
}
