// Settings, polling and refusal checks shared by the JavaScript tests of the E2B packages.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";

export const UNKNOWN_ID = "inosuchsandbox000000";
// Statuses with which the server may say "this can't be done here".
const REFUSALS = [400, 409, 422, 501];

export function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`set ${name}: see tests/conformance/README.md`);
  return value;
}

export const url = required("E2B_API_URL").replace(/\/$/, "");
export const key = required("E2B_API_KEY");
export const otherKey = required("E2B_API_KEY_B");
required("E2B_SANDBOX_URL");
required("E2B_VOLUME_API_URL");

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
    headers: { "X-API-Key": as, "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
}

export async function stateOf(id, as = key) {
  const answer = await raw("GET", `/sandboxes/${id}`, { as });
  if (answer.status === 404) return "gone";
  return (await answer.json()).state;
}

// DELETEs a path; what is gone is fine, what is busy for a moment is tried again.
export async function remove(path, as = key) {
  const answer = await until(async () => {
    const given = await raw("DELETE", path, { as });
    return given.status !== 409 && given;
  }, `${path} is free`);
  assert.ok([200, 204, 404].includes(answer.status), await answer.text());
}

// Creates a sandbox that is killed by its id when the test ends.
export async function plant(t, template = "base", options = {}) {
  const box = await Sandbox.create(template, options);
  t.after(() => remove(`/sandboxes/${box.sandboxId}`, options.apiKey));
  return box;
}

// Gives the suite around the call one sandbox, as `.box` of the answer, from its start to its end.
export function shared(template = "base", options = {}) {
  const holder = {};
  before(async () => {
    holder.box = await Sandbox.create(template, options);
  });
  after(async () => {
    if (holder.box) await remove(`/sandboxes/${holder.box.sandboxId}`);
  });
  return holder;
}

// Expects a refusal by the control API with one of the statuses.
export async function refused(call, statuses = REFUSALS, kind = Error) {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof kind, `${error?.stack ?? error}`);
    const wanted = [statuses].flat();
    const status = error.statusCode ?? Number(/^(\d{3}): /.exec(error.message)?.[1]);
    assert.ok(wanted.includes(status), `${status}: ${error.message}`);
    assert.ok(error.message.length > 10, "a refusal has a message");
    return true;
  });
}

// Everything a paginator has.
export async function everything(paginator) {
  const items = [];
  while (paginator.hasNext) items.push(...(await paginator.nextItems()));
  assert.equal(paginator.nextToken, undefined);
  return items;
}
