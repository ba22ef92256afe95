// The Sandbox class: creation, inspection, pause and resume, endpoints, removal.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Sandbox, SandboxReadyTimeoutException } from "@alibaba-group/opensandbox";
import {
  UNKNOWN_ID, config, covers, domain, egressDefault, image, out, plant, raw, refused, shared, stateOf, unique,
  until,
} from "./support.mjs";

test(covers(
  "Sandbox.create", "Sandbox.getInfo", "Sandbox.renew", "Sandbox.patchMetadata", "Sandbox.isHealthy",
  "Sandbox.kill", "Sandbox.close",
), async (t) => {
  const label = unique();
  const box = await plant(t, {
    timeoutSeconds: 300,
    env: { A: "b c" },
    metadata: { js: label },
    entrypoint: ["sleep", "infinity"],
    resource: { cpu: "500m", memory: "256Mi" },
    extensions: { "opensandbox.extensions.x": "1" },
  });
  const info = await box.getInfo();
  assert.equal(info.id, box.id);
  assert.match(info.id, /^[a-z0-9]+$/);
  assert.equal(info.status.state, "Running");
  assert.equal(info.image.uri, image);
  assert.deepEqual(info.metadata, { js: label });
  assert.deepEqual(info.extensions, { "opensandbox.extensions.x": "1" });
  assert.deepEqual(info.entrypoint.slice(-2), ["sleep", "infinity"]);
  assert.ok(Math.abs(info.expiresAt - info.createdAt - 300_000) < 5000);
  assert.equal(await box.isHealthy(), true);
  assert.equal(out(await box.commands.run('echo "$A"')), "b c");
  const patched = await box.patchMetadata({ js: null, other: "2" });
  assert.deepEqual(patched.metadata, { other: "2" });
  const renewed = await box.renew(1200);
  assert.ok(Math.abs(renewed.expiresAt - Date.now() - 1_200_000) < 5000);
  await box.kill();
  await until(async () => (await stateOf(box.id)) === "Gone", "the sandbox is gone");
  await refused(() => box.getInfo(), 404, "SANDBOX_NOT_FOUND");
  await refused(() => box.kill(), 404, "SANDBOX_NOT_FOUND");
  await box.close();
});

test("manual cleanup has no expiry", async (t) => {
  const box = await plant(t, { timeoutSeconds: null });
  assert.equal((await box.getInfo()).expiresAt, null);
  await refused(() => box.renew(600), 409, "INVALID_EXPIRATION");
});

test(covers("Sandbox.connect", "Sandbox.waitUntilReady"), async (t) => {
  const box = await plant(t);
  await box.files.writeFiles([{ path: "/tmp/mark", data: "same" }]);
  const again = await Sandbox.connect({ sandboxId: box.id, connectionConfig: config() });
  await again.waitUntilReady({ readyTimeoutSeconds: 5, pollingIntervalMillis: 50 });
  assert.equal(await again.files.readFile("/tmp/mark"), "same");
  await again.close();
  await refused(() => Sandbox.connect({ sandboxId: UNKNOWN_ID, connectionConfig: config() }), 404, "SANDBOX_NOT_FOUND");
});

test("a health check that never passes leaves no sandbox", async () => {
  const label = unique();
  await assert.rejects(
    Sandbox.create({ connectionConfig: config(), image, metadata: { js: label }, readyTimeoutSeconds: 1, healthCheck: () => false }),
    SandboxReadyTimeoutException,
  );
  await until(async () => {
    const listed = await raw("GET", `/v1/sandboxes?metadata=js%3D${label}`);
    return (await listed.json()).items.length === 0;
  }, "no sandbox is left");
});

// `Sandbox.resume` is both a static and an instance method.
test(covers("Sandbox.pause", "Sandbox.resume"), async (t) => {
  const box = await plant(t);
  const started = await box.commands.run("while :; do date +%s%3N >> /tmp/ticks; sleep 0.05; done", { background: true });
  await box.pause();
  await until(async () => (await stateOf(box.id)) === "Paused", "Paused");
  const pausedAt = Date.now();
  const again = await Sandbox.resume({ sandboxId: box.id, connectionConfig: config() });
  await until(async () => Number((await again.files.readFile("/tmp/ticks")).trim().split("\n").at(-1)) > pausedAt, "ticks go on");
  assert.equal((await again.commands.getCommandStatus(started.id)).running, true);
  await again.pause();
  await until(async () => (await stateOf(box.id)) === "Paused", "Paused again");
  const third = await again.resume();
  assert.equal(out(await third.commands.run("echo back")), "back");
  for (const handle of [again, third]) await handle.close();
});

test("the request id reaches the exception", async () => {
  const wanted = unique("request");
  const connectionConfig = config({ headers: { "X-Request-ID": wanted } });
  await assert.rejects(Sandbox.connect({ sandboxId: UNKNOWN_ID, connectionConfig }), (error) => error.requestId === wanted);
});

test("a wrong key is refused", async () => {
  await refused(() => Sandbox.create({ image, connectionConfig: config({ apiKey: "wrong" }) }), 401, "INVALID_API_KEY");
});

for (const [name, options] of Object.entries({
  networkPolicy: { networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "a.example" }] } },
  secureAccess: { secureAccess: true },
  poolRef: { extensions: { poolRef: "*" } },
})) {
  test(`${name} is refused, not ignored`, async () => {
    await refused(() => Sandbox.create({ image, connectionConfig: config(), ...options }), 400);
  });
}

describe("endpoints", () => {
  const suite = shared();

  test(covers("Sandbox.getEndpoint", "Sandbox.getEndpointUrl", "Sandbox.getSignedEndpoint"), async () => {
    const { box } = suite;
    const port = 8234;
    await box.files.writeFiles([{ path: "/srv/www/page", data: "served" }]);
    await box.commands.run(`python3 -m http.server ${port} --bind 127.0.0.1 --directory /srv/www`, { background: true });
    const { endpoint, headers } = await box.getEndpoint(port);
    assert.ok(!endpoint.includes("://"));
    const address = await box.getEndpointUrl(port);
    assert.equal(address, `http://${endpoint}`);
    const page = await until(async () => {
      const answer = await fetch(`${address}/page`, { headers: headers ?? {} });
      return answer.ok ? answer.text() : null;
    }, "the page");
    assert.equal(page, "served");
    const expires = Math.floor(Date.now() / 1000) + 300;
    try {
      const signed = await box.getSignedEndpoint(port, expires);
      assert.ok((await fetch(`http://${signed.endpoint}/page`, { headers: signed.headers ?? {} })).ok);
    } catch (error) {
      assert.equal(error.error?.code, "SANDBOX::API_NOT_SUPPORTED");
    }
  });

  test("everything works through the server's proxy", async () => {
    const { box } = suite;
    const proxied = await Sandbox.connect({ sandboxId: box.id, connectionConfig: config({ useServerProxy: true }) });
    assert.equal((await proxied.getEndpoint(80)).endpoint, `${domain}/v1/sandboxes/${box.id}/proxy/80`);
    assert.equal(out(await proxied.commands.run("echo proxied")), "proxied");
    const data = new Uint8Array(300_000).map((_, n) => n % 251);
    await proxied.files.writeFiles([{ path: "/tmp/blob", data }]);
    assert.deepEqual(await proxied.files.readBytes("/tmp/blob"), data);
    await proxied.close();
  });

  test(covers("Sandbox.getMetrics", "ExecdMetrics.getMetrics", "ExecdHealth.ping"), async () => {
    const { box } = suite;
    for (const metrics of [await box.getMetrics(), await box.metrics.getMetrics()]) {
      assert.ok(metrics.cpuCount > 0 && metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100);
      assert.ok(metrics.memoryUsedMiB > 0 && metrics.memoryUsedMiB <= metrics.memoryTotalMiB);
      assert.ok(Math.abs(metrics.timestamp - Date.now()) < 60_000);
    }
    assert.equal(await box.health.ping(), true);
  });

  test(covers(
    "Sandbox.getEgressPolicy", "Sandbox.patchEgressRules", "Sandbox.deleteEgressRules",
  ), async () => {
    const { box } = suite;
    const policy = await box.getEgressPolicy();
    assert.equal(policy.defaultAction, egressDefault);
    assert.equal((policy.egress ?? []).length, 0);
    const statuses = [400, 405, 409, 501, 503];
    await refused(() => box.patchEgressRules([{ action: "deny", target: "example.com" }]), statuses);
    await refused(() => box.deleteEgressRules(["example.com"]), statuses);
  });
});
