use super::*;
use axum::body::Body;

const HOST: (&str, &str) = ("host", "127.0.0.1:10984");
const NAMED: (&str, &str) = ("host", "Recliner.example:10984");
const FOREIGN: (&str, &str) = ("host", "evil.example:10984");
const JSON: (&str, &str) = ("content-type", "application/json");

fn request(lines: &[(&'static str, &'static str)], peer: Option<&str>) -> Request {
    let mut request = Request::post("/");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    if let Some(peer) = peer {
        request = request.extension(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
    }
    request.body(Body::empty()).unwrap()
}

fn allow(lifecycle: bool, admin: bool) -> Allow {
    Allow { lifecycle, admin, names: [String::from("recliner.example")].into() }
}

#[test]
fn orders_come_from_programs_and_from_the_own_page() {
    for (lines, expected) in [
        (&[HOST][..], Ok(())),
        (&[NAMED], Ok(())),
        (&[("host", "localhost")], Ok(())),
        (&[("host", "[::1]:1")], Ok(())),
        (&[("host", "10.0.0.7:10984")], Ok(())),
        (&[], Err(NotTaken::Host)),
        (&[HOST, HOST], Err(NotTaken::Host)),
        (&[FOREIGN], Err(NotTaken::Host)),
        (&[("host", "recliner.example.evil.example")], Err(NotTaken::Host)),
        (&[("host", "127.0.0.1.evil.example")], Err(NotTaken::Host)),
        (&[NAMED, ("content-type", "application/json; charset=utf-8")], Ok(())),
        (&[HOST, ("content-type", "application/x-www-form-urlencoded")], Err(NotTaken::Type)),
        (&[HOST, ("content-type", "text/plain")], Err(NotTaken::Type)),
        (&[HOST, JSON, ("content-type", "text/plain")], Err(NotTaken::Type)),
        (&[HOST, ("origin", "http://127.0.0.1:10984")], Ok(())),
        (&[("host", "localhost:1"), ("origin", "http://localhost:1")], Ok(())),
        (&[("host", "[::1]:1"), ("origin", "http://[::1]:1")], Ok(())),
        (&[NAMED, ("origin", "https://recliner.example:10984")], Ok(())),
        (&[HOST, ("origin", "http://127.0.0.1:10985")], Err(NotTaken::Origin)),
        (&[HOST, ("origin", "https://evil.example")], Err(NotTaken::Origin)),
        (&[HOST, ("origin", "null")], Err(NotTaken::Origin)),
        (&[HOST, ("sec-fetch-site", "same-origin")], Ok(())),
        (&[HOST, ("sec-fetch-site", "none")], Ok(())),
        (&[HOST, ("sec-fetch-site", "same-site")], Err(NotTaken::Origin)),
        (&[HOST, ("sec-fetch-site", "cross-site")], Err(NotTaken::Origin)),
        (
            &[HOST, ("origin", "http://127.0.0.1:10984"), ("origin", "http://evil.example")],
            Err(NotTaken::Origin),
        ),
        // A name that was pointed here after its page was loaded.
        (&[FOREIGN, ("origin", "http://evil.example:10984")], Err(NotTaken::Host)),
        (&[FOREIGN, ("sec-fetch-site", "same-origin")], Err(NotTaken::Host)),
    ] {
        let taken =
            |permit| may_order(&allow(true, true), permit, &request(lines, None)).map(|_| ());
        assert_eq!(taken(Permit::Lifecycle), expected, "{lines:?}");
        // All others say that they are JSON.
        let typed = lines.iter().any(|(name, _)| *name == "content-type");
        for permit in [Permit::Admin, Permit::Suspend] {
            let expected = if typed { expected } else { Err(NotTaken::Type) };
            assert_eq!(taken(permit), expected, "{lines:?}");
        }
    }
}

#[test]
fn each_order_has_its_flag_and_suspending_this_machine() {
    const LOCAL: Option<&str> = Some("127.0.0.1:5");
    const FAR: Option<&str> = Some("10.0.0.7:5");
    for (permit, lifecycle, admin, peer, expected) in [
        (Permit::Lifecycle, true, false, FAR, Ok(())),
        (Permit::Lifecycle, false, true, LOCAL, Err(NotTaken::LifecycleOff)),
        (Permit::Admin, false, true, FAR, Ok(())),
        (Permit::Admin, true, false, LOCAL, Err(NotTaken::AdminOff)),
        (Permit::Suspend, false, true, FAR, Ok(())),
        (Permit::Suspend, false, false, LOCAL, Ok(())),
        (Permit::Suspend, false, false, Some("[::1]:5"), Ok(())),
        (Permit::Suspend, false, false, Some("[::ffff:127.0.0.1]:5"), Ok(())),
        (Permit::Suspend, true, false, FAR, Err(NotTaken::SuspendOff)),
        (Permit::Suspend, true, false, None, Err(NotTaken::SuspendOff)),
    ] {
        let request = request(&[HOST, JSON], peer);
        let taken = may_order(&allow(lifecycle, admin), permit, &request).map(|_| ());
        assert_eq!(taken, expected, "{permit:?} {lifecycle} {admin} {peer:?}");
    }
    for name in PASSED_ON {
        let proxied = request(&[HOST, JSON, (name, "10.0.0.7")], LOCAL);
        let taken = may_order(&allow(false, false), Permit::Suspend, &proxied);
        assert_eq!(taken, Err(NotTaken::SuspendOff), "{name}");
    }
}
