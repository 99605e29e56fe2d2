//! The scripts that the server runs. All keys of each are declared: on a slot that moves, a script either runs as a
//! whole or answers `TRYAGAIN`.

use std::sync::LazyLock;

use aws_lc_rs::digest;

/// A script with its name on the server.
pub(super) struct ServerScript {
    pub(super) text: &'static str,
    pub(super) hash: String,
}

impl ServerScript {
    fn new(text: &'static str) -> Self {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let hash = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, hash }
    }
}

macro_rules! scripts {
    ($($name:ident $file:literal)*) => {
        $(pub(super) static $name: LazyLock<ServerScript> =
            LazyLock::new(|| ServerScript::new(include_str!(concat!("scripts/", $file))));)*
    };
}

scripts! {
    PUT "put.lua"
    RELEASE "release.lua"
    MESSAGE "message.lua"
    NEEDS "needs.lua"
    RESERVE "reserve.lua"
    SEAL "seal.lua"
    LEASE "lease.lua"
    SETTLE "settle.lua"
    APPLY "apply.lua"
    TAKE "take.lua"
    HAND_OVER "hand_over.lua"
    CONFIRM "confirm.lua"
    DUE "due.lua"
    LANES "lanes.lua"
    BEAT "beat.lua"
    LEAVE "leave.lua"
    TURN "turn.lua"
    DOCUMENT "document.lua"
    DOCUMENT_PRUNE "document_prune.lua"
    DOCUMENTS "documents.lua"
    AUDIT "audit.lua"
    ENTRIES "entries.lua"
    ROLLUPS "rollups.lua"
    ROLLUPS_READ "rollups_read.lua"
}
