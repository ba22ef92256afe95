use super::{Mark, seen};
use crate::protocol::files;
use atoll_core::Observed;

#[test]
fn a_mark_means_paused_until_somebody_answers() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(seen(dir.path()), None);
    Mark::write(dir.path(), false).unwrap();
    assert_eq!(seen(dir.path()), Some(Observed::Paused));
    // What a process that is gone has left says nothing.
    std::fs::write(dir.path().join(files::ANSWERED), "").unwrap();
    assert_eq!(seen(dir.path()), Some(Observed::Paused));
    for _ in 0..2 {
        Mark::remove(dir.path()).unwrap();
    }
    assert_eq!(seen(dir.path()), None);
}

#[test]
fn files_are_doubtful_only_after_a_restart_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    for (complete, boot, doubtful) in [
        (false, None, false),
        (true, None, false),
        (false, Some("x"), true),
        (true, Some("x"), false),
    ] {
        Mark::write(dir.path(), complete).unwrap();
        let mut mark = Mark::read(dir.path()).unwrap();
        mark.boot = boot.map_or(mark.boot, str::to_owned);
        assert_eq!(mark.is_doubtful(), doubtful, "{complete} {boot:?}");
    }
}
