//! The engine against a hostile world: random requests, failing actions, failing commits, crashes
//! at any await point, and a clock that jumps. Every run is repeatable from its seed.
//!
//! `ATOLL_SIM_SEEDS=n` runs n seeds; `ATOLL_SIM_SEED=n` repeats one.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop at once")]

mod check;
mod model;
mod operate;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

/// Seeds of a normal run.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs one seed; answers with the story, which must be the same every time.
fn run(seed: u64) -> Vec<String> {
    let mut world = World::new(seed);
    let lives = 1 + world.random.below(4);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..lives {
            world.live_and_crash();
        }
        world.converge_and_clear();
    }));
    let story = world.story();
    if let Err(panic) = outcome {
        for line in &story {
            eprintln!("{line}");
        }
        eprintln!("seed {seed} failed; ATOLL_SIM_SEED={seed} repeats it");
        resume_unwind(panic);
    }
    story
}

#[test]
fn nothing_is_lost_and_nothing_leaks() {
    if let Some(seed) = number("ATOLL_SIM_SEED") {
        run(seed);
        return;
    }
    for seed in 0..number("ATOLL_SIM_SEEDS").unwrap_or(SEEDS) {
        run(seed);
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    for seed in [1, 42, 4711] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
