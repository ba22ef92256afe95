// The manager, the service below it, and snapshots.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { SandboxManager, createDefaultAdapterFactory } from "@alibaba-group/opensandbox";
import {
  UNKNOWN_ID, config, covers, domain, image, otherKey, out, plant, raw, refused, stateOf, unique,
  until,
} from "./support.mjs";

describe("manager", () => {
  let manager;
  before(() => {
    manager = SandboxManager.create({ connectionConfig: config() });
  });
  after(() => manager.close());

  test(covers("SandboxManager.create", "SandboxManager.close"), async () => {
    const other = SandboxManager.create({ connectionConfig: config() });
    await other.close();
  });

  test(covers("SandboxManager.listSandboxInfos"), async (t) => {
    const label = unique();
    const ids = [];
    for (const n of ["0", "1", "2"]) ids.push((await plant(t, { metadata: { js: label, n } })).id);
    const first = await manager.listSandboxInfos({ metadata: { js: label }, page: 1, pageSize: 2 });
    assert.deepEqual(first.items.map((info) => info.id), [ids[2], ids[1]]);
    assert.deepEqual(first.pagination, { page: 1, pageSize: 2, totalItems: 3, totalPages: 2, hasNextPage: true });
    const one = await manager.listSandboxInfos({ metadata: { js: label, n: "1" }, states: ["running"] });
    assert.deepEqual(one.items.map((info) => info.id), [ids[1]]);
    const spaced = await manager.listSandboxInfos({ metadata: { js: `${label} x=y` } });
    assert.deepEqual(spaced.items, []);
  });

  test(covers(
    "SandboxManager.getSandboxInfo", "SandboxManager.patchSandboxMetadata",
    "SandboxManager.renewSandbox", "SandboxManager.pauseSandbox", "SandboxManager.resumeSandbox",
    "SandboxManager.killSandbox",
  ), async (t) => {
    const { id } = await plant(t, { metadata: { a: "1" } });
    assert.equal((await manager.getSandboxInfo(id)).id, id);
    assert.deepEqual((await manager.patchSandboxMetadata(id, { a: null, b: "2" })).metadata, { b: "2" });
    await manager.renewSandbox(id, 3600);
    const left = (await manager.getSandboxInfo(id)).expiresAt - Date.now();
    assert.ok(Math.abs(left - 3_600_000) < 10_000);
    await manager.pauseSandbox(id);
    await until(async () => (await stateOf(id)) === "Paused", "Paused");
    await manager.resumeSandbox(id);
    await until(async () => (await stateOf(id)) === "Running", "Running");
    await manager.killSandbox(id);
    await until(async () => (await stateOf(id)) === "Gone", "gone");
    await refused(() => manager.getSandboxInfo(UNKNOWN_ID), 404, "SANDBOX_NOT_FOUND");
    await refused(() => manager.killSandbox(UNKNOWN_ID), 404, "SANDBOX_NOT_FOUND");
  });

  test(covers(
    "SandboxManager.createSnapshot", "SandboxManager.getSnapshot", "SandboxManager.listSnapshots",
    "SandboxManager.deleteSnapshot",
  ), async (t) => {
    const box = await plant(t);
    await box.commands.run("echo saved > /srv/saved");
    const name = unique("snap");
    const taken = await manager.createSnapshot(box.id, { name });
    await until(async () => (await manager.getSnapshot(taken.id)).status.state === "Ready", "Ready");
    const listed = await manager.listSnapshots({ sandboxId: box.id, name, states: ["Ready"] });
    assert.deepEqual(listed.items.map((info) => info.id), [taken.id]);
    const restored = await plant(t, { snapshotId: taken.id });
    assert.equal(out(await restored.commands.run("cat /srv/saved")), "saved");
    await restored.kill();
    await until(async () => (await stateOf(restored.id)) === "Gone", "gone");
    await manager.deleteSnapshot(taken.id);
    await refused(() => manager.getSnapshot(taken.id), 404, "SNAPSHOT::NOT_FOUND");
  });

  test("another tenant sees none of it", async (t) => {
    const { id } = await plant(t);
    const stranger = SandboxManager.create({ connectionConfig: config({ apiKey: otherKey }) });
    const all = await stranger.listSandboxInfos({ pageSize: 200 });
    assert.ok(!all.items.some((info) => info.id === id));
    await refused(() => stranger.getSandboxInfo(id), 404, "SANDBOX_NOT_FOUND");
    await refused(() => stranger.killSandbox(id), 404, "SANDBOX_NOT_FOUND");
    assert.equal(await stateOf(id), "Running");
    await stranger.close();
  });
});

test(
  covers(
    "Sandboxes.createSandbox", "Sandboxes.getSandbox", "Sandboxes.listSandboxes",
    "Sandboxes.patchSandboxMetadata", "Sandboxes.getSandboxEndpoint", "Sandboxes.getSignedEndpoint",
    "Sandboxes.invalidateEndpointCache", "Sandboxes.renewSandboxExpiration", "Sandboxes.createSnapshot",
    "Sandboxes.getSnapshot", "Sandboxes.listSnapshots", "Sandboxes.deleteSnapshot",
    "Sandboxes.pauseSandbox", "Sandboxes.resumeSandbox", "Sandboxes.deleteSandbox",
  ),
  async (t) => {
    const connectionConfig = config().withTransportIfMissing();
    const { sandboxes } = createDefaultAdapterFactory().createLifecycleStack({
      connectionConfig,
      lifecycleBaseUrl: connectionConfig.getBaseUrl(),
    });
    const label = unique();
    const { id } = await sandboxes.createSandbox({
      image: { uri: image },
      entrypoint: ["sleep", "infinity"],
      timeout: 300,
      resourceLimits: { cpu: "1", memory: "256Mi" },
      metadata: { js: label },
    });
    t.after(() => raw("DELETE", `/v1/sandboxes/${id}`));
    await until(async () => (await sandboxes.getSandbox(id)).status.state === "Running", "Running");
    const listed = await sandboxes.listSandboxes({ metadata: { js: label } });
    assert.deepEqual(listed.items.map((info) => info.id), [id]);
    assert.equal((await sandboxes.patchSandboxMetadata(id, { n: "1" })).metadata.n, "1");
    const proxied = await sandboxes.getSandboxEndpoint(id, 80, true);
    assert.equal(proxied.endpoint, `${domain}/v1/sandboxes/${id}/proxy/80`);
    sandboxes.invalidateEndpointCache(id);
    const expires = Math.floor(Date.now() / 1000) + 300;
    await sandboxes.getSignedEndpoint(id, 80, expires).catch((error) => assert.equal(error.error.code, "SANDBOX::API_NOT_SUPPORTED"));
    const expiresAt = new Date(Date.now() + 900_000).toISOString();
    const renewed = await sandboxes.renewSandboxExpiration(id, { expiresAt });
    assert.equal(renewed.expiresAt.toISOString(), expiresAt);
    const taken = await sandboxes.createSnapshot(id, {});
    await until(async () => (await sandboxes.getSnapshot(taken.id)).status.state === "Ready", "Ready");
    assert.equal((await sandboxes.listSnapshots({ sandboxId: id })).items.length, 1);
    await sandboxes.deleteSnapshot(taken.id);
    await sandboxes.pauseSandbox(id);
    await until(async () => (await stateOf(id)) === "Paused", "Paused");
    await sandboxes.resumeSandbox(id);
    await until(async () => (await stateOf(id)) === "Running", "Running");
    await sandboxes.deleteSandbox(id);
    await until(async () => (await stateOf(id)) === "Gone", "gone");
    await connectionConfig.closeTransport();
  },
);
