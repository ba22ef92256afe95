// Volumes, secrets and templates.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  BuildError, Secret, SecretError, SecretNotFoundError, Template, TemplateBase, Volume, VolumeError, VolumeFileType,
  VolumeNotFoundError, VolumePathNotFoundError, waitForFile,
} from "@e2b/code-interpreter";
import { covers, everything, otherKey, plant, refused, remove, unique, until } from "./support.mjs";

test(covers("Volume.create", "Volume.connect", "Volume.getInfo", "Volume.list", "Volume.destroy"), async (t) => {
  const name = unique("vol");
  const made = await Volume.create(name);
  t.after(() => remove(`/volumes/${made.volumeId}`));
  assert.equal(made.name, name);
  assert.ok((await Volume.list()).some((info) => info.volumeId === made.volumeId && info.name === name));
  assert.equal((await Volume.getInfo(made.volumeId)).name, name);
  const again = await Volume.connect(made.volumeId);
  await again.writeFile("/x", "same");
  assert.equal(await made.readFile("/x"), "same");
  await refused(() => Volume.create(name), [400, 409], VolumeError);
  assert.equal(await Volume.destroy(made.volumeId, { apiKey: otherKey }), false);
  assert.equal(await Volume.destroy(made.volumeId), true);
  assert.equal(await Volume.destroy(made.volumeId), false);
  await assert.rejects(Volume.getInfo(made.volumeId), VolumeNotFoundError);
});

test(covers("Volume.makeDir", "Volume.exists", "Volume.updateMetadata", "Volume.readFile", "Volume.writeFile", "Volume.remove"), async (t) => {
  const volume = await Volume.create(unique("vol"));
  t.after(() => remove(`/volumes/${volume.volumeId}`));
  const data = new Uint8Array(300_000).map((_, n) => n % 251);
  await volume.makeDir("/a/b", { force: true, mode: 0o750 });
  const written = await volume.writeFile("/a/b/f", data.buffer, { uid: 1000, gid: 1000, mode: 0o600 });
  assert.deepEqual([written.type, written.size, written.uid, written.mode & 0o777], [VolumeFileType.FILE, 300_000, 1000, 0o600]);
  assert.deepEqual(await volume.readFile("/a/b/f", { format: "bytes" }), data);
  assert.equal((await volume.readFile("/a/b/f", { format: "blob" })).size, data.length);
  let size = 0;
  for await (const part of await volume.readFile("/a/b/f", { format: "stream" })) size += part.length;
  assert.equal(size, data.length);
  await volume.writeFile("/text", new Blob(["text"]));
  assert.equal(await volume.readFile("/text"), "text");
  assert.deepEqual((await volume.list("/", { depth: 2 })).map((entry) => entry.path).sort(), ["/a", "/a/b", "/text"]);
  assert.equal(await volume.exists("/a/b/f"), true);
  assert.equal((await volume.updateMetadata("/text", { mode: 0o640 })).mode & 0o777, 0o640);
  assert.ok((await volume.getInfo("/text")).mtime instanceof Date);
  const box = await plant(t, "base", { volumeMounts: { "/data": volume } });
  assert.equal(await box.files.read("/data/text", { user: "root" }), "text");
  await box.files.write("/data/back", "from the sandbox");
  assert.equal(await volume.readFile("/back"), "from the sandbox");
  await box.kill();
  await volume.remove("/a");
  assert.equal(await volume.exists("/a"), false);
  await assert.rejects(volume.readFile("/a/b/f"), VolumePathNotFoundError);
});

test(covers("Secret.create", "Secret.update", "Secret.getInfo", "Secret.list", "Secret.exists", "Secret.destroy", "Secret.fill", "Secret.iamToken", "SecretPaginator.nextItems"), async (t) => {
  const name = unique("secret");
  const made = await Secret.create(name, "value", { metadata: { team: "a" } });
  t.after(() => remove(`/secrets/${made.secretId}`));
  assert.deepEqual([made.name, made.metadata], [name, { team: "a" }]);
  assert.equal((await Secret.update(name, "other")).version, made.version + 1);
  assert.equal((await Secret.getInfo(made.secretId)).name, name);
  assert.ok((await everything(Secret.list({ limit: 2 }))).some((secret) => secret.secretId === made.secretId));
  assert.equal((await Secret.list({ limit: 1 }).nextItems()).length, 1);
  await refused(() => Secret.create(name, "again"), [400, 409], SecretError);
  assert.equal(Secret.fill(name), `\${e2b.secrets.${name}}`);
  assert.deepEqual(Secret.iamToken({ audience: "a", tokenType: "JWT-SVID" }), { audience: "a", tokenType: "JWT-SVID" });
  assert.equal(await Secret.exists(name, { apiKey: otherKey }), false);
  assert.equal(await Secret.exists(name), true);
  assert.equal(await Secret.destroy(name), true);
  assert.equal(await Secret.destroy(name), false);
  await assert.rejects(Secret.getInfo(name), SecretNotFoundError);
});

// A template builder over a folder with one file.
function context(t) {
  const fileContextPath = mkdtempSync(join(tmpdir(), "atoll-template-"));
  t.after(() => rmSync(fileContextPath, { recursive: true }));
  writeFileSync(join(fileContextPath, "file"), "copied");
  return Template({ fileContextPath });
}

test(covers(
  "TemplateBase.build", "TemplateBase.exists", "TemplateBase.aliasExists", "TemplateBase.fromTemplate", "TemplateBase.copy",
  "TemplateBase.copyItems", "TemplateBase.runCmd", "TemplateBase.setEnvs", "TemplateBase.setWorkdir", "TemplateBase.setUser",
  "TemplateBase.makeDir", "TemplateBase.makeSymlink", "TemplateBase.rename", "TemplateBase.remove", "TemplateBase.setStartCmd",
  "TemplateBase.assignTags", "TemplateBase.removeTags", "TemplateBase.getTags",
), async (t) => {
  const name = unique("tpl");
  const logs = [];
  const template = context(t)
    .fromTemplate("base")
    .setEnvs({ WORD: "built" })
    .runCmd("echo $WORD $(whoami) > /home/user/first")
    .setWorkdir("/srv/work")
    .copy("file", "one", { mode: 0o600 })
    .copyItems([{ src: "file", dest: "/srv/work/two" }])
    .makeDir("/srv/work/made")
    .makeSymlink("/srv/work/two", "/srv/work/link")
    .rename("/srv/work/made", "/srv/work/moved")
    .setUser("root")
    .runCmd("touch /srv/gone")
    .remove("/srv/gone")
    .setUser("user")
    .setStartCmd("touch /tmp/started; sleep infinity", waitForFile("/tmp/started"));
  assert.equal(await Template.exists(name), false);
  const info = await Template.build(template, name, { tags: ["v1"], onBuildLogs: (entry) => logs.push(entry.message) });
  t.after(() => remove(`/templates/${info.templateId}`));
  assert.ok(await Template.exists(name));
  assert.ok(await Template.aliasExists(name));
  assert.ok(logs.length > 5);
  const tagged = await Template.assignTags(`${name}:v1`, ["stable"]);
  assert.equal(tagged.buildId, info.buildId);
  assert.ok((await Template.getTags(name)).some((tag) => tag.tag === "stable" && tag.buildId === info.buildId));
  const box = await plant(t, `${name}:stable`);
  assert.equal((await box.commands.run("cat /home/user/first one two link; ls; pwd")).stdout,
    "built user\ncopiedcopiedcopiedlink\nmoved\none\ntwo\n/srv/work\n");
  assert.equal(await box.files.exists("/tmp/started"), true);
  await box.kill();
  await Template.removeTags(name, "stable");
  assert.ok(!(await Template.getTags(name)).some((tag) => tag.tag === "stable"));
});

test(covers("TemplateBase.buildInBackground", "TemplateBase.getBuildStatus", "TemplateBase.skipCache"), async (t) => {
  const template = Template().skipCache().fromTemplate("base").runCmd("true").runCmd("echo words; exit 3");
  const info = await Template.buildInBackground(template, unique("tpl"));
  t.after(() => remove(`/templates/${info.templateId}`));
  const status = await until(async () => {
    const found = await Template.getBuildStatus(info);
    return found.status === "error" && found;
  }, "the build fails", 60_000);
  assert.equal(status.reason.step, "2");
  await assert.rejects(Template.build(template, unique("tpl")), (error) => {
    assert.ok(error instanceof BuildError);
    assert.match(error.stack, /resources\.test\.mjs/, "the failing line is named");
    return true;
  });
});

test(covers("TemplateBase.fromBaseImage", "TemplateBase.setReadyCmd", "TemplateBase.fromDockerfile"), async (t) => {
  for (const template of [
    Template().fromBaseImage().runCmd("echo image > /home/user/from").setReadyCmd(waitForFile("/home/user/from")),
    Template().fromDockerfile("FROM e2bdev/base:latest\nRUN echo image > /home/user/from\n"),
  ]) {
    const info = await Template.build(template, unique("tpl"));
    t.after(() => remove(`/templates/${info.templateId}`));
    const box = await plant(t, info.templateId);
    assert.equal(await box.files.read("/home/user/from"), "image\n");
    await box.kill();
  }
});

test(covers(
  "TemplateBase.toJSON", "TemplateBase.toDockerfile", "TemplateBase.fromDebianImage", "TemplateBase.fromUbuntuImage",
  "TemplateBase.fromFedoraImage", "TemplateBase.fromAlpineImage", "TemplateBase.fromArchImage", "TemplateBase.fromPythonImage",
  "TemplateBase.fromNodeImage", "TemplateBase.fromBunImage", "TemplateBase.fromImage", "TemplateBase.fromAWSRegistry",
  "TemplateBase.fromGCPRegistry", "TemplateBase.pipInstall", "TemplateBase.npmInstall", "TemplateBase.bunInstall",
  "TemplateBase.aptInstall", "TemplateBase.addMcpServer", "TemplateBase.gitClone", "TemplateBase.betaDevContainerPrebuild",
  "TemplateBase.betaSetDevContainerStart",
), async () => {
  const installs = Template().fromTemplate("mcp-gateway").pipInstall("x").npmInstall("x").bunInstall("x").aptInstall("x")
    .addMcpServer("exa").gitClone("https://x.example/r.git");
  const container = Template().fromTemplate("devcontainer").betaDevContainerPrebuild("/x");
  const images = [
    Template().fromDebianImage(), Template().fromUbuntuImage(), Template().fromFedoraImage(), Template().fromAlpineImage(),
    Template().fromArchImage(), Template().fromPythonImage(), Template().fromNodeImage(), Template().fromBunImage(),
    Template().fromImage("i", { username: "u", password: "p" }),
    Template().fromAWSRegistry("i", { accessKeyId: "a", secretAccessKey: "s", region: "r" }),
    Template().fromGCPRegistry("i", { serviceAccountJSON: { k: "v" } }),
  ];
  const known = ["steps", "force", "fromImage", "fromTemplate", "fromImageRegistry", "startCmd", "readyCmd"];
  for (const template of [installs, container, container.betaSetDevContainerStart("/x"), ...images]) {
    const made = JSON.parse(await TemplateBase.toJSON(template));
    for (const step of made.steps) assert.ok(["RUN", "COPY", "ENV", "WORKDIR", "USER"].includes(step.type), step.type);
    assert.deepEqual(Object.keys(made).filter((name) => !known.includes(name)), []);
  }
  assert.match(TemplateBase.toDockerfile(Template().fromBaseImage().runCmd("x")), /^FROM/);
});
