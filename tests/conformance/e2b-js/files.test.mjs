// Files, folders and watching them.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FileNotFoundError, FileType, FilesystemEventType, InvalidArgumentError } from "@e2b/code-interpreter";
import { covers, shared, unique, until } from "./support.mjs";

describe("files", () => {
  const suite = shared();
  const folder = () => `/home/user/${unique("dir")}`;

  test(covers("Filesystem.write", "Filesystem.read", "Filesystem.writeFiles"), async () => {
    const { files } = suite.box;
    const dir = folder();
    const info = await files.write(`${dir}/deep/text`, "grüß €");
    assert.deepEqual([info.name, info.path, info.type], ["text", `${dir}/deep/text`, FileType.FILE]);
    assert.equal(await files.read(info.path), "grüß €");
    const data = new Uint8Array(700_000).map((_, n) => n % 251);
    for (const options of [{}, { gzip: true }, { useOctetStream: true }]) {
      await files.write(`${dir}/blob`, data.buffer, options);
      assert.deepEqual(await files.read(`${dir}/blob`, { format: "bytes", gzip: options.gzip }), data);
    }
    await files.write(`${dir}/blob`, new Blob([data]));
    assert.equal((await files.read(`${dir}/blob`, { format: "blob" })).size, data.length);
    let size = 0;
    for await (const part of await files.read(`${dir}/blob`, { format: "stream" })) size += part.length;
    assert.equal(size, data.length);
    const written = await files.writeFiles([{ path: `${dir}/a`, data: "a" }, { path: `${dir}/b`, data: new Blob(["b"]) }]);
    assert.deepEqual(written.map((file) => file.path), [`${dir}/a`, `${dir}/b`]);
    assert.deepEqual((await files.write([{ path: `${dir}/c`, data: "c" }])).map((file) => file.name), ["c"]);
    await files.write(`${dir}/empty`, "");
    assert.equal(await files.read(`${dir}/empty`), "");
    await assert.rejects(files.read(`${dir}/missing`), FileNotFoundError);
    await assert.rejects(files.read(dir), InvalidArgumentError);
  });

  test(covers("Filesystem.list", "Filesystem.exists", "Filesystem.getInfo", "Filesystem.makeDir", "Filesystem.rename", "Filesystem.remove"), async () => {
    const { files } = suite.box;
    const dir = folder();
    assert.equal(await files.makeDir(`${dir}/subdir1/inner`), true);
    assert.equal(await files.makeDir(`${dir}/subdir1`), false);
    await files.write(`${dir}/file1`, "12345");
    const names = async (depth) => (await files.list(dir, { depth })).map((entry) => entry.path.slice(dir.length + 1));
    assert.deepEqual(await names(1), ["file1", "subdir1"]);
    assert.deepEqual(await names(2), ["file1", "subdir1", "subdir1/inner"]);
    const info = await files.getInfo(`${dir}/file1`);
    assert.deepEqual(
      [info.type, info.size, info.mode, info.permissions, info.owner, info.group],
      [FileType.FILE, 5, 0o644, "-rw-r--r--", "user", "user"],
    );
    assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000);
    assert.equal((await files.rename(`${dir}/file1`, `${dir}/file2`)).path, `${dir}/file2`);
    assert.equal(await files.exists(`${dir}/file1`), false);
    await suite.box.commands.run(`ln -s file2 ${dir}/link`);
    assert.equal((await files.getInfo(`${dir}/link`)).symlinkTarget, `${dir}/file2`);
    await files.remove(dir);
    assert.equal(await files.exists(dir), false);
    await assert.rejects(files.list(dir), FileNotFoundError);
    await assert.rejects(files.rename(`${dir}/x`, `${dir}/y`), FileNotFoundError);
  });

  test("metadata stays with a file", async () => {
    const { files } = suite.box;
    const path = `${folder()}/f`;
    assert.deepEqual((await files.write(path, "x", { metadata: { Author: "me" } })).metadata, { author: "me" });
    assert.deepEqual((await files.getInfo(path)).metadata, { author: "me" });
  });

  test(covers("Filesystem.watchDir", "WatchHandle.stop"), async () => {
    const { files } = suite.box;
    const dir = folder();
    await files.makeDir(`${dir}/sub`);
    const events = [];
    const exits = [];
    const onEvent = (event) => void events.push(event);
    const handle = await files.watchDir(dir, onEvent, { recursive: true, includeEntry: true, onExit: (error) => void exits.push(error) });
    await files.write(`${dir}/sub/new`, "small");
    await until(() => events.length >= 3, "three events");
    const { CREATE, CHMOD, WRITE } = FilesystemEventType;
    assert.deepEqual(events.map((event) => [event.name, event.type]), [["sub/new", CREATE], ["sub/new", CHMOD], ["sub/new", WRITE]]);
    assert.equal(events[2].entry.path, `${dir}/sub/new`);
    await handle.stop();
    await until(() => exits.length === 1, "the end is told");
    await assert.rejects(files.watchDir(`${dir}/missing`, onEvent), FileNotFoundError);
    await assert.rejects(files.watchDir(`${dir}/sub/new`, onEvent), InvalidArgumentError);
  });

  test(covers(
    "Git.init", "Git.configureUser", "Git.setConfig", "Git.getConfig", "Git.status", "Git.add", "Git.commit",
    "Git.branches", "Git.createBranch", "Git.checkoutBranch", "Git.deleteBranch", "Git.reset", "Git.restore",
    "Git.remoteAdd", "Git.remoteGet", "Git.push", "Git.pull", "Git.clone", "Git.dangerouslyAuthenticate",
  ), async () => {
    const { git, files } = suite.box;
    const path = folder();
    const [bare, clone, local] = [`${path}.git`, `${path}-clone`, { scope: "local", path }];
    await git.init(bare, { bare: true, initialBranch: "main" });
    await git.init(path, { initialBranch: "main" });
    await git.configureUser("Me", "me@example.com", local);
    await git.setConfig("core.abbrev", "12", local);
    assert.equal(await git.getConfig("core.abbrev", local), "12");
    await files.write(`${path}/a`, "one\n");
    assert.equal((await git.status(path)).isClean, false);
    await git.add(path);
    await git.commit(path, "first");
    assert.equal((await git.status(path)).isClean, true);
    await git.createBranch(path, "topic");
    assert.deepEqual((await git.branches(path)).branches.sort(), ["main", "topic"]);
    await git.checkoutBranch(path, "main");
    await git.deleteBranch(path, "topic");
    await files.write(`${path}/a`, "two\n");
    await git.restore(path, { paths: ["a"] });
    assert.equal(await files.read(`${path}/a`), "one\n");
    await git.reset(path, { mode: "hard" });
    await git.remoteAdd(path, "origin", `file://${bare}`);
    assert.equal(await git.remoteGet(path, "origin"), `file://${bare}`);
    await git.push(path, { remote: "origin", branch: "main" });
    await git.clone(`file://${bare}`, { path: clone, branch: "main" });
    await git.pull(clone, { remote: "origin", branch: "main" });
    assert.equal(await files.read(`${clone}/a`), "one\n");
    await git.dangerouslyAuthenticate({ username: "me", password: "pass", host: "git.example" });
  });
});
