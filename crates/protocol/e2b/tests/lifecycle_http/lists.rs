//! Lists, snapshots, forks, and what sandboxes use and print.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|s| s["sandboxID"].as_str().unwrap().to_owned()).collect()
}

async fn three(world: &World) -> Vec<String> {
    let mut made = Vec::new();
    for (n, name) in ["a b", "c&d", "x"].iter().enumerate() {
        made.push(world.create_id(json!({"metadata": {"n": n.to_string(), "name": name}})).await);
        world.clock.advance(Duration::from_secs(1));
    }
    made
}

#[tokio::test]
async fn lists_are_filtered_and_ordered() {
    let world = World::new().await;
    let made = three(&world).await;
    world.ask("POST", &format!("/sandboxes/{}/pause", made[1]), Value::Null).await.expect(204);
    let newest_first: Vec<_> = made.iter().rev().cloned().collect();
    let template = world.detail(&made[0]).await["templateID"].as_str().unwrap().to_owned();
    let by_template = format!("?template={template}");
    for (query, expected) in [
        ("", newest_first.clone()),
        ("?order=asc", made.clone()),
        ("?state=paused", vec![made[1].clone()]),
        ("?state=running%2Cpaused", newest_first.clone()),
        ("?state=running,paused&order=desc", newest_first.clone()),
        ("?metadata=name%3Da%252520b", vec![made[0].clone()]),
        ("?metadata=name%3Dc%252526d%26n%3D1", vec![made[1].clone()]),
        ("?metadata=n%3D2", vec![made[2].clone()]),
        ("?metadata=n%3D7", vec![]),
        ("?template=base", newest_first.clone()),
        (&by_template, newest_first.clone()),
        ("?template=other", vec![]),
        ("?startedAfter=2023-11-14T22:13:21Z", vec![made[2].clone(), made[1].clone()]),
    ] {
        let listed = world.get(&format!("/v2/sandboxes{query}")).await;
        assert_eq!(ids(&listed.expect(200)), expected, "{query}");
        assert!(!listed.headers.contains_key("x-next-token"), "{query}");
    }
    let old = world.get("/sandboxes").await.expect(200);
    assert_eq!(ids(&old), [made[2].clone(), made[0].clone()], "only what runs");
    for bad in ["state=gone", "order=up", "limit=0", "limit=101", "startedAfter=x", "nextToken=x"] {
        world.get(&format!("/v2/sandboxes?{bad}")).await.error(400);
    }
}

#[tokio::test]
async fn pages_follow_each_other_although_sandboxes_come_and_go() {
    let world = World::new().await;
    let made = three(&world).await;
    let first = world.get("/v2/sandboxes?limit=2").await;
    assert_eq!(ids(&first.expect(200)), [made[2].clone(), made[1].clone()]);
    assert_eq!(first.headers["x-total-running"], "3");
    let next = first.headers["x-next-token"].to_str().unwrap().to_owned();
    world.create(json!({})).await;
    world.ask("DELETE", &format!("/sandboxes/{}", made[1]), Value::Null).await.expect(204);
    let second = world.get(&format!("/v2/sandboxes?limit=2&nextToken={next}")).await;
    assert_eq!(ids(&second.expect(200)), [made[0].clone()]);
    assert!(!second.headers.contains_key("x-next-token"));
    world.get(&format!("/v2/sandboxes?order=asc&nextToken={next}")).await.error(400);
}

#[tokio::test]
async fn snapshots_have_names_that_lead_to_the_newest() {
    let world = World::new().await;
    let id = world.create_id(json!({})).await;
    let path = format!("/sandboxes/{id}/snapshots");
    let plain = world.ask("POST", &path, Value::Null).await.expect(201);
    assert!(plain["snapshotID"].as_str().unwrap().ends_with(":default"), "{plain}");
    assert_eq!(plain["names"], json!([]));
    world.clock.advance(Duration::from_secs(1));
    let named = json!({"snapshotID": "alice/snap:default", "names": ["alice/snap"]});
    for _ in 0..2 {
        let made = world.ask("POST", &path, json!({"name": "Snap"})).await.expect(201);
        assert_eq!(made, named);
        world.clock.advance(Duration::from_secs(1));
    }
    let tagged = world.ask("POST", &path, json!({"name": "snap:v1"})).await.expect(201);
    assert_eq!(tagged["snapshotID"], "alice/snap:v1");

    let all = world.get("/snapshots").await.expect(200);
    assert_eq!(all.as_array().unwrap().len(), 4);
    let by_name = world.get("/snapshots?name=snap").await.expect(200);
    assert_eq!(by_name[0], named);
    assert_ne!(by_name[1]["snapshotID"], named["snapshotID"], "the older goes by its id");
    let none = world.get("/snapshots?sandboxID=other").await.expect(200);
    assert_eq!(none, json!([]));
    let page = world.get(&format!("/snapshots?sandboxID={id}&limit=3")).await;
    let next = page.headers["x-next-token"].to_str().unwrap();
    let rest = world.get(&format!("/snapshots?sandboxID={id}&limit=3&nextToken={next}")).await;
    assert_eq!(rest.expect(200), json!([plain]));
    assert!(!rest.headers.contains_key("x-next-token"));

    world.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.expect(204);
    let from = world.create(json!({"templateID": "alice/snap:default"})).await;
    assert_eq!(from["alias"], "base", "it is like the one that the snapshot was taken from");
    let path = format!("/sandboxes/{}/snapshots", from["sandboxID"].as_str().unwrap());
    let memory = world.ask("POST", &path, json!({"memory": true})).await;
    memory.error(400);
    assert_eq!(memory.json()["error_code"], "sandbox_memory_override_disabled");
    world.ask("POST", &path, json!({"name": "other/snap"})).await.error(400);
}

#[tokio::test]
async fn forks_are_sandboxes_of_their_own() {
    let world = World::new().await;
    let source = world.create(json!({"metadata": {"team": "a"}})).await;
    let path = format!("/sandboxes/{}/fork", source["sandboxID"].as_str().unwrap());
    let forks = world.ask("POST", &path, json!({"count": 2, "timeout": 60})).await.expect(201);
    let forks: Vec<_> = forks.as_array().unwrap().iter().map(|f| f["sandbox"].clone()).collect();
    assert_eq!(forks.len(), 2);
    for fork in &forks {
        assert_ne!(fork["sandboxID"], source["sandboxID"]);
        assert_ne!(fork["envdAccessToken"], source["envdAccessToken"]);
        assert_eq!(world.detail(fork["sandboxID"].as_str().unwrap()).await["state"], "running");
    }
    assert_ne!(forks[0]["envdAccessToken"], forks[1]["envdAccessToken"]);
    for bad in [0, 101] {
        world.ask("POST", &path, json!({"count": bad})).await.error(400);
    }
    assert_eq!(world.get("/snapshots").await.json(), json!([]), "what a fork keeps is hidden");
}

#[tokio::test]
async fn usage_and_output_are_shown() {
    let world = World::new().await;
    let id = world.create_id(json!({})).await;
    let metrics = format!("/sandboxes/{id}/metrics");
    let sampled = atoll_testkit::eventually("a sample", async || {
        world.clock.advance(Duration::from_secs(5));
        let shown = world.get(&metrics).await.expect(200);
        shown.as_array().unwrap().first().cloned()
    })
    .await;
    let numbers = [
        "timestampUnix",
        "cpuCount",
        "cpuUsedPct",
        "memUsed",
        "memTotal",
        "memCache",
        "diskUsed",
        "diskTotal",
    ];
    assert!(numbers.iter().all(|name| sampled[name].is_number()), "{sampled}");
    assert!(sampled["timestamp"].is_string());
    assert_eq!(world.get(&format!("{metrics}?end=1")).await.json(), json!([]));
    let many = world.get(&format!("/sandboxes/metrics?sandbox_ids={id},unknown")).await;
    let many = many.expect(200);
    assert_eq!(many["sandboxes"].as_object().unwrap().keys().collect::<Vec<_>>(), [&id]);
    world.get("/sandboxes/metrics").await.error(400);

    let old = world.get(&format!("/sandboxes/{id}/logs")).await.expect(200);
    assert!(old["logs"].is_array() && old["logEntries"].is_array(), "{old}");
    let path = format!("/v2/sandboxes/{id}/logs");
    assert!(world.get(&path).await.expect(200)["logs"].is_array());
    assert_eq!(world.get(&format!("{path}?level=error")).await.json(), json!({"logs": []}));
    world.get(&format!("{path}?direction=up")).await.error(400);
}
