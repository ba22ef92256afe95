use super::*;

const HASH: &str = "37dce8f5116cbbbf3f6fc0fc5c6f2d716419e7bdca04cdb1b8a0be87c9f4e49b";

fn parse(kind: &str, args: &[&str], files: Option<&str>) -> Result<Step> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    Step::parse(3, kind, &args, files, false)
}

#[test]
fn every_kind_of_step_is_read() {
    let action = |kind, args: &[&str]| parse(kind, args, Some(HASH)).unwrap().action;
    let run = Action::Run { command: "make".into(), user: Some("root".into()) };
    assert_eq!(action("run", &["make", "root"]), run);
    let copy = action("ADD", &["src", "/app/", "", "0644"]);
    let Action::Copy { owner, mode, files, .. } = copy else { panic!("{copy:?}") };
    assert_eq!((owner, mode.as_deref(), files.as_str()), (None, Some("0644"), HASH));
    let env = action("ENV", &["A", "1", "B", "2"]);
    assert_eq!(env, Action::Env(vec![("A".into(), "1".into()), ("B".into(), "2".into())]));
    assert_eq!(action("WORKDIR", &["/app"]), Action::Workdir("/app".into()));
    assert_eq!(action("USER", &["joe", "true"]), Action::User { name: "joe".into(), sudo: true });
}

#[test]
fn bad_steps_are_refused_by_their_place() {
    let bad: &[(&str, &[&str], Option<&str>)] = &[
        ("FLY", &[], None),
        ("RUN", &[], None),
        ("RUN", &["a\0b"], None),
        ("RUN", &["id", "a;b"], None),
        ("ENV", &["A"], None),
        ("ENV", &["1A", "x"], None),
        ("COPY", &["a", "b"], None),
        ("COPY", &["a", "b"], Some("../../etc/passwd")),
        ("COPY", &["../a", "b"], Some(HASH)),
        ("COPY", &["/etc", "b"], Some(HASH)),
        ("COPY", &["a", "b", "$(id)", ""], Some(HASH)),
        ("COPY", &["a", "b", "", "999"], Some(HASH)),
        ("USER", &["-rf"], None),
        ("WORKDIR", &[""], None),
    ];
    for (kind, args, files) in bad {
        let error = parse(kind, args, *files).expect_err(kind);
        assert!(error.message().starts_with("steps[2]: "), "{kind} {args:?}: {error}");
    }
}

#[test]
fn a_log_shows_no_values_of_variables() {
    let step = parse("ENV", &["TOKEN", "secret"], None).unwrap();
    assert_eq!(step.text(), "ENV TOKEN");
    assert!(step.identity().contains(&"secret"));
}
