//! Our SMTP client against `aiosmtpd`, which parses every mail, and against postfix's `smtp-sink`, which fails in
//! every way that real servers do.

use std::sync::Arc;
use std::time::Duration;

use postrider_channels::email::smtp::{
    OutgoingMail, Relay, RelayConfig, SmtpOutcome, SmtpStage, SmtpTls,
};
use postrider_channels::email::{MailDraft, Mailbox, Unsubscribe};
use postrider_channels::{Pool, PoolConfig};
use postrider_core::{DeliveryId, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use crate::tools::{Script, smtp_sink};

/// Prints its port, then every mail as Python's own parser reads it.
const SERVER: &str = r#"
import asyncio, email, email.policy, json, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult
class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone"): return "550 5.1.1 no such user"
        if address.startswith("later"): return "451 4.7.1 Greylisted"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        text, html = mail.get_body(("plain",)), mail.get_body(("html",))
        print(json.dumps({
            "from": envelope.mail_from, "to": envelope.rcpt_tos, "user": str(session.auth_data),
            "subject": mail["subject"], "to_name": mail["to"].addresses[0].display_name,
            "from_name": mail["from"].addresses[0].display_name, "defects": len(mail.defects),
            "text": text.get_content(), "html": html.get_content() if html else None,
            "unsubscribe": mail["list-unsubscribe"], "id": mail["message-id"],
            "tls": session.ssl is not None,
        }))
        return "250 2.0.0 Ok: queued as ABC123"
def check(server, session, envelope, mechanism, data):
    good = data.login == b"shop" and data.password == b"s3cret"
    return AuthResult(success=good, auth_data=data.login.decode())
async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[1])
    make = lambda: SMTP(Handler(), tls_context=context, require_starttls=True, auth_required=True,
                        authenticator=check, enable_SMTPUTF8=True)
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    print(json.dumps(server.sockets[0].getsockname()[1]))
    await server.serve_forever()
asyncio.run(main())
"#;

/// A certificate for localhost, with its key in one file, and the authority in another.
fn certificate(folder: &std::path::Path) -> (String, std::path::PathBuf) {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.self_signed(&key).unwrap();
    let (both, ca) = (folder.join("server.pem"), folder.join("ca.pem"));
    std::fs::write(&both, format!("{}{}", own.pem(), key.serialize_pem())).unwrap();
    std::fs::write(&ca, own.pem()).unwrap();
    (both.display().to_string(), ca)
}

fn relay(config: RelayConfig, ca: Option<&std::path::Path>) -> Arc<Relay> {
    let network = PoolConfig { extra_ca_file: ca.map(Into::into), ..PoolConfig::default() };
    let secret = postrider_channels::accounts::SecretRef::parse("command:echo s3cret").unwrap();
    let secret = postrider_channels::accounts::Material::new(secret, |text| Ok(text.to_owned()));
    let secret = (!config.user.is_empty()).then_some(secret);
    Relay::new(config, secret, Pool::new(network).unwrap().tls_without_http())
}

fn parcel(to: &str, number: u128) -> OutgoingMail {
    let draft = MailDraft {
        delivery: DeliveryId(number),
        date: Timestamp(1_800_000_000_000),
        from: Mailbox { name: Some("Läden & \"Co\""), address: "news@shop.example" },
        to: Mailbox { name: Some("Ada, 日本"), address: to },
        reply_to: None,
        subject: "Grüße 😀: eine ziemlich lange Betreffzeile, die umgebrochen werden muss, weil sie lang ist",
        text: ".first\n..second\nFrom here on\nüber alles\n",
        html: Some("<p>Grüße &amp; Küsse</p>"),
        unsubscribe: Unsubscribe { url: Some("https://shop.example/u/1"), mailto: None },
        feedback_id: None,
    };
    OutgoingMail {
        left_s: 600,
        delivery: DeliveryId(number),
        sender: "bounce@shop.example".to_owned(),
        recipient: to.to_owned(),
        mail: draft.build().write(&[]),
    }
}

async fn send(relay: &Arc<Relay>, to: &str, number: u128) -> SmtpOutcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    relay.send(deadline, || Some(parcel(to, number))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aiosmtpd_reads_our_mails_as_we_meant_them() {
    let folder = tempfile::tempdir().unwrap();
    let (pem, ca) = certificate(folder.path());
    let started = tokio::task::spawn_blocking(move || {
        let mut server = Script::spawn(SERVER, &[&pem]);
        let port = server.line().as_u64().unwrap();
        (server, u16::try_from(port).unwrap())
    });
    let (mut server, port) = started.await.unwrap();
    let mut config = RelayConfig::new("localhost", port, SmtpTls::StartTls);
    config.user = "shop".to_owned();
    config.connections_max = 1;
    let relay = relay(config, Some(&ca));
    assert!(
        matches!(send(&relay, "ada@example.org", 1).await, SmtpOutcome::Accepted(r) if r.queued_as().as_deref() == Some("ABC123"))
    );
    let gone = send(&relay, "gone@example.org", 2).await;
    assert!(
        matches!(gone, SmtpOutcome::Refused(SmtpStage::Rcpt, ref r) if r.code == 550),
        "{gone:?}"
    );
    let later = send(&relay, "later@example.org", 3).await;
    assert!(
        matches!(later, SmtpOutcome::Refused(SmtpStage::Rcpt, ref r) if r.code == 451),
        "{later:?}"
    );
    assert!(matches!(send(&relay, "öl@example.org", 4).await, SmtpOutcome::Accepted(_)));
    let mail = server.line();
    assert_eq!(
        mail,
        json!({
            "from": "bounce@shop.example", "to": ["ada@example.org"], "user": "shop", "tls": true,
            "subject": "Grüße 😀: eine ziemlich lange Betreffzeile, die umgebrochen werden muss, weil sie lang ist",
            "to_name": "Ada, 日本", "from_name": "Läden & \"Co\"", "defects": 0,
            "text": ".first\r\n..second\r\nFrom here on\r\nüber alles", "html": "<p>Grüße &amp; Küsse</p>",
            "unsubscribe": "<https://shop.example/u/1>", "id": "<dlv_00000000000000000000000001@shop.example>",
        })
    );
    assert_eq!(server.line()["to"], json!(["öl@example.org"]));
}

struct Sink {
    _running: Script,
    port: u16,
}

/// A sink that fails as it is told; on a free port.
async fn sink(options: &[&str]) -> Sink {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = tokio::task::spawn_blocking(smtp_sink).await.unwrap();
    // It does not run as root.
    if std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
    {
        command.args(["-u", "nobody"]);
    }
    command.args(options).arg(free.to_string()).arg("128");
    let running = Script::of(&mut command);
    for _ in 0..500 {
        if tokio::net::TcpStream::connect(free).await.is_ok() {
            return Sink { _running: running, port: free.port() };
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("smtp-sink does not listen");
}

fn plain(port: u16) -> Arc<Relay> {
    relay(RelayConfig::new("127.0.0.1", port, SmtpTls::None), None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtp_sink_takes_a_thousand_mails_with_and_without_pipelining() {
    for options in [&[][..], &["-p"], &["-N"]] {
        let sink = sink(options).await;
        let relay = plain(sink.port);
        let sends = (0..1000).map(|n| {
            let relay = relay.clone();
            async move { send(&relay, "ada@example.org", n).await }
        });
        let ends = futures_util::future::join_all(sends).await;
        let accepted = ends.iter().filter(|end| matches!(end, SmtpOutcome::Accepted(_))).count();
        assert_eq!(
            accepted,
            1000,
            "{options:?}: {:?}",
            ends.iter().find(|e| !matches!(e, SmtpOutcome::Accepted(_)))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtp_sink_fails_at_every_stage_and_we_know_what_it_means() {
    for (options, stage, code) in [
        (["-r", "CONNECT"], SmtpStage::Greeting, 450),
        (["-f", "MAIL"], SmtpStage::Mail, 500),
        (["-r", "RCPT"], SmtpStage::Rcpt, 450),
        (["-f", "RCPT"], SmtpStage::Rcpt, 500),
        (["-r", "DATA"], SmtpStage::Data, 450),
        (["-f", "."], SmtpStage::Dot, 500),
        (["-Q", "."], SmtpStage::Dot, 421),
    ] {
        let sink = sink(&options).await;
        let end = send(&plain(sink.port), "ada@example.org", 1).await;
        let as_told =
            matches!(&end, SmtpOutcome::Refused(at, reply) if *at == stage && reply.code == code);
        assert!(as_told, "{options:?}: {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_vanishes_leaves_doubt_only_after_the_final_dot() {
    for (command, in_doubt) in [("MAIL", false), ("RCPT", false), ("DATA", false), (".", true)] {
        let sink = sink(&["-q", command]).await;
        let end = send(&plain(sink.port), "ada@example.org", 1).await;
        match end {
            SmtpOutcome::Unknown { .. } => assert!(in_doubt, "{command}"),
            SmtpOutcome::NotSent { .. } => assert!(!in_doubt, "{command}"),
            other => panic!("{command}: {other:?}"),
        }
    }
}
