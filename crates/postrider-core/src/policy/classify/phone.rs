//! What SMS gateways answer. The code is the gateway's own number; an SMSC's is its command status in
//! hexadecimal, under the status 500.

use super::built_in::{ANY, Block, RETRY, is};
use super::row::Verdict;
use crate::model::outcome::Scope;

pub(super) fn blocks() -> [Block; 3] {
    [gateway(), twilio(), smpp()]
}

/// Any gateway that is spoken to over HTTP; the others fall back to these rows.
fn gateway() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (401, 401, ANY, Config),
        (403, 403, ANY, Config),
        (404, 404, ANY, Config),
        (408, 408, ANY, RETRY),
        (429, 429, ANY, Verdict::wait(Scope::Credential, 60)),
        (500, 599, ANY, RETRY),
    ];
    ("sms", rows)
}

/// Codes of the API and those that arrive later, in a status callback.
fn twilio() -> Block {
    use Verdict::*;
    let tomorrow = Tomorrow { scope: Scope::Credential };
    let codes: [(&[&'static str], Verdict); 16] = [
        (&["20003", "20008", "20404", "90010"], Config),
        (&["20429", "63017"], Verdict::wait(Scope::Credential, 60)),
        (&["63038", "30023"], tomorrow),
        (&["20500", "20503"], RETRY),
        (&["21211", "21217", "21614", "21635"], Gone),
        // The number said STOP to this sender.
        (&["21610"], Gone),
        (&["21612", "21408"], DropMessage),
        (&["21212", "21603", "21606", "21607", "21659", "21660", "21703", "21705"], Config),
        (&["21608", "30002", "30032", "30034"], Config),
        (&["21602", "21605", "21617", "21619", "21656"], DropMessage),
        (&["21611", "30001"], Verdict::wait(Scope::Credential, 600)),
        (&["30006"], Gone),
        // Filtered, or suspected of fraud.
        (&["30007", "30450", "30453"], DropMessage),
        (&["30008"], Verdict::not_before(60).at_most(1)),
        (&["30022"], Verdict::wait(Scope::Credential, 10)),
        (&["30036"], Expired),
    ];
    let mut rows = vec![(200, 599, is("30410"), Ambiguous)];
    for (codes, verdict) in codes {
        rows.extend(codes.iter().map(|code| (200, 599, is(code), verdict)));
    }
    ("sms.twilio", rows)
}

fn smpp() -> Block {
    use Verdict::*;
    let slower = Verdict::wait(Scope::Credential, 1);
    let codes: [(&[&'static str], Verdict); 9] = [
        (&["0x08", "0x64"], RETRY),
        (&["0x14", "0x58"], slower),
        // What they mean depends on the vendor.
        (&["0x45", "0xfe", "0x61"], Verdict::not_before(60).at_most(1)),
        (&["0x0b", "0x50", "0x51"], Gone),
        (&["0x0a", "0x48", "0x49", "0x15"], Config),
        (&["0x01", "0x43", "0x62", "0xc0", "0xc1", "0xc2", "0xc3", "0xc4"], DropMessage),
        (&["0x0d", "0x0e", "0x0f", "0x53"], Config),
        (&["0x04", "0x05"], Verdict::wait(Scope::Credential, 30)),
        (&["0x65", "0x66"], DropMessage),
    ];
    let mut rows = vec![(200, 200, ANY, Accepted), (500, 500, ANY, DropMessage)];
    for (codes, verdict) in codes {
        rows.extend(codes.iter().map(|code| (500, 500, is(code), verdict)));
    }
    ("sms.smpp", rows)
}
