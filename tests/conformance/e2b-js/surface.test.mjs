// Every public method the packages declare has a test that names and calls it.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const packages = { e2b: join(here, "node_modules", "e2b"), "@e2b/code-interpreter": join(here, "node_modules", "@e2b", "code-interpreter") };

// Declarations whose methods talk to the server or to the daemon in a sandbox, and under which name.
const TALKING = {
  SandboxApi: "Sandbox", Sandbox: "Sandbox", SandboxPaginator: "SandboxPaginator", SnapshotPaginator: "SnapshotPaginator",
  Commands: "Commands", CommandHandle: "CommandHandle", Filesystem: "Filesystem", WatchHandle: "WatchHandle", Pty: "Pty",
  Git: "Git", TemplateBase: "TemplateBase", Volume: "Volume", Secret: "Secret", SecretPaginator: "SecretPaginator",
};
// Classes that make no calls of their own: settings, clients without methods, errors, log lines.
const SILENT = /^(ConnectionConfig|ClientFactory|ApiClient|EnvdApiClient|VolumeConnectionConfig|Paginator|ReadyCmd|LogEntry\w*|E2B|OutputMessage|Execution|Result|\w*Error)$/;

function declared() {
  const methods = new Set();
  for (const folder of Object.values(packages)) {
    const text = readFileSync(join(folder, "dist", "index.d.ts"), "utf8");
    const classes = [...text.matchAll(/^declare (?:abstract )?class (\w+)[^{]*\{\n([\s\S]*?)\n\}/gm)];
    assert.ok(classes.length > 3, `${folder} declares no classes that this test can read`);
    for (const [, name, body] of classes) {
      assert.ok(name in TALKING || SILENT.test(name), `${name} is new: has it methods that talk to a server?`);
      if (!(name in TALKING)) continue;
      for (const [, method] of body.matchAll(/^ {2}(?:static )?(?!private|protected|get )(\w+)(?:<[^\n]*?>)?\(/gm)) {
        if (method !== "constructor") methods.add(`${TALKING[name]}.${method}`);
      }
    }
  }
  return methods;
}

function claimed() {
  const claims = new Map();
  for (const name of readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "surface.test.mjs")) {
    const source = readFileSync(join(here, name), "utf8");
    const body = source.replaceAll(/covers\([^)]*\)/g, "");
    for (const [, list] of source.matchAll(/covers\(([^)]*)\)/g)) {
      for (const [, claim] of list.matchAll(/"([^"]+)"/g)) claims.set(claim, (claims.get(claim) ?? "") + body);
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
    assert.ok(offered.has(claim), `${claim} is not declared by the packages`);
    assert.match(body, new RegExp(`\\.${claim.split(".")[1]}\\(`), `${claim} is claimed but not called`);
  }
});

test("the installed versions are the pinned ones", () => {
  const pinned = JSON.parse(readFileSync(join(here, "package.json"), "utf8")).dependencies;
  for (const [name, folder] of Object.entries(packages)) {
    assert.equal(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version, pinned[name]);
  }
});
