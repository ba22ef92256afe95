// The Sandbox class: creation, inspection, lists, pause, snapshots, forks, removal.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AuthenticationError, E2B, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from "@e2b/code-interpreter";
import {
  UNKNOWN_ID, covers, everything, key, otherKey, plant, refused, remove, shared, stateOf, unique, until, url,
} from "./support.mjs";

const near = (date, ms, slack = 5000) => Math.abs(date - Date.now() - ms) < slack;

test(covers("Sandbox.create", "Sandbox.getInfo", "Sandbox.getFullInfo", "Sandbox.isRunning", "Sandbox.kill", "Sandbox.setTimeout"), async (t) => {
  const label = unique();
  const box = await plant(t, "base", { timeoutMs: 120_000, metadata: { case: label, "a b": "c&d" }, envs: { WORD: "hi there" } });
  assert.match(box.sandboxId, /^[a-z0-9]+$/);
  const info = await box.getInfo();
  assert.equal(info.sandboxId, box.sandboxId);
  assert.equal(info.state, "running");
  assert.equal(info.name, "base");
  assert.deepEqual(info.metadata, { case: label, "a b": "c&d" });
  assert.deepEqual(info.lifecycle, { onTimeout: "kill", autoResume: false });
  assert.ok(Math.abs(info.endAt - info.startedAt - 120_000) < 5000);
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128);
  assert.equal((await Sandbox.getFullInfo(box.sandboxId)).sandboxId, box.sandboxId);
  assert.equal(await box.isRunning(), true);
  assert.equal((await box.commands.run("echo $WORD; whoami; pwd")).stdout, "hi there\nuser\n/home/user\n");
  await box.setTimeout(900_000);
  assert.ok(near((await Sandbox.getInfo(box.sandboxId)).endAt, 900_000));
  await Sandbox.setTimeout(box.sandboxId, 30_000);
  assert.ok(near((await box.getInfo()).endAt, 30_000), "a timeout may shorten");
  assert.equal(await box.kill(), true);
  assert.equal(await box.isRunning(), false);
  assert.equal(await box.kill(), false);
  assert.equal(await Sandbox.kill(UNKNOWN_ID), false);
  await assert.rejects(Sandbox.getInfo(box.sandboxId), SandboxNotFoundError);
  await assert.rejects(box.commands.run("true"), SandboxError);
});

test(covers("Sandbox.connect"), async (t) => {
  const box = await plant(t, "base", { timeoutMs: 600_000 });
  const { endAt } = await box.getInfo();
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 30_000 });
  assert.equal(+(await again.getInfo()).endAt, +endAt, "connecting never shortens");
  await again.files.write("/tmp/shared", "one");
  assert.equal(await box.files.read("/tmp/shared"), "one");
  assert.equal(await box.connect({ timeoutMs: 1_200_000 }), box);
  assert.ok(near((await box.getInfo()).endAt, 1_200_000));
  await assert.rejects(Sandbox.connect(UNKNOWN_ID), SandboxNotFoundError);
});

test(covers("Sandbox.list", "SandboxPaginator.nextItems"), async (t) => {
  const label = unique();
  const boxes = [];
  for (const n of ["0", "1", "2"]) boxes.push(await plant(t, "base", { metadata: { case: label, n } }));
  const ids = boxes.map((box) => box.sandboxId);
  await boxes[0].pause();
  const listed = async (query, options = {}) =>
    (await everything(Sandbox.list({ query: { metadata: { case: label }, ...query }, ...options }))).map((item) => item.sandboxId);
  assert.deepEqual((await listed({})).sort(), [...ids].sort());
  assert.deepEqual(await listed({ state: ["running"] }), [ids[2], ids[1]]);
  assert.deepEqual(await listed({ state: ["running"] }, { order: "asc", limit: 1 }), [ids[1], ids[2]]);
  assert.deepEqual(await listed({ state: ["paused"] }), [ids[0]]);
  assert.deepEqual(await listed({ metadata: { case: label, n: "1" } }), [ids[1]]);
  assert.deepEqual((await listed({ state: ["running", "paused"], template: "base" })).sort(), [...ids].sort());
  const first = Sandbox.list({ query: { metadata: { case: label } }, limit: 1 });
  await first.nextItems();
  assert.ok(first.hasNext && first.nextToken);
});

test(covers("Sandbox.pause", "Sandbox.betaPause"), async (t) => {
  const box = await plant(t);
  const ticking = await box.commands.run("while :; do echo x >> /tmp/ticks; sleep 0.05; done", { background: true, timeoutMs: 0 });
  assert.equal(await box.pause(), true);
  assert.equal(await stateOf(box.sandboxId), "paused");
  assert.equal(await box.isRunning(), false);
  assert.equal(await box.pause(), false);
  await box.connect();
  const seen = (await box.files.read("/tmp/ticks")).length;
  await until(async () => (await box.files.read("/tmp/ticks")).length > seen, "the process goes on");
  assert.ok((await box.commands.list()).some((process) => process.pid === ticking.pid));
  assert.equal(await Sandbox.betaPause(box.sandboxId), true);
  assert.equal(await stateOf(box.sandboxId), "paused");
  await box.connect({ onResume: "reboot" });
  assert.ok(!(await box.commands.list()).some((process) => process.pid === ticking.pid));
});

test("the clock pauses and traffic wakes", async (t) => {
  const box = await plant(t, "base", { timeoutMs: 60_000, lifecycle: { onTimeout: "pause", autoResume: true } });
  assert.deepEqual((await box.getInfo()).lifecycle, { onTimeout: "pause", autoResume: true });
  await box.setTimeout(1000);
  await until(async () => (await stateOf(box.sandboxId)) === "paused", "paused", 10_000);
  assert.equal((await box.commands.run("echo awake")).stdout, "awake\n");
  assert.equal(await stateOf(box.sandboxId), "running");
});

test(covers("Sandbox.createSnapshot", "Sandbox.listSnapshots", "Sandbox.deleteSnapshot", "SnapshotPaginator.nextItems"), async (t) => {
  const box = await plant(t);
  await box.files.write("/home/user/state", "kept");
  const name = unique("snap");
  const taken = await box.createSnapshot({ name });
  t.after(() => remove(`/templates/${encodeURIComponent(taken.snapshotId)}`));
  assert.ok(taken.names.some((full) => full.includes(name)));
  const mine = await everything(box.listSnapshots());
  assert.deepEqual(mine.map((snapshot) => snapshot.snapshotId), [taken.snapshotId]);
  const all = Sandbox.listSnapshots({ sandboxId: box.sandboxId, limit: 1 });
  assert.equal((await all.nextItems()).length, 1);
  await box.kill();
  const copy = await plant(t, taken.snapshotId);
  assert.equal(await copy.files.read("/home/user/state"), "kept");
  await copy.kill();
  assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId), true);
  assert.equal(await Sandbox.deleteSnapshot(taken.snapshotId), false);
});

test(covers("Sandbox.fork"), async (t) => {
  const box = await plant(t);
  await box.files.write("/home/user/state", "shared");
  const forks = await box.fork({ count: 2, timeoutMs: 120_000 });
  for (const fork of forks) {
    assert.ok(!(fork instanceof Error), `${fork}`);
    t.after(() => remove(`/sandboxes/${fork.sandboxId}`));
    assert.equal(await fork.files.read("/home/user/state"), "shared");
  }
  assert.equal(new Set([box, ...forks].map((each) => each.sandboxId)).size, 3);
  await forks[0].files.write("/home/user/state", "changed");
  assert.equal(await forks[1].files.read("/home/user/state"), "shared");
  await assert.rejects(Sandbox.fork(UNKNOWN_ID), SandboxNotFoundError);
});

test("forgetting and failing are told apart", async () => {
  await refused(() => Sandbox.create(unique("missing")), 404);
  await refused(() => Sandbox.create("base", { timeoutMs: -1000 }), 400);
  await assert.rejects(Sandbox.create("base", { apiKey: `e2b_${"0".repeat(40)}` }), AuthenticationError);
});

test("a bound client brings its own settings", async (t) => {
  const client = new E2B({ apiKey: key, apiUrl: url, sandboxUrl: url });
  const box = await client.Sandbox.create("base");
  t.after(() => remove(`/sandboxes/${box.sandboxId}`));
  assert.equal((await box.commands.run("echo bound")).stdout, "bound\n");
});

test("another tenant's sandbox does not exist", async (t) => {
  const box = await plant(t);
  const as = { apiKey: otherKey };
  assert.equal(await Sandbox.kill(box.sandboxId, as), false);
  for (const call of [
    () => Sandbox.getInfo(box.sandboxId, as),
    () => Sandbox.connect(box.sandboxId, as),
    () => Sandbox.setTimeout(box.sandboxId, 1000, as),
    () => Sandbox.pause(box.sandboxId, as),
  ]) await assert.rejects(call, SandboxNotFoundError);
  assert.equal(await box.isRunning(), true);
});

test("a kill reaches a running command", async (t) => {
  const box = await plant(t);
  const handle = await box.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
  const waited = assert.rejects(handle.wait(), TimeoutError);
  await box.kill();
  await waited;
});

describe("one sandbox", () => {
  const suite = shared();

  test(covers("Sandbox.getMetrics"), async () => {
    const metrics = await until(async () => {
      const found = await suite.box.getMetrics();
      return found.length && found;
    }, "the first sample", 30_000);
    for (const sample of metrics) {
      assert.ok(sample.cpuCount >= 1 && sample.cpuUsedPct >= 0);
      assert.ok(sample.memUsed > 0 && sample.memUsed <= sample.memTotal);
      assert.ok(sample.diskTotal > 0 && sample.timestamp instanceof Date);
    }
    const old = new Date(Date.now() - 2 * 86_400_000);
    assert.deepEqual(await Sandbox.getMetrics(suite.box.sandboxId, { start: old, end: new Date(+old + 1000) }), []);
  });

  test(covers("Sandbox.getHost", "Sandbox.getMcpUrl", "Sandbox.getMcpToken"), async () => {
    const { box } = suite;
    assert.equal(box.getHost(3000), `3000-${box.sandboxId}.${box.sandboxDomain}`);
    assert.equal(box.getMcpUrl(), `https://${box.getHost(50005)}/mcp`);
    await box.files.write("/etc/mcp-gateway/.token", "tok", { user: "root" });
    assert.equal(await box.getMcpToken(), "tok");
  });

  test(covers("Sandbox.downloadUrl", "Sandbox.uploadUrl"), async () => {
    const { box } = suite;
    await box.files.write("/tmp/f", "signed");
    for (const options of [{}, { useSignatureExpiration: 60_000 }, { user: "root" }]) {
      assert.equal(await (await fetch(await box.downloadUrl("/tmp/f", options))).text(), "signed");
    }
    const late = await fetch(await box.downloadUrl("/tmp/f", { useSignatureExpiration: -5000 }));
    assert.equal(late.status, 401);
    assert.deepEqual(await late.json(), { code: 401, message: "signature is already expired" });
    const form = new FormData();
    form.append("file", new Blob(["brought"]), "name");
    const put = await fetch(await box.uploadUrl("/tmp/g"), { method: "POST", body: form });
    assert.equal(put.status, 200);
    assert.equal(await box.files.read("/tmp/g"), "brought");
  });

  test(covers("Sandbox.updateNetwork"), async () => {
    const rules = { "api.example": [{ transform: { headers: { "X-Key": "v" } } }] };
    await refused(() => suite.box.updateNetwork({ rules }), undefined, SandboxError);
    await refused(() => Sandbox.updateNetwork(suite.box.sandboxId, { egressProxy: { address: "proxy.example:1080" } }));
    await assert.rejects(Sandbox.updateNetwork(UNKNOWN_ID, { denyOut: ["0.0.0.0/0"] }), SandboxNotFoundError);
  });
});
