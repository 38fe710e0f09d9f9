use super::*;

#[test]
fn refuses_names_that_couchdb_refuses() {
    for good in ["a", "app/_design/x", "rec_app/slash+plus", "_users", "a$()+-_/0"] {
        assert!(legal_name(good), "{good}");
    }
    let long = "a".repeat(MAX_NAME_BYTES + 1);
    for bad in ["", "A", "1a", "ü", "a%2f", "a b", "_x", "a.b", long.as_str()] {
        assert!(!legal_name(bad), "{bad}");
        let config = Config::new(&["couchdb@a"]).with(Database::new(bad));
        assert_eq!(config.check(), Err(ConfigError::Name(bad.to_owned())));
    }
}

#[test]
fn configuration_error_names_the_invalid_number() {
    let check = |database| Config::new(&["couchdb@a"]).with(database).check();
    let number = |what| Err(ConfigError::Number("a".to_owned(), what));
    let base = || Database::new("a");
    assert_eq!(check(base()), Ok(()));
    assert_eq!(check(Database { q: 0, ..base() }), number("q"));
    assert_eq!(check(Database { bloat: f64::NAN, ..base() }), number("bloat"));
    assert_eq!(check(Database { delete_share: 0.5, ..base() }), number("delete_share"));
    let missing = vec![(2, "couchdb@a".to_owned())];
    assert_eq!(check(Database { missing, ..base() }), number("missing"));
    let elsewhere = Database { placed_on: vec!["couchdb@b".to_owned()], ..base() };
    assert_eq!(check(elsewhere), Err(ConfigError::Node("couchdb@b".to_owned())));
}
