use std::path::PathBuf;

use super::Layout;

const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";

#[test]
fn v2_with_controllers_needs_nothing_else() {
    let layout = Layout::from_mounts(V2, |_| "cpuset cpu io memory pids".into());
    assert_eq!(layout.describe(), "v2");
    assert!(layout.v1.is_empty() && layout.missing().is_empty());
}

#[test]
fn hybrid_limits_on_v1_and_freezes_on_v2() {
    let layout = Layout::from_mounts(HYBRID, |_| "hugetlb".into());
    assert_eq!(layout.describe(), "hybrid (limits on v1, freezer on v2)");
    let controllers: Vec<&String> = layout.v1.keys().collect();
    assert_eq!(controllers, ["cpu", "memory", "pids"]);
    assert_eq!(layout.v1["cpu"], PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
}

#[test]
fn v1_alone_uses_its_freezer() {
    let mounts = HYBRID.lines().filter(|l| !l.contains("cgroup2")).collect::<Vec<_>>().join("\n");
    let layout = Layout::from_mounts(&mounts, |_| String::new());
    assert_eq!(layout.describe(), "v1");
    assert!(layout.v1.contains_key("freezer"));
}

#[test]
fn a_host_without_cgroups_lacks_every_limit() {
    let layout = Layout::from_mounts("", |_| String::new());
    assert_eq!(layout.missing(), ["cpu", "memory", "pids"]);
}
