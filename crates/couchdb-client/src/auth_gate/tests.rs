use super::*;

#[test]
fn words_about_the_login_are_told_from_words_about_privileges() {
    for (reason, about_login) in [
        ("Name or password is incorrect.", true),
        ("Account is temporarily locked due to multiple authentication failures", true),
        ("You are not a server admin.", false),
        ("You are not authorized to access this db.", false),
        ("You are not allowed to access this db.", false),
        ("", false),
    ] {
        let refusal = wire::ErrorBody { error: None, reason: Some(reason.to_owned()) };
        assert_eq!(is_about_login(&refusal), about_login, "{reason}");
    }
    assert!(!is_about_login(&wire::ErrorBody::default()));
}
