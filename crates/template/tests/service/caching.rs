use std::time::Duration;

use crate::support::{World, recipe, snapshot_of};
use crate::yard::Yard;

fn commands<'a>(last: &'a [&'a str]) -> Vec<(&'a str, &'a [&'a str])> {
    let first: &[&str] = &["echo run >> $BOX/first"];
    vec![("RUN", first), ("RUN", &["echo run >> $BOX/second"]), ("RUN", last)]
}

fn runs(yard: &Yard, snapshot: &str, file: &str) -> usize {
    yard.kept(snapshot, file).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn the_same_build_again_needs_no_sandbox() {
    let world = World::new().await;
    let first = world.built("app", recipe(&commands(&["echo a > $BOX/last"]))).await;
    let sandboxes = world.yard.asked().len();
    let second = world.built("app", recipe(&commands(&["echo a > $BOX/last"]))).await;
    assert_eq!(world.yard.asked().len(), sandboxes, "nothing was started");
    assert_eq!(first.made, second.made);
    let cached = world.said(&second).iter().filter(|line| line.starts_with("CACHED")).count();
    assert_eq!(cached, 5);
}

#[tokio::test]
async fn a_changed_last_step_reuses_all_before_it() {
    let world = World::new().await;
    world.built("app", recipe(&commands(&["echo a > $BOX/last"]))).await;
    let sandboxes = world.yard.asked().len();
    let changed = world.built("app", recipe(&commands(&["echo b > $BOX/last"]))).await;
    assert_eq!(world.yard.asked().len(), sandboxes + 1, "one builder for one step");
    let snapshot = snapshot_of(&changed);
    assert_eq!(world.yard.kept(&snapshot, "last").unwrap(), "b\n");
    assert_eq!(runs(&world.yard, &snapshot, "first"), 1);
    let cached = world.said(&changed).iter().filter(|line| line.starts_with("CACHED")).count();
    assert_eq!(cached, 4);
}

#[tokio::test]
async fn force_does_everything_again_or_all_from_a_step_on() {
    let world = World::new().await;
    let once = world.built("app", recipe(&commands(&["true"]))).await;
    let mut forced = recipe(&commands(&["true"]));
    forced.force = true;
    let again = world.built("app", forced).await;
    assert_ne!(snapshot_of(&once), snapshot_of(&again));
    assert!(!world.said(&again).iter().any(|line| line.starts_with("CACHED")));
    let mut partly = recipe(&commands(&["true"]));
    partly.steps[4].force = true;
    let partly = world.built("app", partly).await;
    let cached = world.said(&partly).iter().filter(|line| line.starts_with("CACHED")).count();
    assert_eq!(cached, 4);
}

#[tokio::test]
async fn tenants_do_not_share_steps() {
    let mut world = World::new().await;
    world.built("app", recipe(&commands(&["true"]))).await;
    world.tenant = crate::support::tenant("other");
    let build = world.built("app", recipe(&commands(&["true"]))).await;
    assert!(!world.said(&build).iter().any(|line| line.starts_with("CACHED")));
}

#[tokio::test]
async fn a_lost_snapshot_is_built_anew() {
    let world = World::new().await;
    let first = world.built("app", recipe(&commands(&["true"]))).await;
    world.yard.forget_snapshots();
    let second = world.built("app", recipe(&commands(&["true"]))).await;
    assert_ne!(snapshot_of(&first), snapshot_of(&second));
    assert_eq!(runs(&world.yard, &snapshot_of(&second), "first"), 1);
}

#[tokio::test]
async fn old_steps_are_forgotten_and_their_snapshots_go() {
    let world = World::with(|config| {
        (config.cache_max, config.layer_worth) = (3, Duration::ZERO);
        config.builds_kept_max = 2;
    })
    .await;
    for number in 0..6 {
        let command = format!("echo {number} > $BOX/last");
        world.built("app", recipe(&commands(&[&command]))).await;
    }
    // Two builds, three remembered steps, and what these stand on.
    world.until("snapshots go", || world.yard.snapshots().len() <= 6).await;
    let last = world.built("app", recipe(&commands(&["echo 5 > $BOX/last"]))).await;
    assert!(world.said(&last).iter().any(|line| line.starts_with("CACHED")));
    world.service.remove(&world.tenant, "app").await.unwrap();
    world.until("only the cache is left", || world.yard.snapshots().len() <= 4).await;
}

#[tokio::test]
async fn remembered_steps_make_room_for_results() {
    let world = World::with(|config| {
        (config.layer_worth, config.builds_kept_max) = (Duration::ZERO, 2);
    })
    .await;
    world.yard.allow_snapshots(6);
    for number in 0..6 {
        let command = format!("echo {number} > $BOX/last");
        let steps: &[(&str, &[&str])] = &[("RUN", &["true"]), ("RUN", &[&command])];
        let mut apart = recipe(steps);
        apart.force = true;
        world.built("app", apart).await;
    }
    assert!(world.yard.snapshots().len() <= 6);
}
