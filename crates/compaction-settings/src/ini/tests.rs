use super::*;
use proptest::prelude::*;

fn read(version: &str, files: &[&str]) -> Ini {
    let mut ini = Ini::default();
    for (at, text) in files.iter().enumerate() {
        ini.add(&format!("{at}.ini"), text.as_bytes(), Rules::parse(version).unwrap());
    }
    ini
}

fn settings(ini: &Ini) -> Vec<(&str, &str, &str)> {
    ini.sections
        .iter()
        .flat_map(|(section, keys)| {
            keys.iter().map(|(key, value)| (section.as_str(), key.as_str(), value.as_str()))
        })
        .collect()
}

fn problems(ini: &Ini) -> Vec<String> {
    ini.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn reads_comments_sections_and_settings() {
    let ini = read(
        "3.5.0",
        &["; a comment\r\n# another\r\n[smoosh]\r\n  db_channels = a, b ; inline\r\nstaleness=5\n\
           [smoosh.a]\nmin_size\t=\t7\t; why\nurl = a;b\na=b = c\n"],
    );
    assert_eq!(
        settings(&ini),
        [
            ("smoosh", "db_channels", "a, b"),
            ("smoosh", "staleness", "5"),
            ("smoosh.a", "a=b", "c"),
            ("smoosh.a", "min_size", "7"),
            ("smoosh.a", "url", "a;b"),
        ]
    );
    assert_eq!(problems(&ini), [""; 0]);
}

#[test]
fn byte_order_mark_hides_the_first_section() {
    for version in ["3.2.2", "3.5.0"] {
        let ini = read(version, &["\u{feff}[smoosh]\ndb_channels = a\n[smoosh.a]\nmin_size = 7\n"]);
        assert_eq!(settings(&ini), [("smoosh.a", "min_size", "7")]);
        let [mark, setting] = &problems(&ini)[..] else { panic!("{:?}", problems(&ini)) };
        assert!(mark.starts_with("0.ini:1: begins with a byte order mark"), "{mark}");
        assert_eq!(setting, "0.ini:2: is before the first [section] and is ignored");
    }
}

#[test]
fn later_files_override_and_empty_values_delete_before_3_4() {
    let files = ["[s]\na = 1\nb = 1\n", "[s]\na = 2\nb =\n"];
    assert_eq!(settings(&read("3.3.3", &files)), [("s", "a", "2")]);
    assert_eq!(settings(&read("3.2.2", &files)), [("s", "a", "2")]);
    let newer = read("3.4.0", &files);
    assert_eq!(settings(&newer), [("s", "a", "2"), ("s", "b", "1")]);
    assert_eq!(
        problems(&newer),
        [
            "1.ini:3: gives b an empty value, which this version ignores: an earlier file's value stays"
        ]
    );
}

#[test]
fn leading_space_continues_the_value_before_3_3() {
    let text = "[compactions]\n_default = [{db_fragmentation, \"70%\"},\n {view_fragmentation, \"60%\"}]\n";
    assert_eq!(
        settings(&read("2.3.1", &[text])),
        [(
            "compactions",
            "_default",
            "[{db_fragmentation, \"70%\"}, {view_fragmentation, \"60%\"}]"
        )]
    );
    let newer = read("3.3.3", &[text]);
    assert_eq!(settings(&newer), [("compactions", "_default", "[{db_fragmentation, \"70%\"},")]);
    assert_eq!(problems(&newer), ["0.ini:3: is not a setting: write key = value"]);
}

#[test]
fn before_3_3_trims_one_space_around_equals_sign() {
    let text = "[s]\nmin_size  = 5\ncapacity =  7 ; c\n";
    assert_eq!(
        settings(&read("3.2.2", &[text])),
        [("s", "capacity", " 7"), ("s", "min_size ", "5")]
    );
    assert_eq!(settings(&read("3.3.3", &[text])), [("s", "capacity", "7"), ("s", "min_size", "5")]);
}

#[test]
fn last_of_two_equal_keys_applies_since_3_3() {
    let text = "[s]\na = 1\na = 2\n";
    for (version, value) in [("3.2.2", "1"), ("3.3.0", "2")] {
        let ini = read(version, &[text]);
        assert_eq!(settings(&ini), [("s", "a", value)], "{version}");
        assert_eq!(problems(&ini), ["0.ini:3: sets a a second time in this file"]);
    }
}

#[test]
fn reports_odd_lines_by_place_without_values() {
    let ini = read("3.5.0", &["secret = 1\n[a] b\n[]\n[s]\nsecret\n= secret\n[t\n"]);
    assert_eq!(
        problems(&ini),
        [
            "0.ini:1: is before the first [section] and is ignored",
            "0.ini:2: starts with [ but is not a section: write [name] with nothing after it; the lines below it still belong to []",
            "0.ini:3: starts with [ but is not a section: write [name] with nothing after it; the lines below it still belong to []",
            "0.ini:5: is not a setting: write key = value",
            "0.ini:6: is not a setting: write key = value",
            "0.ini:7: starts with [ but is not a section: write [name] with nothing after it; the lines below it still belong to [s]",
        ]
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in prop::sample::select(vec!["2.3.1", "3.2.2", "3.3.3", "3.5.0"]),
    ) {
        let mut ini = Ini::default();
        ini.add("x", &bytes, Rules::parse(version).unwrap());
        ini.add("x", &bytes, Rules::parse(version).unwrap());
        prop_assert!(ini.problems.len() <= 2 * (bytes.len() + 1));
    }

    #[test]
    fn plain_settings_are_read_by_every_version(
        pairs in prop::collection::btree_map("[a-z_.]{1,8}", "[a-zA-Z0-9:,.{}\"%]{1,12}", 0..6),
        version in prop::sample::select(vec!["2.3.1", "3.2.2", "3.3.3", "3.5.0"]),
    ) {
        let text = pairs.iter().fold("[s]\n".to_owned(), |text, (key, value)| {
            text + key + " = " + value + "\n"
        });
        let ini = read(version, &[&text]);
        prop_assert_eq!(ini.sections.get("s").cloned().unwrap_or_default(), pairs);
    }
}
