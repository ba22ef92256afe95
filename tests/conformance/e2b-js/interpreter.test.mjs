// Running code with the code interpreter package.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NotFoundError, SandboxError, TimeoutError } from "@e2b/code-interpreter";
import { covers, shared } from "./support.mjs";

const COLOURS = /\x1b\[[0-9;]*m/g;

describe("the interpreter", () => {
  const suite = shared("code-interpreter-v1", { envs: { ALWAYS: "sandbox" } });

  test(covers("Sandbox.runCode"), async () => {
    const { box } = suite;
    const [out, err, results] = [[], [], []];
    const done = await box.runCode("import sys\nx = 6\nprint('one')\nprint('oops', file=sys.stderr)\nx * 7", {
      onStdout: (message) => out.push(message.line),
      onStderr: (message) => err.push(message.line),
      onResult: (result) => results.push(result.text),
    });
    assert.deepEqual([done.text, done.error, done.logs.stdout.join(""), done.logs.stderr.join("")], ["42", undefined, "one\n", "oops\n"]);
    assert.deepEqual([out.join(""), err.join(""), results], ["one\n", "oops\n", ["42"]]);
    assert.equal((await box.runCode("x + 1")).text, "7");
    const failed = await box.runCode("1 / 0");
    assert.deepEqual([failed.error.name, failed.error.value], ["ZeroDivisionError", "division by zero"]);
    assert.match(failed.error.traceback.replace(COLOURS, ""), /1 \/ 0/);
  });

  test("languages", async () => {
    const { box } = suite;
    for (const [language, code] of [["python", "print('hi')"], ["javascript", "console.log('hi')"], ["bash", "echo hi"]]) {
      const done = await box.runCode(code, { language });
      assert.deepEqual([language, done.logs.stdout.join(""), done.error], [language, "hi\n", undefined]);
    }
    await assert.rejects(box.runCode("1", { language: "no-such-language" }), SandboxError);
  });

  test("environment", async () => {
    const { box } = suite;
    const read = "import os; (os.getenv('ALWAYS'), os.getenv('ONCE'))";
    assert.equal((await box.runCode(read, { envs: { ONCE: "now" } })).text, "('sandbox', 'now')");
    assert.equal((await box.runCode(read)).text, "('sandbox', None)");
  });

  test("pictures, charts and tables", async () => {
    const { box } = suite;
    const drawn = await box.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('Line')\nplt.show()");
    const picture = drawn.results.find((result) => result.chart);
    assert.deepEqual([picture.chart.type, picture.chart.title], ["line", "Line"]);
    assert.ok(Buffer.from(picture.png, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
    assert.deepEqual(picture.chart.elements[0].points, [[1, 3], [2, 4]]);
    const table = await box.runCode("import pandas as pd\npd.DataFrame({'n': [1, 2]})");
    assert.deepEqual(table.results[0].data, { n: [1, 2] });
  });

  test(covers("Sandbox.createCodeContext", "Sandbox.listCodeContexts", "Sandbox.restartCodeContext", "Sandbox.removeCodeContext"), async () => {
    const { box } = suite;
    const context = await box.createCodeContext({ cwd: "/tmp", language: "python" });
    assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
    assert.ok((await box.listCodeContexts()).some((each) => each.id === context.id));
    await box.runCode("only_here = 1", { context });
    assert.equal((await box.runCode("only_here")).error.name, "NameError");
    assert.equal((await box.runCode("only_here", { context })).text, "1");
    await box.restartCodeContext(context);
    assert.equal((await box.runCode("only_here", { context })).error.name, "NameError");
    await box.removeCodeContext(context.id);
    assert.ok(!(await box.listCodeContexts()).some((each) => each.id === context.id));
    await assert.rejects(box.removeCodeContext(context.id), NotFoundError);
  });

  test("a deadline interrupts the kernel", async () => {
    const { box } = suite;
    await assert.rejects(box.runCode("import time\nfor _ in range(600): time.sleep(0.1)", { timeoutMs: 1000 }), TimeoutError);
    assert.equal((await box.runCode("'free'", { timeoutMs: 20_000 })).text, "free");
  });
});
