//! Wishes and waiting.

use std::time::Duration;

use atoll_control::{Control, Filter, Paging};
use atoll_core::{Action, Aging, ErrorKind, Keep, Phase, TemplateOrigin};
use atoll_testkit::sample;

use crate::bench::{Bench, PATIENCE};

#[tokio::test(start_paused = true)]
async fn creating_answers_at_once_and_waiting_tells_when_it_runs() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    let id = bench.create().await.id.clone();
    assert_eq!(bench.phase(&id).await, Phase::Starting);
    let short = Duration::from_millis(5);
    let impatient = bench.engine.wait(&bench.tenant, &id, short).await.unwrap();
    assert_eq!(impatient.life.phase(), Phase::Starting);
    let (engine, tenant, wanted) = (bench.engine.clone(), bench.tenant.clone(), id.clone());
    let wait = tokio::spawn(async move { engine.wait(&tenant, &wanted, PATIENCE).await });
    bench.machine.release();
    assert_eq!(wait.await.unwrap().unwrap().life.phase(), Phase::Running);
    assert_eq!(bench.engine.stats().creates, 1);
}

#[tokio::test(start_paused = true)]
async fn pausing_and_resuming_go_through_their_phases() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    let (engine, tenant) = (&bench.engine, &bench.tenant);
    assert_eq!(
        engine.pause(tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap().life.phase(),
        Phase::Pausing
    );
    assert_eq!(bench.at_rest(&id).await.life.phase(), Phase::Paused);
    let again = engine.pause(tenant, &id, Keep::Memory, Aging::GoesOn).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert_eq!(engine.resume(tenant, &id, None).await.unwrap().life.phase(), Phase::Resuming);
    assert_eq!(bench.at_rest(&id).await.life.phase(), Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_creation_nobody_wants_any_more_is_stopped() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    let id = bench.create().await.id.clone();
    bench.has_begun(1).await;
    let (engine, tenant, wanted) = (bench.engine.clone(), bench.tenant.clone(), id.clone());
    let wait = tokio::spawn(async move { engine.wait(&tenant, &wanted, PATIENCE).await });
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    assert_eq!(wait.await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    bench.has_begun(2).await;
    bench.machine_holds(0).await;
    assert_eq!(bench.machine.tally().dropped, 1, "the creation was dropped, not awaited");
}

#[tokio::test(start_paused = true)]
async fn a_killed_sandbox_is_not_found_from_the_answer_on() {
    let bench = Bench::new().await;
    bench.machine.hold(Action::Remove);
    let id = bench.running().await;
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    let kind = bench.engine.get(&bench.tenant, &id).await.unwrap_err().kind();
    assert_eq!(kind, ErrorKind::NotFound);
    let kind = bench.engine.kill(&bench.tenant, &id).await.unwrap_err().kind();
    assert_eq!(kind, ErrorKind::NotFound);
    assert_eq!(bench.machine.sandboxes().len(), 1, "the removal goes on behind");
    bench.machine.release();
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_newest_first_filtered_and_paged() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for number in 0..6 {
        let mut create = sample::create();
        create.spec.metadata.insert("even".to_owned(), (number % 2 == 0).to_string());
        ids.insert(0, bench.create_from(create).await.id.clone());
        bench.clock.advance(Duration::from_secs(1));
    }
    let list = async |filter: &Filter, skip, take| {
        let paging = Paging { skip, take };
        let page = bench.engine.list(&bench.tenant, filter, paging).await.unwrap();
        (page.items.iter().map(|s| s.id.clone()).collect::<Vec<_>>(), page.total)
    };
    assert_eq!(list(&Filter::default(), 0, 100).await, (ids.clone(), 6));
    assert_eq!(list(&Filter::default(), 2, 2).await, (ids[2..4].to_vec(), 6));
    let even =
        Filter { metadata: [("even".to_owned(), "true".to_owned())].into(), ..Filter::default() };
    let expected = [1, 3, 5].map(|place: usize| ids[place].clone());
    assert_eq!(list(&even, 1, 5).await, (expected[1..].to_vec(), 3));
    let paused = bench.paused().await;
    let filter = Filter { phases: vec![Phase::Paused], ..Filter::default() };
    assert_eq!(list(&filter, 0, 5).await, (vec![paused], 1));
}

#[tokio::test(start_paused = true)]
async fn lists_know_templates_times_and_both_orders() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let mut create = sample::create();
        let (id, alias) = (format!("t{}", number % 2), Some("name".to_owned()));
        let build = "b".to_owned();
        let alias = alias.filter(|_| number == 4);
        create.spec.template = Some(TemplateOrigin { id, alias, build });
        ids.push(bench.create_from(create).await.id.clone());
        bench.clock.advance(Duration::from_secs(1));
    }
    let list = async |filter: Filter, skip, take| {
        let paging = Paging { skip, take };
        let page = bench.engine.list(&bench.tenant, &filter, paging).await.unwrap();
        let places = page.items.iter().map(|s| ids.iter().position(|id| *id == s.id).unwrap());
        (places.collect::<Vec<_>>(), page.total)
    };
    let all = || Filter { oldest_first: true, ..Filter::default() };
    let of = |template: &str| Filter { template: Some(template.to_owned()), ..all() };
    let from = |seconds| Filter {
        created_from: Some(sample::NOW.saturating_add(Duration::from_secs(seconds))),
        ..Filter::default()
    };
    assert_eq!(list(all(), 1, 2).await, (vec![1, 2], 5));
    assert_eq!(list(of("t0"), 0, 9).await, (vec![0, 2, 4], 3));
    assert_eq!(list(of("t0"), 1, 1).await, (vec![2], 3));
    assert_eq!(list(of("name"), 0, 9).await, (vec![4], 1));
    assert_eq!(list(of("none"), 0, 9).await, (vec![], 0));
    assert_eq!(list(from(3), 0, 9).await, (vec![4, 3], 2));
    assert_eq!(list(from(3), 1, usize::MAX).await, (vec![3], 2));
    assert_eq!(list(from(9), 0, 9).await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn labels_are_set_and_removed() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    let patch = |value: Option<&str>| [("k".to_owned(), value.map(str::to_owned))].into();
    for value in [Some("a"), Some("b"), None] {
        let sandbox = bench.engine.patch_metadata(&bench.tenant, &id, patch(value)).await.unwrap();
        assert_eq!(sandbox.spec.metadata.get("k").map(String::as_str), value);
    }
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_requests_are_refused_and_sandboxes_run_on() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    bench.engine.shutdown().await;
    bench.engine.shutdown().await;
    let error = bench.engine.kill(&bench.tenant, &id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(bench.machine.sandboxes().len(), 1);
}
