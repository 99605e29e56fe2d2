//! Egress: a tenant makes the server call only where the operator lets it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use postrider_testkit::process::free_port;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::fixture::{Attacker, PATIENCE, server};

/// A receiver that accepts everything, and tells who called.
async fn receiver(at: &str) -> (SocketAddr, mpsc::UnboundedReceiver<SocketAddr>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, from)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut part = [0; 4096];
                while stream.read(&mut part).await.is_ok_and(|read| read > 0) {
                    let _ = tell.send(from);
                    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, told)
}

/// Sends a webhook, and waits until its delivery has an end. Returns that.
async fn send(caller: &Attacker, url: &str) -> Value {
    let message = json!({
        "to": {"address": {"channel": "webhook", "url": url}},
        "content": {"title": "Hello"},
    });
    let sent = caller.post("/v1/messages", &message).await;
    assert_eq!(sent.status, 202, "{url}: {}", sent.body);
    let id = sent.json()["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/deliveries/{id}");
    let begin = tokio::time::Instant::now();
    loop {
        let delivery = caller.get(&path).await.json();
        if ["sent", "failed"].contains(&delivery["state"].as_str().unwrap()) {
            return delivery;
        }
        assert!(begin.elapsed() < PATIENCE, "no end: {delivery:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_refused(delivery: &Value, code: &str) -> bool {
    delivery["state"] == "failed" && delivery.to_string().contains(&format!("\"{code}\""))
}

#[tokio::test]
async fn nobody_reaches_the_metadata_service_or_the_server_itself() {
    let metrics = free_port().unwrap();
    let server = server(&format!(
        "[server]\nmetrics_listen = \"{metrics}\"\n\
         [network]\nallow_private_targets = true\nallow_plain_http = true\n"
    ));
    let admin = Attacker::admin(&server);
    let port = server.server_at.port();
    for (url, code) in [
        ("http://169.254.169.254/latest/meta-data".to_owned(), "metadata_address"),
        ("http://[::ffff:169.254.169.254]/latest".to_owned(), "metadata_address"),
        ("http://[64:ff9b::a9fe:a9fe]/latest".to_owned(), "metadata_address"),
        ("http://169.254.170.2/v2/credentials".to_owned(), "metadata_address"),
        ("http://[::ffff:169.254.170.23]/v1/credentials".to_owned(), "metadata_address"),
        ("http://[64:ff9b::a9fe:aa17]/v1/credentials".to_owned(), "metadata_address"),
        ("http://[fd00:ec2::23]/v1/credentials".to_owned(), "metadata_address"),
        ("http://[fd20:ce::254]/computeMetadata".to_owned(), "metadata_address"),
        (format!("http://127.0.0.1:{port}/v1/keys"), "own_address"),
        (format!("http://[::ffff:127.0.0.1]:{port}/v1/keys"), "own_address"),
        (format!("http://{metrics}/metrics"), "own_address"),
        (format!("http://0.0.0.0:{port}/v1/keys"), "own_address"),
    ] {
        let delivery = send(&admin, &url).await;
        assert!(is_refused(&delivery, code), "{url}: {delivery:#}");
    }
}

/// The address of this machine in its network. Sends nothing to find it.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    own.map_or(IpAddr::from([0, 0, 0, 0]), |own| own.ip())
}

#[tokio::test]
async fn what_else_listens_on_the_machine_is_reached_only_if_it_is_named() {
    let own = own_address();
    let (neighbour, mut called) = receiver(&format!("{own}:0")).await;
    for (networks, is_reached) in [("0.0.0.0/0".to_owned(), false), (format!("{own}/32"), true)] {
        let server = server(&format!(
            "[network]\nallow_private_targets = [\"{networks}\"]\nallow_plain_http = true\n"
        ));
        let delivery = send(&Attacker::admin(&server), &format!("http://{neighbour}/hook")).await;
        assert_eq!(is_refused(&delivery, "own_address"), !is_reached, "{networks}: {delivery:#}");
        assert_eq!(called.try_recv().is_ok(), is_reached, "{networks}");
    }
}

#[tokio::test]
async fn only_named_private_networks_and_allowed_ports_are_reached() {
    let (open, mut called) = receiver("127.0.0.2:0").await;
    let (closed, mut untouched) = receiver("127.0.0.3:0").await;
    let (denied, mut denied_calls) = receiver("127.0.0.2:0").await;
    let config = format!(
        "[network]\nallow_private_targets = [\"127.0.0.2/32\"]\nallow_plain_http = true\n\
         deny = [\"127.0.0.0/8 {}\"]\n",
        denied.port()
    );
    let server = server(&config);
    let admin = Attacker::admin(&server);
    assert_eq!(send(&admin, &format!("http://{open}/hook")).await["state"], "sent");
    assert!(called.recv().await.is_some());
    let private = send(&admin, &format!("http://{closed}/hook")).await;
    assert!(is_refused(&private, "private_address"), "{private:#}");
    let forbidden = send(&admin, &format!("http://{denied}/hook")).await;
    assert!(is_refused(&forbidden, "egress_denied"), "{forbidden:#}");
    assert!(untouched.try_recv().is_err() && denied_calls.try_recv().is_err());
}

#[tokio::test]
async fn calls_leave_through_the_proxy_and_from_the_named_addresses() {
    let (target, mut called) = receiver("127.0.0.1:0").await;
    // A proxy that wants a password and is called from 127.0.0.5.
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy_at = proxy.local_addr().unwrap();
    let (tell, mut asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, from)) = proxy.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let to = head.split(' ').nth(1).unwrap().to_owned();
            let _ = tell.send((head.clone(), from));
            let mut onward = tokio::net::TcpStream::connect(&to).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
            });
        }
    });
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "shop:secret").unwrap();
    let config = format!(
        "[network]\nallow_private_targets = true\nallow_plain_http = true\nproxy = \"http://{proxy_at}\"\n\
         proxy_credential = \"file:{}\"\nsource_addresses = [\"127.0.0.5\"]\n",
        secret.path().display()
    );
    let server = server(&config);
    let admin = Attacker::admin(&server);
    assert_eq!(send(&admin, &format!("http://{target}/hook")).await["state"], "sent");
    let asked_for = tokio::time::timeout(PATIENCE, asked.recv()).await;
    let (head, from) = asked_for.expect("the proxy is asked").unwrap();
    assert!(head.starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic c2hvcDpzZWNyZXQ="), "{head}");
    assert_eq!(from.ip().to_string(), "127.0.0.5");
    assert!(called.recv().await.is_some());
    let metadata = send(&admin, "http://169.254.169.254/latest").await;
    assert!(is_refused(&metadata, "metadata_address"), "{metadata:#}");
    assert!(asked.try_recv().is_err(), "the proxy is not asked for what is not allowed");
}

/// A SOCKS5 proxy that wants a user and a password. Tells for which address it was asked.
async fn socks_proxy() -> (SocketAddr, mpsc::UnboundedReceiver<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut greeting = [0; 2];
                stream.read_exact(&mut greeting).await.unwrap();
                let mut methods = vec![0; usize::from(greeting[1])];
                stream.read_exact(&mut methods).await.unwrap();
                assert!(greeting[0] == 5 && methods.contains(&2), "{methods:?}");
                stream.write_all(&[5, 2]).await.unwrap();
                let mut sign_in = [0; 1 + 1 + 4 + 1 + 6];
                stream.read_exact(&mut sign_in).await.unwrap();
                assert_eq!(&sign_in, b"\x01\x04shop\x06secret");
                stream.write_all(&[1, 0]).await.unwrap();
                let mut request = [0; 10];
                stream.read_exact(&mut request).await.unwrap();
                let [5, 1, 0, 1, a, b, c, d, high, low] = request else { panic!("{request:?}") };
                let to = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
                let _ = tell.send(to);
                let mut onward = tokio::net::TcpStream::connect(to).await.unwrap();
                stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
            });
        }
    });
    (at, told)
}

#[tokio::test]
async fn calls_leave_through_a_socks_proxy_which_never_resolves_names() {
    let (target, mut called) = receiver("127.0.0.1:0").await;
    let (proxy, mut asked) = socks_proxy().await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "shop:secret").unwrap();
    let config = format!(
        "[network]\nallow_private_targets = true\nallow_plain_http = true\nproxy = \"socks5://{proxy}\"\n\
         proxy_credential = \"file:{}\"\nhosts = {{ \"hooks.shop.example\" = \"127.0.0.1\" }}\n",
        secret.path().display()
    );
    let server = server(&config);
    let admin = Attacker::admin(&server);
    let url = format!("http://hooks.shop.example:{}/hook", target.port());
    assert_eq!(send(&admin, &url).await["state"], "sent");
    let asked_for = tokio::time::timeout(PATIENCE, asked.recv()).await.expect("the proxy is asked");
    assert_eq!(asked_for, Some(target), "the address that was checked, not a name");
    assert!(called.recv().await.is_some());
    let metadata = send(&admin, "http://169.254.169.254/latest").await;
    assert!(is_refused(&metadata, "metadata_address"), "{metadata:#}");
    assert!(asked.try_recv().is_err(), "the proxy is not asked for what is not allowed");
}

/// A receiver over TLS whose certificate is from an authority of its own. Returns that as PEM, too.
async fn tls_receiver(names: &[&str]) -> (SocketAddr, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let pem = ca.pem();
    let issuer = rcgen::Issuer::new(params, key);
    let own = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate =
        rcgen::CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(own.serialize_der()).into(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut part = [0; 4096];
                while stream.read(&mut part).await.is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (at, pem)
}

#[tokio::test]
async fn an_extra_authority_is_trusted_for_its_hosts_only() {
    let (at, pem) = tls_receiver(&["hooks.corp.example", "bank.example"]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let config = format!(
        "[network]\nallow_private_targets = true\nextra_ca_file = \"{}\"\n\
         extra_ca_hosts = [\"*.corp.example\"]\n\
         hosts = {{ \"hooks.corp.example\" = \"127.0.0.1\", \"bank.example\" = \"127.0.0.1\" }}\n\
         [classes.transactional]\nretry = {{ retries = 0 }}\n",
        file.path().display()
    );
    let server = server(&config);
    let admin = Attacker::admin(&server);
    let to = |host: &str| format!("https://{host}:{}/hook", at.port());
    assert_eq!(send(&admin, &to("hooks.corp.example")).await["state"], "sent");
    let other = send(&admin, &to("bank.example")).await;
    assert_eq!(other["state"], "failed", "{other:#}");
    assert!(other.to_string().contains("tls"), "{other:#}");
}
