// Commands and terminals.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from "@e2b/code-interpreter";
import { covers, shared, unique, until } from "./support.mjs";

describe("commands", () => {
  const suite = shared("base", { envs: { WORD: "sandbox" } });

  test(covers("Commands.run"), async () => {
    const { commands } = suite.box;
    const seen = [];
    const done = await commands.run("echo out; echo err >&2", { onStdout: (text) => void seen.push(text) });
    assert.deepEqual([done.stdout, done.stderr, done.exitCode], ["out\n", "err\n", 0]);
    assert.equal(seen.join(""), "out\n");
    await assert.rejects(commands.run("echo partly; exit 3"), (error) => {
      assert.ok(error instanceof CommandExitError);
      assert.deepEqual([error.exitCode, error.stdout, error.error], [3, "partly\n", "exit status 3"]);
      return true;
    });
    assert.equal((await commands.run("pwd; whoami", { cwd: "/tmp", user: "root" })).stdout, "/tmp\nroot\n");
    assert.equal((await commands.run("echo $WORD $OTHER", { envs: { OTHER: "mine" } })).stdout, "sandbox mine\n");
    await assert.rejects(commands.run("pwd", { cwd: "/no-such-folder" }), InvalidArgumentError);
    await assert.rejects(commands.run("pwd", { user: "nobody-of-that-name" }), AuthenticationError);
  });

  test("long output is whole, broken bytes are marked", async () => {
    const { commands } = suite.box;
    const long = await commands.run("head -c 2000000 /dev/zero | tr '\\0' x");
    assert.equal(long.stdout.length, 2_000_000);
    const broken = await commands.run("printf 'x%.0s' $(seq 1 8191); printf '\\342'");
    assert.equal(broken.stdout, `${"x".repeat(8191)}\ufffd`);
  });

  test(covers("Commands.list", "Commands.kill", "CommandHandle.kill", "CommandHandle.wait"), async () => {
    const { commands } = suite.box;
    const mark = `sleep 1000 # ${unique()}`;
    const handle = await commands.run(mark, { background: true, timeoutMs: 0 });
    const found = (await commands.list()).find((process) => process.pid === handle.pid);
    assert.deepEqual([found.cmd, found.args], ["/bin/bash", ["-l", "-c", mark]]);
    assert.equal(await handle.kill(), true);
    await assert.rejects(handle.wait(), CommandExitError);
    assert.equal(await handle.kill(), false);
    const other = await commands.run("sleep 1000", { background: true, timeoutMs: 0 });
    other.wait().catch(() => {});
    assert.equal(await commands.kill(other.pid), true);
    assert.equal(await commands.kill(999_999), false);
  });

  test(covers("Commands.connect", "CommandHandle.disconnect"), async () => {
    const { commands } = suite.box;
    const fifo = `/tmp/${unique("fifo")}`;
    await commands.run(`mkfifo ${fifo}`);
    const handle = await commands.run(`cat ${fifo}; exit 4`, { background: true, timeoutMs: 0 });
    handle.wait().catch(() => {});
    await handle.disconnect();
    const again = await commands.connect(handle.pid);
    await commands.run(`echo fresh > ${fifo}`);
    await assert.rejects(again.wait(), (error) => error.exitCode === 4 && error.stdout === "fresh\n");
    await assert.rejects(commands.connect(999_999), NotFoundError);
  });

  test(covers("Commands.sendStdin", "Commands.closeStdin", "CommandHandle.sendStdin", "CommandHandle.closeStdin"), async () => {
    const { commands } = suite.box;
    const handle = await commands.run("cat; echo closed", { background: true, stdin: true });
    await commands.sendStdin(handle.pid, "one\n");
    await handle.sendStdin(new TextEncoder().encode("two €\n"));
    await handle.closeStdin();
    assert.equal((await handle.wait()).stdout, "one\ntwo €\nclosed\n");
    const other = await commands.run("wc -c", { background: true, stdin: true });
    await commands.sendStdin(other.pid, "x".repeat(100_000));
    await commands.closeStdin(other.pid);
    assert.equal((await other.wait()).stdout.trim(), "100000");
  });

  test("the deadline kills", async () => {
    const { commands } = suite.box;
    const mark = unique("slow");
    await assert.rejects(commands.run(`sleep 1000 # ${mark}`, { timeoutMs: 1000 }), TimeoutError);
    await until(
      async () => !(await commands.list()).some((process) => process.args.join(" ").includes(mark)),
      "the slow command is gone",
    );
  });

  test("many at once", async () => {
    const all = await Promise.all([...Array(20).keys()].map((n) => suite.box.commands.run(`sleep 0.2; echo ${n}`)));
    assert.deepEqual(all.map((done) => done.stdout), [...Array(20).keys()].map((n) => `${n}\n`));
  });

  test(covers("Pty.create", "Pty.sendInput", "Pty.resize", "Pty.connect", "Pty.kill"), async () => {
    const { pty } = suite.box;
    const text = new TextDecoder();
    const bytes = new TextEncoder();
    let said = "";
    let later = "";
    const onData = (data) => void (said += text.decode(data));
    const handle = await pty.create({ cols: 80, rows: 24, onData, envs: { ABC: "123" }, cwd: "/tmp" });
    handle.wait().catch(() => {});
    await pty.sendInput(handle.pid, bytes.encode("stty size; echo $ABC $TERM $PWD\n"));
    await until(() => said.includes("24 80\r\n") && said.includes("123 xterm-256color /tmp"), "the size");
    await pty.resize(handle.pid, { cols: 132, rows: 40 });
    const again = await pty.connect(handle.pid, { onData: (data) => void (later += text.decode(data)) });
    again.wait().catch(() => {});
    await pty.sendInput(handle.pid, bytes.encode("stty size\n"));
    await until(() => later.includes("40 132\r\n"), "the new size");
    assert.equal(await pty.kill(handle.pid), true);
    assert.equal(await pty.kill(999_999), false);
  });
});
