use super::{config, defaults};
use atoll_core::{
    GuestDefaults, ImageSource, Lifecycle, ReadyCheck, Sandbox, SandboxId, SandboxSpec, Source,
    TemplateOrigin, TenantId, Timestamp,
};
use atoll_image::ImageConfig;
use serde_json::{Value, json};
use std::time::Duration;

fn sandbox() -> Sandbox {
    let image = ImageSource { reference: "any".into(), auth: None };
    Sandbox {
        id: SandboxId::parse("s1").unwrap(),
        tenant: TenantId::parse("t1").unwrap(),
        spec: SandboxSpec::new(Source::Image(image)),
        created_at: Timestamp::default(),
        access_token: String::new(),
        stock_of: None,
        life: Lifecycle::new(Timestamp::default(), None),
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        env: vec![("A".into(), "image".into()), ("B".into(), "image".into())],
        entrypoint: vec!["run".into()],
        cmd: vec!["it".into()],
        working_dir: Some("/srv".into()),
        user: Some("www".into()),
    }
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_asked_for_goes_over_what_the_image_says() {
    let mut sandbox = sandbox();
    let plain = read(&config(&sandbox, &image(), "k", None));
    assert_eq!(plain["entrypoint"], json!(["run", "it"]));
    assert_eq!((&plain["cwd"], &plain["user"]), (&json!("/srv"), &json!("www")));
    assert_eq!((&plain["make"], &plain["warm"]), (&json!(false), &json!(false)));
    assert_eq!(plain["env"], json!({ "A": "image", "B": "image", "OPENSANDBOX_ID": "s1" }));

    sandbox.stock_of = Some("pool".into());
    sandbox.spec.env.insert("B".into(), "own".into());
    sandbox.spec.entrypoint = vec!["other".into()];
    sandbox.spec.guest = GuestDefaults { user: Some("user".into()), workdir: Some("/w".into()) };
    sandbox.spec.ready = Some(ReadyCheck {
        command: "true".into(),
        every: Duration::from_secs(2),
        within: Duration::from_secs(10),
    });
    let asked = read(&config(&sandbox, &image(), "k", None));
    assert_eq!(asked["entrypoint"], json!(["other"]));
    assert_eq!((&asked["cwd"], &asked["user"]), (&json!("/w"), &json!("user")));
    assert_eq!((&asked["make"], &asked["warm"]), (&json!(true), &json!(true)));
    assert_eq!((&asked["env"]["A"], &asked["env"]["B"]), (&json!("image"), &json!("own")));
    let check = json!({ "command": "true", "every_ms": 2000, "within_ms": 10_000 });
    assert_eq!(asked["ready"], check);
}

#[test]
fn a_claim_tells_defaults_and_nothing_else() {
    let mut sandbox = sandbox();
    sandbox.spec.template =
        Some(TemplateOrigin { id: "tpl".into(), alias: None, build: "b".into() });
    sandbox.spec.env.insert("E2B_SANDBOX_ID".into(), "mine".into());
    let told = read(&defaults(&sandbox, &image()));
    let members: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(members, ["cwd", "env", "make", "user"]);
    let env = &told["env"];
    assert_eq!((&env["E2B_SANDBOX"], &env["E2B_TEMPLATE_ID"]), (&json!("true"), &json!("tpl")));
    assert_eq!(env["E2B_SANDBOX_ID"], json!("mine"), "the user's word is the last");
}
