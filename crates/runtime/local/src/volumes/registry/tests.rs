use super::*;

#[test]
fn a_name_that_is_used_again_is_another_volume() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(folder.path());
    std::fs::create_dir_all(layout.trash()).unwrap();
    let (tenant, other) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
    let registry = Registry::open(&layout).unwrap();
    // A sandbox that mounts a name makes the folder and nothing else.
    std::fs::create_dir_all(layout.volume("a", "data.v1")).unwrap();
    let first = registry.list(&tenant).unwrap().remove(0);
    assert_eq!(first.name, "data.v1");
    let record = layout.volume_records().join("a/data.v1");
    assert_eq!(std::fs::metadata(record).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(registry.find(Some(&other), &first.id).is_err());
    // One that takes its volume with it leaves no record.
    throw(&layout, "a", "data.v1").unwrap();
    assert!(registry.find(Some(&tenant), &first.id).is_err());
    std::fs::create_dir_all(layout.volume("a", "data.v1")).unwrap();
    let second = registry.list(&tenant).unwrap().remove(0);
    assert!(second.id != first.id && second.token != first.token);
    // Another server finds the same.
    let registry = Registry::open(&layout).unwrap();
    assert_eq!(registry.find(None, &second.id).unwrap().0, second);
    assert!(registry.find(None, &first.id).is_err());
}

fn prepared(folder: &Path) -> (Layout, Registry, TenantId) {
    let layout = Layout::new(folder);
    std::fs::create_dir_all(layout.trash()).unwrap();
    let registry = Registry::open(&layout).unwrap();
    (layout, registry, TenantId::parse("a").unwrap())
}

#[test]
fn mounts_make_no_more_volumes_than_a_tenant_may_have() {
    let folder = tempfile::tempdir().unwrap();
    let (layout, registry, tenant) = prepared(folder.path());
    for number in 1..VOLUMES_MAX {
        std::fs::create_dir_all(layout.volume("a", &format!("v{number}"))).unwrap();
    }
    check_room(&layout, "a", 1).unwrap();
    assert_eq!(check_room(&layout, "a", 2).unwrap_err().kind(), ErrorKind::Exhausted);
    assert!(registry.mounted(&tenant, "last").unwrap().is_dir());
    let refused = registry.mounted(&tenant, "more").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    assert!(refused.to_string().contains("remove some"), "{refused}");
    assert!(!layout.volume("a", "more").exists());
    assert!(registry.create(&tenant, "more").is_err());
    // Those that are there can be mounted, and other tenants have their own.
    registry.mounted(&tenant, "v1").unwrap();
    check_room(&layout, "a", 0).unwrap();
    registry.mounted(&TenantId::parse("b").unwrap(), "more").unwrap();
}

#[test]
fn a_volume_is_found_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (layout, registry, tenant) = prepared(folder.path());
    let made = registry.create(&tenant, "made").unwrap();
    assert_eq!(registry.named(&tenant, "made").unwrap(), made);
    registry.mounted(&tenant, "mounted.v1").unwrap();
    let mounted = registry.named(&tenant, "mounted.v1").unwrap();
    assert_eq!(registry.list(&tenant).unwrap(), [made, mounted.clone()]);
    std::fs::write(layout.volumes().join("file"), "").unwrap();
    for missing in ["", ".", "..", "made/../made", "../a/made", "other", "../file"] {
        let error = registry.named(&tenant, missing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{missing:?}");
    }
    registry.throw_owned(&tenant, "mounted.v1").unwrap();
    assert!(registry.named(&tenant, "mounted.v1").is_err());
    assert!(registry.find(Some(&tenant), &mounted.id).is_err());
}

#[test]
fn all_who_list_at_the_same_time_see_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (layout, registry, tenant) = prepared(folder.path());
    for number in 0..20 {
        std::fs::create_dir_all(layout.volume("a", &format!("v{number}"))).unwrap();
    }
    let lists: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| registry.list(&tenant).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(lists[0].len(), 20);
    for list in &lists {
        assert_eq!(*list, lists[0]);
        assert!(list.iter().all(|volume| registry.find(Some(&tenant), &volume.id).is_ok()));
    }
    let drafts = std::fs::read_dir(layout.volume_records().join("a")).unwrap().count() - 20;
    assert_eq!(drafts, 0);
}

#[test]
fn what_a_crashed_server_was_writing_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (layout, registry, tenant) = prepared(folder.path());
    registry.create(&tenant, "made").unwrap();
    let draft = layout.volume_records().join("a").join(format!("{DRAFT}x"));
    std::fs::write(&draft, "{").unwrap();
    Registry::open(&layout).unwrap();
    assert!(!draft.exists());
}
