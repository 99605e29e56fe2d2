//! SMPP held against programs of other people: our client against the server of `smppy`, and `smpplib`'s client
//! against the message centre that our own tests script. What they need is installed where it is missing.

#![cfg(feature = "smpp")]
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without ends it")]

#[path = "conformance/fake_smsc.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod fake_smsc;
#[path = "../../postrider/tests/foreign/tools.rs"]
#[expect(dead_code, reason = "shared with the other foreign proofs")]
mod tools;

use std::sync::Arc;
use std::time::Duration;

use fake_smsc::{FakeSmsc, SUBMIT};
use postrider_channels::accounts::{Material, SecretRef};
use postrider_channels::sms::smpp::{Smsc, SmscConfig, SmscOutcome, submit};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tools::Script;

/// Prints its port, then what it understood of every bind and message. Tells of a delivery at the word "receipt".
const SERVER: &str = r#"
import asyncio, json, logging, sys
from smppy.server import Application, SmppProtocol
class App(Application):
    async def handle_bound_client(self, client):
        say({"user": client.system_id, "password": client.password, "type": client.system_type,
             "version": client.interface_version})
        return client if client.password == "s3cret" else None
    async def handle_unbound_client(self, client):
        say("unbound")
    async def handle_sms_received(self, client, source_number, dest_number, text):
        say([source_number, dest_number, text])
        if text == "receipt":
            await client.send_sms(dest_number, source_number,
                                  "id:7 sub:001 dlvrd:001 stat:DELIVRD err:000 text:receipt")
def say(what):
    print(json.dumps(what, default=lambda raw: raw.decode()), flush=True)
async def answered(self, answer):
    say("receipt answered")
SmppProtocol.on_deliver_sm_resp = answered
logging.disable(logging.CRITICAL)
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
server = App("centre").create_server(loop=loop, host="127.0.0.1", port=0)
say(server.sockets[0].getsockname()[1])
loop.run_forever()
"#;

type Receipts = mpsc::UnboundedReceiver<(String, String)>;

fn smsc(port: u16, password: &str) -> (Smsc, Receipts) {
    let config = SmscConfig {
        host: "127.0.0.1".to_owned(),
        port,
        tls: false,
        system_id: "shop".to_owned(),
        system_type: "VMA".to_owned(),
        window: 1,
    };
    let password = SecretRef::parse(&format!("command:echo {password}")).unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    let on_receipt = move |receipt: postrider_channels::sms::smpp::SmppReceipt| {
        let _ = tell.send((receipt.id, receipt.stat));
    };
    let password = Material::new(password, |text| Ok(text.to_owned()));
    (Smsc::new(config, password, Arc::new(on_receipt)), told)
}

async fn send(smsc: &Smsc, text: &str) -> SmscOutcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    let body = submit("Shop", "+4915112345678", text, 3_600);
    smsc.send(deadline, || Some(body)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smppy_understands_our_binds_messages_and_good_byes() {
    let started = tokio::task::spawn_blocking(|| {
        let mut server = Script::spawn(SERVER, &[]);
        let port = server.line().as_u64().unwrap();
        (server, u16::try_from(port).unwrap())
    });
    let (mut server, port) = started.await.unwrap();
    let bound =
        |password| json!({"user": "shop", "password": password, "type": "VMA", "version": 0x34});

    let (stranger, _) = smsc(port, "wrong");
    assert_eq!(send(&stranger, "hello").await, SmscOutcome::Refused(0x0d));
    assert_eq!(server.line(), bound("wrong"));
    assert_eq!(stranger.connections(), 0);

    let (smsc, mut receipts) = smsc(port, "s3cret");
    let texts = ["Order 91 is on its way", "ń 日本 😀", "receipt"];
    for text in texts {
        assert!(matches!(send(&smsc, text).await, SmscOutcome::Accepted(_)), "{text}");
    }
    assert_eq!(server.line(), bound("s3cret"));
    assert_eq!(smsc.connections(), 1);
    for text in texts {
        assert_eq!(server.line(), json!(["Shop", "4915112345678", text]));
    }
    assert_eq!(receipts.recv().await, Some(("7".to_owned(), "DELIVRD".to_owned())));
    // It reads one command at a time, and would not see a second one that comes along.
    assert_eq!(server.line(), "receipt answered");
    drop(smsc);
    assert_eq!(server.line(), "unbound");
}

const CLIENT: &str = r#"
import json, sys
import smpplib.client, smpplib.consts, smpplib.gsm
given = json.load(sys.stdin)
told = {"sent": [], "receipts": []}
client = smpplib.client.Client("127.0.0.1", given["port"], timeout=20)
client.set_message_sent_handler(lambda pdu: told["sent"].append([pdu.status, pdu.message_id.decode()]))
def received(pdu):
    told["receipts"].append([pdu.esm_class, pdu.short_message.decode().split(" stat:")[1].split(" ")[0]])
    return 0
client.set_message_received_handler(received)
client.connect()
client.bind_transceiver(system_id="shop", password="s3cret")
for text in ["Order 91", "ń"]:
    parts, coding, flag = smpplib.gsm.make_parts(text)
    for part in parts:
        client.send_message(source_addr="Shop", destination_addr="4915112345678", short_message=part,
                            data_coding=coding, esm_class=flag, registered_delivery=True)
while len(told["sent"]) < 2 or len(told["receipts"]) < 2:
    client.read_once()
client.unbind()
client.disconnect()
print(json.dumps(told))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smpplib_finds_a_message_centre_in_our_tests() {
    let smsc = FakeSmsc::start().await;
    let given = json!({"port": smsc.account()["port"]});
    let told = tokio::task::spawn_blocking(move || tools::ask(CLIENT, &given)).await.unwrap();
    let expected = json!({
        "sent": [[0, "m-1"], [0, "m-1"]], "receipts": [[4, "DELIVRD"], [4, "DELIVRD"]],
    });
    assert_eq!(told, expected);
    assert_eq!(smsc.heard(SUBMIT).len(), 2);
    smsc.await_heard(fake_smsc::RECEIPT_ANSWERED, 2).await;
}
