use super::*;
use crate::serve::http::peer::Peer;
use axum::body::Body;

const HOST: (&str, &str) = ("host", "127.0.0.1:10984");
const NAMED: (&str, &str) = ("host", "Recliner.example:10984");
const FOREIGN: (&str, &str) = ("host", "evil.example:10984");
const JSON: (&str, &str) = ("content-type", "application/json");

fn over(address: &str, encrypted: bool) -> Connection {
    Connection { peer: Peer::Tcp(address.parse().unwrap()), encrypted }
}

fn local() -> Connection {
    over("127.0.0.1", false)
}

fn far() -> Connection {
    over("10.0.0.7", false)
}

const SOCKET: Connection = Connection { peer: Peer::Socket { uid: 7 }, encrypted: false };

fn request(
    lines: &[(&'static str, &'static str)],
    connection: Option<Connection>,
    user: Option<&str>,
) -> Request {
    let mut request = Request::post("/");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::empty()).unwrap();
    if let Some(connection) = connection {
        request.extensions_mut().insert(connection);
    }
    if let Some(user) = user {
        request.extensions_mut().insert(AuthenticatedUser(user.to_owned()));
    }
    request
}

fn allow(lifecycle: bool, admin: bool) -> Allow {
    let names = [String::from("recliner.example")].into();
    Allow { lifecycle, admin, names, ..Allow::default() }
}

fn unknown(name: &str) -> OrderRefused {
    OrderRefused::UnknownHost(Some(name.to_owned()))
}

#[test]
fn accepts_orders_from_programs_and_own_page_only() {
    for (lines, expected) in [
        (&[HOST][..], Ok(())),
        (&[NAMED], Ok(())),
        (&[("host", "localhost")], Ok(())),
        (&[("host", "[::1]:1")], Ok(())),
        (&[("host", "10.0.0.7:10984")], Ok(())),
        (&[], Err(OrderRefused::UnknownHost(None))),
        (&[HOST, HOST], Err(OrderRefused::UnknownHost(None))),
        (&[FOREIGN], Err(unknown("evil.example"))),
        (
            &[("host", "recliner.example.evil.example")],
            Err(unknown("recliner.example.evil.example")),
        ),
        (&[("host", "127.0.0.1.evil.example")], Err(unknown("127.0.0.1.evil.example"))),
        (&[NAMED, ("content-type", "application/json; charset=utf-8")], Ok(())),
        (
            &[HOST, ("content-type", "application/x-www-form-urlencoded")],
            Err(OrderRefused::ContentType),
        ),
        (&[HOST, ("content-type", "text/plain")], Err(OrderRefused::ContentType)),
        (&[HOST, JSON, ("content-type", "text/plain")], Err(OrderRefused::ContentType)),
        (&[HOST, ("origin", "http://127.0.0.1:10984")], Ok(())),
        (&[("host", "localhost:1"), ("origin", "http://localhost:1")], Ok(())),
        (&[("host", "[::1]:1"), ("origin", "http://[::1]:1")], Ok(())),
        (&[NAMED, ("origin", "http://RECLINER.example:10984")], Ok(())),
        (&[("host", "localhost"), ("origin", "http://localhost:80")], Ok(())),
        (&[NAMED, ("origin", "https://recliner.example:10984")], Err(OrderRefused::ForeignOrigin)),
        (
            &[("host", "localhost"), ("origin", "http://localhost:443")],
            Err(OrderRefused::ForeignOrigin),
        ),
        (&[HOST, ("origin", "127.0.0.1:10984")], Err(OrderRefused::ForeignOrigin)),
        (&[HOST, ("origin", "http://127.0.0.1:10984/")], Err(OrderRefused::ForeignOrigin)),
        (&[("host", "[::1].evil.example")], Err(OrderRefused::UnknownHost(None))),
        (&[("host", "[::1].evil.example:10984")], Err(OrderRefused::UnknownHost(None))),
        (&[("host", "127.0.0.1:evil")], Err(OrderRefused::UnknownHost(None))),
        (&[("host", "localhost:evil.example")], Err(OrderRefused::UnknownHost(None))),
        (&[("host", "ann@localhost")], Err(OrderRefused::UnknownHost(None))),
        (&[HOST, ("origin", "http://127.0.0.1:10985")], Err(OrderRefused::ForeignOrigin)),
        (&[HOST, ("origin", "https://evil.example")], Err(OrderRefused::ForeignOrigin)),
        (&[HOST, ("origin", "null")], Err(OrderRefused::ForeignOrigin)),
        (&[HOST, ("sec-fetch-site", "same-origin")], Ok(())),
        (&[HOST, ("sec-fetch-site", "none")], Ok(())),
        (&[HOST, ("sec-fetch-site", "same-site")], Err(OrderRefused::ForeignOrigin)),
        (&[HOST, ("sec-fetch-site", "cross-site")], Err(OrderRefused::ForeignOrigin)),
        (
            &[HOST, ("origin", "http://127.0.0.1:10984"), ("origin", "http://evil.example")],
            Err(OrderRefused::ForeignOrigin),
        ),
        // A name that was pointed at this machine after its page was loaded.
        (&[FOREIGN, ("origin", "http://evil.example:10984")], Err(unknown("evil.example"))),
        (&[FOREIGN, ("sec-fetch-site", "same-origin")], Err(unknown("evil.example"))),
    ] {
        let result = |permit| {
            authorize_order(&allow(true, true), permit, &request(lines, Some(local()), None))
                .map(|_| ())
        };
        assert_eq!(result(Permission::Lifecycle), expected, "{lines:?}");
        assert_eq!(result(Permission::Backup), expected, "{lines:?}");
        // All other orders must declare a JSON body.
        let typed = lines.iter().any(|(name, _)| *name == "content-type");
        for permit in [Permission::Admin, Permission::Suspend] {
            let expected = expected.clone();
            let expected =
                if typed { expected } else { expected.and(Err(OrderRefused::ContentType)) };
            assert_eq!(result(permit), expected, "{lines:?}");
        }
    }
}

#[test]
fn page_over_tls_needs_https_origin() {
    let connection = Some(over("127.0.0.1", true));
    for (origin, expected) in [
        ("https://recliner.example:10984", Ok(())),
        ("http://recliner.example:10984", Err(OrderRefused::ForeignOrigin)),
    ] {
        let request = request(&[NAMED, JSON, ("origin", origin)], connection, None);
        let result = authorize_order(&allow(true, true), Permission::Admin, &request).map(|_| ());
        assert_eq!(result, expected, "{origin}");
    }
}

#[test]
fn tcp_orders_need_flag_and_remote_ones_a_user() {
    let v6 = |text| Some(over(text, false));
    let (here, there) = (Some(local()), Some(far()));
    for (permit, lifecycle, admin, connection, user, expected) in [
        (Permission::Lifecycle, true, false, here, None, Ok("127.0.0.1")),
        (Permission::Lifecycle, true, false, there, None, Err(OrderRefused::NoUser)),
        (Permission::Lifecycle, true, false, there, Some("ann"), Ok("ann from 10.0.0.7")),
        (Permission::Lifecycle, false, true, here, Some("ann"), Err(OrderRefused::LifecycleOff)),
        (Permission::Admin, false, true, here, None, Ok("127.0.0.1")),
        (Permission::Admin, false, true, v6("::1"), None, Ok("::1")),
        (Permission::Admin, false, true, there, None, Err(OrderRefused::NoUser)),
        (Permission::Admin, false, true, there, Some("ann"), Ok("ann from 10.0.0.7")),
        (Permission::Admin, true, false, here, Some("ann"), Err(OrderRefused::AdminOff)),
        (Permission::Suspend, false, true, here, None, Ok("127.0.0.1")),
        (Permission::Suspend, false, true, there, None, Err(OrderRefused::NoUser)),
        (Permission::Suspend, false, true, there, Some("ann"), Ok("ann from 10.0.0.7")),
        (Permission::Suspend, true, false, here, None, Err(OrderRefused::SuspendOff)),
        (Permission::Suspend, true, false, v6("::1"), Some("ann"), Err(OrderRefused::SuspendOff)),
        (Permission::Suspend, false, true, None, None, Err(OrderRefused::NoUser)),
        (Permission::Backup, false, true, here, None, Ok("127.0.0.1")),
        (Permission::Backup, false, true, there, None, Err(OrderRefused::NoUser)),
        (Permission::Backup, false, true, there, Some("ann"), Ok("ann from 10.0.0.7")),
        (Permission::Backup, true, false, here, Some("ann"), Err(OrderRefused::BackupOff)),
    ] {
        let request = request(&[HOST, JSON], connection, user);
        let result = authorize_order(&allow(lifecycle, admin), permit, &request);
        let expected = expected.map(str::to_owned);
        assert_eq!(result, expected, "{permit:?} {lifecycle} {admin} {connection:?} {user:?}");
    }
    for name in PROXY_HEADERS {
        for (user, expected) in
            [(None, Err(OrderRefused::NoUser)), (Some("ann"), Ok("ann from 127.0.0.1".to_owned()))]
        {
            let proxied = request(&[HOST, JSON, (name, "10.0.0.7")], here, user);
            let result = authorize_order(&allow(false, true), Permission::Suspend, &proxied);
            assert_eq!(result, expected, "{name}");
        }
    }
}

#[test]
fn socket_owner_suspends_resumes_and_backs_up_without_flag() {
    let owner = Ok("unix socket, uid 7".to_owned());
    for (permit, lifecycle, admin, expected) in [
        (Permission::Suspend, false, false, owner.clone()),
        (Permission::Backup, false, false, owner.clone()),
        (Permission::Admin, false, false, Err(OrderRefused::AdminOff)),
        (Permission::Lifecycle, false, false, Err(OrderRefused::LifecycleOff)),
        (Permission::Admin, false, true, owner.clone()),
        (Permission::Lifecycle, true, false, owner.clone()),
    ] {
        // No browser can reach the socket, so the `Host` does not matter.
        for host in [HOST, FOREIGN] {
            let request = request(&[host, JSON], Some(SOCKET), None);
            let result = authorize_order(&allow(lifecycle, admin), permit, &request);
            assert_eq!(result, expected, "{permit:?}");
        }
    }
    for (line, expected) in [
        (("origin", "http://127.0.0.1:10984"), OrderRefused::ForeignOrigin),
        (("sec-fetch-site", "none"), OrderRefused::ForeignOrigin),
        (("content-type", "text/plain"), OrderRefused::ContentType),
    ] {
        let request = request(&[HOST, JSON, line], Some(SOCKET), None);
        let result = authorize_order(&allow(true, true), Permission::Suspend, &request);
        assert_eq!(result, Err(expected), "{line:?}");
    }
}

#[test]
fn host_in_an_absolute_url_overrides_the_host_header() {
    for (url, expected) in [
        ("http://evil.example/metrics", Err(unknown("evil.example"))),
        ("http://evil@127.0.0.1/metrics", Err(OrderRefused::UnknownHost(None))),
        ("http://recliner.example:10984/metrics", Ok(())),
        ("/metrics", Ok(())),
    ] {
        let request = Request::get(url).header("host", "127.0.0.1").body(Body::empty()).unwrap();
        assert_eq!(check_host(&allow(false, false), &request), expected, "{url}");
    }
}
