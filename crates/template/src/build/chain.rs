//! What makes two builds the same up to a step.

use atoll_core::TenantId;
use sha2::{Digest, Sha256};

use crate::ids;
use crate::recipe::Recipe;

/// Changes when the same steps would lead to something else than before.
const GENERATION: &str = "1";

/// One key after each step; each stands for all steps up to it.
pub(super) struct Chain {
    /// The ground's key first, then one per step.
    keys: Vec<String>,
    /// Stands for the whole build, with what its sandboxes run.
    whole: String,
    /// Steps whose keys may be looked up; `None`: not even the ground's.
    reusable: Option<usize>,
}

impl Chain {
    /// The chain of `recipe`, which starts from what `ground` stands for. Tenants share nothing.
    pub(super) fn new(tenant: &TenantId, ground: &[String], recipe: &Recipe) -> Self {
        let ground: Vec<&str> = ground.iter().map(String::as_str).collect();
        let mut keys = vec![key(&[&[GENERATION, tenant.as_str()], &ground[..]].concat())];
        for step in &recipe.steps {
            let before = keys.last().map_or("", String::as_str);
            keys.push(key(&[&[before], &step.identity()[..]].concat()));
        }
        let before = keys.last().map_or("", String::as_str);
        let text =
            |text: &Option<String>| text.clone().map_or_else(String::new, |t| format!("={t}"));
        let whole = key(&[before, "finish", &text(&recipe.start), &text(&recipe.ready)]);
        let forced = recipe.steps.iter().position(|step| step.force);
        let reusable = (!recipe.force).then(|| forced.unwrap_or(recipe.steps.len()));
        Self { keys, whole, reusable }
    }

    /// The key after `done` steps.
    pub(super) fn key(&self, done: usize) -> &str {
        &self.keys[done]
    }

    /// The key of the whole build.
    pub(super) fn whole(&self) -> &str {
        &self.whole
    }

    /// The whole build may be looked up.
    pub(super) fn is_whole_reusable(&self) -> bool {
        self.reusable.is_some_and(|steps| steps + 1 == self.keys.len())
    }

    /// How many steps are done and their key, the most first.
    pub(super) fn reusable(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.reusable.map_or(0, |steps| steps + 1);
        (0..end).rev().map(|done| (done, self.keys[done].as_str()))
    }
}

/// Lengths go in too, so that no two lists of words look the same.
fn key(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
    }
    ids::hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Ground, Step};

    fn recipe(commands: &[&str]) -> Recipe {
        let step = |command: &&str| Step::parse(1, "RUN", &[(*command).to_owned()], None, false);
        let from = Ground::Image("base".into(), None);
        let steps = commands.iter().map(|command| step(command).unwrap()).collect();
        Recipe { from, force: false, steps, start: None, ready: None }
    }

    fn chain(tenant: &str, recipe: &Recipe) -> Chain {
        Chain::new(&TenantId::parse(tenant).unwrap(), &["image".into(), "base".into()], recipe)
    }

    #[test]
    fn a_prefix_has_the_same_keys_and_nothing_else_has() {
        let (long, other) =
            (chain("t", &recipe(&["a", "b", "c"])), chain("t", &recipe(&["a", "b", "x"])));
        assert!((0..=2).all(|done| long.key(done) == other.key(done)));
        assert_ne!(long.key(3), other.key(3));
        assert_ne!(chain("u", &recipe(&["a"])).key(0), long.key(0), "tenants share nothing");
        let glued = chain("t", &recipe(&["ab"]));
        assert_ne!(glued.key(1), long.key(2));
        let mut started = recipe(&["a", "b", "c"]);
        started.start = Some(String::new());
        assert_ne!(chain("t", &started).whole(), long.whole());
        assert_eq!(chain("t", &started).key(3), long.key(3));
    }

    #[test]
    fn force_hides_what_comes_after_it() {
        let reusable = |recipe: &Recipe| {
            chain("t", recipe).reusable().map(|(done, _)| done).collect::<Vec<_>>()
        };
        let mut forced = recipe(&["a", "b", "c"]);
        assert_eq!(reusable(&forced), [3, 2, 1, 0]);
        assert!(chain("t", &forced).is_whole_reusable());
        forced.steps[1].force = true;
        assert_eq!(reusable(&forced), [1, 0]);
        assert!(!chain("t", &forced).is_whole_reusable());
        forced.force = true;
        assert!(reusable(&forced).is_empty());
    }
}
