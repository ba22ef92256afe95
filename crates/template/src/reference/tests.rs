use super::*;
use proptest::prelude::*;

#[test]
fn all_forms_are_read() {
    let read = |text: &str| {
        let found = Reference::parse(text).unwrap();
        (found.namespace, found.name, found.tag)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(read("base"), (None, "base".into(), None));
    assert_eq!(read(" My_App-1 "), (None, "my_app-1".into(), None));
    assert_eq!(read("team/app:v1.2"), (some("team"), "app".into(), some("v1.2")));
    assert_eq!(read("app:default"), (None, "app".into(), None));
    assert_eq!(Reference::parse("app").unwrap().tag(), "default");
}

#[test]
fn anything_else_is_refused_with_the_documented_words() {
    let uuid = "app:11111111-2222-3333-4444-555555555555";
    let long = "a".repeat(129);
    for bad in ["", "a b", "a/b/c", "a:b:c", "a:", "/a", "a/", "../x", "ä", uuid, &long] {
        let error = Reference::parse(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().starts_with("Invalid template reference"), "{bad:?}: {error}");
    }
    assert!(tag("V1").unwrap() == "v1" && tag("a/b").is_err() && tag("").is_err());
}

proptest! {
    #[test]
    fn whatever_is_accepted_means_the_same_when_written_again(text in ".{0,40}") {
        if let Ok(reference) = Reference::parse(&text) {
            let namespace = reference.namespace.as_ref().map_or(String::new(), |n| format!("{n}/"));
            let again = format!("{namespace}{}:{}", reference.name, reference.tag());
            prop_assert_eq!(Reference::parse(&again).unwrap(), reference);
        }
    }
}
