// Settings, polling and refusal checks shared by the JavaScript conformance tests.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before } from "node:test";
import { ConnectionConfig, Sandbox, SandboxApiException } from "@alibaba-group/opensandbox";

export const UNKNOWN_ID = "nosuchsandbox0000000000000";

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`set ${name}: see tests/conformance/README.md`);
  return value;
}

export const url = required("ATOLL_URL").replace(/\/$/, "");
export const key = required("ATOLL_API_KEY");
export const otherKey = required("ATOLL_API_KEY_B");
export const image = process.env.ATOLL_TEST_IMAGE || "base";
export const egressDefault = process.env.ATOLL_EGRESS || "deny";
export const domain = url.split("://")[1];

export function config(options = {}) {
  return new ConnectionConfig({ domain, protocol: "http", apiKey: key, ...options });
}

// Names the public methods a test exercises; surface.test.mjs reads these calls from the source.
export function covers(...claims) {
  return claims.join(", ");
}

export function unique(prefix = "js") {
  return `${prefix}-${randomUUID().replaceAll("-", "").slice(0, 12)}`;
}

export async function until(probe, what, withinMs = 20_000) {
  const deadline = Date.now() + withinMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    assert.ok(Date.now() < deadline, `${what} did not come true within ${withinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function raw(method, path, { as = key, body, headers = {} } = {}) {
  return fetch(`${url}${path}`, {
    method,
    headers: { "OPEN-SANDBOX-API-KEY": as, "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
}

export async function stateOf(id, as = key) {
  const answer = await raw("GET", `/v1/sandboxes/${id}`, { as });
  if (answer.status === 404) return "Gone";
  return (await answer.json()).status.state;
}

async function make(options) {
  return Sandbox.create({
    connectionConfig: config(),
    ...(options.snapshotId ? {} : { image }),
    ...options,
  });
}

async function remove(box) {
  const answer = await raw("DELETE", `/v1/sandboxes/${box.id}`);
  assert.ok([204, 404].includes(answer.status), await answer.text());
  await box.close();
}

// Creates a sandbox that is removed by its id when the test ends.
export async function plant(t, options = {}) {
  const box = await make(options);
  t.after(() => remove(box));
  return box;
}

// Gives the suite around the call one sandbox, as `.box` of the answer, from its start to its end.
export function shared(options = {}) {
  const holder = {};
  before(async () => {
    holder.box = await make(options);
  });
  after(async () => {
    if (holder.box) await remove(holder.box);
  });
  return holder;
}

// Downloads keep the server's code in the raw body only.
function codeOf(error) {
  const { rawBody } = error;
  const body = typeof rawBody === "string" && rawBody.startsWith("{") ? JSON.parse(rawBody) : rawBody;
  return body?.code ?? error.error.code;
}

export async function refused(call, statuses, codeEnding = "") {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof SandboxApiException, `${error?.stack ?? error}`);
    assert.ok([statuses].flat().includes(error.statusCode), `${error.statusCode}: ${error.message}`);
    assert.ok(error.message, "a refusal has a message");
    assert.ok(codeOf(error).endsWith(codeEnding), codeOf(error));
    return true;
  });
}

export function out(execution) {
  assert.equal(execution.exitCode, 0, JSON.stringify(execution));
  return execution.logs.stdout.map((message) => message.text).join("\n");
}
