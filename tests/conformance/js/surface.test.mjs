// Every public method the package declares has a test that names and calls it.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const packageDir = join(here, "node_modules", "@alibaba-group", "opensandbox");

// Declarations whose methods talk to the server or to the daemon in a sandbox.
const TALKING = [
  "Sandbox", "SandboxManager", "Sandboxes", "ExecdCommands", "SandboxFiles", "ExecdHealth",
  "ExecdMetrics", "IsolationService", "Egress", "CredentialVault",
];
// IsolationSession cannot be reached: creating and attaching a session are refused.
const UNREACHABLE = ["IsolationSession"];

function declared() {
  const text = readdirSync(join(packageDir, "dist"))
    .filter((name) => name === "index.d.ts" || name.startsWith("sandboxes-"))
    .map((name) => readFileSync(join(packageDir, "dist", name), "utf8"))
    .join("\n");
  const methods = new Set();
  for (const name of TALKING) {
    const block = text.match(new RegExp(`(?:class|interface) ${name} \\{\\n([\\s\\S]*?)\\n\\}`));
    assert.ok(block, `${name} is no longer declared`);
    for (const [, method] of block[1].matchAll(/^ {4}(?:static )?(?!private)(\w+)\??(?:<[^>]*>)?\(/gm)) {
      if (method !== "constructor") methods.add(`${name}.${method}`);
    }
  }
  for (const name of UNREACHABLE) assert.match(text, new RegExp(`interface ${name} \\{`));
  return methods;
}

function claimed() {
  const claims = new Map();
  for (const name of readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "surface.test.mjs")) {
    const source = readFileSync(join(here, name), "utf8");
    const body = source.replaceAll(/covers\([^)]*\)/g, "");
    for (const [, list] of source.matchAll(/covers\(([^)]*)\)/g)) {
      for (const [, claim] of list.matchAll(/"([^"]+)"/g)) claims.set(claim, body);
    }
  }
  return claims;
}

test("every declared method is covered", () => {
  const claims = claimed();
  assert.deepEqual([...declared()].filter((method) => !claims.has(method)), []);
});

test("no claim is out of date, and each is called", () => {
  const offered = declared();
  for (const [claim, body] of claimed()) {
    assert.ok(offered.has(claim), `${claim} is not declared by the package`);
    assert.match(body, new RegExp(`\\.${claim.split(".")[1]}\\(`), `${claim} is claimed but not called`);
  }
});

test("the installed version is the pinned one", () => {
  const pinned = JSON.parse(readFileSync(join(here, "package.json"), "utf8")).dependencies["@alibaba-group/opensandbox"];
  assert.equal(JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8")).version, pinned);
});
