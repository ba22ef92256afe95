// Commands, background work and sessions.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { covers, out, refused, shared, unique, until } from "./support.mjs";

const texts = (messages) => messages.map((message) => message.text);

describe("commands", () => {
  const suite = shared();

  test(covers("ExecdCommands.run"), async () => {
    const { box } = suite;
    const seen = [];
    const note = (kind) => (event) => void seen.push([kind, event]);
    const ran = await box.commands.run("echo one; echo two >&2; exit 6", {}, {
      onInit: note("init"),
      onStdout: note("out"),
      onStderr: note("err"),
      onError: note("error"),
      onExecutionComplete: note("done"),
    });
    assert.equal(ran.exitCode, 6);
    assert.deepEqual(texts(ran.logs.stdout), ["one"]);
    assert.deepEqual(texts(ran.logs.stderr), ["two"]);
    const kinds = seen.map(([kind]) => kind);
    assert.equal(kinds[0], "init");
    assert.equal(kinds.at(-1), "error");
    assert.ok(!kinds.includes("done"), "error and completion exclude each other");
    assert.equal(seen[0][1].id, ran.id);
    const done = await box.commands.run("true");
    assert.ok(done.complete && !done.error && done.exitCode === 0);
  });

  test(covers("ExecdCommands.runStream"), async () => {
    const { box } = suite;
    const kinds = [];
    const gate = `/tmp/${unique("gate")}`;
    await box.commands.run(`mkfifo ${gate}`);
    for await (const event of box.commands.runStream(`echo first; read x < ${gate}; echo $x`, { timeoutSeconds: 20 })) {
      if (event.type === "ping") continue;
      kinds.push(event.type === "stdout" ? event.text : event.type);
      if (event.text === "first") await box.commands.run(`echo go > ${gate}`);
    }
    assert.deepEqual(kinds, ["init", "first", "go", "execution_complete"]);
  });

  test("options", async () => {
    const { box } = suite;
    const uid = Number(out(await box.commands.run("id -u nobody")));
    const ran = await box.commands.run('pwd; echo "$A"; id -u', { workingDirectory: "/usr", envs: { A: "x y" }, uid });
    assert.equal(out(ran), `/usr\nx y\n${uid}`);
    const began = Date.now();
    const slow = await box.commands.run("echo printed; sleep 68", { timeoutSeconds: 1 });
    assert.ok(Date.now() - began < 15_000 && slow.error);
    assert.deepEqual(texts(slow.logs.stdout), ["printed"]);
    await refused(() => box.commands.run("pwd", { workingDirectory: "/no/such/place" }), 400);
    assert.equal(out(await box.commands.run("printf 'h\\xc3\\xa9 \\xe2\\x80\\xa8.'")), "hé \u2028.");
  });

  test(covers(
    "ExecdCommands.getCommandStatus", "ExecdCommands.getBackgroundCommandLogs",
    "ExecdCommands.interrupt",
  ), async () => {
    const { box } = suite;
    const started = await box.commands.run("echo up; sleep 69", { background: true });
    const logs = await until(async () => {
      const found = await box.commands.getBackgroundCommandLogs(started.id);
      return found.content.includes("up") ? found : null;
    }, "the log line");
    assert.ok(logs.cursor > 0);
    assert.equal((await box.commands.getBackgroundCommandLogs(started.id, logs.cursor)).content, "");
    const status = await box.commands.getCommandStatus(started.id);
    assert.ok(status.running === true && status.exitCode === null && status.startedAt instanceof Date);
    await box.commands.interrupt(started.id);
    await until(async () => (await box.commands.getCommandStatus(started.id)).running === false, "the end");
    await refused(() => box.commands.getCommandStatus("0".repeat(32)), 404);
    await refused(() => box.commands.interrupt("0".repeat(32)), [400, 404, 500]);
  });

  test(covers(
    "ExecdCommands.createSession", "ExecdCommands.runInSession", "ExecdCommands.deleteSession",
  ), async () => {
    const { box } = suite;
    const session = await box.commands.createSession({ workingDirectory: "/usr" });
    assert.equal(out(await box.commands.runInSession(session, "pwd")), "/usr");
    await box.commands.runInSession(session, "x=1; cd /tmp");
    assert.equal(out(await box.commands.runInSession(session, "echo $x; pwd")), "1\n/tmp");
    assert.equal((await box.commands.runInSession(session, "(exit 7)")).exitCode, 7);
    assert.ok((await box.commands.runInSession(session, "sleep 70", { timeoutSeconds: 1 })).error);
    await box.commands.deleteSession(session);
    await refused(() => box.commands.runInSession(session, "pwd"), [400, 404]);
    await refused(() => box.commands.deleteSession(session), [400, 404]);
  });
});
