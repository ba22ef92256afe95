// Files and directories.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { covers, out, refused, shared, unique } from "./support.mjs";

describe("files", () => {
  const suite = shared();
  const place = `/tmp/${unique("files")}`;

  test(covers(
    "SandboxFiles.writeFiles", "SandboxFiles.readFile", "SandboxFiles.readBytes",
    "SandboxFiles.readBytesStream",
  ), async () => {
    const { files } = suite.box;
    const bytes = new Uint8Array(1 << 20).map((_, n) => (n * 7) % 256);
    async function* stream() {
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.slice(at, at + 65_536);
    }
    await files.writeFiles([
      { path: `${place}/text`, data: "l1\nhéllo\nl3\n", mode: 640 },
      { path: `${place}/bytes`, data: bytes },
      { path: `${place}/stream`, data: stream() },
      { path: `${place}/blob`, data: new Blob(["blob"]) },
    ]);
    assert.equal(await files.readFile(`${place}/text`), "l1\nhéllo\nl3\n");
    assert.equal(await files.readFile(`${place}/text`, { offset: 2, limit: 1 }), "héllo");
    assert.equal(await files.readFile(`${place}/text`, { range: "bytes=0-1" }), "l1");
    assert.equal(await files.readFile(`${place}/blob`), "blob");
    assert.deepEqual(await files.readBytes(`${place}/bytes`), bytes);
    const chunks = [];
    for await (const chunk of files.readBytesStream(`${place}/stream`)) chunks.push(chunk);
    assert.ok(Buffer.concat(chunks).equals(Buffer.from(bytes)));
    await refused(() => files.readFile(`${place}/absent`), 404, "FILE_NOT_FOUND");
  });

  test(covers(
    "SandboxFiles.createDirectories", "SandboxFiles.listDirectory", "SandboxFiles.getFileInfo",
    "SandboxFiles.deleteDirectories",
  ), async () => {
    const { files } = suite.box;
    await files.createDirectories([{ path: `${place}/dir/sub`, mode: 750 }]);
    await files.writeFiles([{ path: `${place}/dir/file`, data: "12", mode: 600 }]);
    const listed = await files.listDirectory({ path: `${place}/dir` });
    assert.deepEqual(listed.map((entry) => [entry.path, entry.type]), [
      [`${place}/dir/file`, "file"],
      [`${place}/dir/sub`, "directory"],
    ]);
    const info = (await files.getFileInfo([`${place}/dir/file`]))[`${place}/dir/file`];
    assert.equal(info.size, 2);
    assert.equal(info.mode, 600);
    assert.ok(Math.abs(info.modifiedAt - Date.now()) < 120_000);
    await files.deleteDirectories([`${place}/dir`, `${place}/never`]);
    await refused(() => files.getFileInfo([`${place}/dir`]), 404, "FILE_NOT_FOUND");
  });

  test(covers("SandboxFiles.moveFiles", "SandboxFiles.search", "SandboxFiles.deleteFiles"), async () => {
    const { files } = suite.box;
    await files.writeFiles([{ path: `${place}/find/a.py`, data: "1" }]);
    await files.moveFiles([{ src: `${place}/find/a.py`, dest: `${place}/find/deep/b.py` }]);
    const found = await files.search({ path: `${place}/find`, pattern: "*.py" });
    assert.deepEqual(found.map((entry) => entry.path), [`${place}/find/deep/b.py`]);
    await files.deleteFiles([`${place}/find/deep/b.py`, `${place}/never`]);
    assert.deepEqual(await files.search({ path: `${place}/find`, pattern: "*.py" }), []);
  });

  test(covers(
    "SandboxFiles.replaceContents", "SandboxFiles.replaceContentsDetailed",
    "SandboxFiles.setPermissions",
  ), async () => {
    const { files } = suite.box;
    const path = `${place}/replace`;
    await files.writeFiles([{ path, data: "a b a" }]);
    await files.replaceContents([{ path, oldContent: "b", newContent: "B" }]);
    const counts = await files.replaceContentsDetailed([{ path, oldContent: "a", newContent: "A" }]);
    assert.deepEqual(counts, [{ path, replacedCount: 2 }]);
    assert.equal(await files.readFile(path), "A B A");
    await files.setPermissions([{ path, mode: 644, owner: "nobody", group: "nogroup" }]);
    assert.equal(out(await suite.box.commands.run(`stat -c '%a %U %G' ${path}`)), "644 nobody nogroup");
  });
});
