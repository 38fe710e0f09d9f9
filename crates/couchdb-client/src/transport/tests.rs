use super::{authority::Authority, *};
use crate::Tls;
use http_body::Frame;
use http_body_util::StreamBody;
use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

async fn get(at: SocketAddr, tls: Tls) -> Result<u16, SendFailure> {
    ask(&format!("https://{at}").parse().unwrap(), tls).await
}

/// The status of the answer to a GET.
async fn ask(address: &Address, tls: Tls) -> Result<u16, SendFailure> {
    let mut settings = ClientSettings::new(vec![address.clone()]);
    settings.tls = tls;
    let transport = Transport::http(&settings, "test").unwrap();
    let out = OutgoingRequest {
        method: Method::GET,
        path: "/",
        login: None,
        header: None,
        form: None,
        limit: 100,
    };
    let reply = tokio::time::timeout(Duration::from_secs(20), transport.send(address, out));
    reply.await.unwrap().map(|reply| reply.status)
}

/// Answers every request with `heads` informational answers before the final one, or with endless
/// ones.
async fn informational(heads: Option<usize>) -> (Address, tokio::task::JoinSet<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _read = stream.read(&mut [0; 4_096]).await;
            let mut left = heads;
            while left != Some(0)
                && stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok()
            {
                left = left.map(|left| left - 1);
            }
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
        }
    });
    (address, servers)
}

#[tokio::test]
async fn gives_up_after_too_many_informational_answers() {
    for (heads, answers) in [(Some(3), true), (Some(100), false), (None, false)] {
        let (address, _servers) = informational(heads).await;
        match ask(&address, Tls::default()).await {
            Ok(status) => assert!(answers && status == 200, "{heads:?}"),
            Err(SendFailure::Malformed(why)) => assert!(!answers, "{heads:?}: {why}"),
            Err(why) => panic!("{heads:?}: {why:?}"),
        }
    }
}

fn write(dir: &tempfile::TempDir, name: &str, text: &str) -> Option<PathBuf> {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    Some(path)
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(), Authority::new());
    let (at, _server) = ours.serve(false).await;
    let with = |ca_file| Tls { ca_file, ..Tls::default() };
    let ours = write(&dir, "ours.pem", &ours.pem());
    let other = write(&dir, "other.pem", &other.pem());
    assert_eq!(get(at, with(ours)).await.unwrap(), 200);
    for tls in [with(other), with(None)] {
        let failure = get(at, tls).await.unwrap_err();
        assert!(
            matches!(&failure, SendFailure::Tls(detail) if detail.contains("certificate")),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn server_presenting_the_ca_file_is_trusted_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for (name, trusted) in [("127.0.0.1", true), ("couch.example", false)] {
        let (host, other) = (Authority::named(name), Authority::named(name));
        let (at, _server) = host.serve_itself().await;
        let given = |authority: &Authority| Tls {
            ca_file: write(&dir, "ca.pem", &authority.pem()),
            ..Tls::default()
        };
        assert_eq!(get(at, given(&host)).await.is_ok(), trusted, "{name}");
        assert!(get(at, given(&other)).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn client_certificate_is_presented() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (at, _server) = authority.serve(true).await;
    let client = authority.sign("recliner");
    let ca_file = write(&dir, "ca.pem", &authority.pem());
    let nobody = Tls { ca_file: ca_file.clone(), ..Tls::default() };
    let somebody = Tls {
        ca_file,
        cert_file: write(&dir, "client.pem", &client.cert.pem()),
        key_file: write(&dir, "client.key", &client.key.serialize_pem()),
    };
    assert_eq!(get(at, somebody).await.unwrap(), 200);
    assert!(get(at, nobody).await.is_err());
}

#[test]
fn errors_name_unusable_tls_files() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |tls| {
        let mut settings = ClientSettings::new(vec!["https://couch".parse().unwrap()]);
        settings.tls = tls;
        Transport::http(&settings, "test").unwrap_err().to_string()
    };
    let empty = write(&dir, "empty.pem", "");
    let missing = Some(dir.path().join("missing.pem"));
    let shown = settings(Tls { ca_file: empty.clone(), ..Tls::default() });
    assert!(shown.starts_with("ca_file ") && shown.contains("empty.pem"), "{shown}");
    let shown = settings(Tls { cert_file: missing, key_file: empty.clone(), ..Tls::default() });
    assert!(shown.starts_with("cert_file ") && shown.contains("missing.pem"), "{shown}");
    let shown = settings(Tls { key_file: empty, ..Tls::default() });
    assert!(shown.contains("need each other"), "{shown}");
}

#[tokio::test]
async fn joins_body_pieces_up_to_the_limit() {
    let read = async |pieces: &[&'static [u8]], limit| {
        let frames: Vec<_> =
            pieces.iter().map(|it| Ok(Frame::data(Bytes::from_static(it)))).collect();
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        read_body(body, 6, limit).await.ok()
    };
    assert_eq!(read(&[], 0).await.as_deref(), Some(&b""[..]));
    assert_eq!(read(&[b"abc"], 3).await.as_deref(), Some(&b"abc"[..]));
    assert_eq!(read(&[b"abc", b"", b"def"], 6).await.as_deref(), Some(&b"abcdef"[..]));
    assert_eq!(read(&[b"", b"abc", b"def"], 6).await.as_deref(), Some(&b"abcdef"[..]));
    assert_eq!(read(&[b"abc", b"defg"], 6).await, None);
}
