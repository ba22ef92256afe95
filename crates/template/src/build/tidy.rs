//! Removing what no template, no cache and no other layer needs any more.

use std::collections::{BTreeMap, BTreeSet};

use atoll_control::{Filter, Paging, SnapshotFilter};
use atoll_core::{ErrorKind, SnapshotId, SnapshotState, TenantId};

use super::{BUILDER_LABEL, SNAPSHOT_PREFIX};
use crate::book::{Change, Pages};
use crate::record::{Made, Source};
use crate::service::Shop;

/// Sandboxes looked at per call when leftovers are searched.
const PAGE: usize = 200;

impl Shop {
    /// Forgets steps that were used longest ago, then removes snapshots that nothing needs.
    pub(crate) async fn tidy(&self) {
        let forgotten = excess(&self.book.read(), self.config.cache_max);
        self.forget(forgotten).await;
    }

    /// Forgets all of a tenant's steps, so that only what builds need is left.
    pub(crate) async fn make_room(&self, tenant: &TenantId) {
        let forgotten = {
            let pages = self.book.read();
            let own = pages.cache.iter().filter(|(_, cached)| cached.tenant == tenant.as_str());
            own.map(|(key, _)| key.clone()).collect()
        };
        self.forget(forgotten).await;
    }

    async fn forget(&self, keys: Vec<String>) {
        let pen = self.book.pen().await;
        let forgotten = keys.into_iter().map(Change::DropCached).collect();
        if let Err(error) = pen.write(forgotten).await {
            tracing::warn!(%error, "old steps can't be forgotten");
        }
        loop {
            let free = free_layers(&pen.read(), &self.pinned());
            let mut removed = Vec::new();
            for (id, owner) in free {
                if self.remove_layer(&owner, &id).await {
                    removed.push(Change::DropLayer(id));
                }
            }
            // A layer that something still stands on is tried again after the next build.
            if removed.is_empty() || pen.write(removed).await.is_err() {
                return;
            }
        }
    }

    async fn remove_layer(&self, owner: &str, id: &str) -> bool {
        let (Ok(owner), Ok(snapshot)) = (TenantId::parse(owner), SnapshotId::parse(id)) else {
            return true;
        };
        match self.control.delete_snapshot(&owner, &snapshot).await {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Removes what builds left that a crash interrupted: builders, and snapshots that were never
    /// written down.
    pub(crate) async fn sweep(&self) {
        let owners: BTreeSet<String> = {
            let pages = self.book.read();
            let tenants = pages.builds.values().filter_map(|build| build.tenant.clone());
            let keeper = self.config.builder_tenant.as_ref().map(ToString::to_string);
            match keeper {
                Some(keeper) => [keeper].into(),
                None => tenants.collect(),
            }
        };
        for owner in owners.iter().filter_map(|owner| TenantId::parse(owner).ok()) {
            self.sweep_builders(&owner).await;
            self.sweep_snapshots(&owner).await;
        }
        self.tidy().await;
    }

    async fn sweep_builders(&self, owner: &TenantId) {
        let mut skip = 0;
        while let Ok(page) =
            self.control.list(owner, &Filter::default(), Paging { skip, take: PAGE }).await
        {
            for sandbox in &page.items {
                let build = sandbox.spec.extensions.get(BUILDER_LABEL);
                // One that is at work belongs to a build that began after the restart.
                let working = |id: &String| {
                    self.book.read().builds.get(id).is_some_and(|build| build.is_pending())
                };
                if build.is_some_and(|id| !working(id)) {
                    self.control.kill(owner, &sandbox.id).await.ok();
                }
            }
            skip += page.items.len();
            if page.items.is_empty() || skip >= page.total {
                return;
            }
        }
    }

    async fn sweep_snapshots(&self, owner: &TenantId) {
        // While the pen is held no build can write down a layer that it has just made.
        let pen = self.book.pen().await;
        if pen.read().builds.values().any(|build| build.begun && build.is_pending()) {
            return;
        }
        let filter = SnapshotFilter::default();
        let Ok(found) = self.control.list_snapshots(owner, &filter).await else { return };
        for snapshot in found {
            let ours = snapshot.name.as_ref().is_some_and(|name| name.starts_with(SNAPSHOT_PREFIX));
            let known = pen.read().layers.contains_key(snapshot.id.as_str());
            if ours && !known && snapshot.state != SnapshotState::Deleting {
                self.control.delete_snapshot(owner, &snapshot.id).await.ok();
            }
        }
    }
}

/// Keys of each tenant's remembered steps beyond the newest `max`.
fn excess(pages: &Pages, max: usize) -> Vec<String> {
    let mut tenants: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (key, cached) in &pages.cache {
        tenants.entry(&cached.tenant).or_default().push((cached.used_at, key));
    }
    let beyond = tenants.into_values().flat_map(|mut keys| {
        keys.sort_by(|a, b| b.cmp(a));
        keys.into_iter().skip(max).map(|(_, key)| key.clone())
    });
    beyond.collect()
}

/// Layers that no build, no remembered step and no other layer needs, with their owners.
fn free_layers(pages: &Pages, pinned: &BTreeSet<String>) -> Vec<(String, String)> {
    let snapshot = |made: &Made| match &made.source {
        Source::Snapshot(id) => Some(id.clone()),
        Source::Image(_) => None,
    };
    let results = pages.builds.values().filter_map(|build| build.made.as_ref().and_then(snapshot));
    let steps = pages.cache.values().filter_map(|cached| snapshot(&cached.made));
    let parents = pages.layers.values().filter_map(|layer| layer.parent.clone());
    let needed: BTreeSet<String> = results.chain(steps).chain(parents).collect();
    let is_free = |id: &String| !needed.contains(id) && !pinned.contains(id);
    let free = pages.layers.iter().filter(|(id, _)| is_free(id));
    free.map(|(id, layer)| (id.clone(), layer.owner.clone())).collect()
}
